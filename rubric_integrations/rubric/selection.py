"""Selects some criteria of a rubric, for a quick grade of these alone: `Rubric.select`.

The score of a selection is the score of the full rubric if the other criteria did not apply: in a group, the selected
criteria share the full weight of the group. A group whose selected criteria are all penalties would have no value, and
its penalties no effect. Therefore, these penalties replace their group, with the weight that they had in the full
rubric.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rubric_integrations._util.text import counted
from rubric_integrations.rubric.case import renamed_cases
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import (
    Node,
    Rubric,
    effective_weights,
    only_penalties,
    rubric_error,
    with_weight,
)

# The most names that an error lists.
_MAX_NAMES = 20


def select_criteria(rubric: Rubric, names: Sequence[str], tags: Sequence[str]) -> Rubric:
    """Return a rubric with the criteria that have one of the names or one of the tags. See `Rubric.select`."""
    if not names and not tags:
        raise ValueError("the selection is empty: pass `names` or `tags`, or no criterion would be graded")
    for kind, wanted, known in (("criterion", names, rubric.keys), ("tag", tags, rubric.tags)):
        for name in wanted:
            if name not in known:
                raise ValueError(_unknown(kind, name, known))
    kept = [
        index
        for index, (key, criterion) in enumerate(zip(rubric.keys, rubric.criteria, strict=True))
        if key in names or not set(tags).isdisjoint(criterion.tags)
    ]
    if len(kept) == len(rubric):
        return rubric
    return _with_criteria(rubric, kept)


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    more = f" and {len(known) - _MAX_NAMES:,} more" if len(known) > _MAX_NAMES else ""
    listed = ", ".join(f"`{other}`" for other in known[:_MAX_NAMES]) + more if known else "none"
    hint = f"did you mean `{close[0]}`?" if close else f"it has {listed}"
    return f"the rubric has no {kind} {name!r}: {hint}"


def _with_criteria(rubric: Rubric, kept: Sequence[int]) -> Rubric:
    """Return a rubric with the criteria at some indexes. Criteria without a name keep their keys as names."""
    keys = rubric.keys
    criteria = [_named(rubric.criteria[index], keys[index]) for index in kept]
    fields: dict[str, Any] = {field: getattr(rubric, field) for field in rubric.model_fields_set}
    if rubric.tree is not None:
        places = {index: place for place, index in enumerate(kept)}
        tree = tuple(part for node in rubric.tree for part in _pruned(node, places, keys))
        weights = effective_weights(tree)
        criteria = [
            with_weight(criterion, weight / (criterion.cap or 1))
            for criterion, weight in zip(criteria, weights, strict=True)
        ]
        fields["tree"] = tree
    left_out = [f"the criterion `{key}` is not selected" for index, key in enumerate(keys) if index not in set(kept)]
    fields |= {"criteria": tuple(criteria), "left_out": (*rubric.left_out, *left_out)}
    if rubric.cases:
        fields["cases"] = tuple(renamed_cases(rubric.cases, {keys[index]: keys[index] for index in kept}))
    try:
        return Rubric.model_validate(fields)
    except ValidationError as error:
        selected = counted(len(kept), "criterion is", "criteria are")
        raise rubric_error(error, f"the selection, in which {selected} left") from None


def _named(criterion: Criterion, key: str) -> Criterion:
    """Return a criterion with a key as its name, which the position in another rubric would not give."""
    if criterion.name is not None:
        return criterion
    return Criterion.model_construct(criterion.model_fields_set | {"name"}, **{**dict(criterion), "name": key})


def _pruned(node: Node, places: Mapping[int, int], keys: Sequence[str]) -> list[Node]:
    """Return a node with the selected leaves only: no node, the node, or the penalties that replace their group.

    Args:
        node: The node.
        places: The new index of each selected criterion, by its old index.
        keys: The names of the criteria, by their old index.
    """
    if node.leaf is not None:
        if node.leaf not in places:
            return []
        return [node.model_copy(update={"leaf": places[node.leaf], "name": keys[node.leaf]})]
    children = tuple(part for child in node.children for part in _pruned(child, places, keys))
    weights = [child.weight for child in children]
    if not any(weights) or (only_penalties(weights) and not node.weight):
        return [leaf for child in children for leaf in _leaves_without_weight(child)]
    if only_penalties(weights) and not node.has_only_penalties:
        share = node.weight / node.divisor
        scaled = [_scaled(child, share) for child in children]
        if node.penalty_cap is None:
            return scaled
        cap = node.penalty_cap * share
        return [node.model_copy(update={"children": tuple(scaled), "penalty_cap": cap, "weight": -cap})]
    cap = node.penalty_cap if min(weights) < 0 else None
    return [node.model_copy(update={"children": children, "penalty_cap": cap})]


def _leaves_without_weight(node: Node) -> list[Node]:
    """Return the leaves of a node that had no effect on the score, each with the weight 0."""
    if node.leaf is not None:
        return [node.model_copy(update={"weight": 0.0})]
    return [leaf for child in node.children for leaf in _leaves_without_weight(child)]


def _scaled(node: Node, factor: float) -> Node:
    """Return a node with its weight multiplied by a factor, and with it the limit of a group with only penalties."""
    update: dict[str, Any] = {"weight": node.weight * factor}
    if node.has_only_penalties:
        cap = (node.penalty_cap or 0.0) * factor
        update |= {"penalty_cap": cap, "children": tuple(_scaled(child, factor) for child in node.children)}
    return node.model_copy(update=update)
