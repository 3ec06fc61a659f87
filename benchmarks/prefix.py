"""Prompt tokens that no provider's prefix cache would have served: grades side by side, a run, several criteria a call.

    python benchmarks/prefix.py

Two rules, on a mock server (a token is four characters here): "after the reply", in steps of 128 tokens from 1,024, as
OpenAI documents its own; and "on arrival", in blocks of 16, as vLLM does.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rubric_integrations import Criterion, Rubric, Submission, grade_many
from rubric_integrations.graders import CallLimits, Grader, PerCriterionGrader, PerCriterionOneShotGrader
from rubric_integrations.judges import LMJudge
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
    return total / (SUBMISSIONS * CRITERIA)


async def side_by_side(grader: Grader) -> None:
    await asyncio.gather(*(RUBRIC.grade(text, grader=grader) for text in TEXTS))


async def as_a_run(grader: Grader) -> None:
    async for _ in grade_many(TEXTS, RUBRIC, grader, max_concurrency=CAP):
        pass


def reply(call: Call) -> Reply:
    numbers = re.findall(r"^(\d+)\. \(", call.prompt.rpartition("[[ ## criteria ## ]]")[2], re.MULTILINE)
    judgments = [{"id": int(number), "explanation": "so", "answer": "MET"} for number in numbers]
    return Reply(text=json.dumps({"judgments": judgments}) if judgments else None, delay=LATENCY)


def main() -> None:
    print("| path | calls | prompt tokens a judgment | uncached, after the reply | uncached, on arrival |")
    print("|---|---:|---:|---:|---:|")
    ways: dict[str, tuple[Callable[[Grader], Awaitable[None]], type[Grader], dict[str, Any]]] = {
        "grade, side by side": (side_by_side, PerCriterionGrader, {}),
        "grade_many": (as_a_run, PerCriterionGrader, {}),
    }
    for size in (2, 4, 6, 12):
        settings = {"max_criteria_per_call": size}
        ways[f"grade_many, {size} criteria a call"] = (as_a_run, PerCriterionOneShotGrader, settings)
    for name, (grade, kind, settings) in ways.items():
        calls: list[tuple[float, str]] = []

        def script(call: Call, calls: list[tuple[float, str]] = calls) -> Reply:
            calls.append((time.monotonic(), call.prompt))
            return reply(call)

        with OpenAIServer(script) as server:
            judge = LMJudge("openai/mock", api_base=server.url)
            grader = kind(judge, limits=CallLimits(max_concurrency=CAP), **settings)
            asyncio.run(grade(grader))
        tokens = sum(len(prompt) // 4 for _, prompt in calls) / (SUBMISSIONS * CRITERIA)
        rates = " | ".join(f"{uncached(calls, rule):.0f}" for rule in (True, False))
        print(f"| {name} | {len(calls)} | {tokens:.0f} | {rates} |")


if __name__ == "__main__":
    main()
