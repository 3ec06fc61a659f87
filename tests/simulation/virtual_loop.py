"""An event loop on a virtual clock, which runs several simulated processes in an order that a seed decides."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rubric_integrations.runs import Ledger

# Seconds. Timers end on multiples of it, so that a call that polls every few milliseconds takes few steps. It is a
# power of two, so that no multiple is rounded to a time before the end of the timer.
RESOLUTION = 1 / 16
# Seconds of virtual time in which every scenario ends, and the steps that one instant of it takes at most.
LONGEST_SIMULATION, MOST_STEPS_AT_ONCE = 600.0, 50_000
# Seconds without a heartbeat after which others may take the leases of a process, rounded down.
SHORTEST_LONG_PAUSE = 3.0


class StuckError(Exception):
    """Nothing can happen any more, or something happens for ever."""


class Process:
    """A simulated process: the tasks, timers and heartbeats that were started in its context.

    Args:
        pid: Its process id.
        host: The host on which it runs.
        actions: What happens to it after which of its steps on the event loop.

    Attributes:
        steps: The steps that it has made.
        is_alive: Whether it has not crashed.
        paused_until: The time until which it makes no step.
        long_pauses: How often it was paused for so long that its leases may have expired.
        ledger: Its handle on the ledger, while it has one.
        task: Its main task.
    """

    def __init__(self, pid: int, host: str, actions: dict[int, Callable[[Process], None]]):
        self.pid, self.host, self._actions = pid, host, actions
        self.steps, self.is_alive = 0, True
        self.paused_until, self.long_pauses = 0.0, 0
        self.ledger: Ledger | None = None
        self.task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"process {self.pid}"

    @property
    def context(self) -> Context:
        """A context in which everything belongs to this process."""
        context = copy_context()
        context.run(CURRENT_PROCESS.set, self)
        return context

    def after_step(self) -> None:
        """Count a step, and let happen what is planned after it."""
        self.steps += 1
        if (action := self._actions.pop(self.steps, None)) and self.is_alive:
            action(self)

    def crash(self) -> None:
        """End without any further effect: what is cancelled here has no ledger and no network any more."""
        self.is_alive = False
        if self.ledger is not None:
            self.ledger._file.close()  # pyright: ignore[reportPrivateUsage]
        self.interrupt()

    def interrupt(self) -> None:
        """Cancel the main task, as `asyncio.run` does on Ctrl-C."""
        if self.task is not None:
            self.task.cancel()

    def pause(self, until: float, now: float) -> None:
        """Stop, as on SIGSTOP, until a time."""
        self.paused_until = until
        self.long_pauses += until - now >= SHORTEST_LONG_PAUSE


OUTSIDE = Process(pid=1, host="outside", actions={})
"""The process of everything that is not simulated, such as the driver."""

CURRENT_PROCESS: ContextVar[Process] = ContextVar("CURRENT_PROCESS", default=OUTSIDE)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose clock jumps to the next timer as soon as nothing else can run.

    Within a process, callbacks run in the order in which they were scheduled, as asyncio promises. Which process makes
    the next step is drawn; a paused one makes none.

    Args:
        chance: Draws the next process.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, chance: Random):
        super().__init__()
        self._chance, self._now, self._steps_now = chance, 0.0, 0
        self._queues: dict[Process, deque[asyncio.Handle]] = {}
        self.set_exception_handler(self._note_error)
        self.errors: list[str] = []

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        """Schedule a callback at the next multiple of the clock's resolution."""
        return super().call_at(math.ceil(when / RESOLUTION) * RESOLUTION, callback, *args, context=context)

    def _run_once(self) -> None:
        while self._ready:
            self._enqueue(self._ready.popleft())
        able = [process for process, queue in self._queues.items() if queue and process.paused_until <= self._now]
        self._steps_now += 1
        if self._steps_now > MOST_STEPS_AT_ONCE:
            raise StuckError(f"the clock stands still at {self._now:.2f} s")
        if not able:
            self._advance()
            return
        process = able[0] if len(able) == 1 else self._chance.choice(able)
        handle = self._queues[process].popleft()
        if not handle.cancelled():
            handle._run()
            process.after_step()

    def _enqueue(self, handle: asyncio.Handle) -> None:
        context: Context = handle._context  # pyright: ignore[reportAttributeAccessIssue]
        self._queues.setdefault(context.get(CURRENT_PROCESS, OUTSIDE), deque()).append(handle)

    def _advance(self) -> None:
        """Move the clock to the next timer or to the end of a pause, and make the timers ready that are due."""
        while self._scheduled and self._scheduled[0].cancelled():
            self._pop_timer()
        times = [process.paused_until for process, queue in self._queues.items() if queue]
        times += [timer.when() for timer in self._scheduled[:1]]
        if not times:
            raise StuckError(f"everybody waits for somebody else at {self._now:.2f} s")
        if min(times) > self._now:
            self._now, self._steps_now = min(times), 0
        if self._now > LONGEST_SIMULATION:
            raise StuckError(f"there is no end after {LONGEST_SIMULATION:.0f} s")
        while self._scheduled and self._scheduled[0].when() <= self._now:
            self._ready.append(self._pop_timer())

    def _pop_timer(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._scheduled)
        timer._scheduled = False  # pyright: ignore[reportAttributeAccessIssue]
        return timer

    def _note_error(self, _loop: asyncio.AbstractEventLoop, details: dict[str, Any]) -> None:
        self.errors.append(f"{details['message']}: {details.get('exception')!r}")

    def _write_to_self(self) -> None:
        """Do nothing: there is no selector to wake."""

    def _process_events(self, _events: object) -> None:
        """Do nothing: there is no selector."""
