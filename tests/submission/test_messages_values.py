"""The text of any value that a program returns: no Python repr, no base64."""

from __future__ import annotations

import dataclasses
import datetime
from enum import Enum, IntEnum
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, RootModel

from rubric_integrations.submission.inputs import as_gradable
from rubric_integrations.submission.messages import value_text

dspy_text: Any = pytest.importorskip("rubric_integrations.submission.predictions").field_text


class Grade(Enum):
    GOOD = "good"


class Level(IntEnum):
    LOW = 1


class Word(str, Enum):  # noqa: UP042 -- as in programs for Python 3.10
    YES = "yes"


class Finding(BaseModel, frozen=True, extra="allow"):
    value: int
    note: str


class Findings(RootModel[list[Finding]]):
    pass


class Name(RootModel[str]):
    pass


@dataclasses.dataclass
class Point:
    x: int
    y: Any


class Pair(NamedTuple):
    a: int
    b: Any


FINDING = Finding(value=42, note="x")
JSON = '{"value": 42, "note": "x"}'
IMAGE = "data:image/png;base64,AAAA"


@pytest.mark.parametrize("to_text", [value_text, as_gradable, dspy_text])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (42, "42"),
        (True, "true"),
        (Grade.GOOD, "good"),
        (Level.LOW, "1"),
        (Word.YES, "yes"),
        ({"grades": [Grade.GOOD, Level.LOW, Word.YES]}, '{"grades": ["good", 1, "yes"]}'),
        ({Grade.GOOD: 1}, '{"good": 1}'),
        ({Word.YES: {Level.LOW: 1}}, '{"yes": {"1": 1}}'),
        (Findings([FINDING]), f"[{JSON}]"),
        (Name("Nile"), "Nile"),
        ({"names": [Name("Nile")], "all": Findings([FINDING])}, f'{{"names": ["Nile"], "all": [{JSON}]}}'),
        ({FINDING}, f"[{JSON}]"),
        ({"found": frozenset({FINDING})}, f'{{"found": [{JSON}]}}'),
        ({"b", "a"}, '["a", "b"]'),
        ({3, 1}, "[1, 3]"),
        ({"n": {(1, 2): "a"}}, '{"n": {"(1, 2)": "a"}}'),
        ({(1, 2): {3: Point(1, FINDING)}}, f'{{"(1, 2)": {{"3": {{"x": 1, "y": {JSON}}}}}}}'),
        (Finding.model_validate({"value": 1, "note": "x", "more": Grade.GOOD}),
         '{"value": 1, "note": "x", "more": "good"}'),
        (Pair(1, FINDING), f"[1, {JSON}]"),
        ({"chart": IMAGE, "paper": "data:application/pdf;base64,AAAA"}, '{"chart": "[image]", "paper": "[file]"}'),
        ({"on": datetime.date(2026, 1, 2)}, '{"on": "2026-01-02"}'),
    ],
)  # fmt: skip
def test_value_is_the_same_text_in_every_way_in(to_text: Any, value: object, text: str) -> None:
    assert to_text(value) == text


def test_value_without_an_answer_is_the_empty_text() -> None:
    assert value_text(None) == ""
