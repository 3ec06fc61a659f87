"""Fewer calls for the same decision: in which order to ask, and when nothing more needs to be known."""

from __future__ import annotations

from rubric_integrations.results.interpret import extreme_judgment
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import reaches_mark
from rubric_integrations.submission.submission import Submission


def question_order(rubric: Rubric, submission: Submission) -> list[int]:
    """The places of the criteria that a judge answers: gates first, then by what they move per character of prompt.

    Criteria with a check are not among them: they are computed before anything is asked.
    """
    shared = sum(map(len, (submission.response, submission.query or "", submission.reference or "")))

    def worth(criterion: Criterion) -> float:
        low, high = (extreme_judgment(criterion, end).value or 0.0 for end in ("low", "high"))
        own = sum(map(len, (criterion.requirement, *(option.label for option in criterion.options or ()))))
        return abs(criterion.weight) * (high - low) / (shared + own)

    asked = [place for place, criterion in enumerate(rubric.criteria) if criterion.check is None]
    return sorted(asked, key=lambda place: (not rubric.criteria[place].is_gate, -worth(rubric.criteria[place])))


def decision_is_final(report: EvaluationReport, pass_mark: float, threshold: float | None = None) -> bool:
    """Whether no answer that is still missing can change `passed`, nor on which side of a threshold the score is."""
    if report.score_range is None:
        return True
    low, high = report.score_range
    lost = any(row.required and row.was_asked and not row.passed for row in report.criteria)
    passed_is_known = report.passed or lost or not reaches_mark(high, pass_mark)
    return passed_is_known and (threshold is None or reaches_mark(low, threshold) == reaches_mark(high, threshold))
