"""The maximum matching."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations.checks.trajectory import maximum_matching


def most_pairs(edges: list[int], width: int) -> int:
    """Return the size of the largest matching, by trying all."""
    places = [*range(width), *(-1 for _ in edges)]
    return max(
        sum(place >= 0 and edge >> place & 1 for edge, place in zip(edges, order, strict=True))
        for order in permutations(places, len(edges))
    )


@settings(max_examples=50)
@given(st.lists(st.integers(0, 15), max_size=4))
def test_matching_has_as_many_pairs_as_the_best_of_all_and_each_pair_is_an_edge(edges: list[int]) -> None:
    pairs = maximum_matching(edges)
    assert len(pairs) == most_pairs(edges, 4)
    assert len(set(pairs.values())) == len(pairs)
    assert all(edges[item] >> other & 1 for other, item in pairs.items())


def test_matching_along_a_path_through_all_items_does_not_recurse() -> None:
    # The last item can be paired only if each of the others gives way.
    count = 1_500
    edges = [0b11 << item for item in range(count)] + [0b1]
    assert len(maximum_matching(edges)) == count + 1
