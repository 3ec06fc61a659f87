"""Whether a criterion applies: from the answers to its condition (`applies_when`) to the criterion's report.

A panel decides a condition by the weighted majority of its votes. With a tie the condition holds, because a criterion
that is left out by mistake is a gate that nobody watches, and one that is judged by mistake is visible in the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rubric_integrations.results.criterion_report import NOT_APPLICABLE, CriterionReport
from rubric_integrations.results.judgment import JudgeAnswers
from rubric_integrations.rubric.conditions import condition_indices, questions
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.criterion_report import report_criterion
from rubric_integrations.scoring.policies import ScoringPolicies, fallback_judgment


def report_conditions(
    rubric: Rubric,
    panel: Sequence[JudgeAnswers],
    computed: JudgeAnswers,
    policies: ScoringPolicies,
    *,
    may_leave_open: bool = False,
) -> dict[int, CriterionReport]:
    """Make a report of each distinct condition of a rubric, by its index among the rubric's `questions`.

    Args:
        rubric: The rubric.
        panel: The answers of each judge, in the order of the panel.
        computed: The answers of the checks.
        policies: How votes are joined.
        may_leave_open: Whether a condition that no judge was asked about is left open; if not, it is a failure.
    """
    answered = {index for answers in (computed, *panel) for index in answers.outcomes}
    return {
        index: report_criterion(
            voting_criterion(rubric, index),
            index,
            "condition",
            [computed] if index in computed.outcomes else panel,
            policies._replace(on_failure="abstain"),
            is_open=may_leave_open and index not in answered,
        )
        for index in dict.fromkeys(index for index in condition_indices(rubric.criteria) if index is not None)
    }


def applicable_criteria(
    rubric: Rubric,
    panel: Sequence[JudgeAnswers],
    computed: JudgeAnswers,
    policies: ScoringPolicies,
    *,
    while_open: bool = False,
) -> set[int]:
    """Return the indices of the criteria without a condition, and of those whose condition holds.

    Args:
        rubric: The rubric.
        panel: The answers of each judge so far.
        computed: The answers of the checks.
        policies: How votes are joined.
        while_open: Whether to include the criteria whose condition no judge was asked about yet.
    """
    conditions = report_conditions(rubric, panel, computed, policies, may_leave_open=True)
    applicable: set[int] = set()
    for index, place in enumerate(condition_indices(rubric.criteria)):
        condition = None if place is None else conditions[place]
        if condition is None or condition.value == 1.0 or (while_open and not condition.was_asked):
            applicable.add(index)
    return applicable


def voting_criterion(rubric: Rubric, index: int) -> Criterion:
    """Return a question of a rubric as the criterion by which a panel votes on it.

    Ties go to the side that lowers the score. Hence a condition, whose ties hold, is a penalty here.
    """
    if index < len(rubric.criteria):
        return rubric.criteria[index]
    return questions(rubric.criteria)[index].model_copy(update={"weight": -1.0})


def report_by_condition(
    criterion: Criterion, name: str, condition: CriterionReport | None, policies: ScoringPolicies
) -> CriterionReport | None:
    """Make the report of a criterion that its condition decides; None where the criterion itself is to be judged.

    A condition that does not hold makes the criterion not applicable. One that cannot be assessed makes it an
    abstention, and one without an answer a failure.

    Args:
        criterion: The criterion.
        name: Its key in the rubric.
        condition: The report of its condition; None for a criterion without one.
        policies: How failures are resolved.
    """
    if condition is None or not condition.was_asked or condition.value == 1.0:
        return None
    report = partial(
        CriterionReport,
        name=name,
        requirement=criterion.full_requirement,
        weight=criterion.full_weight,
        required=criterion.is_gate,
        neutralized=condition.neutralized,
        tags=criterion.tags,
        metadata=criterion.metadata,
        evidence=condition.evidence,
    )
    if condition.error:
        fallback = fallback_judgment(criterion, policies.on_failure)
        verdict, value = (fallback.verdict, fallback.value) if fallback else (None, None)
        return report(verdict=verdict, value=value, error=f"whether it applies was not judged: {condition.error}")
    if condition.value is None:
        reason = f"whether it applies cannot be assessed: {condition.reason}"
        return report(verdict="CANNOT_ASSESS", value=None, reason=reason)
    reason = f"does not apply: {condition.reason}"
    return report(verdict=NOT_APPLICABLE, value=None, reason=reason, passed=True, not_applicable=True)
