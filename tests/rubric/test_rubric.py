"""The rubric class: its constructor, its keys, and the sum of two rubrics."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from rubric_integrations import Criterion, Rubric, RubricError, Scale
from rubric_integrations.rubric import HybridMetric

A, B = Criterion(requirement="a"), Criterion(requirement="b")


def test_constructor_names_every_field_as_a_keyword_parameter() -> None:
    parameters = inspect.signature(Rubric).parameters.values()
    assert {parameter.name for parameter in parameters} == set(Rubric.model_fields)
    assert [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY] == ["criteria"]
    assert all(parameter.default is None for parameter in parameters if parameter.name != "criteria")


def test_constructor_marks_as_set_only_the_arguments_that_are_not_none() -> None:
    assert Rubric([A]).model_fields_set == {"criteria"}
    assert Rubric([A], name="n", pass_mark=0.8, guidelines=None).model_fields_set == {"criteria", "name", "pass_mark"}
    fields: dict[str, Any] = {
        "name": "n",
        "description": "d",
        "guidelines": "g",
        "pass_mark": 0.0,
        "version": "1",
        "domain": "code",
        "scale": Scale(),
        "hybrid_metrics": (HybridMetric(name="m", type="accuracy", weight=0.5),),
        "blend": "max",
        "metadata": {},
    }
    rubric = Rubric([A], **fields)
    assert rubric.model_fields_set == {"criteria", *fields}
    assert {field: getattr(rubric, field) for field in fields} == fields


def test_validation_of_a_mapping_does_not_take_none_for_not_set() -> None:
    rubric = Rubric.model_validate({"criteria": [{"requirement": "a"}], "name": None})
    assert rubric.model_fields_set == {"criteria", "name"}
    with pytest.raises(ValidationError, match="pass_mark"):
        Rubric.model_validate({"criteria": [{"requirement": "a"}], "pass_mark": None})
    with pytest.raises(RubricError, match="`pass_mark`"):
        Rubric.from_dict({"criteria": [{"requirement": "a"}], "pass_mark": None})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"criteria": []}, "Rubric: `criteria`: has no criteria: add at least one"),
        ({"criteria": [A], "pass_mark": 80}, "Rubric: `pass_mark`: is out of range, got 80"),
        ({"criteria": [A], "blend": "mean"}, "Rubric: `blend`: input should be"),
        ({"criteria": [{"wieght": 3, "requirement": "a"}]},
         "Rubric: `criteria.0.wieght`: is not a known key: did you mean `weight`?"),
        ({"criteria": [Criterion(requirement="a", name="x"), Criterion(requirement="b", name="x")]},
         "Rubric: `criteria`: [1] repeats the `name` 'x' of [0]: rename one of them"),
        ({"criteria": [A], "tree": []}, "Rubric: has a `tree` whose leaves are not its criteria, in order"),
    ],
)  # fmt: skip
def test_constructor_with_a_fault_raises_an_error_of_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric(arguments.pop("criteria"), **arguments)
    assert str(refusal.value).startswith(message)
    assert len(str(refusal.value).splitlines()) == 1


def test_rubric_is_equal_after_pickling_and_copying() -> None:
    rubric = Rubric([A], name="n")
    for again in (pickle.loads(pickle.dumps(rubric)), copy.deepcopy(rubric), rubric.model_copy()):
        assert again == rubric
        assert again.model_fields_set == rubric.model_fields_set


def test_keys_of_criteria_are_unique_and_prefer_names() -> None:
    rubric = Rubric([Criterion(requirement=r, name=n) for r, n in [("a", None), ("b", "c1"), ("c", "x"), ("d", None)]])
    assert rubric.keys == ("c1_", "c1", "x", "c4")


def test_keys_of_a_copy_with_other_criteria_are_computed_anew() -> None:
    rubric = Rubric([A, B])
    assert rubric.keys == ("c1", "c2")
    assert rubric.model_copy(update={"criteria": (Criterion(requirement="c", name="only"),)}).keys == ("only",)


def test_sum_of_rubrics_has_all_criteria_and_the_fields_that_the_right_one_sets() -> None:
    shared = Rubric([A], name="shared", guidelines="Be fair.", pass_mark=0.5)
    own = Rubric([B], guidelines="Dates are ISO.", pass_mark=0.9)
    both = shared + own
    assert [c.requirement for c in both.criteria] == ["a", "b"]
    assert (both.name, both.guidelines, both.pass_mark) == ("shared", "Be fair.\n\nDates are ISO.", 0.9)
    assert (own + shared).pass_mark == 0.5
    assert (shared + Rubric([B])).pass_mark == 0.5
    assert (shared + Rubric([B], pass_mark=0.8)).pass_mark == 0.8


def test_sum_of_rubrics_that_share_a_name_raises_an_error_of_one_line() -> None:
    named = Rubric([Criterion(requirement="a", name="x")])
    with pytest.raises(RubricError, match="repeats the `name`") as refusal:
        _ = named + named
    assert len(str(refusal.value).splitlines()) == 1
