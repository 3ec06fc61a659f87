"""Fewer calls for the same decision: in which order to ask, and when no further answer can change the decision."""

from __future__ import annotations

from rubric_integrations.graders.computed import is_computed
from rubric_integrations.results.interpret import extreme_judgment
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.conditions import condition_indices, questions
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import reaches_mark
from rubric_integrations.submission.evidence import shown_trajectory
from rubric_integrations.submission.submission import Submission


def question_order(rubric: Rubric, submission: Submission) -> list[int]:
    """Order the criteria that a judge answers: required ones first, then by effect on the score per prompt character.

    Criteria that are computed are not among them: they are answered before any question is asked. A condition comes
    before the first of its criteria.

    Returns:
        The indices of the criteria in the rubric, and of the conditions among its questions (`rubric.conditions`).
    """
    texts = (submission.response, submission.query or "", submission.reference or "", *submission.context)
    shared = sum(map(len, texts))

    def effect(criterion: Criterion) -> float:
        low, high = (extreme_judgment(criterion, end).value or 0.0 for end in ("low", "high"))
        own = sum(map(len, (criterion.requirement, *(option.label for option in criterion.options or ()))))
        trajectory = shown_trajectory(submission, [criterion])
        steps = len(trajectory.text()) if trajectory else 0
        return abs(criterion.full_weight) * (high - low) / (shared + steps + own)

    all_questions, condition_of = questions(rubric.criteria), condition_indices(rubric.criteria)
    criteria = sorted(
        range(len(rubric)), key=lambda index: (not rubric.criteria[index].is_gate, -effect(rubric.criteria[index]))
    )
    order = [question for index in criteria for question in (condition_of[index], index) if question is not None]
    return [index for index in dict.fromkeys(order) if not is_computed(all_questions[index], submission)]


def decision_is_final(report: EvaluationReport, pass_mark: float, threshold: float | None = None) -> bool:
    """Whether no missing answer can change `passed`, nor on which side of a threshold the score is.

    Args:
        report: The report of the answers so far.
        pass_mark: The rubric's pass mark in [0, 1].
        threshold: A score in [0, 1]; None where the score itself does not matter.
    """
    if report.score_range is None:
        return True
    low, high = report.score_range
    gate_failed = any(row.required and row.was_asked and not row.passed for row in report.criteria)
    passed_is_final = report.passed or gate_failed or not reaches_mark(high, pass_mark)
    return passed_is_final and (threshold is None or reaches_mark(low, threshold) == reaches_mark(high, threshold))
