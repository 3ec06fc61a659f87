"""Conditions on trajectories, as data: what is refused, and what files may abbreviate."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from rubric_integrations import Check, Rubric, RubricError
from rubric_integrations.rubric import ExpectedCall, ToolUse

TRAJECTORY = """
- requirement: Searches before it answers
  check:
    tool_calls: [search, {name: fetch, arguments: {id: 1, "2026": a}, match: [id], tolerance: 0.5}]
    order: superset
    arguments: subset
    tool_used: [search, {name: "fetch_*", max: 2}]
    tool_forbidden: ["delete_*"]
    no_errors: true
"""


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ({"order": "strict"}, "has `order` without `tool_calls`.*add the expected calls"),
        ({"max_words": 3, "arguments": "subset"}, "has `arguments` without `tool_calls`"),
        ({"number": 4, "ignore_case": True}, "has `ignore_case`, which has an effect only on contains, .*: remove it"),
        ({"tool_calls": ["f"], "order": "sorted"}, "'strict', 'in_order', 'superset', 'subset' or 'unordered'"),
        ({"tool_calls": ["f"], "arguments": "equal"}, "'exact', 'ignore', 'subset' or 'superset', got 'equal'"),
        ({"tool_calls": [{"name": ""}]}, "at least 1 character"),
        (
            {"tool_calls": [{"name": "f", "args": {}}]},
            "tool_calls.0.args`: is not a known key: did you mean `arg",
        ),
        ({"tool_calls": [{"name": "f", "match": "exact"}]}, "has `match` or `tolerance` and no `arguments`"),
        ({"tool_calls": [{"name": "f", "tolerance": 1}]}, "has `match` or `tolerance` and no `arguments`"),
        ({"tool_calls": [{"name": "f", "arguments": {"a": 1}, "match": []}]}, "empty list as `match`"),
        ({"tool_calls": [{"name": "f", "arguments": {"a": 1}, "match": ["a.b"]}]}, "path 'a.b' .* not in `arguments`"),
        ({"tool_calls": [{"name": "f", "arguments": "x", "match": ["a"]}]}, "path 'a' .* not in `arguments`"),
        ({"tool_calls": [{"name": "f", "arguments": {"a": 1}, "tolerance": -1}]}, "is out of range, got -1"),
        (
            {"tool_calls": [{"name": "f", "arguments": {"day": date(2026, 1, 1)}}]},
            "not JSON .* put dates in quotes",
        ),
        ({"tool_calls": [{"name": "f", "arguments": {"a": float("nan")}}]}, "are not JSON"),
        ({"tool_used": []}, "names no tool"),
        ({"tool_used": {"name": "f", "min": 3, "max": 2}}, "`min` 3 is above `max` 2: swap them"),
        ({"tool_used": {"name": "f", "min": 0}}, "`min` is 0 without a `max`, which always holds"),
        ({"tool_used": {"name": "f", "max": -1}}, "is out of range, got -1"),
        ({"tool_forbidden": ["f", ""]}, "names no tool"),
        ({"max_steps": -1}, "is out of range, got -1"),
        ({"max_tokens": 1.5}, "must be a finite number|valid integer"),
        ({"max_cost": -0.1}, "is out of range, got -0.1"),
        ({"max_seconds": float("inf")}, "must be a finite number"),
        ({"no_errors": False}, "input should be true, got False"),
        ({"max_steps": 3, "metric": {"type": "bleu"}}, "has `metric` beside another condition"),
    ],
)
def test_check_that_cannot_be_decided_or_always_holds_is_refused(check: dict[str, Any], message: str) -> None:
    with pytest.raises(RubricError, match=message):
        Rubric.from_dict([{"requirement": "x", "check": check}])


def test_names_abbreviate_calls_and_uses_and_a_rubric_is_read_back_as_it_was() -> None:
    rubric = Rubric.from_yaml(TRAJECTORY)
    check = rubric.criteria[0].check
    assert check is not None
    assert check.tool_calls == (
        ExpectedCall(name="search"),
        ExpectedCall(name="fetch", arguments={"id": 1, "2026": "a"}, match=("id",), tolerance=0.5),
    )
    assert check.tool_used == (ToolUse(name="search"), ToolUse(name="fetch_*", max=2))
    assert check.conditions == ["tool_calls", "tool_used", "tool_forbidden", "no_errors"]
    assert Rubric.from_yaml(rubric.to_yaml()) == rubric
    assert Check.model_validate(check.model_dump()) == check
