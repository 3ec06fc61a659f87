"""Nested criteria: the weights of the leaves and the values of the nodes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Rubric, RubricError
from rubric_integrations.rubric import node_values

TREE = """
- requirement: All of it
  weight: 6
  name: all
  criteria:
  - {requirement: a, weight: 1}
  - requirement: b
    weight: 3
    criteria: [{requirement: b1, weight: 1, name: first}, {requirement: b2, weight: 1}]
- {requirement: slip, weight: -2}
"""


def test_weight_of_a_group_is_divided_among_its_children() -> None:
    rubric = Rubric.from_yaml(TREE)
    assert [(c.requirement, c.weight) for c in rubric.criteria] == [
        ("a", 1.5),
        ("b1", 2.25),
        ("b2", 2.25),
        ("slip", -2),
    ]
    assert rubric.compute_score(["MET", "MET", "UNMET", "UNMET"]) == pytest.approx((1 * 1 + 3 * 0.5) / 4)
    values = [(v.depth, v.node.requirement, v.value) for v in node_values(rubric.tree or (), [1.0, 1.0, 0.0, 0.0])]
    assert values == [
        (0, "All of it", 0.625), (1, "a", 1.0), (1, "b", 0.5), (2, "b1", 1.0), (2, "b2", 0.0), (0, "slip", 0.0),
    ]  # fmt: skip
    again = Rubric.from_yaml(rubric.to_yaml())
    assert (again.tree, again.criteria) == (rubric.tree, rubric.criteria)
    with pytest.raises(ValueError, match="tree"):
        _ = rubric + rubric


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- {requirement: a, criteria: []}", "`criteria`: is empty"),
        ("- {requirement: a, criteria: }", r"^rubric: criteria\[0\] `criteria`: is empty"),
        ("- {requirement: a, criteria: [{requirement: b, weight: -1}]}", "has only penalties: set `penalty_cap`"),
        ("- {requirement: a, criteria: [{requirement: b, weight: 0}]}", "no weight at all"),
        ("- {requirement: a, criteria: [{requirement: b, weight: x}]}", r"criteria\[0\]\.criteria\[0\] `weight`"),
        ("- {requirement: a, check: {max_words: 3}, criteria: [{requirement: b}]}", "`check`"),
        ("{criteria: [{requirement: a}], tree: []}", "`tree`"),
    ],
)
def test_invalid_tree_is_refused_with_the_place(text: str, words: str) -> None:
    with pytest.raises(RubricError, match=words):
        Rubric.from_yaml(text)


node_weights = st.floats(0.1, 10).map(lambda weight: round(weight, 2))


def groups_of(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(children, min_size=1, max_size=4)
    return st.fixed_dictionaries({"requirement": st.just("node"), "weight": node_weights, "criteria": parts})


leaves: st.SearchStrategy[Any] = st.fixed_dictionaries({"requirement": st.just("leaf"), "weight": node_weights})
nodes = st.recursive(leaves, groups_of, max_leaves=25)


@settings(deadline=None)
@given(st.lists(nodes, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_score_of_any_tree_is_the_recursive_weighted_mean(forest: list[dict[str, Any]], chance: random.Random) -> None:
    rubric = Rubric.from_dict(forest)
    values = [float(chance.random() < 0.5) for _ in rubric.criteria]
    answers = iter(values)

    def mean(siblings: list[dict[str, Any]]) -> float:
        parts = [(n["weight"], mean(n["criteria"]) if "criteria" in n else next(answers)) for n in siblings]
        return sum(w * v for w, v in parts) / sum(w for w, _ in parts)

    score = rubric.compute_score(["MET" if value else "UNMET" for value in values])
    assert score == pytest.approx(mean(forest), abs=1e-9)
