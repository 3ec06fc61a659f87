"""Runs from the command line: kills, interrupts, limits, several processes on one ledger, and rescoring."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, Rubric
from rubric_integrations.runs import Ledger
from tests.openai_server import Call, OpenAIServer, Reply
from tests.runs.processes import Command, run_command
from tests.runs.scripted import CRITERION_COUNT, RUBRIC, is_met, key_of, score, texts, verdict


def right_verdicts(delay: float = 0.0) -> Callable[[Call], Reply]:
    return lambda call: Reply(verdict(call), delay=delay)


def write_inputs(folder: Path, count: int) -> list[str]:
    (folder / "rubric.yaml").write_text(RUBRIC.to_yaml())
    lines = [json.dumps({"id": f"s{i}", "response": text}) for i, text in enumerate(texts(count))]
    (folder / "responses.jsonl").write_text("\n".join(lines))
    return [str(folder / "rubric.yaml"), str(folder / "responses.jsonl")]


def arguments(inputs: list[str], server: OpenAIServer, out: Path, *options: str) -> list[str]:
    judge = ["--judge", "openai/m", "--api-base", server.url, "--max-concurrency", "6"]
    return ["grade", *inputs, *judge, "--out", str(out), *options]


@pytest.mark.processes
def test_run_killed_ten_times_resumes_and_ends_with_the_reports_of_an_undisturbed_run(
    server: OpenAIServer, tmp_path: Path, record_property: Any
) -> None:
    server.script = right_verdicts(delay=0.02)
    inputs, chance = write_inputs(tmp_path, 40), random.Random(3)
    out = tmp_path / "run.jsonl"
    requested_before: set[tuple[int, int]] = set()
    stored = [0]
    for _ in range(10):
        before, wanted = len(server.calls), chance.randrange(1, 40)
        run = Command(tmp_path, *arguments(inputs, server, out))
        while len(server.calls) < before + wanted and run.is_running:
            time.sleep(0.001)
        time.sleep(chance.random() / 20)
        run.kill()
        requested = {key_of(call) for call in server.calls[before:]}
        assert len(requested) >= wanted
        # Requested again are at most those that were requested and not stored: the calls under way at a kill.
        assert len(requested & requested_before) <= len(requested_before) - stored[-1]
        requested_before |= requested
        with Ledger(tmp_path / "run.sqlite") as ledger:
            stored.append(len(ledger))
        assert stored[-2] <= stored[-1] <= len(requested_before)
    server.script = right_verdicts()
    before = len(server.calls)
    assert run_command(tmp_path, *arguments(inputs, server, out)).exit_code == 0
    assert len(server.calls) - before == 480 - stored[-1]
    undisturbed = tmp_path / "undisturbed.jsonl"
    assert run_command(tmp_path, *arguments(inputs, server, undisturbed)).exit_code == 0
    assert out.read_bytes() == undisturbed.read_bytes()
    record_property(
        "shown",
        f"killed at {stored[1:]} of 480 judgments, then resumed: the same report, none requested again",
    )


@pytest.mark.processes
def test_two_processes_on_one_ledger_request_each_judgment_once(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = right_verdicts(delay=0.01)
    inputs = write_inputs(tmp_path, 20)
    shared = ["--ledger", str(tmp_path / "shared.sqlite")]
    outs = [tmp_path / f"run{i}.jsonl" for i in range(2)]
    runs = [Command(tmp_path, *arguments(inputs, server, out, *shared)) for out in outs]
    assert [run.wait().exit_code for run in runs] == [0, 0]
    assert len(server.calls) == len({key_of(call) for call in server.calls}) == 240
    assert outs[0].read_bytes() == outs[1].read_bytes()
    with Ledger(tmp_path / "shared.sqlite") as ledger:
        assert len(ledger) == 240


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_prints_the_command_that_resumes_it(
    server: OpenAIServer, tmp_path: Path, number: signal.Signals
) -> None:
    server.script = right_verdicts(delay=0.03)
    inputs, out = write_inputs(tmp_path, 20), tmp_path / "run.jsonl"
    run = Command(tmp_path, *arguments(inputs, server, out, "--query", "a b"))
    while len(server.calls) < 20:
        time.sleep(0.001)
    run.interrupt(number)
    interrupted = run.wait()
    assert interrupted.exit_code == 130
    assert "Traceback" not in interrupted.stderr
    assert f"To go on: rubric-integrations grade {inputs[0]} {inputs[1]}" in interrupted.stderr
    assert "--query 'a b' --resume" in interrupted.stderr
    call_count = len(server.calls)
    server.script = right_verdicts()
    resumed = run_command(tmp_path, *arguments(inputs, server, out, "--query", "a b", "--resume"))
    assert resumed.exit_code == 0
    assert "judgments from the ledger" in resumed.stdout
    # Requested twice are at most the calls under way when the run was interrupted.
    assert len(server.calls) <= 240 + 6
    assert call_count < 240


@pytest.mark.processes
@pytest.mark.parametrize("calls", [1, 30])
def test_double_ctrl_c_ends_without_a_traceback(server: OpenAIServer, tmp_path: Path, calls: int) -> None:
    server.script = right_verdicts(delay=0.1)
    run = Command(tmp_path, *arguments(write_inputs(tmp_path, 20), server, tmp_path / "run.jsonl"))
    while len(server.calls) < calls:
        time.sleep(0.001)
    run.interrupt(signal.SIGINT)
    time.sleep(0.03)
    with suppress(ProcessLookupError):
        run.interrupt(signal.SIGINT)
    interrupted = run.wait()
    assert (interrupted.exit_code, "Traceback" in interrupted.stderr) == (130, False), interrupted.stderr


def test_max_calls_ends_a_run_and_its_judgments_are_reused(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = right_verdicts()
    inputs, out = write_inputs(tmp_path, 20), tmp_path / "run.jsonl"
    stopped = run_command(tmp_path, *arguments(inputs, server, out, "--max-calls", "100"))
    assert stopped.exit_code == 4
    assert "`max_calls` of 100 is reached" in stopped.stderr
    assert len(server.calls) == 100
    assert run_command(tmp_path, *arguments(inputs, server, out)).exit_code == 0
    assert len(server.calls) == 240
    assert [json.loads(line)["score"] for line in out.read_text().splitlines()] == pytest.approx(
        [score(i) for i in range(20)]
    )


def test_resume_options_reuse_refuse_or_ignore_the_ledger(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = right_verdicts()
    inputs, out = write_inputs(tmp_path, 2), tmp_path / "run.jsonl"

    def run(*options: str) -> tuple[int, str]:
        result = run_command(tmp_path, *arguments(inputs, server, out, *options))
        return result.exit_code, result.stderr

    assert "there is no ledger" in run("--resume")[1]
    assert run()[0] == 0
    # The second run has nothing to request, and writes the reports again.
    assert run()[0] == 0
    assert len(server.calls) == 24
    assert "exists: name another file" in run("--no-resume")[1]
    assert run("--no-resume", "--overwrite")[0] == 0
    assert len(server.calls) == 48
    # This run stores no judgments, and the ledger has those of another one.
    exit_code, stderr = run("--no-resume", "--overwrite", "--max-calls", "5")
    assert (exit_code, "5 calls" in stderr, "--resume" in stderr) == (4, True, False)
    (tmp_path / "run.sqlite").write_text("a text, not a ledger")
    exit_code, stderr = run("--overwrite")
    assert exit_code == 2
    assert "is not an SQLite file" in stderr
    assert "Traceback" not in stderr
    assert (tmp_path / "run.sqlite").read_text() == "a text, not a ledger"


def test_rescore_with_new_weights_makes_no_call_and_counts_new_requirements(
    server: OpenAIServer, tmp_path: Path
) -> None:
    server.script = right_verdicts()
    inputs, out = write_inputs(tmp_path, 5), tmp_path / "run.jsonl"
    assert run_command(tmp_path, *arguments(inputs, server, out)).exit_code == 0
    call_count = len(server.calls)

    def rescore(rubric: Rubric) -> tuple[str, list[Any]]:
        (tmp_path / "new.yaml").write_text(rubric.to_yaml())
        files = [str(tmp_path / "run.sqlite"), "--rubric", str(tmp_path / "new.yaml"), "--overwrite", "--out"]
        result = run_command(tmp_path, "rescore", *files, str(tmp_path / "new.jsonl"))
        assert result.exit_code == 0
        lines = (tmp_path / "new.jsonl").read_text().splitlines()
        return result.stdout + result.stderr, [json.loads(line) for line in lines]

    output, rows = rescore(RUBRIC)
    assert [row["score"] for row in rows] == pytest.approx([score(i) for i in range(5)])
    assert [row["id"] for row in rows] == [f"s{i}" for i in range(5)]
    assert "new and would have to be requested" not in output

    even = Rubric([criterion.model_copy(update={"weight": 1.0, "name": None}) for criterion in RUBRIC.criteria])
    _, rows = rescore(even)
    shares = [sum(is_met(i, k) for k in range(CRITERION_COUNT)) / CRITERION_COUNT for i in range(5)]
    assert [row["score"] for row in rows] == pytest.approx(shares)

    longer = Rubric([*RUBRIC.criteria, Criterion(name="new", requirement="requirement 12")])
    output, rows = rescore(longer)
    assert "5 new judgments would have to be requested" in output
    assert [(row["score"], row["missing"]) for row in rows] == [(None, 1)] * 5
    assert len(server.calls) == call_count
