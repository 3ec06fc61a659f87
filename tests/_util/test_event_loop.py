"""Async code on the background loop, for synchronous callers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextvars import ContextVar

import pytest

from rubric_integrations._util.event_loop import on_background_loop, run_sync

SETTING: ContextVar[str] = ContextVar("SETTING", default="default")


async def read_setting() -> str:
    return SETTING.get()


def test_run_sync_sees_the_context_variables_of_its_caller() -> None:
    token = SETTING.set("caller's")
    try:
        assert run_sync(read_setting()) == "caller's"
    finally:
        SETTING.reset(token)


async def test_run_sync_inside_a_running_loop_uses_the_background_loop() -> None:
    async def is_background() -> bool:
        return on_background_loop()

    assert run_sync(is_background())
    assert not on_background_loop()


def test_run_sync_on_the_background_loop_is_refused() -> None:
    async def nested() -> None:
        run_sync(read_setting())

    with pytest.raises(RuntimeError, match="would wait for itself: use `await`"):
        run_sync(nested())


def test_run_sync_raises_the_error_of_the_coroutine() -> None:
    async def fail() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        run_sync(fail())


def test_run_sync_cancels_the_coroutine_if_the_caller_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt(self: Future[None], timeout: float | None = None) -> None:
        started.wait(5)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_sync(wait())
    assert cancelled.wait(5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_run_sync_works_in_a_forked_child() -> None:
    code = (
        "import asyncio, os; from rubric_integrations._util.event_loop import run_sync;"
        "run_sync(asyncio.sleep(0)); child = os.fork();"
        "os._exit(run_sync(asyncio.sleep(0, result=7))) if child == 0 else None;"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
