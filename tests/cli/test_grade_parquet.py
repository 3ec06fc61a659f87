"""`grade --out` with a Parquet file or a folder."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import run
from tests.openai_server import OpenAIServer

RUBRIC = "- {name: good, requirement: Is good}"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    records = [{"id": number, "response": f"good {number}", "unused": [{"a": 1}]} for number in range(30)]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "rows.parquet", row_group_size=7)
    return tmp_path / "rows.parquet"


def grade_rows(rows: Path, out: str, server: OpenAIServer, *options: str) -> tuple[int, str]:
    files = (rows.parent / "rubric.yaml", rows, "--out", f"{rows.parent}/{out}")
    result = run("grade", *files, "--judge", "openai/m", "--api-base", server.url, *options)
    return result.exit_code, result.stderr.removeprefix(f"openai/m: sent by this library to {server.url}\n")


@pytest.mark.parametrize("out", ["grades.parquet", "grades/"])
def test_grades_are_written_in_order_and_again_from_the_ledger(rows: Path, out: str, server: OpenAIServer) -> None:
    assert grade_rows(rows, out, server) == (0, "")
    assert grade_rows(rows, out, server) == (0, "")
    assert len(server.calls) == 30
    table = pq.read_table(rows.parent / out)
    assert table["id"].to_pylist() == [str(number) for number in range(30)]
    code, message = grade_rows(rows, out, server, "--no-resume")
    assert code == 2
    assert "pass --overwrite" in message


@pytest.mark.parametrize("out", ["rows.parquet", ""])
def test_rows_are_never_replaced(rows: Path, out: str, server: OpenAIServer) -> None:
    code, message = grade_rows(rows, out, server, "--overwrite")
    assert (code, len(server.calls)) == (2, 0)
    assert message.startswith("`--out`")
    assert pq.read_metadata(rows).num_rows == 30


def test_parquet_file_of_something_else_is_not_replaced_by_a_resumed_run(rows: Path, server: OpenAIServer) -> None:
    assert grade_rows(rows, "grades.parquet", server)[0] == 0
    (rows.parent / "grades.parquet").write_bytes(rows.read_bytes())
    code, message = grade_rows(rows, "grades.parquet", server)
    assert code == 2
    assert "exists" in message


def test_limit_keeps_the_grades_of_an_earlier_run(rows: Path, server: OpenAIServer) -> None:
    assert grade_rows(rows, "grades.parquet", server)[0] == 0
    options = ("--no-resume", "--overwrite", "--max-calls", "5", "--ledger", f"{rows.parent}/other.sqlite")
    assert grade_rows(rows, "grades.parquet", server, *options)[0] == 4
    assert pq.read_metadata(rows.parent / "grades.parquet").num_rows == 30
    assert not list(rows.parent.glob("*.partial"))


def test_report_of_grades_in_parquet_names_the_format_that_it_reads(rows: Path, server: OpenAIServer) -> None:
    assert grade_rows(rows, "grades.parquet", server)[0] == 0
    result = run("report", rows.parent / "grades.parquet", "--output", rows.parent / "page.html")
    assert result.exit_code == 2
    assert "grade --out run.jsonl" in result.stderr


def test_metadata_with_dates_is_written_as_text(rows: Path, server: OpenAIServer) -> None:
    record = {"response": "good", "metadata": {"at": datetime(2026, 1, 2), "hash": b"\x00"}}
    pq.write_table(pa.Table.from_pylist([record]), rows)
    assert grade_rows(rows, "run.jsonl", server) == (0, "")
    (line,) = (rows.parent / "run.jsonl").read_text().splitlines()
    assert json.loads(line)["metadata"]["at"] == "2026-01-02 00:00:00"


def test_folder_that_does_not_exist_is_made_only_for_parts(rows: Path, server: OpenAIServer) -> None:
    ledger = ("--ledger", f"{rows.parent}/run.sqlite")
    code, message = grade_rows(rows, "missing/grades.parquet", server, *ledger)
    assert (code, len(server.calls)) == (2, 0)
    assert "cannot be written" in message
    assert grade_rows(rows, "missing/grades/", server, *ledger)[0] == 0
