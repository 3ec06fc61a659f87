"""The rows of a run that are under way, and the finished ones whose turn has not come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from rubric_integrations.runs.summary import Graded


class RowWindow:
    """The tasks that grade the rows of one run.

    Args:
        max_under_way: The most rows that are graded at the same time.
        max_waiting: The most rows that are finished and wait for an earlier one, where the results come in order.
        ordered: Whether they do; if not, they come as soon as they are ready.
    """

    def __init__(self, max_under_way: int, max_waiting: int, ordered: bool):
        self._max_under_way, self._max_tasks, self._ordered = max_under_way, max_under_way + max_waiting, ordered
        self._under_way: set[asyncio.Task[Graded]] = set()
        # In the order in which the results come: that of the rows, or that in which they finish.
        self._queue: deque[asyncio.Task[Graded]] = deque()
        self._has_finished = asyncio.Event()

    @property
    def under_way(self) -> int:
        """The number of rows that are being graded."""
        return len(self._under_way)

    @property
    def has_room(self) -> bool:
        """Whether another row may start."""
        return len(self._under_way) < self._max_under_way and len(self._queue) < self._max_tasks

    def start(self, grade: Coroutine[Any, Any, Graded]) -> asyncio.Task[Graded]:
        """Start to grade a row, and return its task."""
        task = asyncio.create_task(grade)
        self._under_way.add(task)
        if self._ordered:
            self._queue.append(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[Graded]) -> None:
        self._under_way.discard(task)
        if not self._ordered:
            self._queue.append(task)
        self._has_finished.set()

    @property
    def is_busy(self) -> bool:
        """Whether a row is being graded, or waits to be taken."""
        return bool(self._under_way or self._queue)

    async def wait(self) -> None:
        """Wait until a row has finished, unless one is ready to be taken."""
        if not (self._queue and self._queue[0].done()):
            await self._has_finished.wait()
        self._has_finished.clear()

    def take(self) -> list[asyncio.Task[Graded]]:
        """Remove the finished tasks whose turn it is."""
        taken: list[asyncio.Task[Graded]] = []
        while self._queue and self._queue[0].done():
            taken.append(self._queue.popleft())
        return taken

    async def cancel(self) -> None:
        """Cancel the rows that are under way, and wait for their end: one may still be writing to the ledger."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, *self._queue, return_exceptions=True)
