"""`grade` and `rescore` of rows that bring their own rubrics, through the shell's commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rubric_integrations.cli import app

ONE: list[dict[str, Any]] = [{"requirement": "States 1", "check": {"number": 1}}]
TWO: list[dict[str, Any]] = [{"name": "two", "requirement": "States 2", "check": {"number": 2}}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_rows(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "rows.jsonl").write_text("".join(json.dumps({"response": "1", **row}) + "\n" for row in rows))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_with_their_own_rubrics_need_no_rubric_file(folder: Path) -> None:
    write_rows(folder, {"rubric": ONE}, {"rubric": {"name": "second", "criteria": TWO}, "labels": {"two": "UNMET"}})
    code, output = run("grade", "rows.jsonl", "--out", "run.jsonl")
    assert code == 0, output
    assert "2 of 2 graded by the rows' own rubrics: mean 0.500" in output
    first, second = lines_of(folder / "run.jsonl")
    assert (first["score"], second["score"]) == (1.0, 0.0)
    assert (first["rubric"], second["rubric"], second["labels"]) == (None, "second", {"two": "UNMET"})


def test_run_prints_the_mean_score_of_each_tag(folder: Path) -> None:
    write_rows(folder, {"rubric": [{**ONE[0], "tags": ["facts"]}]}, {"rubric": [{**TWO[0], "tags": ["facts", "sums"]}]})
    code, output = run("grade", "rows.jsonl")
    assert code == 0, output
    assert "Mean scores of the tags, the lowest first: sums 0.000, facts 0.500." in output


def test_rubric_file_and_own_rubrics_are_joined(folder: Path) -> None:
    write_rows(folder, {"rubric": TWO}, {})
    (folder / "rubric.yaml").write_text(json.dumps({"name": "shared", "criteria": ONE}))
    code, output = run("grade", "rubric.yaml", "rows.jsonl", "--out", "run.jsonl")
    assert code == 0, output
    assert "graded by shared (native format) and the rows' own rubrics" in output
    assert [line["score"] for line in lines_of(folder / "run.jsonl")] == [0.5, 1.0]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_partial_rubric_of_a_file_or_a_row_is_refused_with_strict(folder: Path) -> None:
    partial = {"assert": [{"type": "contains", "value": "42"}, {"type": "javascript", "value": "true"}]}
    (folder / "rubric.yaml").write_text(json.dumps(partial))
    write_rows(folder, {}, {})
    assert run("grade", "rubric.yaml", "rows.jsonl")[0] == 0
    code, output = run("grade", "rubric.yaml", "rows.jsonl", "--strict")
    assert (code, "rubric.yaml: --strict: 1 part of the rubric would be left out" in output) == (2, True), output
    write_rows(folder, {"rubric": ONE}, {"rubric": partial})
    assert run("grade", "rows.jsonl")[0] == 0
    code, output = run("grade", "rows.jsonl", "--strict")
    assert (code, "rows.jsonl: row 2: --strict: 1 part" in output, "javascript" in output) == (2, True, True), output
    write_rows(folder, {"rubric": ONE}, {"rubric": TWO})
    assert run("grade", "rows.jsonl", "--strict")[0] == 0


def test_rubrics_by_name_come_from_a_library_in_a_column_of_any_name(folder: Path) -> None:
    write_rows(folder, {"task": "one"}, {"task": "two"})
    (folder / "library.json").write_text(json.dumps({"one": ONE, "two": TWO}))
    options = ("--library", "library.json", "--rubric-column", "task", "--out", "run.jsonl")
    code, output = run("grade", "rows.jsonl", *options)
    assert code == 0, output
    assert [line["score"] for line in lines_of(folder / "run.jsonl")] == [1.0, 0.0]
    code, output = run(
        "grade", "rows.jsonl", "--library", "library.json", "--rubric-column", "task", "--out", "library.json"
    )
    assert code == 2
    assert "library.json" in output


def test_rows_without_any_rubric_are_refused_before_a_call(folder: Path) -> None:
    write_rows(folder, {}, {})
    code, output = run("grade", "rows.jsonl")
    assert (code, len(output.splitlines())) == (2, 1)
    assert "rows.jsonl: row 1 has no `rubric`: give each row its own" in output


def test_row_with_a_wrong_rubric_is_reported_and_stops_no_other(folder: Path) -> None:
    write_rows(folder, {"rubric": ONE}, {"rubric": [{"requirment": "States 1"}]})
    code, output = run("grade", "rows.jsonl", "--out", "run.jsonl")
    assert code == 2
    assert "2: row 2 has no valid `rubric`" in output
    assert [line["score"] for line in lines_of(folder / "run.jsonl")] == [1.0, None]


def test_rescore_adds_what_each_row_brought_to_the_new_rubric(folder: Path) -> None:
    write_rows(folder, {"rubric": TWO}, {})
    (folder / "rubric.yaml").write_text(json.dumps(ONE))
    run("grade", "rubric.yaml", "rows.jsonl", "--ledger", "run.sqlite", "--out", "run.jsonl")
    (folder / "heavier.yaml").write_text(json.dumps([{**ONE[0], "weight": 30}]))
    code, output = run("rescore", "run.sqlite", "--rubric", "heavier.yaml", "--out", "again.jsonl")
    assert code == 0, output
    assert [line["score"] for line in lines_of(folder / "again.jsonl")] == [0.75, 1.0]
    code, output = run("rescore", "run.sqlite")
    assert (code, "row 2 has no `rubric`" in output) == (2, True)
