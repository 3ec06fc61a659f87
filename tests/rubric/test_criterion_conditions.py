"""Conditions of criteria (`applies_when`): their validation, and the questions that they become."""

from __future__ import annotations

import jsonschema
import pytest

from rubric_integrations import Criterion, Rubric
from rubric_integrations.formats import write_document
from rubric_integrations.formats.native import json_schema
from rubric_integrations.rubric import Check, RubricError
from rubric_integrations.rubric.criterion import all_criteria, condition_indices, has_checks


def test_equal_conditions_share_one_question() -> None:
    conditions = ["a", None, Check(contains="x"), "b", "a", Check(contains="x"), Check(contains="x", ignore_case=True)]
    criteria = [Criterion(requirement="r", applies_when=condition) for condition in conditions]
    assert condition_indices(criteria) == [7, None, 8, 9, 7, 8, 10]
    assert [question.check for question in all_criteria(criteria)[7:]] == [None, conditions[2], None, conditions[6]]
    assert has_checks(criteria)
    assert not has_checks(criteria[:2])


@pytest.mark.parametrize(
    ("condition", "fault"),
    [
        ("  ", "criteria[0] `applies_when`: is empty: write when the criterion applies, or remove it"),
        (5, "criteria[0] `applies_when`: must be text, got 5"),
        ({"contain": "x"}, "criteria[0] `applies_when.contain`: is not a known key: did you mean `contains`?"),
        ({"metric": {"type": "bleu"}}, "has a `metric`, whose value is neither yes nor no"),
        ({}, "criteria[0] `applies_when`: has no condition"),
    ],
)
def test_invalid_condition_is_refused_with_its_place_and_a_remedy(condition: object, fault: str) -> None:
    with pytest.raises(RubricError) as error:
        Rubric.from_dict([{"requirement": "r", "applies_when": condition}])
    assert fault in str(error.value)


def test_conditions_survive_a_round_trip_and_fit_the_schema() -> None:
    document = {
        "criteria": [
            {"weight": 1.0, "requirement": "a", "applies_when": "The user asks"},
            {"weight": 1.0, "requirement": "b", "applies_when": {"contains": "refund"}},
        ]
    }
    assert Rubric.from_dict(document).to_dict() == document
    jsonschema.validate(document, json_schema())
    assert Rubric.from_yaml(Rubric.from_dict(document).to_yaml()) == Rubric.from_dict(document)


@pytest.mark.parametrize("name", ["agentv", "openrubricrl"])
def test_conversion_lists_a_condition_as_a_loss(name: str) -> None:
    _, losses = write_document(Rubric([Criterion(name="sum", requirement="r", weight=1, applies_when="w")]), name)
    assert any(loss.startswith("`sum`: `applies_when` has no place in the") for loss in losses)


def test_type_checks_of_an_earlier_version_are_refused_with_the_function_to_write() -> None:
    text = "- {requirement: The code has no type errors, check: {type_checks: {tool: mypy}}}"
    with pytest.raises(RubricError, match=r"no longer exists: write a function .* `register_metric\(\"typed\"\)`"):
        Rubric.from_yaml(text)
