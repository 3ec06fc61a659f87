"""The server as a process: signals, kills, and what a restart requests again."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.openai_server import OpenAIServer, Reply
from tests.runs.processes import Command
from tests.server.load import RUBRIC, free_port, run_load, script

pytestmark = [pytest.mark.processes, pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM")]


class Serve(Command):
    """The command `serve` on a free port, with a model as its judge."""

    def __init__(self, folder: Path, judge: OpenAIServer, *options: object, port: int | None = None):
        self.port = free_port() if port is None else port
        (folder / "rubric.yaml").write_text(RUBRIC)
        model = ["--judge", "openai/m", "--api-base", judge.url]
        super().__init__(folder, "serve", folder / "rubric.yaml", *model, "--port", self.port, *options)

    def wait_until_it_listens(self) -> None:
        for _ in range(2_000):
            try:
                self.request("/healthz")
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise AssertionError("the server does not listen")

    def request(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        message = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urllib.request.urlopen(message, timeout=60) as response:
            return json.load(response)


BODY = {"response": "This is text 1."}


def wait_for_calls(server: OpenAIServer, count: int) -> None:
    while len(server.calls) < count:
        time.sleep(0.002)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_after_the_grades_that_are_under_way(
    server: OpenAIServer, tmp_path: Path, number: signal.Signals
) -> None:
    server.script = script(0.5)
    serve = Serve(tmp_path, server)
    serve.wait_until_it_listens()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(serve.request, "/grade", BODY)
        wait_for_calls(server, 1)
        serve.interrupt(number)
        ended = serve.wait()
        assert answer.result()["score"] in (0.0, 0.5, 1.0)
    assert (ended.exit_code, ended.stderr) == (0, "")
    line, end = ended.stdout.splitlines()
    assert line.startswith(f"Listening on http://127.0.0.1:{serve.port} with ")
    assert "rubric.yaml (2 criteria), judge openai/m, no ledger" in line
    assert end == "Stopped."


@pytest.mark.parametrize("options", [("--grace", 0.1), ("--grace", 50)])
def test_grades_that_take_too_long_are_cancelled_at_the_end_or_by_a_second_signal(
    server: OpenAIServer, tmp_path: Path, options: tuple[object, ...]
) -> None:
    server.script = lambda _call: Reply(delay=55)
    serve = Serve(tmp_path, server, *options)
    serve.wait_until_it_listens()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(serve.request, "/grade", BODY)
        wait_for_calls(server, 1)
        serve.interrupt(signal.SIGTERM)
        if options[1] == 50:
            time.sleep(0.5)
            serve.interrupt(signal.SIGTERM)
        ended = serve.wait()
        with pytest.raises(urllib.error.HTTPError, match="503"):
            answer.result()
    assert (ended.exit_code, ended.stdout.splitlines()[-1]) == (130, "Stopped. 1 grade cancelled.")
    assert "Traceback" not in ended.stderr


@pytest.mark.asyncio
async def test_server_killed_midway_gives_right_answers_and_requests_again_only_what_was_under_way(
    server: OpenAIServer, tmp_path: Path, record_property: Any
) -> None:
    server.script = script(0.05)
    port, ledger = free_port(), tmp_path / "l.sqlite"

    def start() -> Serve:
        return Serve(tmp_path, server, "--ledger", ledger, "--max-concurrency", 16, port=port)

    result = await run_load(start, server, port, ledger, requests=120, at_once=16, kill=True)
    assert result.right == result.requests == 120
    # What the judge had received and the ledger had not stored: at most the calls under way at the kill.
    lost = result.at_kill - result.stored_at_kill
    assert result.calls == 240 + lost
    assert result.twice == lost <= 16
    record_property(
        "shown", f"server killed at {result.at_kill} of 240 calls: 120 of 120 rewards right, {lost} calls repeated"
    )
