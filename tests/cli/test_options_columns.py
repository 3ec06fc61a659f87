"""The options that name the columns of the responses."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import grade, read_lines


def test_column_options_name_the_columns_of_a_spreadsheet(files: Path) -> None:
    (files / "sheet.csv").write_text("nr,Model output,Task,Gold\nx1,42,What?,42\nx2,41,Why?,42\n")
    columns = ("--response-column", "Model output", "--query-column", "Task", "--reference-column", "Gold")
    result = grade(files, *columns, "--id-column", "nr", "--out", files / "run.jsonl", responses="sheet.csv")
    assert result.exit_code == 0, result.output
    lines = read_lines(files / "run.jsonl")
    assert [line["id"] for line in lines] == ["x1", "x2"]
    assert lines[0]["submission"] == {"response": "42", "query": "What?", "reference": "42"}


def test_column_option_that_is_not_in_the_file_exits_with_2_in_one_line(files: Path) -> None:
    (files / "sheet.csv").write_text("nr,Model output\nx1,42\n")
    result = grade(files, "--response-column", "Output", responses="sheet.csv")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "Output" in result.stderr
    assert "Model output" in result.stderr
