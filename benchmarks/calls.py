"""Counts the function calls of one judgment, and measures its CPU time as a multiple of that of the bare request.

    .venv/bin/python benchmarks/calls.py
    .venv/bin/python benchmarks/calls.py --frames --repeats 15

40 submissions with 12 criteria are judged by a mock model in another process. The counts are those of `sys.setprofile`
in all threads, after a warm-up. A function that awaits is called once more for each time that it resumes, as cProfile
counts it. They depend on the versions of Python and of the libraries, and hardly on the machine and its load: the order
in which replies arrive changes them by a few calls. The bare request is the recorded request of our judge, sent by a
loop with aiohttp alone.

Each subject is counted in one process and timed in another, where nothing is installed. The timed processes run
alternately, so that other load on the machine affects all of them, and the table has the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import inspect
import logging
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.server import mock_model
from benchmarks.subjects import CRITERIA, Grade, dspy_predict, ours, ours_with_ledger, ours_with_max_cost

PACKAGE = "rubric_integrations"
# Those of aiohttp and asyncio, with the libraries that only aiohttp uses here.
TRANSPORT = ("aiohttp", "aiohappyeyeballs", "aiosignal", "asyncio", "frozenlist", "multidict", "propcache", "yarl")
BARE, OURS = "bare request", "grade_many"
NEW_TASK = "-- a new task"


def bare_request(url: str, cap: int) -> Grade:
    """Make the lower bound: the request of our judge, recorded and repeated by aiohttp with our connector settings."""
    import aiohttp

    recorded: list[tuple[str, dict[str, Any]]] = []
    sessions: list[aiohttp.ClientSession] = []

    async def open_session() -> AsyncGenerator[aiohttp.ClientSession]:
        # `asyncio.run` ends every generator of its loop, and so closes the session.
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            yield session

    opening = open_session()

    async def record() -> None:
        send = aiohttp.ClientSession._request

        def recording(self: Any, method: str, address: Any, **arguments: Any) -> Any:
            recorded.append((str(address), arguments))
            return send(self, method, address, **arguments)

        aiohttp.ClientSession._request = recording
        try:
            await ours(url, cap)([text_of(0, 0)])
        finally:
            aiohttp.ClientSession._request = send

    async def grade(texts: list[str]) -> int:
        if not recorded:
            await record()
            sessions.append(await anext(opening))
        address, arguments = recorded[0]
        numbers = iter(range(len(texts) * len(CRITERIA)))

        async def work() -> int:
            count = 0
            for _ in numbers:
                async with sessions[0].post(address, **arguments) as response:
                    await response.read()
                count += 1
            return count

        return sum(await asyncio.gather(*(work() for _ in range(cap))))

    return grade


SUBJECTS: dict[str, Callable[[str, int], Grade]] = {
    BARE: bare_request,
    OURS: ours,
    f"{OURS}, ledger": ours_with_ledger,
    f"{OURS}, max_cost": ours_with_max_cost,
    "dspy.Predict": dspy_predict,
}


def text_of(turn: int, number: int) -> str:
    """Return one submission, different in each repetition."""
    return f"{turn} {number} " + "word " * 600


class Call(NamedTuple):
    """A kind of call: of the function with this code, or of any built-in function by it."""

    code: CodeType
    is_builtin: bool


class Counts(NamedTuple):
    """The function calls of one repetition, per judgment.

    Attributes:
        ours: The calls of our own functions, written in Python.
        transport: Those of aiohttp and asyncio.
        other: Those of all other libraries, and of the benchmark itself.
        by_ours: The calls of built-in functions by our own functions.
        by_transport: Those by aiohttp and asyncio.
        by_other: Those by all others.
        tasks: The tasks that were started.
    """

    ours: float
    transport: float
    other: float
    by_ours: float
    by_transport: float
    by_other: float
    tasks: float

    @property
    def python(self) -> float:
        """The calls of functions written in Python."""
        return self.ours + self.transport + self.other

    @property
    def total(self) -> float:
        """All calls, as cProfile counts them."""
        return self.python + self.by_ours + self.by_transport + self.by_other


class Profiler:
    """Counts the calls in all threads that start after it is installed, while it is active."""

    def __init__(self) -> None:
        self.is_active = False
        self._threads: list[Counter[Call]] = []
        self._local = threading.local()

    def install(self) -> None:
        """Count from now on in this thread and in later ones: Python 3.11 cannot reach threads that run already."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.is_active and event in ("call", "c_call"):
            calls = getattr(self._local, "calls", None)
            if calls is None:
                calls = self._local.calls = Counter()
                self._threads.append(calls)
            calls[Call(frame.f_code, event == "c_call")] += 1

    def take(self) -> Counter[Call]:
        """Return the number of calls of each kind, and begin at zero."""
        total = sum(self._threads, Counter[Call]())
        for calls in self._threads:
            calls.clear()
        return total


