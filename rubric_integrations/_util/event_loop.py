"""Runs async code for synchronous callers, and blocking functions in threads for asynchronous callers.

Async code runs on one event loop in a background thread. This works from any thread, in notebooks, and in callers whose
own event loop is running. The coroutine sees the context variables of its caller.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

MAX_THREADS = 64
"""The number of threads in which the background loop runs blocking functions."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for its result.

    Raises:
        RuntimeError: The function was called on the background loop itself, where it would wait forever.
        BaseException: Any exception of the coroutine, including `SystemExit` and `KeyboardInterrupt`.

    Example:
        >>> import asyncio
        >>> run_sync(asyncio.sleep(0, result="done"))
        'done'
    """
    loop = _background_loop()
    if _running_loop() is loop:
        coroutine.close()
        raise RuntimeError("a synchronous grade inside the library's own event loop would wait for itself: use `await`")
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        # After Ctrl-C, or if the caller's thread is stopped, cancel the requests, because they would still cost money.
        future.cancel()
        raise


async def close_stream(stream: Any) -> None:
    """Close an asynchronous generator, after its current step has ended.

    A generator cannot be closed during a step. After Ctrl-C, the step continues for a moment on the background loop,
    because Ctrl-C interrupts only the thread that waits for it.
    """
    while stream.ag_running:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await stream.aclose()


def on_background_loop() -> bool:
    """Return whether the caller runs on the background loop, on behalf of a synchronous caller."""
    return _loop is not None and _running_loop() is _loop


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 -- one loop per process
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            # Python's default is six threads on two cores, which would be a second, hidden concurrency limit.
            _loop.set_default_executor(ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="rubric-integrations"))
            threading.Thread(target=_run_for_ever, args=(_loop,), name="rubric-integrations", daemon=True).start()
        return _loop


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            # For example `sys.exit()` in a user's judge. asyncio stores it as the result of the task and stops the
            # loop. The loop must continue to deliver this result and to serve callers in other threads.
            continue


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _reset_after_fork() -> None:
    # A forked child has no thread that runs the loop, and another thread may have held the lock during the fork.
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


# Computations on shorter texts take less than about 20 ms, and most of them much less than switching the thread.
LONG_TEXT_CHARS = 50_000


async def run_on_texts(function: Callable[[], T], *texts: str | None) -> T:
    """Run a function that reads texts: directly if the texts are short, and in a thread if they are long.

    On the event loop, a text of a megabyte would delay all other submissions by half a second, and their replies could
    be lost to timeouts.

    Args:
        function: The function.
        texts: The texts that the function reads. Their total length decides.

    Raises:
        BaseException: Whatever the function raised.

    Example:
        >>> asyncio.run(run_on_texts("two words".split, "two words"))
        ['two', 'words']
    """
    if sum(map(len, filter(None, texts))) <= LONG_TEXT_CHARS:
        return function()
    return await run_in_thread(function)


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a new thread with the caller's context variables and wait for its result.

    Unlike `asyncio.to_thread`, it never waits for a free thread, because each call has its own thread. The caller
    limits their number. If the caller is cancelled, the function continues and its result is dropped. A function that
    never ends does not keep the program from ending.

    Raises:
        BaseException: Whatever the function raised.

    Example:
        >>> asyncio.run(run_in_thread(lambda: 6 * 7))
        42
    """
    future, context = Future[T](), copy_context()
    # The future is running from the start. Otherwise, a cancelled caller would cancel it, and setting its result would
    # fail.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = context.run(function)
        except BaseException as error:  # noqa: BLE001 -- the caller receives it, including `sys.exit`
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="rubric-integrations-call", daemon=True).start()
    return await asyncio.wrap_future(future)


class WorkLimitError(Exception):
    """Raised when the CPU time of a `WorkLimit` is used up."""


class WorkLimit:
    """A limit on the total CPU time of one request. It is used if untrusted data determine the amount of work.

    The work consists of steps: the blocks of `counted_work`. After the limit is reached, no further step begins.

    Args:
        seconds: The CPU time in seconds, above 0.
    """

    def __init__(self, seconds: float):
        self.left = seconds

    @property
    def is_reached(self) -> bool:
        """Whether the CPU time is used up, or `stop` was called. Then no further step of the work begins."""
        return self.left <= 0

    def stop(self) -> None:
        """Prevent further steps of the work. Call this when nobody waits for the result."""
        self.left = 0.0


work_limit: ContextVar[WorkLimit | None] = ContextVar("work_limit", default=None)
"""The limit that applies to the current request. None if its data are trusted."""


@contextmanager
def counted_work() -> Generator[None]:
    """Count the CPU time of a `with` block against the `WorkLimit` of the current request, if it has a limit.

    Raises:
        WorkLimitError: The limit was reached before the block. The block does not run.

    Example:
        >>> with counted_work():
        ...     sum(range(10))
        45
    """
    limit = work_limit.get()
    if limit is None:
        yield
        return
    if limit.is_reached:
        raise WorkLimitError
    begun = time.thread_time()
    try:
        yield
    finally:
        limit.left -= time.thread_time() - begun
