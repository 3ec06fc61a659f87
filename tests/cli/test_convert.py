"""The command `convert`: the written format, and the list of what it cannot hold."""

from __future__ import annotations

import json
from pathlib import Path

from rubric_integrations.formats.registry import FORMATS
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
    for path, words in [("nowhere.yaml", "No such file"), ("responses.jsonl", "it is not a rubric, but a file of")]:
        result = run("convert", files / path, "--to", "native")
        assert (result.exit_code, words in result.stderr) == (2, True)


def test_convert_to_an_unknown_format_names_the_known_ones(files: Path) -> None:
    result = run("convert", files / "rubric.yaml", "--to", "toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"'toml': use one of {', '.join(sorted(FORMATS))}" in result.stderr


def test_convert_into_a_missing_folder_exits_with_2(files: Path) -> None:
    result = run("convert", files / "rubric.yaml", "--to", "native", "--output", files / "no" / "where.yaml")
    assert (result.exit_code, "cannot be written" in result.stderr) == (2, True)


def test_convert_of_a_foreign_file_lists_what_the_rubric_does_not_hold(files: Path) -> None:
    path = files / "health.json"
    path.write_text(json.dumps([{"criterion": "Names it", "points": -3, "tags": ["a"], "explanation": "x"}]))
    result = run("convert", path, "--to", "native")
    assert (result.exit_code, "weight: -3.0" in result.stdout) == (0, True)
    assert result.stderr.strip() == "lost: `explanation` of 1 criterion is left out"


def test_convert_reads_the_format_that_is_named(files: Path) -> None:
    path = files / "list.json"
    path.write_text(json.dumps(["Names it"]))
    assert "weight: 1.0" in run("convert", path, "--from", "checklist", "--to", "native").stdout
    refused = run("convert", path, "--from", "toml", "--to", "native")
    assert (refused.exit_code, "'toml': use one of" in refused.stderr) == (2, True)


def test_convert_with_weights_writes_them_and_refuses_other_files(files: Path) -> None:
    weights = files / "weights.yaml"
    weights.write_text("pass_mark: 0.5\nweights: {answer: 7}\n")
    changed = run("convert", files / "rubric.yaml", "--to", "native", "--weights", weights)
    assert (changed.exit_code, changed.stderr) == (0, "")
    assert "pass_mark: 0.5" in changed.stdout
    assert "weight: 7.0" in changed.stdout
    assert "check:\n" in changed.stdout
    for text, words in [
        ("weights: {margin: 7}", "`weights` names 'margin', which is none of the criteria ['answer', 'c2']"),
        ("weights: {answer: much}", "`weight`: must be a finite number, got 'much'"),
        ("pass_mark: 0.5", "must have `weights`, by the names of the criteria"),
        ("weights: [7]", "must have `weights`, by the names of the criteria"),
        ("weights: {answer: 7}\npassmark: 1", "must have `weights`, by the names of the criteria"),
        ("weights: {answer: 7}\npass_mark: 5", "`pass_mark`"),
    ]:
        weights.write_text(text)
        refused = run("convert", files / "rubric.yaml", "--to", "native", "--weights", weights)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert words in " ".join(refused.stderr.split())
