"""Many submissions through a judge without I/O and a ledger on disk: memory, rows a second, size of the file.

python benchmarks/scale.py [SUBMISSIONS]
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.results.judgment import Judgment


class Instant:
    """Says MET."""

    def fingerprint(self) -> str:
        return "instant"

    async def judge(self, question: Question) -> Judgment:
        await asyncio.sleep(0)
        return Judgment(verdict="MET", value=1.0, reason="It says so, in the second sentence of the text.")


def memory() -> float:
    """The most that the process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def texts(count: int) -> Iterator[str]:
    return (f"Text {i}: " + "it says what a text of a hundred words might say. " * 10 for i in range(count))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rubric = Rubric([Criterion(requirement=f"requirement {i}") for i in range(3)])
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "run.sqlite"
        for name in ("requested", "reused"):
            start = time.perf_counter()
            for done, _ in enumerate(grade_many(texts(count), rubric, PerCriterionGrader(Instant()), ledger=ledger), 1):
                if done % max(1, count // 4) == 0:
                    seconds = time.perf_counter() - start
                    print(f"{name}: {done:,} submissions, {3 * done / seconds:,.0f} judgments/s, {memory():.0f} MB")
        print(f"ledger: {ledger.stat().st_size / 1e6:.0f} MB for {3 * count:,} judgments")


if __name__ == "__main__":
    main()
