"""TOML: what is read, what is refused, and the writer of the forms that a rubric has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats.parsing import dump, load_text

# Half of an emoji is written as its escape, because TOML cannot express it.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES: Any = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=4)
TABLES = st.dictionaries(TEXTS, VALUES, max_size=3)


@given(st.dictionaries(TEXTS, SCALARS | st.lists(SCALARS) | TABLES | st.lists(TABLES, min_size=1), max_size=3))
def test_written_toml_is_read_as_an_equal_document(document: dict[str, Any]) -> None:
    assert load_text(dump(document, "toml"), "toml", "x") == document


def test_toml_is_written_as_tables_below_the_values() -> None:
    document = {"criterion": [{"a": 1, "b": ["x\x7f", {"c": True}]}, {}], "top": "t", "one two": {"x": 0.5}}
    assert dump(document, "toml") == (
        'top = "t"\n\n[[criterion]]\na = 1\nb = ["x\\u007f", {c = true}]\n\n[[criterion]]\n\n["one two"]\nx = 0.5\n'
    )


def test_dates_become_text_and_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    assert load_text("a = 2026-01-02\nb = [07:32:00]", "toml", "x") == {"a": "2026-01-02", "b": ["07:32:00"]}
    path = tmp_path / "judge.TOML"
    path.write_bytes(b'\xef\xbb\xbf[[criterion]]\ndescription = "Is kind"\n')
    assert Rubric.from_file(path).criteria[0].requirement == "Is kind"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = 1\nb = ", "is not TOML: Invalid value at end of document"),
        ("a = 1\nb = x", "is not TOML: Invalid value at line 2, column 5"),
        ("a = 1\na = 2", "is not TOML: Cannot overwrite a value"),
        ("a = " + "[" * 5_000, "nests deeper than 50 levels"),
        ("a" + ".a" * 60 + " = 1", "nests deeper than 50 levels"),
        ("a" + ".a" * 100_000 + " = 1", "has a line with more than 300 dots"),
        ("a = 1" + "0" * 400, "has a whole number of more than 308 digits"),
        ("a = 1" + "0" * 5_000, "Exceeds the limit"),
        ("#" * 1_000_001, "more than the 1,000,000 of a TOML file"),
        ("a = [" + "1," * 100_001 + "]", "has more than 100,000 values"),
        ("[criterion]\nx = 1\n[[criterion]]", "is not TOML: "),
        ('a = "\x00"', "is not TOML: "),
    ],
    ids=range(12),
)
def test_hostile_or_broken_toml_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(RubricError) as refusal:
        load_text(text, "toml", "x")
    assert words in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


def test_native_rubric_in_toml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rubric.toml"
    path.write_text('[[criteria]]\nrequirement = "Is kind"\nweight = 3\n')
    assert Rubric.from_file(path) == Rubric([{"requirement": "Is kind", "weight": 3}])