def owner_of(code: CodeType) -> str:
    """Return to whom a function belongs: `ours`, `transport` or `other`."""
    folders = Path(code.co_filename).parts[:-1]
    if PACKAGE in folders:
        return "ours"
    return "transport" if not set(TRANSPORT).isdisjoint(folders) else "other"


class TaskLog:
    """Counts the tasks of an event loop, and remembers which task started which."""

    def __init__(self) -> None:
        self.count = 0
        self.parents: dict[int, asyncio.Task[Any]] = {}

    def install(self) -> None:
        """Count the tasks that the running loop starts from now on."""
        asyncio.get_running_loop().set_task_factory(self._start)

    def _start(self, loop: asyncio.AbstractEventLoop, coro: Any, **arguments: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **arguments)
        self.count += 1
        if parent := asyncio.current_task(loop):
            self.parents[id(task)] = parent
        return task


def frames_at_request(log: TaskLog, frame: FrameType | None) -> list[str]:
    """Return the frames from the run to the function that calls aiohttp: those of the task, and of those above it."""
    own: list[str] = []
    while frame is not None and "/asyncio/" not in frame.f_code.co_filename:
        own.append(describe(frame))
        frame = frame.f_back
    frames, task = own[::-1], asyncio.current_task()
    while task is not None and (task := log.parents.get(id(task))) is not None:
        frames = [*(describe(frame) for frame in suspended_frames(task.get_coro())), NEW_TASK, *frames]
    return frames


