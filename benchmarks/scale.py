"""Measures a large run with a judge without I/O and a ledger on disk: memory, judgments per second, size of the ledger.

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
from rubric_integrations.results import Judgment


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


def main() -> None:
    """Grade all texts twice: the first run requests the judgments, the second one reuses them."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
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


if __name__ == "__main__":
    main()
