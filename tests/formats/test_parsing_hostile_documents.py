"""Rubric files that are made to fill the memory or to block: each is refused in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rubric_integrations import Check, Rubric, RubricError
from rubric_integrations.formats.parsing import Positions

BOMBS = {
    "a repetition": ("- requirement: x\n  check: {regex: 'a{50000000}'}\n", "repetitions"),
    "nested repetitions": ("- requirement: x\n  check: {regex: '((a{99}){99}){999}'}\n", "repetitions"),
    "a long pattern": (f"- requirement: x\n  check: {{regex: '{'(a|b)*' * 20_000}'}}\n", "more than 20,000"),
    "hexadecimal digits": (f"- requirement: x\n  weight: 0x{'f' * 5000}\n", "number of 5,002 characters"),
    "base 60": (f"- requirement: x\n  weight: 1{':10' * 100_000}\n", "number of 300,001 characters"),
    "a long integer in JSON": ('[{"requirement": "x", "weight": ' + "1" * 4000 + "}]", "308 digits"),
    "values in JSON": ("[" + "1," * 200_000 + "1]", "more than 100,000 values"),
    "a repeated key": ("{" + ",".join(f'"k{i}": 1' for i in range(50_000)) + ', "k49999": 2}', "'k49999' twice"),
    "nested lists": ("[" * 200_000, "50 levels"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bomb_is_refused_in_one_short_line(bomb: str) -> None:
    text, words = BOMBS[bomb]
    with pytest.raises(RubricError, match=words) as refusal:
        (Rubric.from_json if text[0] in "[{" else Rubric.from_yaml)(text)
    message = str(refusal.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 1000


@pytest.mark.parametrize("text", ["[" * 200_000, "? " * 200_000, "[" + "1," * 200_000 + "1]", "{" * 200_000])
def test_document_that_is_no_rubric_has_no_positions(text: str) -> None:
    # The library's parser in C overflows its stack on nested lists, which ends the process.
    assert Positions(text).line("criteria[3]", "weight") == 1


@pytest.mark.parametrize(
    "pattern", [r".{0,50000}", r"(a{99}){99}", r"[{99999}]{3}", r"\{9{4}\}", "(?i)x{2,}", "(?<=a{9})b"]
)
def test_pattern_of_an_ordinary_size_is_accepted(pattern: str) -> None:
    assert Check(regex=pattern).regex == pattern


def test_schema_without_a_bound_on_its_patterns_is_refused_with_the_remedy() -> None:
    schema = {"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}
    with pytest.raises(RubricError, match="use `additionalProperties`"):
        Rubric.from_json(json.dumps([{"requirement": "x", "check": {"json_schema": schema}}]))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_named_pipe_is_refused_and_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    os.mkfifo(path)
    with pytest.raises(RubricError, match="named pipe"):
        Rubric.from_file(path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RubricError, match="device"):
        Rubric.from_file("/dev/zero")
