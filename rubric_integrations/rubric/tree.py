"""Nested criteria: a group divides its weight among its children; judges answer only the leaves.

    effective weight of a child = effective weight of its parent * its own weight / sum of the weights of all children

    value of a group = sum of weight * value / sum of weight        (over its children that have a value)

Without abstentions, the sum over the leaves with their effective weights equals the recursive weighted mean. A child
without a value leaves its siblings to share the whole weight of the group; a group without such siblings has no value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rubric_integrations._util.records import Record, Weight


class Node(Record):
    """A group of criteria, or one of them.

    Attributes:
        requirement: The requirement that the children cover; for a leaf, its criterion's requirement.
        name: A short name.
        weight: The weight of the node, relative to its siblings.
        children: The nodes of the group; empty for a leaf.
        leaf: For a leaf, the index of its criterion in the rubric; None for a group.
    """

    requirement: str
    name: str | None = None
    weight: Weight
    children: tuple[Node, ...] = ()
    leaf: int | None = None

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
    """Return the weighted mean in [0, 1] of a node's assessed children, or None; for a leaf, its own value."""
    if node.leaf is not None:
        return values[node.leaf]
    return weighted_mean((child.weight, node_value(child, values)) for child in node.children)


def weighted_mean(children: Iterable[tuple[float, float | None]]) -> float | None:
    """Return the value of a group: the weighted mean of the children that have a value.

    Args:
        children: The weight, at least 0, and the value of each child.

    Returns:
        The mean; None if no child with a weight above 0 has a value.

    Example:
        >>> weighted_mean([(2, 1.0), (2, 0.0), (6, None)])
        0.5
    """
    assessed = [(weight, value) for weight, value in children if value is not None]
    total = math.fsum(weight for weight, _ in assessed)
    return math.fsum(weight * value for weight, value in assessed) / total if total else None


def effective_weights(tree: Sequence[Node]) -> list[float]:
    """Return the effective weight of each leaf, in order: its share of the weights of all groups above it."""

    def weights_below(node: Node, weight: float) -> Iterator[float]:
        total = math.fsum(child.weight for child in node.children)
        if not node.children:
            yield weight
        for child in node.children:
            yield from weights_below(child, weight * child.weight / total if total else 0.0)

    return [weight for node in tree for weight in weights_below(node, node.weight)]
