"""Nested criteria: a group divides its weight among its children; judges answer only the leaves.

    effective weight of a child = effective weight of its parent * its own weight / sum of the weights of all children

    value of a group = sum of weight * value / sum of weight        (over its children that have a value)

Children with a negative weight are penalties. They subtract from the first sum and are no part of the second, as in a
rubric, and the value stays at least 0. `penalty_cap` is the most that they subtract. A group of penalties alone takes
points from what is beside it: it has the weight `-penalty_cap`, and the value

    min(1, sum of |weight| * value / penalty_cap)

Without abstentions, and unless a cap or the limit 0 has an effect, the sum over the leaves with their effective weights
equals the recursive value. A child without a value leaves its siblings to share the whole weight of the group; a group
without such siblings has no value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from rubric_integrations._util.records import MAX_WEIGHT, Record, Weight

PenaltyCap = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0.0, le=MAX_WEIGHT)]
"""The most that the penalties of a group take, above 0."""


class Node(Record):
    """A group of criteria, or one of them.

    Attributes:
        requirement: The requirement that the children cover; for a leaf, its criterion's requirement.
        name: A short name.
        weight: The weight of the node, relative to its siblings.
        children: The nodes of the group; empty for a leaf.
        penalty_cap: The most that the penalties among the children take, in the unit of the children's weights; None
            for no such limit.
        leaf: For a leaf, the index of its criterion in the rubric; None for a group. Several leaves may have the same
            criterion, which is judged once and scored in each of their groups.
    """

    requirement: str
    name: str | None = None
    weight: Weight
    children: tuple[Node, ...] = ()
    penalty_cap: PenaltyCap | None = None
    leaf: int | None = None

    @model_validator(mode="after")
    def _has_consistent_weights(self) -> Self:
        if fault := group_fault(self.weight, [child.weight for child in self.children], self.penalty_cap):
            raise ValueError(fault)
        return self

    @property
    def has_only_penalties(self) -> bool:
        """Whether this is a group of which no child has a positive weight, and one a negative weight."""
        return only_penalties([child.weight for child in self.children])

    @property
    def divisor(self) -> float:
        """What the weights of the children are shares of: the sum of the positive ones, or the cap of penalties."""
        if self.has_only_penalties:
            return self.penalty_cap or 0.0
        return math.fsum(child.weight for child in self.children if child.weight > 0)

    @property
    def leaves(self) -> list[int]:
        """The indexes of the criteria below this node, in order."""
        return [leaf for child in self.children for leaf in child.leaves] if self.leaf is None else [self.leaf]


class NodeValue(NamedTuple):
    """A node of a tree with its value.

    Attributes:
        depth: The depth of the node; 0 at the top.
        node: The group or the leaf.
        value: The weighted mean in [0, 1] of the assessed children; None if none was assessed.
    """

    depth: int
    node: Node
    value: float | None


def node_values(tree: Sequence[Node], values: Sequence[float | None], depth: int = 0) -> Iterator[NodeValue]:
    """Yield every node with its value, parents before their children.

    Args:
        tree: The nodes, such as `rubric.tree`.
        values: The value in [0, 1] of each criterion; None for a criterion that was not assessed.
        depth: The depth to report for `tree`.
    """
    for node in tree:
        yield NodeValue(depth, node, node_value(node, values))
        yield from node_values(node.children, values, depth + 1)


def node_value(node: Node, values: Sequence[float | None]) -> float | None:
    """Return the value in [0, 1] of a node from those of its leaves, or None; for a leaf, its own value."""
    if node.leaf is not None:
        return values[node.leaf]
    return group_value(node, [node_value(child, values) for child in node.children])


def group_value(group: Node, values: Sequence[float | None]) -> float | None:
    """Return the value in [0, 1] of a group from those of its children, by the rule of this module.

    Args:
        group: The group.
        values: The value in [0, 1] of each child; None for one without a value.

    Returns:
        The value; None if no child that its divisor counts has a value.

    Example:
        >>> children = [Node(requirement="r", weight=weight, leaf=0) for weight in (2, 2, 6)]
        >>> group_value(Node(requirement="g", weight=1, children=tuple(children)), [1.0, 0.0, None])
        0.5
    """
    assessed = [(child.weight, value) for child, value in zip(group.children, values, strict=True) if value is not None]
    cap = math.inf if group.penalty_cap is None else group.penalty_cap
    taken = min(cap, math.fsum(-weight * value for weight, value in assessed if weight < 0))
    if group.has_only_penalties:
        return taken / cap if assessed else None
    total = math.fsum(weight for weight, _ in assessed if weight > 0)
    earned = math.fsum(weight * value for weight, value in assessed if weight > 0)
    return max(0.0, (earned - taken) / total) if total else None


def has_caps(tree: Sequence[Node]) -> bool:
    """Return whether a group has a `penalty_cap`, also at any depth."""
    return any(node.penalty_cap is not None or has_caps(node.children) for node in tree)


def only_penalties(weights: Sequence[float]) -> bool:
    """Return whether no weight is positive, and one is negative."""
    return bool(weights) and max(weights) <= 0 and min(weights) < 0


def group_fault(weight: float, weights: Sequence[float], penalty_cap: float | None) -> str | None:
    """Say what is wrong with the penalties of a group, and what to do; None if nothing is.

    Args:
        weight: The weight of the group.
        weights: The weights of its children.
        penalty_cap: Its cap.
    """
    if not any(child < 0 for child in weights):
        return None if penalty_cap is None else "has a `penalty_cap` and no penalty that it could limit: remove it"
    if only_penalties(weights):
        if penalty_cap is None:
            return (
                "has only penalties: set `penalty_cap` to the most that they take together, or give the criteria "
                "positive weights and the group a negative one"
            )
        if not math.isclose(weight, -penalty_cap):
            return f"has only penalties, and the weight {weight:g}: remove it, because `penalty_cap` is its weight"
    elif weight < 0:
        return "has a negative weight and a penalty in it, which would earn points: give one of them a positive weight"
    return None


def effective_weights(tree: Sequence[Node]) -> list[float]:
    """Return the effective weight of each criterion, in order: its share of the weights of all groups above it.

    The weight of a criterion with several leaves is their sum.
    """

    def weights_below(node: Node, weight: float) -> Iterator[tuple[int | None, float]]:
        if not node.children:
            yield node.leaf, weight
        total, sign = node.divisor, -1.0 if node.has_only_penalties else 1.0
        for child in node.children:
            yield from weights_below(child, weight * sign * child.weight / total if total else 0.0)

    totals: dict[int | None, float] = {}
    for node in tree:
        for leaf, weight in weights_below(node, node.weight):
            totals[leaf] = totals.get(leaf, 0.0) + weight
    return list(totals.values())
