"""Compares two runs, submission by submission, in one pass over their rows, of which none is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.agreement.changes import RunChanges
from rubric_integrations.agreement.comparison import compare_changes
from rubric_integrations.agreement.comparison_result import CriterionChange, RunComparison
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.runs.run_files import GradedRow, RowKey

# Scores are sums of floats: a difference of this size is rounding.
_ROUNDING = 1e-9
# More would make a table that nobody reads; those that changed most surely come first.
_MOST_CRITERIA = 100


class Comparison(NamedTuple):
    """Two runs compared on the submissions that both have scored and at which no judge failed.

    Attributes:
        figures: The figures of `compare_runs`.
        better, worse, same: The number of scores that rose, fell and stayed the same.
        flips: The number of criteria whose answer changed, among those with an answer in both runs.
        criteria: The change of each criterion with its name, those that changed most surely first.
        more: How many more criteria there are than are shown.
    """

    figures: RunComparison
    better: int
    worse: int
    same: int
    flips: int
    criteria: Sequence[tuple[str, CriterionChange]]
    more: int


class ComparisonFigures:
    """Computes the `Comparison` of two runs."""

    def __init__(self) -> None:
        self._changes = RunChanges()
        self._better = self._worse = self._same = self._flips = 0

    def add(self, key: RowKey, first: GradedRow | None, second: GradedRow | None) -> Sequence[CriterionReport]:
        """Add one submission with its row in each run; None where a run does not have it.

        Returns:
            The criteria of the second row whose answer changed.
        """
        change = self._changes.add(key, first, second)
        if change.score is not None:
            self._better += change.score > _ROUNDING
            self._worse += change.score < -_ROUNDING
            self._same += abs(change.score) <= _ROUNDING
        self._flips += len(change.answers)
        return change.answers

    @property
    def comparison(self) -> Comparison | None:
        """The figures of the rows so far; None if no submission is scored in both runs."""
        if not self._changes.score.differences:
            return None
        figures = compare_changes(self._changes)
        criteria = sorted(figures.criteria.items(), key=_certainty)
        return Comparison(
            figures=figures,
            better=self._better,
            worse=self._worse,
            same=self._same,
            flips=self._flips,
            criteria=criteria[:_MOST_CRITERIA],
            more=max(0, len(criteria) - _MOST_CRITERIA),
        )


def _certainty(named: tuple[str, CriterionChange]) -> float:
    change = named[1]
    return 2.0 if change.p_value is None else change.p_value
