"""The rules for a rubric as a whole: its criteria, its hybrid metrics and its tree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from rubric_integrations.rubric.check import HybridMetric
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.importance import Importance, weight_of
from rubric_integrations.rubric.tree import Node, effective_weights

MAX_CRITERIA = 1_000
# The limit for all leaves of a tree; each list in the tree may still have at most MAX_CRITERIA entries.
MAX_LEAVES = 10_000
# Shares in a file, such as three times 0.3333, need not sum to exactly 1.
_SHARE_TOLERANCE = 1e-6


def with_weight(criterion: Criterion, weight: float) -> Criterion:
    """Return a criterion with another weight, which counts as written only if the old one did."""
    if weight == criterion.weight:
        return criterion
    return Criterion.model_construct(criterion.model_fields_set, **{**dict(criterion), "weight": weight})


def weigh(criterion: Criterion, weights: Mapping[Importance, float] | None) -> Criterion:
    """Return a criterion with the weight that a rubric with these `importance_weights` gives it."""
    return (
        with_weight(criterion, weight_of(criterion.importance, weights)) if criterion.has_derived_weight else criterion
    )


def weigh_criteria(criteria: tuple[Criterion, ...], info: ValidationInfo) -> tuple[Criterion, ...]:
    """Give the criteria of a rubric their weights by `importance_weights`; a reader has done so for a tree.

    Raises:
        ValueError: Some weights come from `importance`, and others do not. The numbers that an author writes have no
            common scale with those of `importance`, so that the ratio between them would be an accident.
    """
    derived = [index for index, criterion in enumerate(criteria) if criterion.has_derived_weight]
    other = next((index for index, criterion in enumerate(criteria) if not criterion.has_derived_weight), None)
    if derived and other is not None:
        is_written = "weight" in criteria[other].model_fields_set
        problem = "a written `weight`" if is_written else "neither a `weight` nor an `importance`"
        raise ValueError(
            f"[{other}] has {problem}, while the weight of [{derived[0]}] comes from its `importance`: write a "
            "`weight` for each criterion, or an `importance` alone for each, because the two kinds have no common scale"
        )
    if info.data.get("tree") is not None:
        return criteria
    return tuple(weigh(criterion, info.data.get("importance_weights")) for criterion in criteria)


def criterion_keys(criteria: Sequence[Criterion]) -> tuple[str, ...]:
    """Return a unique name for each criterion: its own name, or `c1`, `c2`, ... after its position."""
    names = {criterion.name for criterion in criteria if criterion.name is not None}
    keys = [criterion.name or f"c{number}" for number, criterion in enumerate(criteria, start=1)]
    for place, criterion in enumerate(criteria):
        while criterion.name is None and keys[place] in names:
            keys[place] += "_"
    return tuple(keys)


def check_criteria(criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    """Check that the criteria can be scored, and that their names differ.

    Raises:
        ValueError: There is no criterion, there are too many, all weights are 0, or two have the same name.
    """
    if not criteria:
        raise ValueError("has no criteria: add at least one")
    if len(criteria) > MAX_LEAVES:
        raise ValueError(f"has {len(criteria)} criteria, more than {MAX_LEAVES}: split the rubric")
    if all(criterion.weight == 0 for criterion in criteria):
        raise ValueError("has only zero weights, so that no answer could change the score: give one criterion a weight")
    first: dict[str, int] = {}
    for index, criterion in enumerate(criteria):
        if criterion.name is not None and first.setdefault(criterion.name, index) != index:
            earlier = first[criterion.name]
            raise ValueError(f"[{index}] repeats the `name` {criterion.name!r} of [{earlier}]: rename one of them")
    return criteria


CheckedCriteria = Annotated[tuple[Criterion, ...], AfterValidator(weigh_criteria), AfterValidator(check_criteria)]
"""The criteria of a rubric, with their weights."""


def check_hybrid_metrics(metrics: tuple[HybridMetric, ...]) -> tuple[HybridMetric, ...]:
    """Check that the weights leave a share for the judge and that the names differ.

    Raises:
        ValueError: The weights sum to more than 1, or two metrics have the same name.
    """
    total = math.fsum(metric.weight for metric in metrics)
    if total > 1 + _SHARE_TOLERANCE:
        raise ValueError(f"has weights that sum to {total:g}, more than 1: nothing would be left for the judge")
    names = [metric.name for metric in metrics]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"has the `name` {repeated!r} twice: rename one of them")
    return metrics


def check_tree(tree: Sequence[Node] | None, criteria: Sequence[Criterion]) -> None:
    """Check that the leaves of a tree are the criteria, with their weights, and that other rubrics are not too long.

    Raises:
        ValueError: They are not, or it is.
    """
    if tree is None:
        if len(criteria) > MAX_CRITERIA:
            raise ValueError(f"has {len(criteria)} criteria, more than {MAX_CRITERIA}: split the rubric")
    elif list(dict.fromkeys(leaves := [leaf for node in tree for leaf in node.leaves])) != list(range(len(criteria))):
        raise ValueError("has a `tree` whose leaves are not its criteria, in order")
    elif len(leaves) > MAX_LEAVES:
        raise ValueError(f"has a `tree` with {len(leaves)} leaves, more than {MAX_LEAVES}: split the rubric")
    else:
        repeated = [leaf for leaf, count in Counter(leaves).items() if count > 1 and criteria[leaf].name is None]
        if repeated:
            raise ValueError(f"has `criteria[{repeated[0]}]` in two groups of its `tree`: give it a `name`")
        for index, (weight, criterion) in enumerate(zip(effective_weights(tree), criteria, strict=True)):
            if not math.isclose(weight, criterion.full_weight, rel_tol=1e-6):
                raise ValueError(
                    f"has a `tree` with other effective weights than its criteria: `criteria[{index}]` has "
                    f"{criterion.full_weight:g}, its place in the tree gives {weight:g}"
                )
