"""The pool of connections: requests share them, and they are closed with their event loop."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.judges.questions import judge_at, question_about
from tests.openai_server import OpenAIServer

PROGRAM = """
import asyncio, os
from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge
rubric = Rubric([Criterion(requirement="Says 42")])
grader = PerCriterionGrader(LMJudge("openai/mock", api_base={url!r}))
async def grade_twice():
    return [(await rubric.grade("It is 42.", grader=grader)).score for _ in range(2)]
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


@pytest.mark.parametrize("ending", ENDINGS)
def test_connections_are_closed_with_their_loop(server: OpenAIServer, ending: str) -> None:
    command = [sys.executable, "-X", "dev", "-c", PROGRAM.format(url=server.url) + ENDINGS[ending]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "1.0" in done.stdout, done.stderr
    assert "Unclosed" not in done.stderr, done.stderr
    assert ending in LEAVES_A_LOOP or "unclosed" not in done.stderr, done.stderr


async def test_requests_share_one_connection(server: OpenAIServer) -> None:
    judge = judge_at(server)
    for _ in range(5):
        await judge.judge(question_about())
    assert len({call.client for call in server.calls}) == 1
