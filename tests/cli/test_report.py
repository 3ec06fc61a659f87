"""The command `report`: the page it writes, and the files it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import grade, run
from tests.reporting.page.runs import own_line


def test_report_writes_a_page_with_an_escaped_title(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    result = run("report", files / "run.jsonl", "--output", files / "page.html", "--title", "A <title>")
    assert result.exit_code == 0, result.output
    assert "<title>A &lt;title&gt;</title>" in (files / "page.html").read_text(encoding="utf-8")


def test_report_with_redact_has_no_texts(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    for options in ([], ["--redact"]):
        page = files / f"page{len(options)}.html"
        result = run("report", files / "run.jsonl", "--output", page, *options)
        assert result.exit_code == 0, result.output
        assert ("The texts are left out" in page.read_text(encoding="utf-8")) == bool(options)


def test_report_with_an_unwritable_page_exits_with_2(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    unwritable = run("report", files / "run.jsonl", "--output", files / "no" / "page.html")
    assert (unwritable.exit_code, "cannot be written" in unwritable.stderr) == (2, True)


@pytest.mark.parametrize("text", ["", "nope\n", "[]\n", '{"a": 1}\n'])
def test_report_of_a_file_that_is_no_run_exits_with_2(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    result = run("report", path)
    assert (result.exit_code, "Traceback" in result.output) == (2, False)
    assert len(result.stderr.splitlines()) == 1


def test_report_of_a_file_of_responses_exits_with_2(files: Path) -> None:
    (files / "responses.jsonl").write_text('{"id": "a", "response": "42"}\n{"id": "b", "response": "41"}\n')
    result = run("report", files / "responses.jsonl", "--output", files / "page.html")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "grade --out" in result.stderr
    assert not (files / "page.html").exists()


def test_report_of_runs_of_different_rubrics_needs_anyway(files: Path) -> None:
    (files / "other.yaml").write_text("- {name: answer, weight: 3, requirement: Says 7, check: {number: 7}}\n")
    assert grade(files, "--out", files / "a.jsonl").exit_code == 0
    assert grade(files, "--out", files / "b.jsonl", rubric="other.yaml").exit_code == 0
    refused = run("report", files / "a.jsonl", files / "b.jsonl", "--output", files / "page.html")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1), refused.output
    assert "--anyway" in refused.stderr
    assert "'Says 42'" in refused.stderr
    marked = run("report", files / "a.jsonl", files / "b.jsonl", "--anyway", "--output", files / "page.html")
    assert (marked.exit_code, "warning: not comparable: " in marked.stderr) == (0, True), marked.output
    assert "NOT COMPARABLE" in (files / "page.html").read_text()


def test_report_of_one_file_with_two_rubrics_for_a_row_needs_anyway(files: Path) -> None:
    (files / "other.yaml").write_text("- {name: answer, weight: 4, requirement: Says 42, check: {number: 42}}\n")
    assert grade(files, "--out", files / "a.jsonl").exit_code == 0
    assert grade(files, "--out", files / "b.jsonl", rubric="other.yaml").exit_code == 0
    (files / "both.jsonl").write_text((files / "a.jsonl").read_text() + (files / "b.jsonl").read_text())
    refused = run("report", files / "both.jsonl", "--output", files / "page.html")
    words = "the row 'a' has the criterion `c2` 'Is kind' (weight 1) in only one of its rows in both"
    assert (refused.exit_code, words in refused.stderr) == (2, True), refused.output
    assert run("report", files / "both.jsonl", "--anyway", "--output", files / "page.html").exit_code == 0


def write_own(path: Path, count: int, words: str = "") -> Path:
    lines = [own_line(number, "MET", "UNMET", words=words if number == count - 1 else "") for number in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_report_of_rows_with_their_own_rubrics_compares_them_row_by_row(tmp_path: Path) -> None:
    before, after = (write_own(tmp_path / name, 3) for name in ("before.jsonl", "after.jsonl"))
    assert run("report", before, "--output", tmp_path / "page.html").exit_code == 0
    assert run("report", before, after, "--output", tmp_path / "page.html").exit_code == 0


def test_report_of_a_row_whose_rubric_changed_needs_anyway(tmp_path: Path) -> None:
    before, after = write_own(tmp_path / "before.jsonl", 3), write_own(tmp_path / "after.jsonl", 3, "Clearly: ")
    refused = run("report", before, after, "--output", tmp_path / "page.html")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1), refused.output
    assert "the row 's2' has the criterion `c1`" in refused.stderr
    assert "(weight 3) in only one of before and after: grade both alike, or pass" in refused.stderr


def test_report_of_two_runs_of_one_rubric_compares_them(files: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        assert grade(files, "--out", files / name).exit_code == 0
    assert run("report", files / "a.jsonl", files / "b.jsonl", "--output", files / "page.html").exit_code == 0


def test_report_of_a_folder_follows_its_runs_by_date_or_else_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("run-10", "run-9", "run-1"):
        write_own(folder / f"{name}.jsonl", 3)
    (folder / "notes.jsonl").write_text('{"note": 1}\n')
    (folder / "rubric.yaml").write_text("[]")
    by_name = run("report", folder, "--output", tmp_path / "page.html")
    assert by_name.exit_code == 0, by_name.output
    assert "The order of the runs is by file name: run-1.jsonl, run-9.jsonl, run-10.jsonl." in by_name.stdout
    assert by_name.stderr == f"{folder}: left out, because they are no runs: notes.jsonl\n"
    page = (tmp_path / "page.html").read_text()
    assert "The order of the runs is by file name." in page
    assert [page.index(f"<b>{number}. run-{name}</b>") for number, name in ((1, 1), (2, 9), (3, 10))]
    dates = {"run-10": "2026-11-20", "run-9": "2026-11-21T00:30:00+02:00", "run-1": "2026-11-20T23:00:00"}
    for name, date in dates.items():
        path = folder / f"{name}.jsonl"
        lines = [json.loads(line) | {"metadata": {"date": date}} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    by_date = run("report", folder, "--output", tmp_path / "page.html")
    assert "is by the dates in the files: run-10.jsonl, run-9.jsonl, run-1.jsonl." in by_date.stdout


def test_report_of_a_folder_without_a_run_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"note": 1}\n')
    result = run("report", tmp_path, "--output", tmp_path / "page.html")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "is a folder without a run" in result.stderr


def test_report_of_three_runs_puts_one_of_another_rubric_into_a_series_of_its_own(files: Path) -> None:
    (files / "other.yaml").write_text("- {name: answer, weight: 3, requirement: Says 7, check: {number: 7}}\n")
    for name in ("a", "b"):
        assert grade(files, "--out", files / f"{name}.jsonl").exit_code == 0
    assert grade(files, "--out", files / "c.jsonl", rubric="other.yaml").exit_code == 0
    paths = [files / f"{name}.jsonl" for name in "abc"]
    result = run("report", *paths, "--output", files / "page.html")
    assert result.exit_code == 0, result.output
    assert "warning: c starts a series: the row" in result.stderr
    assert "NOT COMPARABLE" not in (files / "page.html").read_text()


def test_report_of_a_run_that_was_cut_off_says_so_and_how_many_rows_it_has(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    (files / "run.jsonl").write_bytes((files / "run.jsonl").read_bytes()[:-9])
    result = run("report", files / "run.jsonl", "--output", files / "page.html")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"{files / 'run.jsonl'}:3: is cut off, as by a crash, and is skipped",
        "run: 2 of 3 rows: the run was stopped or is still in progress",
    ]
