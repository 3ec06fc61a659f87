"""Calls of one turn of the event loop, made as one: a transaction for many rows costs little more than for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """A function of many items, called for one at a time; each event loop has turns of its own.

    Example:
        >>> async def twice() -> list[int]:
        ...     return await asyncio.gather(double(1), double(2))
        >>> double = Batcher[int, int](lambda numbers: [2 * number for number in numbers])
        >>> asyncio.run(twice())
        [2, 4]
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Result]],
        unwanted: Callable[[Item, Result], None] = lambda _item, _result: None,
    ):
        """Set up.

        Args:
            run: Gives the results for some items, in their order, or raises for all.
            unwanted: Gets a result whose caller was cancelled; the item itself is always in the run.
        """
        self._run, self._unwanted = run, unwanted
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Call[Item, Result]]] = {}

    async def __call__(self, item: Item) -> Result:
        """The result for one item, at the end of this turn.

        Raises:
            Exception: What `run` raised.
        """
        loop = asyncio.get_running_loop()
        call = _Call[Item, Result](item, loop.create_future())
        waiting = self._waiting.setdefault(loop, [])
        waiting.append(call)
        if len(waiting) == 1:
            loop.call_soon(self._end_turn, loop)
        try:
            return await call.future
        except BaseException:
            # Cancelled, or closed as garbage; perhaps when the result is there, but not yet here.
            call.abandoned = True
            if call.has_result:
                self._unwanted(item, call.future.result())
            raise

    def _end_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = self._waiting.pop(loop)
        try:
            results = self._run([call.item for call in calls])
        except Exception as error:  # noqa: BLE001 -- it is the callers'
            for call in calls:
                if call.is_wanted:
                    call.future.set_exception(error)
            return
        for call, result in zip(calls, results, strict=True):
            if call.is_wanted:
                call.future.set_result(result)
            else:
                self._unwanted(call.item, result)


class _Call(Generic[Item, Result]):
    def __init__(self, item: Item, future: asyncio.Future[Result]):
        self.item, self.future, self.abandoned = item, future, False

    @property
    def is_wanted(self) -> bool:
        return not self.abandoned and not self.future.cancelled()

    @property
    def has_result(self) -> bool:
        return self.future.done() and not self.future.cancelled() and not self.future.exception()
