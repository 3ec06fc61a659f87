"""One event loop on a thread of its own, where synchronous callers run the library's async work.

It serves threads, notebooks and callers whose own loop is running alike; context variables cross over.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

MAX_THREADS = 64

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for its result.

    Raises:
        RuntimeError: Called from the background loop itself, where waiting would never end.
    """
    loop = _background_loop()
    if _running_loop() is loop:
        work.close()
        raise RuntimeError("a synchronous grade inside the library's own event loop would wait for itself: use `await`")
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        # Ctrl-C, or the caller's thread is being stopped: do not go on paying for the answer.
        future.cancel()
        raise


def on_background_loop() -> bool:
    """Whether the caller runs on the background loop, for someone synchronous."""
    return _loop is not None and _running_loop() is _loop


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 -- one loop a process
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            # Python's own default is six threads on two cores, which would be a second, hidden cap on concurrency.
            _loop.set_default_executor(ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="rubric-integrations"))
            threading.Thread(target=_loop.run_forever, name="rubric-integrations", daemon=True).start()
        return _loop


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _forget_loop() -> None:
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop)
