"""`library`, and `library:NAME` wherever a command takes a rubric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations.library import names, text
from tests.cli.commands import read_lines, run


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "a", "query": "Which day?", "response": "Friday"}\n')
    return path


def test_library_lists_the_rubrics_and_where_they_were_measured() -> None:
    result = run("library")
    assert result.exit_code == 0
    for name in names():
        assert name in result.output
    assert "not measured" in result.output


def test_library_shows_criteria_version_and_the_figures_of_other_prompts() -> None:
    output = " ".join(run("library", "coverage").output.split())
    for words in ("version 1", "every_point", "SummHay", "gemini-1.5-pro", "1,419", "0.75 [0.66, 0.81]"):
        assert words in output
    assert "A figure belongs to a prompt and a model: these are other models, prompts and texts than yours." in output
    assert "Not measured: distorted_point." in output
    assert "Agreement with people: not measured." in run("library", "tools").output


def test_library_prints_json() -> None:
    (rubric,) = json.loads(run("library", "agent", "--json").output)
    assert (rubric["name"], rubric["version"], rubric["criteria"][0]) == ("agent", "1", "goal")
    assert rubric["measured_judges"][0]["judge"] == "Agent-as-a-Judge"
    assert len(json.loads(run("library", "--json").output)) == len(names())


def test_copy_writes_the_file_as_it_is_and_replaces_nothing_without_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    assert run("library", "agent", "--copy", path).exit_code == 0
    assert path.read_text(encoding="utf-8") == text("agent")
    assert run("validate", path).exit_code == 0
    result = run("library", "tools", "--copy", path)
    assert (result.exit_code, "--overwrite" in result.output) == (2, True)
    assert run("library", "tools", "--copy", path, "--overwrite").exit_code == 0
    assert path.read_text(encoding="utf-8") == text("tools")
    assert run("library", "--copy", path).exit_code == 2


def test_unknown_rubric_is_refused_with_the_nearest(rows: Path) -> None:
    for arguments in (("library", "conciseness_"), ("grade", "library:conciseness_", rows)):
        result = run(*arguments)
        assert (result.exit_code, "did you mean `conciseness`?" in result.output) == (2, True), result.output


def test_each_command_takes_a_rubric_of_the_library(rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    result = run("grade", "library:conciseness", rows, "--criterion", "length", "--out", out)
    assert result.exit_code == 0, result.output
    assert [(row["rubric"], row["score"]) for row in read_lines(out)] == [("conciseness", 1.0)]
    assert "valid: 6 criteria" in run("validate", "library:conciseness").output
    assert "contains an answer" in run("preview", rows, "--rubric", "library:conciseness").output
    assert "opening" in run("convert", "library:conciseness", "--to", "agentv").output


def test_row_can_name_a_rubric_of_the_library(rows: Path, tmp_path: Path) -> None:
    rows.write_text('{"id": "a", "query": "Which day?", "response": "Friday", "rubric": "library:conciseness"}\n')
    assert run("grade", rows, "--out", tmp_path / "run.jsonl").exit_code == 0
    assert [row["rubric"] for row in read_lines(tmp_path / "run.jsonl")] == ["conciseness"]


def test_rubric_of_the_library_without_responses_is_refused_as_a_rubric() -> None:
    result = run("grade", "library:conciseness")
    assert (result.exit_code, "is a rubric: name the file of responses" in result.output) == (2, True), result.output
