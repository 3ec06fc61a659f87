"""The command `report`: the page it writes, and the files it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import grade, run


def test_report_writes_a_page_with_an_escaped_title(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    result = run("report", files / "run.jsonl", "--output", files / "page.html", "--title", "A <title>")
    assert result.exit_code == 0, result.output
    assert "<title>A &lt;title&gt;</title>" in (files / "page.html").read_text(encoding="utf-8")


def test_report_with_three_runs_or_an_unwritable_page_exits_with_2(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    three = run("report", *[files / "run.jsonl"] * 3)
    assert (three.exit_code, "`runs` are 3 files" in three.stderr) == (2, True)
    unwritable = run("report", files / "run.jsonl", "--output", files / "no" / "page.html")
    assert (unwritable.exit_code, "cannot be written" in unwritable.stderr) == (2, True)


@pytest.mark.parametrize("text", ["", "nope\n", "[]\n", '{"a": 1}\n'])
def test_report_of_a_file_that_is_no_run_exits_with_2(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    result = run("report", path)
    assert (result.exit_code, "Traceback" in result.output) == (2, False)
    assert len(result.stderr.splitlines()) == 1
