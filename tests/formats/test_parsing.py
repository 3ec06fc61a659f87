"""Parsing of JSON and YAML from untrusted sources."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rubric_integrations import Criterion, Rubric, RubricError
from rubric_integrations.formats.parsing import syntax_error_line


def test_yaml_aliases_that_multiply_are_refused_before_they_are_built() -> None:
    levels = "\n".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(RubricError, match="aliases"):
        Rubric.from_yaml(f"a: &a [x, x]\n{levels}\ncriteria: *i\n")


def test_yaml_aliases_and_merge_keys_are_expanded() -> None:
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
def test_invalid_json_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(RubricError, match=words) as refusal:
        Rubric.from_json(text)
    assert len(str(refusal.value).splitlines()) == 1


def test_file_is_read_by_path_string_and_handle(tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text("- {weight: 3, requirement: Grüßt höflich}", encoding="utf-8")
    expected = Rubric([Criterion(weight=3, requirement="Grüßt höflich")])
    assert Rubric.from_file(path) == Rubric.from_file(str(path)) == expected
    with path.open(encoding="utf-8") as text, path.open("rb") as binary:
        assert Rubric.from_file(text) == Rubric.from_file(binary) == expected
    assert Rubric.from_file(io.StringIO('[{"weight": 3, "requirement": "Grüßt höflich"}]')) == expected


def test_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary.yaml", tmp_path / "large.yaml"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    large.write_bytes(b"- x\n" * 3_000_000)
    for path, words in [(tmp_path / "no.yaml", "No such file"), (tmp_path, "directory"), (binary, "not text"),
                        (large, "larger")]:  # fmt: skip
        with pytest.raises(RubricError, match=words) as refusal:
            Rubric.from_file(path)
        assert str(refusal.value).startswith(str(path))
        assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "criteria:\n\t- requirement: a\n",
            "at line 2, column 1: indent with spaces, because YAML allows no tabs there",
        ),
        ("- requirement: a\n\t  weight: 1\n", "at line 2, column 1: indent with spaces"),
        (
            "- requirement: 'é: x'\n- requirement: Names: é\r\n",
            "column 21: put the text in quotes, because it contains",
        ),
        ("- {requirement: Names: a, weight: 1}\n", "column 22: put the text in quotes, because it contains a colon"),
        ("- requirement: @a\n", "column 16: put the text in quotes, because it begins with '@'"),
        ("- requirement: a\n   weight: 1\n", "column 10: begin this line in the same column as the lines beside it"),
        ("- requirement: a\u2028- requirement: b: c\r", "at line 2, column 17: put the text in quotes"),
        ("- requirement: 'a\n", "at line 2, column 1"),
    ],
)
def test_yaml_syntax_error_names_the_remedy_and_keeps_its_line(text: str, remedy: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_yaml(text)
    message = str(refusal.value)
    assert remedy in message
    assert syntax_error_line(message) == int(message.partition("at line ")[2].split(",")[0])


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("- requirement: a\n  weight: 3,5\n", "got '3,5': write it with a decimal point, 3.5"),
        ("- {requirement: a, weight: 3,5}\n", "got 5: in braces, a comma ends a value. Write a number with a decimal"),
        ("- requirement: a\n  weight: x\n", "got 'x': write it plainly, such as 10"),
    ],
)
def test_weight_that_is_no_number_names_the_remedy(text: str, remedy: str) -> None:
    with pytest.raises(RubricError, match=remedy):
        Rubric.from_yaml(text)
