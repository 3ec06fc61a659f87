"""Faults of AgentV's rubric items."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import RubricError
from rubric_integrations.formats import read_document


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({"id": "a"}, "rubrics[0] `expected_outcome`: is missing: write what to look for"),
        ({"outcome": "x", "criteria": "y"}, "rubrics[0] `outcome`: contradicts `criteria`: keep only one of them"),
        ({"outcome": "x", "min_score": 2}, "rubrics[0] `min_score`: must be in (0, 1], got 2"),
        ({"outcome": "x", "required_min_score": 7}, "rubrics[0] `required_min_score`: was removed from AgentV: "),
        ({"outcome": "x", "wieght": 7}, "rubrics[0] `wieght`: is not a known key: did you mean `weight`?"),
        ({"outcome": "x", "weight": "7"}, "rubrics[0] `weight`: "),
        ({"outcome": "x", "score_ranges": {1: "low"}}, "rubrics[0] `score_ranges`: must give every whole score"),
        (7, "rubrics[0]: must be a text or an object with `id` and `expected_outcome`, got 7"),
    ],
)
def test_item_with_a_fault_is_refused_in_one_line(item: Any, line: str) -> None:
    with pytest.raises(RubricError) as refusal:
        read_document({"rubrics": [item]}, "evals.yaml")
    assert str(refusal.value).startswith(f"evals.yaml: {line}")
    assert len(refusal.value.faults) == 1


def test_item_with_the_same_outcome_under_two_keys_is_read() -> None:
    assert read_document({"rubrics": [{"outcome": "x", "criteria": "x"}]}, "x").criteria[0].requirement == "x"
