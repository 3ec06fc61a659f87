"""Runs blocking functions in threads, for asynchronous callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


# What is computed on shorter texts takes less than about 20 ms, and most of it much less than the change of the thread.
LONG_TEXT_CHARS = 50_000


async def run_on_texts(function: Callable[[], T], *texts: str | None) -> T:
    """Run a function that reads texts: at once if they are short, and in a thread if they are long.

    On the event loop, a text of a megabyte would hold all other submissions up for half a second, and their replies
    could be lost to timeouts.

    Args:
        function: The function.
        texts: The texts that it reads; their total length decides.

    Raises:
        BaseException: Whatever the function raised.

    Example:
        >>> asyncio.run(run_on_texts("two words".split, "two words"))
        ['two', 'words']
    """
    if sum(len(text) for text in texts if text) <= LONG_TEXT_CHARS:
        return function()
    return await run_in_thread(function)


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread of its own, with the context variables of the caller, and wait for its result.

    Unlike `asyncio.to_thread`, it never waits for another call to end: there is a thread for each call, and the caller
    limits their number. If the caller is cancelled, the function runs on, and its result is dropped. A function that
    never ends does not keep the program from ending.

    Raises:
        BaseException: Whatever the function raised.

    Example:
        >>> asyncio.run(run_in_thread(lambda: 6 * 7))
        42
    """
    future, context = Future[T](), copy_context()
    # It is running from the start, so that a cancelled caller does not cancel a future whose result is set later.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = context.run(function)
        except BaseException as error:  # noqa: BLE001 -- the caller gets it, also `sys.exit`
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="rubric-integrations-call", daemon=True).start()
    return await asyncio.wrap_future(future)
