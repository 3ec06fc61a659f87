"""How much a library adds around the model: wall time, and CPU time a judgment, ours and its peers'.

    make bench
    python benchmarks/speed.py --repeats 7 --latency 1000

40 submissions by 12 criteria, against a mock model in a process of its own. Each subject has a process too, and they
take turns, so that whatever else the machine does falls on all; medians are shown. Wall time is compared with the
ideal, which is as many rounds of the latency as the cap needs. Peers that are not installed are left out: the extra
`bench` brings those that can be installed beside each other.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.server import mock_model
from benchmarks.subjects import CRITERIA, SUBJECTS


class Turn(NamedTuple):
    """One repetition: seconds of wall time, and of CPU time a judgment."""

    wall: float
    cpu: float


def work(name: str, url: str, submissions: int, cap: int, pipe: Connection) -> None:
    """A subject's process: a warm-up, and then a repetition whenever it is told."""
    os.environ |= {"DSPY_CACHEDIR": tempfile.mkdtemp(), "OPENAI_API_KEY": "none", "LANGSMITH_TRACING": "false"}
    logging.disable(logging.WARNING)

    async def turns() -> None:
        grade = SUBJECTS[name](url, cap)
        for number in range(10**9):
            texts = [f"{number} {place} " + "word " * 600 for place in range(submissions)]
            wall, cpu = time.perf_counter(), time.process_time()
            judgments = await grade(texts)
            turn = Turn(time.perf_counter() - wall, (time.process_time() - cpu) / judgments)
            if judgments != submissions * len(CRITERIA):
                raise RuntimeError(f"{judgments} judgments in place of {submissions * len(CRITERIA)}")
            pipe.send(turn)
            if not pipe.recv():
                return

    try:
        asyncio.run(turns())
    except Exception as error:  # noqa: BLE001 -- a peer that is absent, or of another release
        pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("subjects", nargs="*", default=list(SUBJECTS), help=f"of {', '.join(SUBJECTS)}")
    parse.add_argument("--submissions", type=int, default=40)
    parse.add_argument("--cap", type=int, default=64)
    parse.add_argument("--latency", type=int, default=50, help="milliseconds")
    parse.add_argument("--repeats", type=int, default=5)
    asked = parse.parse_args()
    spawn = multiprocessing.get_context("spawn")
    turns: dict[str, list[Turn]] = {}
    with mock_model() as address:
        pipes: dict[str, Connection] = {}
        for name in asked.subjects:
            pipes[name], theirs = spawn.Pipe()
            url = f"{address}/{asked.latency}/v1"
            spawn.Process(target=work, args=(name, url, asked.submissions, asked.cap, theirs), daemon=True).start()
            first = pipes[name].recv()
            if isinstance(first, str):
                print(f"left out: {name} ({first})", file=sys.stderr)
                del pipes[name]
        for _ in range(asked.repeats):
            for name, pipe in pipes.items():
                pipe.send(True)
                turns.setdefault(name, []).append(pipe.recv())
        for pipe in pipes.values():
            pipe.send(False)
    show(turns, asked.submissions, asked.cap, asked.latency)


def show(turns: dict[str, list[Turn]], submissions: int, cap: int, latency: int) -> None:
    """The table, in markdown."""
    judgments = submissions * len(CRITERIA)
    ideal = math.ceil(judgments / cap) * latency / 1000
    found = {
        name: Turn(*(statistics.median(column) for column in zip(*rows, strict=True))) for name, rows in turns.items()
    }
    base = found.get("rubric_integrations")
    repeats = max(map(len, turns.values()))
    print(
        f"{judgments} judgments, latency {latency} ms, cap {cap}: ideal {ideal * 1000:.0f} ms; {repeats} repetitions\n"
    )
    print("| subject | wall ms | x ideal | CPU ms a judgment | x ours |\n|---|---:|---:|---:|---:|")
    for name, (wall, cpu) in found.items():
        ratio = f"{cpu / base.cpu:.1f}" if base else ""
        print(f"| {name} | {wall * 1000:.0f} | {wall / ideal:.2f} | {cpu * 1000:.2f} | {ratio} |")


if __name__ == "__main__":
    main()
