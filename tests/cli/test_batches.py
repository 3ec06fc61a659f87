"""The commands `submit` and `collect`, also killed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rubric_integrations.runs import Ledger
from rubric_integrations.runs.batches import replay
from tests.batch_server import BatchServer
from tests.cli.commands import read_lines, run
from tests.runs.processes import Command
from tests.runs.test_batches import KEY, TEXTS, expected_verdicts, script

RUBRIC = "".join(f"- {{name: c{i}, weight: {i + 1}, requirement: requirement {i}}}\n" for i in range(3))


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with BatchServer(script) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(replay, "SETTLE_SECONDS", 0.0)
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    lines = [json.dumps({"id": str(number), "response": text}) for number, text in enumerate(TEXTS)]
    (tmp_path / "responses.jsonl").write_text("\n".join(lines))
    return tmp_path


def arguments(command: str, folder: Path, server: BatchServer, *more: object) -> list[object]:
    options = ["--judge", "openai/gpt-4o", "--api-base", server.url, "--api-key", KEY]
    ledger = ["--ledger", folder / "run.sqlite"]
    return [command, folder / "rubric.yaml", folder / "responses.jsonl", *options, *ledger, *more]


def collect(folder: Path, *more: object) -> tuple[int, str]:
    result = run("collect", "--ledger", folder / "run.sqlite", "--api-key", KEY, *more)
    return result.exit_code, result.output


def graded_verdicts(folder: Path, server: BatchServer) -> list[list[str]]:
    """The verdicts of `grade` with the ledger, which must make no call."""
    out = folder / "run.jsonl"
    result = run(*arguments("grade", folder, server, "--out", out, "--max-calls", 0))
    assert result.exit_code == 0, result.output
    return [[criterion["verdict"] for criterion in line["report"]] for line in read_lines(out)]


def test_submitted_and_collected_answers_are_found_by_grade(folder: Path, server: BatchServer) -> None:
    submitted = run(*arguments("submit", folder, server))
    assert (submitted.exit_code, "12 requests about 4 rows submitted in 1 batch." in submitted.output) == (0, True)
    server.status = "in_progress"
    code, output = collect(folder)
    assert (code, "Still waiting for 1 batch:" in output) == (0, True)
    server.status = "completed"
    code, output = collect(folder, "--wait")
    assert (code, "12 judgments of 1 batch stored" in output) == (0, True)
    assert "all batches are collected" in collect(folder)[1]
    assert graded_verdicts(folder, server) == expected_verdicts()
    assert KEY.encode() not in b"".join(path.read_bytes() for path in folder.iterdir())


def test_grade_warns_of_batches_that_are_not_collected(folder: Path, server: BatchServer) -> None:
    run(*arguments("submit", folder, server))
    warning = "12 requests of this ledger are in batches that are not collected"
    assert warning in run(*arguments("grade", folder, server, "--max-calls", 0)).output
    collect(folder)
    assert warning not in run(*arguments("grade", folder, server, "--max-calls", 0)).output


def test_request_without_an_answer_is_reported_with_its_reason(folder: Path, server: BatchServer) -> None:
    server.change_results, server.status = lambda lines: lines[1:], "expired"
    run(*arguments("submit", folder, server))
    code, output = collect(folder)
    assert (code, "1 x the batch is expired" in output) == (3, True)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--judge", "offline"], 2, "uses no model"),
        (["--judge-option", "service_tier=flex"], 2, "service_tier"),
        (["--judge-option", "header.X-Token=secret-value"], 2, "`headers`"),
        (["--judge-option", "speed=1"], 2, "not a known key"),
    ],
)
def test_settings_without_a_batch_are_refused_and_not_stored(
    folder: Path, server: BatchServer, options: list[str], code: int, message: str
) -> None:
    result = run(*arguments("submit", folder, server, *options))
    assert (result.exit_code, message in result.output) == (code, True), result.output
    assert not server.log
    ledger = folder / "run.sqlite"
    assert not ledger.exists() or b"secret-value" not in ledger.read_bytes()


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_empty_file_is_refused(folder: Path, server: BatchServer, content: str) -> None:
    (folder / "responses.jsonl").write_text(content)
    assert run(*arguments("submit", folder, server)).exit_code == 2
    assert not server.log


def test_collect_without_a_ledger_of_batches_is_refused(folder: Path) -> None:
    assert collect(folder)[0] == 2
    with Ledger(folder / "run.sqlite") as ledger:
        fields = '"id": "1", "protocol": "openai", "base_url": "", "grader": "", "judge": 0, "rubric": null'
        ledger.save_batch("1", f'{{{fields}, "settings": {{}}, "keys": [], "created_at": 0}}')
    code, output = collect(folder)
    assert (code, "submitted in Python" in output) == (2, True)


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a process of POSIX")
@pytest.mark.parametrize(("path", "is_executed"), [("/files", False), ("/batches", False), ("/batches", True)])
def test_submit_that_is_killed_requests_nothing_twice(
    folder: Path, server: BatchServer, path: str, is_executed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, is_killed, handle = threading.Event(), threading.Event(), server.handle

    def hold(method: str, at: str, content: bytes) -> tuple[int, bytes]:
        is_held = method == "POST" and at.endswith(path) and not is_killed.is_set()
        reply = handle(method, at, content) if is_executed or not is_held else None
        if is_held:
            arrived.set()
            is_killed.wait(30)
        return reply or handle(method, at, content)

    monkeypatch.setattr(server, "handle", hold)
    command = Command(folder, *arguments("submit", folder, server))
    assert arrived.wait(60)
    command.kill()
    is_killed.set()
    again = run(*arguments("submit", folder, server))
    assert again.exit_code == 0, again.output
    assert collect(folder, "--wait")[0] == 0
    assert (len(server.requests), len(set(server.requests))) == (12, 12)
    assert graded_verdicts(folder, server) == expected_verdicts()
