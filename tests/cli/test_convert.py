"""The command `convert`: the written format, and the list of what it cannot hold."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import run


def test_convert_to_another_format_and_back_lists_what_is_lost(files: Path) -> None:
    to_agentv = run("convert", files / "rubric.yaml", "--to", "agentv", "--output", files / "agentv.json")
    assert to_agentv.exit_code == 0
    assert json.loads((files / "agentv.json").read_text())["rubrics"][0]["id"] == "answer"
    assert "lost: `answer`: `check`" in to_agentv.stderr
    back = run("convert", files / "agentv.json", "--to", "native")
    assert (back.exit_code, back.stderr) == (0, "")
    assert "requirement: Says 42" in back.stdout


def test_convert_of_an_unreadable_file_exits_with_2(files: Path) -> None:
    for path, words in [("nowhere.yaml", "No such file"), ("responses.jsonl", "JSON")]:
        result = run("convert", files / path, "--to", "native")
        assert (result.exit_code, words in result.stderr or "YAML" in result.stderr) == (2, True)


def test_convert_to_an_unknown_format_names_the_known_ones(files: Path) -> None:
    result = run("convert", files / "rubric.yaml", "--to", "toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'toml': use one of agentv, native, openrubricrl" in result.stderr


def test_convert_into_a_missing_folder_exits_with_2(files: Path) -> None:
    result = run("convert", files / "rubric.yaml", "--to", "native", "--output", files / "no" / "where.yaml")
    assert (result.exit_code, "cannot be written" in result.stderr) == (2, True)