def suspended_frames(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine, and of what it awaits."""
    while awaited is not None:
        if inspect.iscoroutine(awaited):
            frame, awaited = awaited.cr_frame, awaited.cr_await
        elif inspect.isasyncgen(awaited):
            frame, awaited = awaited.ag_frame, awaited.ag_await
        elif type(awaited).__name__.startswith(("async_generator", "anext_awaitable", "coroutine_wrapper")):
            # No attribute leads from such an object to what it awaits.
            kinds = ("coroutine", "async_generator", "async_generator_asend")
            awaited = next((inner for inner in gc.get_referents(awaited) if type(inner).__name__ in kinds), None)
            continue
        else:
            return
        if frame is not None:
            yield frame


def describe(frame: FrameType) -> str:
    """Return the kind, the module and the name of a frame's function."""
    code = frame.f_code
    is_async = code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
    return f"{'async' if is_async else 'plain'} {frame.f_globals.get('__name__')}.{code.co_qualname}"


def serve_subject(name: str, url: str, submissions: int, cap: int, counts: bool, pipe: Connection) -> None:
    """Run one subject in this process: a warm-up, then a repetition for each True from the pipe."""
    os.environ |= {"DSPY_CACHEDIR": tempfile.mkdtemp(), "OPENAI_API_KEY": "none", "LANGSMITH_TRACING": "false"}
    # The prices of DSPy's own snapshot: to fetch newer ones, a thread would read a long JSON text.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    logging.disable(logging.WARNING)
    profiler, log = Profiler(), TaskLog()
    judgments = submissions * len(CRITERIA)

    async def repeat() -> None:
        if counts:
            profiler.install()
            log.install()
        grade = SUBJECTS[name](url, cap)
        for turn in range(10**9):
            texts = [text_of(turn, number) for number in range(submissions)]
            # A collection calls finalizers, which belong to no judgment.
            gc.collect()
            log.count, start, profiler.is_active = 0, time.process_time(), counts
            answered = await grade(texts)
            profiler.is_active, seconds = False, time.process_time() - start
            if answered != judgments:
                raise RuntimeError(f"{name}: {answered} judgments instead of {judgments}")
            pipe.send(counts_of(profiler.take(), log.count, judgments) if counts else seconds * 1000 / judgments)
            if not pipe.recv():
                break
        if counts and name == OURS:
            pipe.send(await record_frames(grade, log))

    asyncio.run(repeat())


def counts_of(calls: Counter[Call], tasks: int, judgments: int) -> Counts:
    """Divide the calls of a repetition by their owner, and by the number of judgments."""
    owners = Counter[str]()
    for (code, is_builtin), number in calls.items():
        owners[("by_" if is_builtin else "") + owner_of(code)] += number
    return Counts(*(owners[name] / judgments for name in Counts._fields[:-1]), tasks=tasks / judgments)


async def record_frames(grade: Grade, log: TaskLog) -> list[str]:
    """Return the frames at the last request of a run."""
    import aiohttp

    send, frames = aiohttp.ClientSession._request, list[str]()

    def recording(self: Any, *arguments: Any, **options: Any) -> Any:
        # The frames above are those of this function and of `ClientSession.post`.
        frames[:] = frames_at_request(log, sys._getframe(2))
        return send(self, *arguments, **options)

    aiohttp.ClientSession._request = recording
    try:
        await grade([text_of(-1, 0), text_of(-1, 1)])
    finally:
        aiohttp.ClientSession._request = send
    return frames


def main() -> None:
    """Count and time the subjects, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--submissions", type=int, default=40)
    parser.add_argument("--cap", type=int, default=64, help="the most concurrent calls")
    parser.add_argument("--latency", type=int, default=50, help="milliseconds of the mock model")
    parser.add_argument("--repeats", type=int, default=9, help="timed repetitions of each subject")
    parser.add_argument("--counted", type=int, default=3, help="counted repetitions of each subject")
    parser.add_argument("--frames", action="store_true", help="list the frames at the moment of a request")
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    counts: dict[str, list[Counts]] = {name: [] for name in SUBJECTS}
    times: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    frames: list[str] = []
    with mock_model() as address:

        def start(name: str, is_counted: bool) -> Connection:
            pipe, theirs = spawn.Pipe()
            url = f"{address}/{arguments.latency}/v1"
            settings = (name, url, arguments.submissions, arguments.cap, is_counted, theirs)
            spawn.Process(target=serve_subject, args=settings, daemon=True).start()
            theirs.close()
            pipe.recv()  # the warm-up
            return pipe

        for name in SUBJECTS:
            pipe = start(name, is_counted=True)
            for _ in range(arguments.counted):
                pipe.send(True)
                counts[name].append(pipe.recv())
            pipe.send(False)
            if name == OURS:
                frames = pipe.recv()
        pipes = {name: start(name, is_counted=False) for name in SUBJECTS}
        for _ in range(arguments.repeats):
            for name, pipe in pipes.items():
                pipe.send(True)
                times[name].append(pipe.recv())
        for pipe in pipes.values():
            pipe.send(False)
    judgments = arguments.submissions * len(CRITERIA)
    print(f"{judgments} judgments a repetition, latency {arguments.latency} ms, cap {arguments.cap}\n")
    show(counts, times)
    show_frames(frames, list_all=arguments.frames)


def show(counts: dict[str, list[Counts]], times: dict[str, list[float]]) -> None:
    """Print the table, in Markdown, per judgment."""
    medians = {
        name: Counts(*(statistics.median(column) for column in zip(*rows, strict=True)))
        for name, rows in counts.items()
    }
    cpu = {name: statistics.median(column) for name, column in times.items()}
    columns = (
        "all calls", "x bare", "Python calls", "ours", "aiohttp, asyncio", "other",
        "built-in by ours", "by aiohttp, asyncio", "by other", "tasks", "CPU ms", "least CPU ms", "CPU x bare",
    )  # fmt: skip
    print(f"| per judgment | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for name, row in medians.items():
        calls = (row.python, row.ours, row.transport, row.other, row.by_ours, row.by_transport, row.by_other)
        cells = [
            f"{row.total:.0f}", f"{row.total / medians[BARE].total:.2f}", *(f"{number:.0f}" for number in calls),
            f"{row.tasks:.2f}", f"{cpu[name]:.3f}", f"{min(times[name]):.3f}", f"{cpu[name] / cpu[BARE]:.2f}",
        ]  # fmt: skip
        print(f"| {name} | {' | '.join(cells)} |")


def show_frames(frames: list[str], *, list_all: bool) -> None:
    """Print how many frames a judgment has at the moment of its request, and which."""
    # The iteration of the run, which all submissions share, is the first task.
    of_submission = frames[frames.index(NEW_TASK) + 1 :]
    own = [frame for frame in of_submission if f" {PACKAGE}." in frame]
    coroutines = sum(frame.startswith("async ") for frame in own)
    tasks = 1 + of_submission.count(NEW_TASK)
    print(f"\nframes of {PACKAGE} from a submission's task to its request: {len(own)}, {coroutines} of coroutines")
    print(f"tasks on that way: {tasks}; frames of the run's iteration above: {iteration_frames(frames)}")
    if list_all:
        print(*frames, sep="\n")


def iteration_frames(frames: list[str]) -> int:
    """Return the number of our frames in the task that iterates the run."""
    return sum(f" {PACKAGE}." in frame for frame in frames[: frames.index(NEW_TASK)])


if __name__ == "__main__":
    main()
