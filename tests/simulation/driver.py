"""Plays a scenario: starts processes that grade the same submissions with one ledger, until each has all reports."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any, Literal, cast
from unittest.mock import patch

from rubric_integrations import PerCriterionGrader, grade_many
from rubric_integrations.graders import CallLimits, Grader, PerCriterionOneShotGrader
from rubric_integrations.graders.scheduler import LimitedJudge
from rubric_integrations.judges import Judge
from rubric_integrations.judges.protocol import Request
from rubric_integrations.runs import Ledger
from rubric_integrations.scoring import EvaluationReport, Spend
from tests.simulation import invariants
from tests.simulation.invariants import RunRecord
from tests.simulation.network import TIMEOUT, Cell, Network, ScriptedJudge, TruthfulJudge
from tests.simulation.operating_system import OperatingSystem
from tests.simulation.scenario import PRICE, TOKENS, Action, Life, Scenario, draw_scenario
from tests.simulation.virtual_loop import Process, StuckError, VirtualLoop

_real_probe = LimitedJudge._probe  # pyright: ignore[reportPrivateUsage]


async def _probe(judge: LimitedJudge, request: Request) -> Spend:
    token = invariants.probing.set(True)
    try:
        return await _real_probe(judge, request)
    finally:
        invariants.probing.reset(token)


cast("Any", LimitedJudge)._probe = _probe

# How often a process is started at most, until it has all reports.
MOST_LIVES = 15

# In memory, where the system has such a folder: a simulation writes one small file.
_FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Result:
    """What happened in one simulation.

    Attributes:
        scenario: What was planned.
        faults: Which invariants did not hold, in plain words; empty if all did.
        events: What happened, a line each.
        steps: The steps of the event loop.
        seconds: The virtual time that it took.
    """

    def __init__(self, scenario: Scenario):
        self.scenario = scenario
        self.faults: list[str] = []
        self.events: list[str] = []
        self.steps, self.seconds = 0, 0.0


def simulate(seed: int) -> Result:
    """Play the scenario of one seed, and check every invariant."""
    result = Result(draw_scenario(seed))
    loop = VirtualLoop(Random(f"order {seed}"))
    system = OperatingSystem(loop)
    with (
        tempfile.TemporaryDirectory(prefix="simulation-", dir=_FOLDER) as folder,
        system.installed(seed),
        _captured_log() as log,
    ):
        world = _World(result, loop, system, Path(folder) / "run.sqlite")
        try:
            loop.run_until_complete(world.play())
        except StuckError as error:
            result.faults.append(f"the simulation does not end: {error}")
        finally:
            world.end()
            loop.close()
        written = {file.name: file.read_bytes().decode("latin-1") for file in Path(folder).iterdir()}
        result.faults += invariants.check_secrets({**written, "the log": log.getvalue()})
    result.faults += [*system.faults, *(f"unhandled: {error}" for error in loop.errors)]
    result.steps, result.seconds = sum(process.steps for process in system.processes.values()), loop.time()
    return result


@contextmanager
def _captured_log() -> Generator[StringIO]:
    """Write what the library logs to a text, and nowhere else."""
    log, logger = StringIO(), logging.getLogger("rubric_integrations")
    handler, level = logging.StreamHandler(log), logger.level
    logger.addHandler(handler)
    # By its method, which also clears what the loggers of the modules have cached.
    logger.setLevel(logging.DEBUG)
    try:
        with patch.object(logger, "propagate", False):
            yield log
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _World:
    def __init__(self, result: Result, loop: VirtualLoop, system: OperatingSystem, path: Path):
        self._result, self._scenario, self._loop, self._system, self._path = result, result.scenario, loop, system, path
        self._network = Network(self._scenario, loop, self._before_request, self._record)
        self._limits: dict[Process, Life] = {}

    async def play(self) -> None:
        self._undisturbed = await self._grade_undisturbed()
        for at, seconds in self._scenario.clock_jumps:
            self._loop.call_at(at, partial(setattr, self._system, "clock_offset", seconds))
        await asyncio.gather(*(self._keep_alive(number, lives) for number, lives in enumerate(self._scenario.lives)))
        with closing(sqlite3.connect(self._path)) as db:
            # A row without an owner is no lease, but a key that two processes have requested and nobody could judge.
            held = "SELECT status, judgment FROM judgments WHERE status = 'stored' OR owner IS NOT NULL"
            rows = db.execute(held).fetchall()
        self._result.faults += invariants.check_ledger(self._scenario, rows)

    def end(self) -> None:
        """End whatever a failed simulation has left, without any effect on the next one."""
        for process in self._system.processes.values():
            process.crash()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        with suppress(StuckError, RuntimeError):
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(asyncio.sleep(2 * TIMEOUT))
        for task in asyncio.all_tasks(self._loop):
            task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]

    async def _grade_undisturbed(self) -> dict[str, EvaluationReport]:
        grader = self._grader(TruthfulJudge(self._scenario.seed), one_request=False)
        return {text: await grader.grade(self._scenario.rubric, text) for text in self._scenario.texts}

    async def _keep_alive(self, number: int, lives: Sequence[Life]) -> None:
        """Start a process, and start it again when it ends, until it has all reports."""
        for start in range(MOST_LIVES):
            life = lives[start] if start < len(lives) else Life(begin=10.0)
            await asyncio.sleep(life.begin)
            process = self._new_process(number, life)
            run = RunRecord(process, life, self._network.traffic[process])
            process.task = self._loop.create_task(self._run(run), context=process.context)
            await asyncio.wait({process.task})
            self._record(process, f"ends: {run.end} after {len(run.results)} results")
            # The tasks of an interrupted process may need a moment to end.
            await asyncio.sleep(1.0)
            self._check(run)
            # A process that has ended does not count as alive, whatever ended it.
            process.is_alive = False
            if run.is_complete(self._scenario):
                return
        self._result.faults.append(f"process number {number} has not all reports after {MOST_LIVES} starts")

    def _new_process(self, number: int, life: Life) -> Process:
        actions = {action.after_step: partial(self._act, action) for action in life.actions}
        host = "host" if self._scenario.one_host else f"host {number}"
        process = Process(1000 + len(self._system.processes), host, actions)
        self._system.processes[process.pid] = process
        self._limits[process] = life
        return process

    def _act(self, action: Action, process: Process) -> None:
        self._record(process, f"{action.kind} after step {process.steps}")
        match action.kind:
            case "crash":
                process.crash()
            case "interrupt":
                process.interrupt()
            case _:
                process.pause(self._loop.time() + action.seconds, self._loop.time())

    async def _run(self, run: RunRecord) -> None:
        """Grade all submissions, as a program that uses the library does."""
        process, scenario = run.process, self._scenario
        grader = self._grader(ScriptedJudge(self._network, process), scenario.one_request)
        try:
            with Ledger(self._path) as ledger:
                process.ledger = ledger
                run.run = grade_many(
                    scenario.texts,
                    scenario.rubric,
                    grader,
                    ledger=ledger,
                    max_concurrency=scenario.max_concurrency,
                    ordered=scenario.ordered,
                    max_calls=run.life.max_calls,
                    max_cost=run.life.max_cost,
                    prices=None if scenario.reports == "cost" else {"ScriptedJudge": (0.0, 1e6 * PRICE / TOKENS)},
                )
                async with aclosing(aiter(run.run)) as results:
                    async for graded in results:
                        self._record(process, f"row {graded.row.id}: {graded.score}, {graded.judge_error}")
                        run.results.append(graded)
            run.end = "stopped" if run.run.summary.stopped else "done"
            self._record(process, f"summary: {run.run.summary!r}")
        except asyncio.CancelledError:
            run.end = "interrupted" if process.is_alive else "crashed"
        except Exception as error:  # noqa: BLE001 -- whatever a run raises here is a fault
            run.end = "raised" if process.is_alive else "crashed"
            run.error = f"{type(error).__name__}: {error}"

    def _grader(self, judge: Any, one_request: bool) -> Grader:
        scenario = self._scenario
        make: Callable[..., Grader] = PerCriterionOneShotGrader if one_request else PerCriterionGrader
        return make(
            cast("Judge", judge),
            max_retries=scenario.max_retries,
            on_failure=cast("Literal['raise', 'abstain']", scenario.on_failure),
            limits=CallLimits(timeout=TIMEOUT, max_outage=scenario.max_outage),
        )

    def _before_request(self, process: Process, cells: Sequence[Cell], price: float) -> None:
        """Check what must hold at the moment of a request."""
        with closing(sqlite3.connect(self._path)) as db:
            texts = [text for (text,) in db.execute("SELECT judgment FROM judgments WHERE status = 'stored'")]
        faults = invariants.check_request(
            process, cells, texts, self._network, self._limits[process], price, self._scenario,
            self._loop.time(),
        )  # fmt: skip
        self._result.faults += [f"{fault}, at {self._loop.time():.2f} s" for fault in faults]

    def _check(self, run: RunRecord) -> None:
        with closing(sqlite3.connect(self._path)) as db:
            texts = [text for (text,) in db.execute("SELECT judgment FROM judgments WHERE status = 'stored'")]
        faults = invariants.check_run(self._scenario, run, self._undisturbed, texts)
        self._result.faults += [f"{run.process}: {fault}" for fault in faults]

    def _record(self, process: Process, event: str) -> None:
        self._result.events.append(f"{self._loop.time():9.2f} s  {process}  {event}")
