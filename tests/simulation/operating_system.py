"""The clocks, processes and threads that the library sees during a simulation."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from rubric_integrations.graders import endpoint, scheduler
from rubric_integrations.runs.ledger import base, store
from tests.simulation.virtual_loop import CURRENT_PROCESS, Process, VirtualLoop

# Unix time at the beginning of a simulation.
EPOCH = 1_700_000_000.0

# As they are in use: the settings of the tests shorten them, and a seed would be replayed with others.
_REAL_WAITS = {
    (module, name): getattr(module, name)
    for module, name in (
        (scheduler, "_backoff"),
        (endpoint, "FIRST_PROBE"),
        (endpoint, "LONGEST_PROBE"),
        (endpoint, "_LONGEST_LOOK"),
    )
}


class OperatingSystem:
    """What the library asks its operating system about.

    Args:
        loop: The event loop, whose clock is the only one.

    Attributes:
        processes: All processes that were started, by process id.
        clock_offset: Seconds by which the wall clock is wrong.
        faults: What blocked the event loop.
    """

    def __init__(self, loop: VirtualLoop):
        self.loop, self.clock_offset = loop, 0.0
        self.processes: dict[int, Process] = {}
        self.faults: list[str] = []

    @contextmanager
    def installed(self, seed: int) -> Generator[None]:
        """Replace clocks, process ids and threads in the library, and seed the random numbers that it draws."""
        with ExitStack() as stack:
            virtual_time = _Overlay(time, monotonic=self.loop.time, time=self._wall_clock, sleep=self._block)
            for name, module in list(sys.modules.items()):
                if name.startswith("rubric_integrations.") and vars(module).get("time") is time:
                    stack.enter_context(patch.object(module, "time", virtual_time))
            defaults = endpoint.Endpoint.__init__.__defaults__ or ()
            clocks = tuple(self.loop.time if default is time.monotonic else default for default in defaults)
            stack.enter_context(patch.object(endpoint.Endpoint.__init__, "__defaults__", clocks))
            virtual_os = _Overlay(os, getpid=lambda: CURRENT_PROCESS.get().pid, kill=self._kill, name="posix")
            stack.enter_context(patch.object(base, "os", virtual_os))
            stack.enter_context(patch.object(base, "_host", lambda: CURRENT_PROCESS.get().host))
            virtual_threads = _Overlay(threading, Thread=self._thread)
            stack.enter_context(patch.object(store, "threading", virtual_threads))
            for (module, name), value in _REAL_WAITS.items():
                stack.enter_context(patch.object(module, name, value))
            state = random.getstate()
            random.seed(seed)
            stack.callback(random.setstate, state)
            yield

    def _wall_clock(self) -> float:
        return EPOCH + self.loop.time() + self.clock_offset

    def _block(self, seconds: float) -> None:
        self.faults.append(f"{CURRENT_PROCESS.get()} blocked the event loop for {seconds:g} s")

    def _kill(self, pid: int, _signal: int) -> None:
        process = self.processes.get(pid)
        if process is None or not process.is_alive:
            raise ProcessLookupError

    def _thread(self, *, target: Callable[..., None], args: tuple[Any, threading.Event], daemon: bool) -> _Heartbeats:
        del daemon
        return _Heartbeats(self.loop, target, args)


class _Overlay:
    """A module in which some names are replaced."""

    def __init__(self, module: object, **replaced: object):
        vars(self).update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Heartbeats:
    """The thread of heartbeats as a series of timers: each runs the thread's function for one turn of its loop."""

    def __init__(self, loop: VirtualLoop, target: Callable[..., None], args: tuple[Any, threading.Event]):
        self._loop, self._target, (self._leases, self._stop) = loop, target, args
        self._process, self._has_slept = CURRENT_PROCESS.get(), False

    def start(self) -> None:
        self._target(self._leases, self)

    def wait(self, seconds: float) -> bool:
        """Stand in for the function's `Event.wait`: the sleep is a timer, between two calls of the function."""
        if self._has_slept:
            self._has_slept = False
            return self._stop.is_set() or not self._process.is_alive
        self._loop.call_later(seconds, self._wake)
        return True

    def _wake(self) -> None:
        self._has_slept = True
        self.start()
