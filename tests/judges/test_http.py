"""The pool of connections: requests share them, and they are closed with their event loop."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rubric_integrations.judges import fast_path, http
from rubric_integrations.judges.spend import NOT_SENT
from rubric_integrations.scoring import JudgeFailure
from tests.judges.questions import judge_at, question_about
from tests.openai_server import OpenAIServer, Reply

# Every ending is run by a child of one program, which has imported what they need and has made no event loop yet.
PROGRAM = """
import asyncio, gc, os, sys
from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge, fast_path
fast_path.fast_path_problem()
rubric = Rubric([Criterion(requirement="Says 42")])
grader = PerCriterionGrader(LMJudge("openai/mock", api_base=URL))
async def grade_twice():
    return [(await rubric.grade("It is 42.", grader=grader)).score for _ in range(2)]
gc.freeze()  # so that a child that ends does not visit what it shares with the program
for number, ending in enumerate(ENDINGS):
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(os.open(f"{number}.{stream}", os.O_WRONLY | os.O_CREAT), stream)
        exec(ending)
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, f"{number} failed"
"""
ENDINGS = {
    "one loop": "print(asyncio.run(grade_twice()))",
    "two loops": "print(asyncio.run(grade_twice()), asyncio.run(grade_twice()))",
    "synchronous": 'print(rubric.grade_sync("It is 42.", grader=grader).score)',
    "forked": """
print(rubric.grade_sync("It is 42.", grader=grader).score)
child = os.fork()
print(rubric.grade_sync("It is 42.", grader=grader).score, flush=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
""",
    "loop left open": "loop = asyncio.new_event_loop(); print(loop.run_until_complete(grade_twice()))",
    "loop closed": "loop = asyncio.new_event_loop(); print(loop.run_until_complete(grade_twice())); loop.close()",
    "another loop after a closed one": """
loop = asyncio.new_event_loop()
print(loop.run_until_complete(grade_twice()))
loop.close()
print(asyncio.run(grade_twice()))
""",
}
# In these programs asyncio itself warns of a loop that the program did not close in order.
LEAVES_A_LOOP = ("loop left open", "loop closed", "another loop after a closed one")


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_connections_are_closed_with_their_loop(server: OpenAIServer, tmp_path: Path) -> None:
    code = f"URL, ENDINGS = {server.url!r}, {list(ENDINGS.values())!r}{PROGRAM}"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    outputs = [[(tmp_path / f"{number}.{stream}") for stream in (1, 2)] for number in range(len(ENDINGS))]
    assert done.returncode == 0, done.stderr + "".join(errors.read_text() for _, errors in outputs if errors.exists())
    for ending, (output, errors) in zip(ENDINGS, outputs, strict=True):
        assert "1.0" in output.read_text(), (ending, errors.read_text())
        assert "Unclosed" not in errors.read_text(), (ending, errors.read_text())
        assert ending in LEAVES_A_LOOP or "unclosed" not in errors.read_text(), (ending, errors.read_text())


@pytest.mark.parametrize("is_compressed", [True, False])
async def test_reply_beyond_the_limit_is_a_transport_failure(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, is_compressed: bool
) -> None:
    monkeypatch.setattr(http, "MAX_REPLY_BYTES", 100_000)
    raw = b" " * 5_000_000
    headers = (("Content-Encoding", "gzip"),) if is_compressed else ()
    server.script = lambda _call: Reply(raw=gzip.compress(raw) if is_compressed else raw, headers=headers)
    with pytest.raises(JudgeFailure, match="larger than 100,000 bytes") as failure:
        await judge_at(server).judge(question_about())
    assert (failure.value.kind, failure.value.retryable) == ("transport", True)


async def test_requests_share_one_connection(server: OpenAIServer) -> None:
    judge = judge_at(server)
    for _ in range(5):
        await judge.judge(question_about())
    assert len({call.client for call in server.calls}) == 1


async def test_burst_of_requests_is_prepared_a_few_at_a_time_and_in_order() -> None:
    turns, step, steps = http._Turns(asyncio.get_running_loop()), 0, list[tuple[int, int]]()  # pyright: ignore[reportPrivateUsage]

    async def prepare(number: int) -> None:
        if (turn := turns.take()) is not None:
            await turn
        steps.append((step, number))

    tasks = [asyncio.create_task(prepare(number)) for number in range(30)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        step += 1
        if step == 1:
            tasks[10].cancel()
    numbers = [number for _, number in steps]
    assert numbers == [number for number in range(30) if number != 10]
    assert max(sum(at == other for other, _ in steps) for at, _ in steps) <= http._MAX_PREPARED  # pyright: ignore[reportPrivateUsage]
    assert turns.take() is None


async def test_request_that_is_cancelled_while_it_waits_for_its_turn_is_marked_as_not_sent(
    server: OpenAIServer,
) -> None:
    address = http.HttpAddress(f"{server.url}/chat/completions", [], connect=5.0, read=None)
    body = b'{"model": "m", "messages": []}'
    tasks = [asyncio.create_task(http.send(address, body)) for _ in range(http._MAX_PREPARED + 2)]  # pyright: ignore[reportPrivateUsage]
    await asyncio.sleep(0)
    tasks[-1].cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await tasks[-1]
    assert NOT_SENT in cancelled.value.__notes__
    await asyncio.gather(*tasks[:-1])
    assert len(server.calls) == len(tasks) - 1


@given(st.text())
@example('"\\ \x00\x1f\x7f\u2028\U0001f600/')
def test_text_is_encoded_as_json_without_escapes_beyond_ascii(text: str) -> None:
    assert fast_path.encode_json_text(text) == json.dumps(text, ensure_ascii=False)[1:-1].encode()


def test_text_with_a_lone_surrogate_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"lone surrogate \(U\+D83D\)"):
        fast_path.encode_json_text('half an emoji ("): \ud83d')
