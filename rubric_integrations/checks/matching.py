"""Pairs the most items of two lists: a maximum matching of a bipartite graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def maximum_matching(edges: Sequence[int]) -> dict[int, int]:
    """Pair as many items of a first list as possible with items of a second list.

    Each item is in at most one pair. The algorithm searches augmenting paths breadth first (Kuhn), with the edges as
    bits of integers, so that a search looks at each item once. It does not recurse.

    Args:
        edges: For each item of the first list, an integer whose bit `j` is set if it may be paired with item `j` of the
            second list.

    Returns:
        For each paired item of the second list, its partner in the first.

    Example:
        >>> maximum_matching([0b11, 0b01])  # item 0 gives way to item 1, which has no other partner
        {0: 1, 1: 0}
    """
    partners: dict[int, int] = {}
    taken = 0
    for start in range(len(edges)):
        end, came_from = _search(edges, start, partners, taken)
        if end is not None:
            taken |= 1 << end
            _augment(end, came_from, partners)
    return dict(sorted(partners.items()))


def _search(
    edges: Sequence[int], start: int, partners: dict[int, int], taken: int
) -> tuple[int | None, dict[int, int]]:
    """Search a free item of the second list along paths that alternate between possible and present pairs.

    Returns:
        The free item, or None; and for each item of the second list on the way, the item of the first before it.
    """
    came_from: dict[int, int] = {}
    seen = 0
    queue = [start]
    for item in queue:
        free = edges[item] & ~taken
        if free:
            end = (free & -free).bit_length() - 1
            came_from[end] = item
            return end, came_from
        for other in _bits(edges[item] & ~seen):
            came_from[other] = item
            queue.append(partners[other])
        seen |= edges[item]
    return None, came_from


def _augment(end: int, came_from: dict[int, int], partners: dict[int, int]) -> None:
    """Exchange the pairs along a path to a free item, which pairs one item more."""
    previous = {item: other for other, item in partners.items()}
    other: int | None = end
    # The first item of the path has no pair yet.
    while other is not None:
        item = came_from[other]
        partners[other] = item
        other = previous.get(item)


def _bits(number: int) -> Iterator[int]:
    """Yield the positions of the bits that are set."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
