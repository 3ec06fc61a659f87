"""Criteria in groups: a node's weight is shared among its children, down to the leaves, which are what is judged.

    effective weight of a child = effective weight of its parent * its own weight / sum of its siblings' weights

so that the score over the leaves is the recursive weighted mean over the tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rubric_integrations._util.records import Record, Weight


class Node(Record):
    """A group of criteria, or one of them.

    Attributes:
        requirement: What the group is about; of a leaf, its criterion's requirement.
        name: A short name.
        weight: Its own weight among its siblings.
        children: Its parts; empty for a leaf.
        leaf: A leaf's place among the rubric's criteria.
    """

    requirement: str
    name: str | None = None
    weight: Weight
    children: tuple[Node, ...] = ()
    leaf: int | None = None

    @property
    def leaves(self) -> list[int]:
        """The places of the criteria below, in order."""
        below = [leaf for child in self.children for leaf in child.leaves]
        return below if self.leaf is None else [self.leaf]


class NodeValue(NamedTuple):
    """What a group comes to.

    Attributes:
        depth: 0 at the top.
        node: The group, or the leaf.
        value: The weighted mean in [0, 1] of what was assessed below it; None where nothing was.
    """

    depth: int
    node: Node
    value: float | None


def node_values(tree: Sequence[Node], values: Sequence[float | None], depth: int = 0) -> Iterator[NodeValue]:
    """Yield every node with its value, parents before their children.

    Args:
        tree: The nodes.
        values: The value in [0, 1] of each criterion; None for one that was not assessed.
        depth: That of the nodes.
    """
    for node in tree:
        yield NodeValue(depth, node, node_value(node, values))
        yield from node_values(node.children, values, depth + 1)


def node_value(node: Node, values: Sequence[float | None]) -> float | None:
    """The weighted mean over a node's children; of a leaf, its own value."""
    if node.leaf is not None:
        return values[node.leaf]
    parts = [(child.weight, node_value(child, values)) for child in node.children]
    assessed = [(weight, value) for weight, value in parts if value is not None]
    total = math.fsum(weight for weight, _ in assessed)
    return math.fsum(weight * value for weight, value in assessed) / total if total else None
