"""The native format: its shapes, and the faults that it reports."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from rubric_integrations import Rubric, RubricError
from tests.rubric.strategies import rubrics

ONE = {"weight": 2.0, "requirement": "Is polite"}
TWO = {"weight": -4, "requirement": "Insults the reader"}


@pytest.mark.parametrize(
    "document",
    [
        [ONE, TWO],
        [{"criteria": [ONE]}, TWO],
        [{"name": "tone", "criteria": [ONE, TWO]}],
        {"sections": [{"title": "tone", "criteria": [ONE]}, {"criteria": [TWO]}]},
        {"rubric": [ONE, TWO]},
        {"rubric": {"sections": [{"criteria": [ONE, TWO]}]}},
        {"criteria": [ONE, TWO]},
    ],
)
def test_every_native_shape_is_read_as_the_same_criteria(document: object) -> None:
    rubric = Rubric.from_dict(document)  # pyright: ignore[reportArgumentType]
    assert [(c.weight, c.requirement) for c in rubric.criteria] == [(2.0, "Is polite"), (-4.0, "Insults the reader")]


def test_fields_of_the_rubric_are_read_beside_the_criteria_and_beside_the_wrapper() -> None:
    rubric = Rubric.from_yaml("{name: n, guidelines: g, description: d, pass_mark: 0.5, criteria: [{requirement: r}]}")
    assert (rubric.name, rubric.guidelines, rubric.description, rubric.pass_mark) == ("n", "g", "d", 0.5)
    assert rubric.criteria[0].weight == 10.0
    wrapped = Rubric.from_yaml("{name: n, rubric: {guidelines: g, criteria: [{requirement: r}]}}")
    assert (wrapped.name, wrapped.guidelines) == ("n", "g")


REFUSED = {
    "no criteria": ("[]", ["no criteria", "at least one"]),
    "an empty file": ("", ["list of criteria"]),
    "all weights zero": ("- {weight: 0, requirement: a}", ["zero weights"]),
    "a NaN weight": ("- {weight: .nan, requirement: a}", ["criteria[0]", "`weight`", "nan", "such as 10"]),
    "an infinite weight": ("- {weight: .inf, requirement: a}", ["criteria[0]", "`weight`", "inf"]),
    "a boolean weight": ("- {requirement: a}\n- {weight: true, requirement: b}", ["criteria[1]", "`weight`", "True"]),
    "a weight in quotes": ("- {weight: '3', requirement: a}", ["criteria[0]", "`weight`", "'3'"]),
    "a weight beyond floats": ("- {weight: 1.0e+300, requirement: a}", ["`weight`", "out of range"]),
    "a misspelt key": ("- {wieght: -15, requirement: a}", ["criteria[0]", "`wieght`", "did you mean `weight`"]),
    "an unknown check": ("- {requirement: a, check: {max_wrds: 3}}", ["`check.max_wrds`", "`max_words`"]),
    "an unknown key of a number": (
        "- {requirement: a, check: {number: {value: 3, tolernace: 1}}}",
        ["`check.number.tolernace`", "did you mean `tolerance`"],
    ),
    "an unknown key of an option": (
        "- {requirement: a, options: [{lable: x, label: x, value: 0}, {label: y, value: 1}]}",
        ["`options.0.lable`", "did you mean `label`"],
    ),
    "an unknown rubric key": ("{criteria: [{requirement: a}], pass_mrk: 1}", ["`pass_mrk`", "`pass_mark`"]),
    "a pass mark without a value": ("{criteria: [{requirement: a}], pass_mark: }", ["`pass_mark`", "None"]),
    "a duplicate name": (
        "- {name: x, requirement: a}\n- {name: x, requirement: b}",
        ["[1]", "`name`", "'x'", "rename"],
    ),
    "an empty requirement": ("- {requirement: ' '}", ["criteria[0]", "`requirement`", "empty"]),
    "a missing requirement": ("- {weight: 1}", ["criteria[0]", "`requirement`", "missing"]),
    "a requirement read as a boolean": ("- {requirement: yes}", ["`requirement`", "True", "quotes"]),
    "a pass mark outside [0, 1]": ("{criteria: [{requirement: a}], pass_mark: 80}", ["`pass_mark`", "80"]),
    "too many criteria": ("\n".join(["- {requirement: a}"] * 1001), ["1001", "1000"]),
    "a string for a criterion": ("- {requirement: a}\n- just text", ["criteria[1]", "'just text'"]),
    "one criterion alone": ("requirement: a", ["put it in a list"]),
    "a repeated field": ("{name: a, rubric: {name: b, criteria: [{requirement: c}]}}", ["`name`", "keep only one"]),
    "two lists": ("{criteria: [{requirement: a}], rubric: [{requirement: b}]}", ["`criteria` and `rubric`"]),
    "a repeated key": ("- {requirement: a, weight: 1, weight: -1}", ["'weight' twice"]),
    "invalid YAML": ("- {requirement: a", ["not YAML", "line "]),
    "a tag that runs code": ("!!python/object/apply:os.system ['true']", ["python/object/apply"]),
    "nesting too deep": ("[" * 60 + "]" * 60, ["50 levels"]),
    "an alias to itself": ("&a [*a]", ["alias"]),
    "a pattern that does not compile": ("- {requirement: a, check: {regex: '('}}", ["`check.regex`", "'('"]),
    "an invalid JSON Schema": ("- {requirement: a, check: {json_schema: {type: 3}}}", ["`check.json_schema`"]),
    "a check without a condition": ("- {requirement: a, check: {}}", ["`check`", "no condition"]),
    "impossible word limits": ("- {requirement: a, check: {min_words: 9, max_words: 3}}", ["`min_words` 9"]),
    "a check for any text": ("- {requirement: a, check: {contains: ''}}", ["`check.contains`", "empty text"]),
    "a number check on words": ("- {requirement: a, check: {number: many}}", ["`check.number`", "'many'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_of_a_file_names_the_place_the_field_and_the_remedy(case: str) -> None:
    text, expected = REFUSED[case]
    with pytest.raises(RubricError) as refusal:
        Rubric.from_yaml(text)
    message = str(refusal.value)
    assert len(refusal.value.faults) == len(message.splitlines()) == 1
    for words in expected:
        assert words in message


def test_refusal_of_a_file_with_several_faults_lists_them_all() -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_yaml("- {weight: x, requirement: ''}\n- {requirement: fine}\n- {weight: true}")
    assert [(fault.where, fault.field) for fault in refusal.value.faults] == [
        ("criteria[0]", "weight"), ("criteria[0]", "requirement"), ("criteria[2]", "weight"),
        ("criteria[2]", "requirement"),
    ]  # fmt: skip


@settings(max_examples=50)
@given(rubrics)
def test_written_rubric_is_read_as_an_equal_rubric(rubric: Rubric) -> None:
    assert Rubric.from_dict(rubric.to_dict()) == rubric
    assert Rubric.from_json(rubric.to_json()) == rubric
    assert Rubric.from_yaml(rubric.to_yaml()) == rubric


def test_group_with_the_smallest_weights_divides_its_weight() -> None:
    criteria = [{"requirement": name, "weight": 5e-324} for name in ("a", "b")]
    rubric = Rubric.from_dict({"criteria": [{"requirement": "g", "weight": 1, "criteria": criteria}]})
    assert [criterion.weight for criterion in rubric.criteria] == [0.5, 0.5]
