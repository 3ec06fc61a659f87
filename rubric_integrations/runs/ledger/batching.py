"""Batches the calls made within one event-loop tick.

The ledger batches its reads and writes, since a transaction for many rows costs little more than one for a single row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def _ignore(_item: object, _result: object) -> None:
    pass


class Batcher(Generic[Item, Result]):
    """An async function of one item, made from a function of many; each event loop has batches of its own.

    Args:
        run: Returns the results for some items, in their order. If it raises, every caller of the batch gets the error.
        discard: Receives the item and the result of a caller that was cancelled. An item whose call has begun is always
            part of a batch, also if its caller is cancelled before the batch runs.

    Example:
        >>> async def double_two() -> list[int]:
        ...     return await asyncio.gather(double(1), double(2))
        >>> double = Batcher[int, int](lambda numbers: [2 * number for number in numbers])
        >>> asyncio.run(double_two())
        [2, 4]
    """

    def __init__(
        self, run: Callable[[Sequence[Item]], Sequence[Result]], discard: Callable[[Item, Result], None] = _ignore
    ):
        self._run, self._discard = run, discard
        self._pending: dict[asyncio.AbstractEventLoop, list[_Call[Item, Result]]] = {}

    async def __call__(self, item: Item) -> Result:
        """Return the result for one item, once the batch of this tick has run.

        Raises:
            Exception: The error that `run` raised.
        """
        loop = asyncio.get_running_loop()
        call = _Call[Item, Result](item, loop.create_future())
        calls = self._pending.setdefault(loop, [])
        calls.append(call)
        if len(calls) == 1:
            loop.call_soon(self._run_batch, loop)
        try:
            return await call.future
        except BaseException:
            # The caller was cancelled, or its coroutine was closed by the garbage collector. Either may happen after
            # the batch has set the result and before the caller resumes.
            call.is_abandoned = True
            if call.has_result:
                self._discard(item, call.future.result())
            raise

    def _run_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = self._pending.pop(loop)
        try:
            results = self._run([call.item for call in calls])
        except Exception as error:  # noqa: BLE001 -- passed on to the callers
            for call in calls:
                if call.is_awaited:
                    call.future.set_exception(error)
            return
        for call, result in zip(calls, results, strict=True):
            if call.is_awaited:
                call.future.set_result(result)
            else:
                self._discard(call.item, result)


class _Call(Generic[Item, Result]):
    def __init__(self, item: Item, future: asyncio.Future[Result]):
        self.item, self.future, self.is_abandoned = item, future, False

    @property
    def is_awaited(self) -> bool:
        return not self.is_abandoned and not self.future.cancelled()

    @property
    def has_result(self) -> bool:
        return self.future.done() and not self.future.cancelled() and not self.future.exception()
