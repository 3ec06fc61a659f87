"""The score of each tag: the formula over the criteria that carry it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import Score, WeightedValue, score_parts, scored_value
from rubric_integrations.scoring.policies import CannotAssess


def tag_scores(
    rubric: Rubric,
    values: Sequence[float | None],
    cannot_assess: CannotAssess = "skip",
    partial_credit: float = 0.5,
    not_applicable: Collection[int] = (),
) -> dict[str, Score]:
    """Compute the score of each tag, as if the criteria that carry it were a rubric of their own.

    The signs of these criteria alone decide which line of the formula applies: a tag with only penalties is scored as
    a rubric with only penalties. In a rubric with groups, the criteria count with their effective weights.

    Args:
        rubric: The rubric.
        values: The value in [0, 1] of each criterion's judgment, in order; None for an abstention.
        cannot_assess: How abstentions are scored.
        partial_credit: The value in [0, 1] of an abstention on a positive weight under `cannot_assess="partial"`.
        not_applicable: The indices of the criteria that do not apply; they are left out, whatever their value.

    Example:
        >>> criteria = [{"requirement": "a", "tags": ["style"]}, {"requirement": "b", "weight": -2, "tags": ["safety"]}]
        >>> tag_scores(Rubric.from_dict(criteria), [0.0, 0.0])["safety"]
        Score(normalized=1.0, raw=0.0)
    """
    parts: dict[str, list[WeightedValue]] = {tag: [] for tag in rubric.tags}
    for index, (criterion, value) in enumerate(zip(rubric.criteria, values, strict=True)):
        leaf = WeightedValue(criterion.full_weight, value, criterion.worst_value)
        scored = None if index in not_applicable else scored_value(leaf, cannot_assess, partial_credit)
        for tag in criterion.tags:
            parts[tag].append(leaf._replace(value=scored))
    return {tag: score_parts(tagged) for tag, tagged in parts.items()}
