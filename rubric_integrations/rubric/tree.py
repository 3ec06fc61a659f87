"""Nested criteria: a group divides its weight among its children; judges answer only the leaves.

    effective weight of a child = effective weight of its parent * its own weight / sum of the weights of all children

With these weights, the score over the leaves equals the recursive weighted mean over the tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
    parts = [(child.weight, node_value(child, values)) for child in node.children]
    assessed = [(weight, value) for weight, value in parts if value is not None]
    total = math.fsum(weight for weight, _ in assessed)
    return math.fsum(weight * value for weight, value in assessed) / total if total else None
