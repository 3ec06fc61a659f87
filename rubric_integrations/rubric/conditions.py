"""The conditions of criteria (`applies_when`) as questions, which are answered before the criteria.

A grader numbers its questions: first the criteria of the rubric, then each distinct condition once. Criteria with the
same condition hence share one answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from rubric_integrations.rubric.check import Check
from rubric_integrations.rubric.criterion import Criterion


def questions(criteria: Sequence[Criterion]) -> tuple[Criterion, ...]:
    """Return the criteria of a rubric, followed by their distinct conditions, each as a binary criterion.

    Example:
        >>> words = "The user asks for a refund"
        >>> asked = questions([Criterion(requirement=text, applies_when=words) for text in ("Is kind", "Is brief")])
        >>> [question.requirement for question in asked[:2]], len(asked)
        (['Is kind', 'Is brief'], 3)
    """
    distinct = {_identity(c.applies_when): c.applies_when for c in criteria if c.applies_when is not None}
    return (*criteria, *map(_as_criterion, distinct.values()))


def condition_indices(criteria: Sequence[Criterion]) -> list[int | None]:
    """Return the index of each criterion's condition among the `questions`; None for a criterion without one."""
    indices: dict[str, int] = {}
    for criterion in criteria:
        if criterion.applies_when is not None:
            indices.setdefault(_identity(criterion.applies_when), len(criteria) + len(indices))
    return [None if c.applies_when is None else indices[_identity(c.applies_when)] for c in criteria]


def has_checks(criteria: Sequence[Criterion]) -> bool:
    """Whether a criterion or a condition is decided by a check."""
    return any(c.check is not None or isinstance(c.applies_when, Check) for c in criteria)


def describe_condition(condition: str | Check) -> str:
    """Return a condition as text, for a judge that scores a whole submission: its words, or its check as JSON."""
    if isinstance(condition, str):
        return " ".join(condition.split())
    return f"the submission passes the check {condition.model_dump_json(exclude_unset=True)}"


def _as_criterion(condition: str | Check) -> Criterion:
    if isinstance(condition, Check):
        return Criterion(requirement="The condition of a criterion holds", check=condition)
    words = f"The following is the case here, however good or bad the submission is: {condition}"
    return Criterion(requirement=words, weight=1.0, aggregation="weighted")


def _identity(condition: str | Check) -> str:
    """Return a text that only equal conditions share."""
    return f"words {condition}" if isinstance(condition, str) else f"check {condition.model_dump_json()}"
