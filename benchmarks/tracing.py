"""Measures what OpenTelemetry adds to a grade of four criteria, whose judge takes no time.

python benchmarks/tracing.py
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rubric_integrations import Criterion, EvaluationReport, PerCriterionGrader, Rubric
from rubric_integrations.graders.grader import observed
from rubric_integrations.scoring import Judgment
from rubric_integrations.tracing import instrument, uninstrument

RUBRIC = Rubric([Criterion(name=f"c{number}", requirement=f"Is {number}") for number in range(4)], name="benchmark")
TEXT = "The margin was 8.4%."
ROUNDS, HOOKS, GRADES = 15, 5_000, 200


class InstantJudge:
    """Answers at once, so that only the library is measured."""

    async def judge(self, question: Any) -> Judgment:
        return Judgment(verdict="MET", value=1.0, reason="It says so, in the second sentence of the text.")


GRADER = PerCriterionGrader(InstantJudge())
REPORT = RUBRIC.grade_sync(TEXT, GRADER)


async def ready() -> EvaluationReport:
    return REPORT


async def observed_ready() -> EvaluationReport:
    return await observed(GRADER, RUBRIC, TEXT, ready())


async def hook() -> None:
    """Await a grade that is ready, through the hook of all graders."""
    await observed_ready()


async def bare() -> None:
    """Await the same without the hook."""
    await ready()


async def grade() -> None:
    """Grade with all that a grade consists of."""
    await RUBRIC.grade(TEXT, GRADER)


def measure(action: Callable[[], Awaitable[None]], count: int) -> float:
    """Return the microseconds of one action."""

    async def repeat() -> float:
        start = time.perf_counter()
        for _ in range(count):
            await action()
        return (time.perf_counter() - start) / count * 1e6

    return asyncio.run(repeat())


def in_memory() -> Callable[[], None]:
    """Return a function that instruments with the SDK, with exporters in memory that it empties."""
    tracer_provider, logger_provider = TracerProvider(), LoggerProvider()
    spans, logs = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracer_provider.add_span_processor(SimpleSpanProcessor(spans))
    logger_provider.add_log_record_processor(SimpleLogRecordProcessor(logs))

    def switch() -> None:
        spans.clear()
        logs.clear()
        instrument(tracer_provider=tracer_provider, logger_provider=logger_provider)

    return switch


def main() -> None:
    states: dict[str, Callable[[], None]] = {
        "off": uninstrument,
        "on, without an SDK": instrument,
        "on, SDK in memory": in_memory(),
    }
    uninstrument()
    without = min(measure(bare, HOOKS) for _ in range(ROUNDS))
    hooks: dict[str, list[float]] = {name: [] for name in states}
    grades: dict[str, list[float]] = {name: [] for name in states}
    for _ in range(ROUNDS):
        # By turns, so that a busy machine slows all of them.
        for name, switch in states.items():
            switch()
            hooks[name].append(measure(hook, HOOKS // 10 if name.endswith("memory") else HOOKS) - without)
            switch()
            grades[name].append(measure(grade, GRADES))
    print(f"{'us':20} {'the hook alone':>16} {'a grade (best)':>16} {'a grade (median)':>18}")
    for name in states:
        median = statistics.median(grades[name])
        print(f"{name:20} {min(hooks[name]):16.2f} {min(grades[name]):16.0f} {median:18.0f}")


if __name__ == "__main__":
    main()
