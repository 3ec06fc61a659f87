"""The numbers that the page's script needs to recompute scores.

The script recomputes scores if the reader overrules answers, or changes weights or the pass mark. Python code decides
whether an answer counts and with which value (`reporting/score_sum.py` and `scoring/formula.py`). The script only does
the arithmetic: it divides the weighted sum of these values by the sum of the weights that count, and compares the
quotient with the pass mark. If a score needs more than this arithmetic, for example metrics, the page contains a text
with the reason instead of the numbers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rubric_integrations._util.text import counted
from rubric_integrations.reporting.score_sum import ScoreSettings, ScoreSum, ScoreTerm, score_settings, worst_value
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.formula import WeightedValue, scored_value
from rubric_integrations.scoring.report import CriterionReport


def answer_values(criterion: CriterionReport, settings: ScoreSettings) -> list[Any]:
    """Return the values of the possible answers to a criterion, for the page's script.

    Returns:
        A list of four entries:

        - The list of the values of the options in their order (None for an option that is an abstention). Without
          options, the values of MET and UNMET.
        - The value of an abstention. None if abstentions are left out of the score, and an empty text if the run file
          does not record the abstention policy.
        - The value that gives the lowest score. A failed judgment counts with this value for `passed`.
        - The smallest value at which the criterion passes if it is required, otherwise None.
    """
    values = [None if option.na else option.value for option in criterion.options] or [1.0, 0.0]
    worst = worst_value(criterion)
    abstention = scored_value(WeightedValue(criterion.weight, None, worst), settings.cannot_assess)
    minimum = settings.min_scores.get(criterion.name, 0.0) if criterion.required else None
    return [values, abstention if settings.is_known else "", worst, minimum]


def overruling(row: GradedRow, score_sum: ScoreSum) -> list[Any]:
    """Return the data of a row that the page needs to recompute `passed` if the reader overrules answers.

    `answer_values` returns the other data, for each criterion.

    Returns:
        A list of four entries:

        - The pass mark, or None if the run file does not record it.
        - The smallest coverage that passes, or None if the run file does not record it.
        - The reason why the page cannot compute the score with other answers, or None. A missing answer is not a
          reason, because the reader may give it.
        - Whether the row cannot pass because a part of the rubric is left out.
    """
    settings = score_settings(row)
    problem = score_sum.fixed
    if problem is None and row.report is not None and row.report.score is not None:
        problem = score_sum.problem
    # The report of a failed grade does not record that the rubric is partial.
    is_partial = settings.is_partial or (row.report is not None and row.report.partial)
    return [settings.pass_mark, settings.min_coverage, problem, is_partial]


class WeightShares:
    """Collects the numbers of all rows of a run that the page needs to compute scores with other weights.

    Args:
        name: The name of the run.
    """

    def __init__(self, name: str):
        self._name = name
        self._reasons = Counter[str]()
        self._criteria: list[list[Any]] | None = None
        self._marks: list[Any] = []
        # Each distinct value with its meaning, and each distinct row of such values.
        self._values: dict[tuple[float | None, float | None, bool | None], int] = {}
        self._patterns: dict[tuple[bool, tuple[int, ...]], int] = {}
        self._rows: list[int | None] = []

    def add(self, row: GradedRow | None, score_sum: ScoreSum | None) -> None:
        """Add one row, or None for a submission that the run does not have."""
        self._rows.append(None)
        if row is None or score_sum is None or row.report is None or not row.is_graded:
            return
        report = row.report
        criteria = [[c.name, c.requirement, c.weight / (c.cap or 1), c.cap or 1, c.required] for c in report.criteria]
        settings = score_settings(row)
        marks = [settings.pass_mark, settings.min_coverage]
        if self._criteria is None:
            self._criteria, self._marks = criteria, marks
        is_same = self._criteria == criteria and self._marks == marks
        reason = _reason(row, score_sum) if is_same else _DIFFERENT
        if reason is not None:
            self._reasons[reason] += 1
            return
        passes_apart = not report.partial and all(c.passed for c in report.criteria if c.required)
        values = tuple(self._values.setdefault(_value(term, settings), len(self._values)) for term in score_sum.terms)
        self._rows[-1] = self._patterns.setdefault((passes_apart, values), len(self._patterns))

    @property
    def data(self) -> dict[str, Any] | None:
        """The numbers as JSON. None if no row has criteria."""
        if self._criteria is None:
            return None
        data: dict[str, Any] = {"run": self._name, "criteria": self._criteria, "marks": self._marks}
        if not self._reasons:
            return {**data, "values": list(self._values), "patterns": list(self._patterns), "rows": self._rows}
        if _DIFFERENT in self._reasons:
            return {**data, "criteria": [], "fixed": _DIFFERENT}
        (reason, count), total = self._reasons.most_common(1)[0], len(self._rows)
        return {
            **data,
            "fixed": reason if count == total else f"in {count:,} of {counted(total, 'submission')}, {reason}",
        }


_DIFFERENT = "the rows have different rubrics"


def _reason(row: GradedRow, score_sum: ScoreSum) -> str | None:
    """Return why the page cannot compute a row's score with other weights, or None if it can."""
    problem = score_sum.fixed or (score_sum.problem if row.report and row.report.score is not None else None)
    if problem is not None:
        return problem
    if row.report and row.report.score_range is not None:
        return "grading ended early: the other criteria were not asked"
    return None if score_settings(row).is_known else "the run file has neither a pass mark nor the scoring policies"


def _value(term: ScoreTerm, settings: ScoreSettings) -> tuple[float | None, float | None, bool | None]:
    """Return the value that counts in the score, the value that counts for `passed`, and the part in the coverage.

    The part is True for an answer, False for a missing answer, and None if the criterion does not apply.
    """
    criterion, value, worst = term.criterion, term.value, worst_value(term.criterion)
    if criterion.not_applicable:
        return value, value, None
    if criterion.weight == 0 and criterion.value is None:
        # With the weight 0, the value of an abstention does not matter. With another weight, it does.
        value = scored_value(WeightedValue(1.0, None, worst), settings.cannot_assess)
    return value, worst if criterion.error else value, criterion.value is not None and not criterion.error
