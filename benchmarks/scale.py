"""Measures large runs: memory and speed with a judge without I/O and a ledger, with Parquet, and with a slow judge.

python benchmarks/scale.py [SUBMISSIONS]            # a ledger on disk: judgments per second, and its size
python benchmarks/scale.py parquet [SUBMISSIONS]    # Parquet in and out, with two checks and no judge
python benchmarks/scale.py latency                  # a judge of log-normal latency, in order and not
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rubric_integrations import Check, Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.runs import Graded, write_parquet
from rubric_integrations.scoring import Judgment


class InstantJudge:
    """A judge that answers MET at once."""

    def fingerprint(self) -> str:
        """Return the judge's name."""
        return "instant"

    async def judge(self, question: Question) -> Judgment:
        """Answer MET."""
        await asyncio.sleep(0)
        return Judgment(verdict="MET", value=1.0, reason="It says so, in the second sentence of the text.")


def peak_memory() -> float:
    """Return the largest memory of the process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def texts(count: int) -> Iterator[str]:
    """Yield texts of about a hundred words."""
    return (f"Text {i}: " + "it says what a text of a hundred words might say. " * 10 for i in range(count))


def measure_ledger(count: int) -> None:
    """Grade all texts twice: the first run requests the judgments, the second one reuses them."""
    rubric = Rubric([Criterion(requirement=f"requirement {i}") for i in range(3)])
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "run.sqlite"
        for name in ("requested", "reused"):
            start = time.perf_counter()
            run = grade_many(texts(count), rubric, PerCriterionGrader(InstantJudge()), ledger=ledger)
            for done, _ in enumerate(run, start=1):
                if done % max(1, count // 4) == 0:
                    seconds = time.perf_counter() - start
                    speed = 3 * done / seconds
                    print(f"{name}: {done:,} submissions, {speed:,.0f} judgments/s, {peak_memory():.0f} MB")
        print(f"ledger: {ledger.stat().st_size / 1e6:.0f} MB for {3 * count:,} judgments")


def measure_parquet(count: int) -> None:
    """Read texts from a Parquet file in batches, run two checks on each, and write the grades to a folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    checks = (Check(contains="hundred"), Check(max_words=500))
    rubric = Rubric([Criterion(requirement=f"requirement {i}", check=check) for i, check in enumerate(checks)])
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.parquet"
        schema = pa.schema([("id", pa.int64()), ("response", pa.string()), ("unused", pa.string())])
        with pq.ParquetWriter(rows, schema) as writer:
            for first in range(0, count, 10_000):
                numbers = range(first, min(count, first + 10_000))
                part = [{"id": i, "response": f"Text {i}: a hundred words " * 20, "unused": "x" * 200} for i in numbers]
                writer.write_table(pa.Table.from_pylist(part, schema=schema))
        print(f"before: {peak_memory():.0f} MB")
        start, cpu = time.perf_counter(), time.process_time()
        batches = pq.ParquetFile(rows).iter_batches(batch_size=1_000, columns=["id", "response"])

        def counted() -> Iterator[Graded]:
            run = grade_many(batches, rubric, PerCriterionGrader("offline"))
            for done, graded in enumerate(run, start=1):
                yield graded
                if done % max(1, count // 10) == 0:
                    speed = done / (time.perf_counter() - start)
                    per_row = 1000 * (time.process_time() - cpu) / done
                    print(
                        f"{done:,} rows, {speed:,.0f} rows/s, {per_row:.2f} ms CPU, {peak_memory():.0f} MB", flush=True
                    )

        write_parquet(counted(), Path(folder) / "grades")
        parts = list((Path(folder) / "grades").iterdir())
        size = sum(part.stat().st_size for part in parts) / 1e6
        print(f"{len(parts)} parts, {size:.0f} MB, {sum(pq.read_metadata(part).num_rows for part in parts):,} rows")


def measure_latency(count: int = 1_500, concurrency: int = 64) -> None:
    """Grade with a judge whose latency is log-normal (sigma 1.2, mean 100 ms), in order and as results come."""
    draw = random.Random(1)  # noqa: S311 -- a latency, not a secret
    rubric = Rubric([Criterion(requirement=f"requirement {i}") for i in range(4)])

    class SlowJudge(InstantJudge):
        async def judge(self, question: Question) -> Judgment:
            await asyncio.sleep(draw.lognormvariate(math.log(0.1) - 1.2**2 / 2, 1.2))
            ended.append(time.perf_counter())
            return await super().judge(question)

    for ordered in (True, False):
        ended: list[float] = []
        grader = PerCriterionGrader(SlowJudge())
        for _ in grade_many(texts(count), rubric, grader, max_concurrency=concurrency, ordered=ordered):
            pass
        first, last = len(ended) // 10, len(ended) * 9 // 10
        speed = (last - first) / (ended[last] - ended[first])
        print(f"ordered={ordered}: {speed:.0f} judgments/s of an ideal {concurrency / 0.1:.0f}")


def main() -> None:
    """Measure what the arguments name."""
    arguments = sys.argv[1:]
    kind = arguments.pop(0) if arguments and not arguments[0].isdigit() else "ledger"
    count = int(arguments[0]) if arguments else 100_000
    {"ledger": measure_ledger, "parquet": measure_parquet, "latency": lambda _: measure_latency()}[kind](count)


if __name__ == "__main__":
    main()
