"""Measures the prompt tokens that a prefix cache does not serve, for single grades, runs and several criteria per call.

    python benchmarks/prefix.py

A mock server records the prompts. Two caching rules are applied to them, with four characters as one token: "after the
reply", in steps of 128 tokens from 1,024, as OpenAI documents its cache; and "on arrival", in blocks of 16, as in vLLM.
The price of the prompts is with the first rule, and 1 without a cache: a cached token costs a tenth.
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

SUBMISSIONS, CRITERIA, CAP, LATENCY, CACHED_PRICE = 40, 12, 64, 0.2, 0.1
RUBRIC = Rubric([Criterion(requirement=f"Requirement {i} of the response") for i in range(CRITERIA)])
TEXTS = [Submission(response=f"{i} " + "word " * 600, query="query " * 100) for i in range(SUBMISSIONS)]


def uncached(calls: list[tuple[float, str]], after_reply: bool) -> float:
    """Return the prompt tokens per judgment that are not in the cache when each call is sent.

    Args:
        calls: The time and the prompt of each call, in order.
        after_reply: Whether a prompt is cached after its reply, and else on its arrival.
    """
    least, step = (1024, 128) if after_reply else (16, 16)
    cached_since: dict[int, float] = {}  # by the hash of the beginning of a prompt
    total = 0
    for at, prompt in calls:
        tokens = len(prompt) // 4
        ends = range(least, tokens + 1, step)
        cached = max((end for end in ends if cached_since.get(hash(prompt[: 4 * end]), float("inf")) <= at), default=0)
        total += tokens - cached
        for end in ends:
            cached_since.setdefault(hash(prompt[: 4 * end]), at + (LATENCY if after_reply else 0.0))
    return total / (SUBMISSIONS * CRITERIA)


async def grade_concurrently(grader: Grader) -> None:
    """Grade each submission with a call of `Rubric.grade`."""
    await asyncio.gather(*(RUBRIC.grade(text, grader=grader) for text in TEXTS))


async def grade_as_run(grader: Grader) -> None:
    """Grade all submissions with `grade_many`."""
    async for _ in grade_many(TEXTS, RUBRIC, grader, max_concurrency=CAP):
        pass


def reply_to(call: Call) -> Reply:
    """Answer MET to every criterion of a call."""
    numbers = re.findall(r"^(\d+)\. \(", call.prompt.rpartition("[[ ## criteria ## ]]")[2], re.MULTILINE)
    judgments = [{"id": int(number), "explanation": "so", "answer": "MET"} for number in numbers]
    return Reply(text=json.dumps({"judgments": judgments}) if judgments else None, delay=LATENCY)


def main() -> None:
    """Print one row per way to grade."""
    print("| path | calls | prompt tokens per judgment | uncached, after the reply | uncached, on arrival | price |")
    print("|---|---:|---:|---:|---:|---:|")
    variants: dict[str, tuple[Callable[[Grader], Awaitable[None]], type[Grader], dict[str, Any]]] = {
        "grade, concurrently": (grade_concurrently, PerCriterionGrader, {}),
        "grade_many": (grade_as_run, PerCriterionGrader, {}),
    }
    for size in (2, 4, 6, 12):
        settings = {"max_criteria_per_call": size}
        variants[f"grade_many, {size} criteria per call"] = (grade_as_run, PerCriterionOneShotGrader, settings)
    without_cache = 0.0
    for name, (grade, kind, settings) in variants.items():
        calls: list[tuple[float, str]] = []

        def script(call: Call, calls: list[tuple[float, str]] = calls) -> Reply:
            calls.append((time.monotonic(), call.prompt))
            return reply_to(call)

        with OpenAIServer(script) as server:
            judge = LMJudge("openai/mock", api_base=server.url)
            grader = kind(judge, limits=CallLimits(max_concurrency=CAP), **settings)
            asyncio.run(grade(grader))
        tokens = sum(len(prompt) // 4 for _, prompt in calls) / (SUBMISSIONS * CRITERIA)
        without_cache = without_cache or tokens
        full, on_arrival = uncached(calls, True), uncached(calls, False)
        price = (full + CACHED_PRICE * (tokens - full)) / without_cache
        print(f"| {name} | {len(calls)} | {tokens:.0f} | {full:.0f} | {on_arrival:.0f} | {price:.3f} |")


if __name__ == "__main__":
    main()
