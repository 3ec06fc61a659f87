"""Print the sum of the counts of tests with which several runs of pytest end: `python tests/counts.py LOG`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

_SUMMARY = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in ([\d.]+)s", re.MULTILINE)


def total(log: str) -> str:
    """Return the last line that pytest would write for all tests of a log of several runs."""
    summaries = _SUMMARY.findall(log)
    counts: Counter[str] = Counter()
    for summary, _ in summaries:
        for number, outcome in re.findall(r"(\d+) ([a-z]+)", summary):
            counts["warnings" if outcome == "warning" else outcome] += int(number)
    seconds = sum(float(duration) for _, duration in summaries)
    return f"{', '.join(f'{number} {outcome}' for outcome, number in counts.items())} in {seconds:.2f}s"


if __name__ == "__main__":
    print(total(Path(sys.argv[1]).read_text(encoding="utf-8")))
