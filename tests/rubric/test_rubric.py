"""Rubric files: what loads, what is refused, and in which words."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rubric_integrations import Check, Criterion, Rubric, RubricError

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
def test_every_native_shape_gives_the_same_criteria(document: object) -> None:
    rubric = Rubric.from_dict(document)  # pyright: ignore[reportArgumentType]
    assert [(c.weight, c.requirement) for c in rubric.criteria] == [(2.0, "Is polite"), (-4.0, "Insults the reader")]


def test_a_rubrics_own_fields_are_read() -> None:
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
    "an unknown rubric key": ("{criteria: [{requirement: a}], pass_mrk: 1}", ["`pass_mrk`", "`pass_mark`"]),
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
    "a field given twice": ("{name: a, rubric: {name: b, criteria: [{requirement: c}]}}", ["`name`", "keep one"]),
    "two lists": ("{criteria: [{requirement: a}], rubric: [{requirement: b}]}", ["`criteria` and `rubric`"]),
    "a repeated key": ("- {requirement: a, weight: 1, weight: -1}", ["'weight' twice"]),
    "YAML that is none": ("- {requirement: a", ["not YAML", "line "]),
    "a tag that runs code": ("!!python/object/apply:os.system ['true']", ["python/object/apply"]),
    "nesting too deep": ("[" * 60 + "]" * 60, ["50 levels"]),
    "an alias to itself": ("&a [*a]", ["alias"]),
    "a pattern that does not compile": ("- {requirement: a, check: {regex: '('}}", ["`check.regex`", "'('"]),
    "a schema that is none": ("- {requirement: a, check: {json_schema: {type: 3}}}", ["`check.json_schema`"]),
    "a check without a condition": ("- {requirement: a, check: {}}", ["`check`", "no condition"]),
    "impossible word limits": ("- {requirement: a, check: {min_words: 9, max_words: 3}}", ["`min_words` 9"]),
    "a check for any text": ("- {requirement: a, check: {contains: ''}}", ["`check.contains`", "empty text"]),
    "a number check on words": ("- {requirement: a, check: {number: many}}", ["`check.number`", "'many'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_place_the_field_and_the_remedy(case: str) -> None:
    text, expected = REFUSED[case]
    with pytest.raises(RubricError) as refusal:
        Rubric.from_yaml(text)
    message = str(refusal.value)
    assert len(refusal.value.faults) == len(message.splitlines()) == 1
    for words in expected:
        assert words in message


def test_every_fault_of_a_file_is_told_at_once() -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_yaml("- {weight: x, requirement: ''}\n- {requirement: fine}\n- {weight: true}")
    assert [(fault.where, fault.field) for fault in refusal.value.faults] == [
        ("criteria[0]", "weight"), ("criteria[0]", "requirement"), ("criteria[2]", "weight"),
        ("criteria[2]", "requirement"),
    ]  # fmt: skip


def test_a_yaml_bomb_is_refused_without_being_built() -> None:
    levels = "\n".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(RubricError, match="aliases"):
        Rubric.from_yaml(f"a: &a [x, x]\n{levels}\ncriteria: *i\n")


def test_honest_aliases_and_merge_keys_work() -> None:
    text = "x: &base {weight: 3}\ncriteria:\n- {<<: *base, requirement: a}\n- {<<: *base, weight: -2, requirement: b}\n"
    with pytest.raises(RubricError, match="`x`"):
        Rubric.from_yaml(text)
    rubric = Rubric.from_yaml("- &first {weight: 3, requirement: a}\n- {<<: *first, requirement: b}\n")
    assert [(c.weight, c.requirement) for c in rubric.criteria] == [(3.0, "a"), (3.0, "b")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ('[{"requirement": "a", "requirement": "b"}]', "'requirement' twice"),
        ('[{"requirement": "a", "weight": NaN}]', "nan"),
        ("[" * 100_000, "50 levels"),
        ('{"requirement": 1' + "0" * 5000 + "}", "rubric"),
    ],
)
def test_json_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(RubricError, match=words) as refusal:
        Rubric.from_json(text)
    assert len(str(refusal.value).splitlines()) == 1


def test_files_by_path_string_and_handle(tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text("- {weight: 3, requirement: Grüßt höflich}", encoding="utf-8")
    expected = Rubric([Criterion(weight=3, requirement="Grüßt höflich")])
    assert Rubric.from_file(path) == Rubric.from_file(str(path)) == expected
    with path.open(encoding="utf-8") as text, path.open("rb") as binary:
        assert Rubric.from_file(text) == Rubric.from_file(binary) == expected
    assert Rubric.from_file(io.StringIO('[{"weight": 3, "requirement": "Grüßt höflich"}]')) == expected


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary.yaml", tmp_path / "large.yaml"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    large.write_bytes(b"- x\n" * 3_000_000)
    for path, words in [(tmp_path / "no.yaml", "No such file"), (tmp_path, "directory"), (binary, "not text"),
                        (large, "larger")]:  # fmt: skip
        with pytest.raises(RubricError, match=words) as refusal:
            Rubric.from_file(path)
        assert str(refusal.value).startswith(str(path))
        assert len(str(refusal.value).splitlines()) == 1


def test_python_constructors_refuse_the_same() -> None:
    for make in (
        lambda: Criterion(requirement="a", weight=True),
        lambda: Criterion(requirement=""),
        lambda: Criterion(requirement="a", wieght=3),  # pyright: ignore[reportCallIssue]
        lambda: Rubric([]),
        lambda: Rubric([Criterion(requirement="a", name="x"), Criterion(requirement="b", name="x")]),
        Check,
    ):
        with pytest.raises(ValidationError):
            make()


texts = st.text(min_size=1, max_size=40).filter(lambda text: bool(text.strip()))
weights = st.floats(-1e6, 1e6).filter(bool)
criteria = st.builds(
    Criterion,
    requirement=texts,
    weight=weights,
    required=st.booleans(),
    min_score=st.none() | st.floats(0, 1),
    check=st.none() | st.builds(Check, max_words=st.integers(0, 10**6), ignore_case=st.booleans()),
)
rubrics = st.builds(
    Rubric,
    st.lists(criteria, min_size=1, max_size=6),
    name=st.none() | texts,
    guidelines=st.none() | texts,
    pass_mark=st.floats(0, 1),
)


@given(rubrics)
def test_what_is_written_reads_back_equal(rubric: Rubric) -> None:
    assert Rubric.from_dict(rubric.to_dict()) == rubric
    assert Rubric.from_json(rubric.to_json()) == rubric
    assert Rubric.from_yaml(rubric.to_yaml()) == rubric


def test_keys_are_unique_and_prefer_names() -> None:
    rubric = Rubric([Criterion(requirement=r, name=n) for r, n in [("a", None), ("b", "c1"), ("c", "x"), ("d", None)]])
    assert rubric.keys == ("c1_", "c1", "x", "c4")


def test_adding_rubrics_keeps_both_and_lets_the_right_one_decide() -> None:
    shared = Rubric([Criterion(requirement="a")], name="shared", guidelines="Be fair.", pass_mark=0.5)
    own = Rubric([Criterion(requirement="b")], guidelines="Dates are ISO.", pass_mark=0.9)
    both = shared + own
    assert [c.requirement for c in both.criteria] == ["a", "b"]
    assert (both.name, both.guidelines, both.pass_mark) == ("shared", "Be fair.\n\nDates are ISO.", 0.9)
    assert (own + shared).pass_mark == 0.5


def test_a_copy_with_other_criteria_has_keys_of_its_own() -> None:
    rubric = Rubric([Criterion(requirement="a"), Criterion(requirement="b")])
    assert rubric.keys == ("c1", "c2")
    assert rubric.model_copy(update={"criteria": (Criterion(requirement="c", name="only"),)}).keys == ("only",)
