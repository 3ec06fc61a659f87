"""Prompt tokens that no provider's prefix cache would have served: a grade at a time, and a run of many.

    python benchmarks/prefix.py

Two rules, on a mock server (a token is four characters here): "after the reply", in steps of 128 tokens from 1,024, as
OpenAI documents its own; and "on arrival", in blocks of 16, as vLLM does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, agrade_many
from tests.openai_server import Call, OpenAIServer, Reply

SUBMISSIONS, CRITERIA, CAP, LATENCY = 40, 12, 64, 0.2
RUBRIC = Rubric([Criterion(requirement=f"Requirement {i} of the response") for i in range(CRITERIA)])
TEXTS = [Submission(response=f"{i} " + "word " * 600, query="query " * 100) for i in range(SUBMISSIONS)]


def uncached(calls: list[tuple[float, str]], after_reply: bool) -> float:
    """Tokens a judgment that are not in the cache, each call seeing what came before it by the rule."""
    least, step = (1024, 128) if after_reply else (16, 16)
    kept: dict[int, float] = {}  # the beginnings of prompts, and since when they are cached
    total = 0
    for at, prompt in calls:
        tokens = len(prompt) // 4
        ends = range(least, tokens + 1, step)
        cached = max((end for end in ends if kept.get(hash(prompt[: 4 * end]), float("inf")) <= at), default=0)
        total += tokens - cached
        for end in ends:
            kept.setdefault(hash(prompt[: 4 * end]), at + (LATENCY if after_reply else 0.0))
    return total / len(calls)


async def one_by_one(grader: PerCriterionGrader) -> None:
    await asyncio.gather(*(RUBRIC.grade(text, grader=grader) for text in TEXTS))


async def as_a_run(grader: PerCriterionGrader) -> None:
    async for _ in agrade_many(TEXTS, RUBRIC, grader, max_concurrency=CAP):
        pass


def main() -> None:
    print("| path | calls | tokens a judgment | uncached, after the reply | uncached, on arrival |")
    print("|---|---:|---:|---:|---:|")
    for name, grade in (("grade, side by side", one_by_one), ("grade_many", as_a_run)):
        calls: list[tuple[float, str]] = []

        def script(call: Call, calls: list[tuple[float, str]] = calls) -> Reply:
            calls.append((time.monotonic(), call.prompt))
            return Reply(delay=LATENCY)

        with OpenAIServer(script) as server:
            grader = PerCriterionGrader("openai/mock", api_base=server.url, max_concurrency=CAP)
            asyncio.run(grade(grader))
        tokens = sum(len(prompt) // 4 for _, prompt in calls) / len(calls)
        rates = " | ".join(f"{uncached(calls, rule):.0f}" for rule in (True, False))
        print(f"| {name} | {len(calls)} | {tokens:.0f} | {rates} |")


if __name__ == "__main__":
    main()
