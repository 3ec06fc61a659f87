"""The rules for a rubric as a whole: its criteria, its hybrid metrics and its tree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rubric_integrations.rubric.check import HybridMetric
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.tree import Node, effective_weights

MAX_CRITERIA = 1_000
# The limit for all leaves of a tree; each list in the tree may still have at most MAX_CRITERIA entries.
MAX_LEAVES = 10_000
# Shares in a file, such as three times 0.3333, need not sum to exactly 1.
_SHARE_TOLERANCE = 1e-6


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
            if not math.isclose(weight, criterion.weight, rel_tol=1e-6):
                raise ValueError(
                    f"has a `tree` with other effective weights than its criteria: `criteria[{index}]` has "
                    f"{criterion.weight:g}, its place in the tree gives {weight:g}"
                )
