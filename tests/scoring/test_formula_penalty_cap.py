"""Groups with penalties and caps: the law of their value, and the same score by every function."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubric_integrations import Rubric
from rubric_integrations.rubric import Node
from rubric_integrations.scoring import score_many, score_range, score_values
from rubric_integrations.scoring.formula import score_overall
from tests.scoring.test_formula_groups import is_close, words_of

POLICIES: st.SearchStrategy[Any] = st.sampled_from(["skip", "zero", "partial", "fail"]) | st.floats(0, 1)
CAPS = st.sampled_from([None, 0.5, 1.0, 3.0, 100.0])
REWARDS, PENALTIES = st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([-0.5, -1.0, -4.0])


def leaves(weights: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"requirement": st.just("r"), "weight": weights})


def penalties_alone() -> st.SearchStrategy[dict[str, Any]]:
    parts = st.lists(leaves(PENALTIES), min_size=1, max_size=2)
    group = {"requirement": st.just("p"), "penalty_cap": CAPS.filter(bool), "criteria": parts}
    return st.fixed_dictionaries(group)


@st.composite
def sections(draw: st.DrawFn) -> dict[str, Any]:
    rewards = draw(st.lists(leaves(REWARDS), min_size=1, max_size=2))
    penalties = draw(st.lists(leaves(PENALTIES) | penalties_alone(), max_size=2))
    cap = {"penalty_cap": draw(CAPS)} if penalties else {}
    criteria = draw(st.permutations([*rewards, *penalties]))
    return {"requirement": "g", "weight": draw(REWARDS), "criteria": criteria, **cap}


def forests() -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(sections() | penalties_alone() | leaves(REWARDS), min_size=1, max_size=2)


def values_of(data: st.DataObject, rubric: Rubric) -> list[float | None]:
    return [data.draw(st.sampled_from([1.0, 0.0, None])) for _ in rubric.criteria]


def expected_value(entry: dict[str, Any], values: list[float | None]) -> float | None:
    """Compute the value of an entry as docs/scoring.md states it; `values` loses those of its leaves."""
    if "criteria" not in entry:
        return values.pop(0)
    parts = [
        (child.get("weight", -(child.get("penalty_cap") or 0)), expected_value(child, values))
        for child in entry["criteria"]
    ]
    counted = [(weight, value) for weight, value in parts if value is not None]
    rewards = [(weight, value) for weight, value in counted if weight > 0]
    cap = entry.get("penalty_cap") or math.inf
    taken = min(cap, sum(-weight * value for weight, value in counted if weight < 0))
    if all(weight < 0 for weight, _ in parts):
        return min(1.0, taken / cap) if counted else None
    if not rewards:
        return None
    return max(0.0, sum(weight * value for weight, value in rewards) - taken) / sum(weight for weight, _ in rewards)


@given(forests(), st.data())
def test_score_follows_the_law_of_groups_with_penalties(forest: list[dict[str, Any]], data: st.DataObject) -> None:
    rubric = Rubric.from_dict(forest)
    values = values_of(data, rubric)
    remaining = list(values)
    roots = [
        (entry.get("weight", -(entry.get("penalty_cap") or 0)), expected_value(entry, remaining)) for entry in forest
    ]
    counted = [(weight, value) for weight, value in roots if value is not None]
    has_reward = any(weight > 0 for weight, _ in roots)
    divisor = (
        sum(weight for weight, _ in counted if weight > 0) if has_reward else -sum(weight for weight, _ in counted)
    )
    total = sum(weight * value for weight, value in counted)
    score = score_values(rubric, values)
    if divisor:
        assert is_close(score.normalized, min(1.0, max(0.0, total / divisor + (not has_reward))))
    else:
        assert score.normalized is None


@given(forests(), st.data())
def test_score_without_any_error_is_the_flat_sum(forest: list[dict[str, Any]], data: st.DataObject) -> None:
    rubric = Rubric.from_dict(forest)
    values = [data.draw(st.sampled_from([1.0, 0.0])) for _ in rubric.criteria]
    without_penalty = [0.0 if c.weight < 0 else value for c, value in zip(rubric.criteria, values, strict=True)]
    flat = math.fsum(c.weight * value for c, value in zip(rubric.criteria, without_penalty, strict=True))
    assert is_close(score_values(rubric, without_penalty).raw, flat)


@given(forests(), st.data(), POLICIES, st.booleans())
def test_score_many_of_groups_with_penalties_equals_compute_score(
    forest: list[dict[str, Any]], data: st.DataObject, policy: Any, normalize: bool
) -> None:
    rubric = Rubric.from_dict(forest)
    words = words_of(values_of(data, rubric))
    [score] = score_many(rubric, [words], normalize=normalize, cannot_assess=policy)
    expected = rubric.compute_score(words, normalize, policy)
    assert is_close(None if math.isnan(score) else float(score), expected)


@given(forests(), st.data(), POLICIES)
def test_score_range_of_groups_with_penalties_equals_the_extremes_of_all_answers(
    forest: list[dict[str, Any]], data: st.DataObject, policy: Any
) -> None:
    rubric = Rubric.from_dict(forest)
    known = {index: value for index, value in enumerate(values_of(data, rubric)) if data.draw(st.booleans())}
    assume(len(rubric) - len(known) <= 6)
    places = [[known[i]] if i in known else [1.0, 0.0, None] for i in range(len(rubric))]
    possible = [score_values(rubric, values, policy).normalized for values in itertools.product(*places)]
    scores = [score for score in possible if score is not None]
    low, high = score_range(rubric, known, policy)
    assert is_close(low, min(scores) if len(scores) == len(possible) else None)
    assert is_close(high, max(scores, default=0.0))


@given(forests())
def test_groups_with_penalties_survive_a_round_trip(forest: list[dict[str, Any]]) -> None:
    rubric = Rubric.from_dict(forest)
    assert Rubric.from_dict(rubric.to_dict()) == rubric
    assert Rubric.from_dict(rubric.to_dict()).to_dict() == rubric.to_dict()


def test_overall_score_of_capped_penalties_is_on_the_scale_of_the_cap() -> None:
    group = {"requirement": "p", "penalty_cap": 5, "criteria": [{"requirement": "a", "weight": -4}] * 2}
    assert score_overall(Rubric.from_dict([group]), 50).raw == -2.5
    assert score_values(Rubric.from_dict([group]), [1.0, 1.0]).raw == -5


def test_node_with_inconsistent_penalties_is_refused() -> None:
    leaf = Node(requirement="a", weight=-1, leaf=0)
    with pytest.raises(ValueError, match="has only penalties: set `penalty_cap`"):
        Node(requirement="g", weight=1, children=(leaf,))
