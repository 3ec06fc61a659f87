"""Blocking functions in threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest

from rubric_integrations._util.event_loop import run_in_thread

SETTING: ContextVar[str] = ContextVar("SETTING", default="default")


async def test_function_runs_in_another_thread_with_the_callers_context() -> None:
    SETTING.set("caller's")
    thread, setting = await run_in_thread(lambda: (threading.current_thread(), SETTING.get()))
    assert (thread is threading.current_thread(), setting) == (False, "caller's")


@pytest.mark.parametrize("error", [KeyError("lost"), SystemExit(3), asyncio.CancelledError()])
def test_error_of_the_function_is_raised(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        asyncio.run(run_in_thread(fail))


async def test_hundred_functions_run_at_the_same_time() -> None:
    barrier = threading.Barrier(100)
    results = await asyncio.gather(*(run_in_thread(lambda: barrier.wait(10)) for _ in range(100)))
    assert sorted(results) == list(range(100))


async def test_cancelled_call_ends_at_once_and_its_result_is_dropped() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        release.wait(10)
        ended.set()

    call = asyncio.create_task(run_in_thread(block))
    await asyncio.to_thread(started.wait, 5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not ended.is_set()
    release.set()
    assert await asyncio.to_thread(ended.wait, 5)


def test_function_that_never_ends_does_not_keep_the_program_from_ending() -> None:
    code = (
        "import asyncio, threading; from rubric_integrations._util.event_loop import run_in_thread\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.1): await run_in_thread(threading.Event().wait)\n"
        "    except TimeoutError: print('timeout')\n"
        "asyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (0, "timeout\n"), done.stderr
