"""Runs a command of the command line in a process of its own, which a test can interrupt or kill.

The processes are forked from a server process that has imported DSPy already, since importing it takes longer than
most runs here. On systems without `fork`, each process imports it again.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import cloudpickle

_CONTEXT = multiprocessing.get_context("forkserver") if hasattr(os, "fork") else multiprocessing.get_context("spawn")
if hasattr(os, "fork"):
    _CONTEXT.set_forkserver_preload(
        ["pytest", "dspy.clients.execution", "dspy.clients.engines.streaming", "aiohttp", "rich.progress",
         "rubric_integrations.cli.results", "rubric_integrations.formats.native",
         "rubric_integrations.judges.http", "rubric_integrations.judges.lm_judge",
         "rubric_integrations.judges.models.langchain", "rubric_integrations.reporting.grades",
         "rubric_integrations.runs.rescoring", "rubric_integrations.runs.run", "tests.runs.processes"]
    )  # fmt: skip

MAX_SECONDS = 60


class Result(NamedTuple):
    """The exit code and the output of a command."""

    exit_code: int
    stdout: str
    stderr: str


class Command:
    """A command of `rubric-integrations`, started in a process of its own.

    Args:
        folder: Where the output is stored until it is read.
        arguments: The command's name and arguments.
    """

    def __init__(self, folder: Path, *arguments: object):
        # Commands that run at once need different files.
        name = uuid4().hex
        self._output = folder / f"{name}.stdout", folder / f"{name}.stderr"
        self._process = _CONTEXT.Process(target=_run, args=([str(a) for a in arguments], self._output))
        self._process.start()

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def interrupt(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def wait(self) -> Result:
        self._process.join(MAX_SECONDS)
        assert self._process.exitcode is not None, "the command did not end"
        stdout, stderr = (path.read_text(encoding="utf-8") for path in self._output)
        return Result(self._process.exitcode, stdout, stderr)


def run_command(folder: Path, *arguments: object) -> Result:
    """Run a command to its end."""
    return Command(folder, *arguments).wait()


def call_in_process(function: Callable[[Any], Any], argument: Any, *, by_value: bool = True) -> Any:
    """Call a function in a process of its own, and return what it returns.

    Args:
        function: A function of a module.
        argument: Its argument, which gets there as a pickle.
        by_value: Whether cloudpickle makes the pickle, as in Ray and Spark, and not `pickle`, as in `multiprocessing`.
    """
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    data = cloudpickle.dumps(argument) if by_value else pickle.dumps(argument)
    process = _CONTEXT.Process(target=_call, args=(function, data, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(MAX_SECONDS) else None
    finally:
        process.join(MAX_SECONDS)
        assert process.exitcode == 0


def _call(function: Callable[[Any], Any], data: bytes, sender: Connection) -> None:
    sender.send(function(pickle.loads(data)))


def _run(arguments: list[str], output: tuple[Path, Path]) -> None:
    from rubric_integrations.__main__ import run

    # A shell starts what runs in its background with SIGINT ignored, and the tests may run there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for path, descriptor in zip(output, (1, 2), strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    sys.argv = ["rubric-integrations", *arguments]
    run()
