"""Weights from `importance`: the mapping, its override, and the refusal of rubrics that mix two kinds of weights."""

from __future__ import annotations

import pickle
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Rubric, RubricError
from rubric_integrations.rubric.criterion import IMPORTANCE_WEIGHTS, Importance

LEVELS: Any = st.sampled_from(get_args(Importance))
OVERRIDES = st.none() | st.fixed_dictionaries(
    {}, optional={"essential": st.floats(1, 50), "optional": st.floats(1, 50), "pitfall": st.floats(-50, -1)}
)


@given(st.lists(LEVELS, min_size=1, max_size=6), OVERRIDES, st.data())
def test_importance_any_mapping_scores_as_the_written_weights_and_round_trips(
    levels: list[Importance], override: Any, data: st.DataObject
) -> None:
    criteria = [Criterion(requirement="r", importance=level) for level in levels]
    rubric = Rubric(criteria, importance_weights=override)
    weights = [{**IMPORTANCE_WEIGHTS, **(override or {})}[level] for level in levels]
    assert [criterion.weight for criterion in rubric.criteria] == weights
    written = Rubric([Criterion(requirement="r", weight=weight) for weight in weights])
    verdicts = [data.draw(st.sampled_from(["MET", "UNMET", "CANNOT_ASSESS"])) for _ in levels]
    assert rubric.compute_score(verdicts) == written.compute_score(verdicts)
    assert Rubric.from_yaml(rubric.to_yaml()) == rubric == pickle.loads(pickle.dumps(rubric))
    assert all("weight" not in entry for entry in rubric.to_dict()["criteria"])


def test_importance_beside_a_written_weight_is_only_a_label() -> None:
    rubric = Rubric(
        [Criterion(requirement="a", importance="essential", weight=2), Criterion(requirement="b", weight=1)],
        importance_weights={"essential": 50},
    )
    assert [criterion.weight for criterion in rubric.criteria] == [2, 1]
    assert Rubric.from_dict(rubric.to_dict()) == rubric


@pytest.mark.parametrize(
    ("other", "words"),
    [({"weight": 3}, "a written `weight`"), ({}, "neither a `weight` nor an `importance`")],
)
def test_importance_beside_another_kind_of_weight_is_refused(other: dict[str, Any], words: str) -> None:
    criteria = [{"requirement": "a", "importance": "optional"}, {"requirement": "b", **other}]
    with pytest.raises(RubricError, match=rf"\[1\] has {words}, while the weight of \[0\] comes from its `importance`"):
        Rubric.from_dict(criteria)
    with pytest.raises(RubricError, match="write a `weight` for each criterion, or an `importance` alone for each"):
        _ = Rubric.from_dict(criteria[:1]) + Rubric.from_dict(criteria[1:])


@pytest.mark.parametrize("weights", [{"pitfall": 8}, {"optional": -1}, {"minor": 2}, {"optional": "3"}])
def test_importance_weights_with_a_wrong_sign_or_name_are_refused(weights: Any) -> None:
    with pytest.raises(RubricError, match="importance_weights"):
        Rubric.from_dict({"criteria": [{"requirement": "a", "importance": "optional"}], "importance_weights": weights})


def test_importance_weights_of_the_right_rubric_hold_for_a_sum() -> None:
    left = Rubric([Criterion(requirement="a", importance="optional")], importance_weights={"optional": 1})
    right = Rubric([Criterion(requirement="b", importance="pitfall")], importance_weights={"optional": 2})
    total = left + right
    assert [criterion.weight for criterion in total.criteria] == [2, -8]
    assert Rubric.from_dict(total.to_dict()).criteria == total.criteria
    assert Rubric(total.criteria).criteria[0].weight == 3


def test_importance_in_a_group_shares_the_weight_of_the_group_and_round_trips() -> None:
    group = {
        "requirement": "group",
        "weight": 3,
        "criteria": [{"requirement": "a", "importance": "essential"}, {"requirement": "b", "importance": "optional"}],
    }
    rubric = Rubric.from_dict({"importance_weights": {"essential": 9}, "criteria": [group]})
    assert [criterion.weight for criterion in rubric.criteria] == pytest.approx([2.25, 0.75])
    assert Rubric.from_dict(rubric.to_dict()) == rubric
