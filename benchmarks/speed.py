"""Measures the time that this library and others add to that of the model: wall time, and CPU time per judgment.

    make bench
    python benchmarks/speed.py --repeats 7 --latency 1000

40 submissions with 12 criteria are graded with a mock model in a process of its own. Each subject also has a process.
The subjects run alternately, so that other load on the machine affects all of them, and the table has the medians. The
ideal wall time is the latency times the number of rounds that the concurrency limit requires. Libraries that are not
installed are left out: the extra `bench` installs those that can be installed together.
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
    """One repetition: seconds of wall time, and seconds of CPU time per judgment."""

    wall: float
    cpu: float


def work(name: str, url: str, submissions: int, cap: int, pipe: Connection) -> None:
    """Run one subject in a process of its own: a warm-up, and then a repetition for each True from the pipe."""
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
                raise RuntimeError(f"{judgments} judgments instead of {submissions * len(CRITERIA)}")
            pipe.send(turn)
            if not pipe.recv():
                return

    try:
        asyncio.run(turns())
    except Exception as error:  # noqa: BLE001 -- a library that is not installed, or of another version
        pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def main() -> None:
    """Run the subjects alternately, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("subjects", nargs="*", default=list(SUBJECTS), help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--submissions", type=int, default=40)
    parser.add_argument("--cap", type=int, default=64, help="the most concurrent calls")
    parser.add_argument("--latency", type=int, default=50, help="milliseconds of the mock model")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    turns: dict[str, list[Turn]] = {}
    with mock_model() as address:
        pipes: dict[str, Connection] = {}
        for name in arguments.subjects:
            pipes[name], theirs = spawn.Pipe()
            url = f"{address}/{arguments.latency}/v1"
            work_arguments = (name, url, arguments.submissions, arguments.cap, theirs)
            spawn.Process(target=work, args=work_arguments, daemon=True).start()
            first = pipes[name].recv()
            if isinstance(first, str):
                print(f"left out: {name} ({first})", file=sys.stderr)
                del pipes[name]
        for _ in range(arguments.repeats):
            for name, pipe in pipes.items():
                pipe.send(True)
                turns.setdefault(name, []).append(pipe.recv())
        for pipe in pipes.values():
            pipe.send(False)
    show(turns, arguments.submissions, arguments.cap, arguments.latency)


def show(turns: dict[str, list[Turn]], submissions: int, cap: int, latency: int) -> None:
    """Print the table, in Markdown."""
    judgments = submissions * len(CRITERIA)
    ideal = math.ceil(judgments / cap) * latency / 1000
    medians = {
        name: Turn(*(statistics.median(column) for column in zip(*rows, strict=True))) for name, rows in turns.items()
    }
    base = medians.get("rubric_integrations")
    repeats = max(map(len, turns.values()))
    print(
        f"{judgments} judgments, latency {latency} ms, cap {cap}: ideal {ideal * 1000:.0f} ms; {repeats} repetitions\n"
    )
    print("| subject | wall ms | x ideal | CPU ms per judgment | x ours |\n|---|---:|---:|---:|---:|")
    for name, (wall, cpu) in medians.items():
        ratio = f"{cpu / base.cpu:.1f}" if base else ""
        print(f"| {name} | {wall * 1000:.0f} | {wall / ideal:.2f} | {cpu * 1000:.2f} | {ratio} |")


if __name__ == "__main__":
    main()
