"""Compares two runs, submission by submission, in one pass over their rows."""

from __future__ import annotations

from typing import NamedTuple

from rubric_integrations.agreement.intervals import difference_p_value, estimate_difference, estimate_rate_difference
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.runs.run_files import GradedRow


class Comparison(NamedTuple):
    """Two runs compared on the submissions that both have scored.

    Attributes:
        pairs: The number of such submissions.
        difference: The second run's mean minus the first run's, with its interval.
        p_value: The probability of a difference at least this large if the runs were equally good; None if unknown.
        passed: The second run's share of passed submissions minus the first run's, with its interval.
        better, worse, same: The number of scores that rose, fell and stayed the same.
        flips: The number of criteria whose answer changed, among those with an answer in both runs.
    """

    pairs: int
    difference: Estimate
    p_value: float | None
    passed: Estimate
    better: int
    worse: int
    same: int
    flips: int


class ComparisonFigures:
    """Computes the `Comparison` of two runs."""

    def __init__(self) -> None:
        self._differences: list[float] = []
        self._rose = self._fell = self._flips = 0

    def add(self, first: GradedRow | None, second: GradedRow | None) -> None:
        """Add one submission with its row in each run; None where a run does not have it."""
        if not first or not second or not first.report or not second.report:
            return
        self._flips += len(changed_answers(first, second))
        if first.report.score is not None and second.report.score is not None:
            self._differences.append(second.report.score - first.report.score)
            self._rose += second.report.passed and not first.report.passed
            self._fell += first.report.passed and not second.report.passed

    @property
    def comparison(self) -> Comparison | None:
        """The figures of the rows so far; None if no submission is scored in both runs."""
        if not self._differences:
            return None
        pairs = len(self._differences)
        # Scores are sums of floats: a difference of this size is rounding.
        rounding = 1e-9
        return Comparison(
            pairs=pairs,
            difference=estimate_difference(self._differences),
            p_value=difference_p_value(self._differences),
            passed=estimate_rate_difference(rose=self._rose, fell=self._fell, pairs=pairs),
            better=sum(difference > rounding for difference in self._differences),
            worse=sum(difference < -rounding for difference in self._differences),
            same=sum(abs(difference) <= rounding for difference in self._differences),
            flips=self._flips,
        )


def changed_answers(first: GradedRow, second: GradedRow) -> list[CriterionReport]:
    """Return the criteria of the second row whose answer is another one than in the first, if both have an answer."""
    criteria = first.report.criteria if first.report else ()
    before = {(criterion.name, criterion.requirement): criterion.verdict for criterion in criteria}
    return [
        criterion
        for criterion in (second.report.criteria if second.report else ())
        if None not in (old := before.get((criterion.name, criterion.requirement)), criterion.verdict)
        and old != criterion.verdict
    ]
