"""What a rubric has that a format cannot express, as messages."""

from __future__ import annotations

from collections.abc import Collection

from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.rubric.tree import has_caps


def rubric_losses(rubric: Rubric, kept: Collection[str]) -> list[str]:
    """Return one message for each field of a rubric that a format without groups cannot express.

    Args:
        rubric: The rubric.
        kept: The fields of the rubric that the format has.

    Example:
        >>> rubric_losses(Rubric([{"requirement": "Is polite"}], guidelines="Be strict."), kept=["name"])
        ['`guidelines` has no place in the format']
    """
    fields = sorted(rubric.model_fields_set - {"criteria", "tree", *kept})
    losses = [
        f"`{field}` has no place in the format" for field in fields if getattr(rubric, field) not in (None, (), {})
    ]
    if rubric.tree is not None:
        losses.append("the tree is flattened into its leaves, with their effective weights")
        if has_caps(rubric.tree):
            losses.append("`penalty_cap` has no place in the format: penalties take more than before")
    return losses


def criterion_losses(key: str, criterion: Criterion, kept: Collection[str]) -> list[str]:
    """Return one message for each field of a criterion that a format cannot express.

    Args:
        key: The criterion's key in its rubric.
        criterion: The criterion.
        kept: The fields of the criterion that the format has.
    """
    return [
        f"`{key}`: `{field}` has no place in the format"
        for field, described in Criterion.model_fields.items()
        if field not in {"requirement", *kept} and getattr(criterion, field) != described.get_default()
    ]
