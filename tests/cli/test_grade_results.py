"""The results of a run as they come: no row waits for another one, and the finished files are in order."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rubric_integrations.runs import run
from tests.cli.commands import grade, read_lines
from tests.openai_server import Call, OpenAIServer, Reply

COUNT = 8


@pytest.fixture
def rows(files: Path) -> Path:
    lines = [json.dumps({"id": f"row {number}", "response": f"number {number} of it"}) for number in range(COUNT)]
    (files / "rows.jsonl").write_text("\n".join(lines))
    (files / "kind.yaml").write_text("- {weight: 1, requirement: Is kind}\n")
    return files


def test_grade_writes_each_row_when_it_is_done_and_sorts_the_files_at_the_end(
    rows: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MAX_WAITING_ROWS", 1)
    partial, written = rows / "run.jsonl.partial", list[str]()

    def one_row_hangs(call: Call) -> Reply:
        if f"number {COUNT - 1} of" in call.prompt:
            written.extend(line["id"] for line in read_lines(partial))
        return Reply("MET", delay=0.6 if "number 2 of" in call.prompt else 0)

    server.script = one_row_hangs
    options = ("--judge", "openai/m", "--api-base", server.url, "--max-concurrency", 2, "--junit", rows / "junit.xml")
    result = grade(rows, "--out", rows / "run.jsonl", *options, responses="rows.jsonl", rubric="kind.yaml")
    assert result.exit_code == 0, result.output
    assert "row 0" in written
    assert "row 2" not in written
    order = [f"row {number}" for number in range(COUNT)]
    assert [line["id"] for line in read_lines(rows / "run.jsonl")] == order
    assert re.findall(r'<testcase .*name="(row \d)"', (rows / "junit.xml").read_text()) == order
    ranking = [line for line in result.stdout.splitlines() if "row " in line]
    assert [re.findall(r"row \d", line)[0] for line in ranking] == order
