"""Async code on the background loop, for synchronous callers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, cast

import dspy
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations._util.event_loop import on_background_loop, run_sync
from rubric_integrations.checks import register_metric, registry
from rubric_integrations.dspy import RubricMetric

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


def error_of(call: Callable[[], object]) -> BaseException | None:
    """Return what a call raises. It is made in a thread, so that a call that never ends fails its test and no more."""
    caught: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 -- handed to the test
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "the call never ended"
    return caught[0] if caught else None


@pytest.mark.parametrize(
    "end", [SystemExit("no licence"), KeyboardInterrupt()], ids=["SystemExit", "KeyboardInterrupt"]
)
@pytest.mark.parametrize("where", ["coroutine", "task", "thread"])
def test_run_sync_raises_the_end_of_the_program_and_serves_the_next_call(end: BaseException, where: str) -> None:
    def stop() -> None:
        raise end

    async def task() -> None:
        stop()

    async def run() -> None:
        if where == "coroutine":
            stop()
        elif where == "thread":
            await asyncio.to_thread(stop)
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(task())
                group.create_task(asyncio.sleep(60))

    assert error_of(lambda: run_sync(run())) is end
    assert run_sync(asyncio.sleep(0, result="served")) == "served"


def test_run_sync_of_other_threads_survives_the_end_of_the_program() -> None:
    started, ended = threading.Event(), threading.Event()
    results: list[str] = []

    async def wait() -> str:
        started.set()
        return await asyncio.to_thread(lambda: "done" if ended.wait(10) else "late")

    async def stop() -> None:
        raise SystemExit(3)

    thread = threading.Thread(target=lambda: results.append(run_sync(wait())), daemon=True)
    thread.start()
    assert started.wait(10)
    assert isinstance(error_of(lambda: run_sync(stop())), SystemExit)
    ended.set()
    thread.join(5)
    assert results == ["done"]


def end_program(*_arguments: object) -> Any:
    sys.exit("no licence")


async def end_program_in_a_model(system_prompt: str, user_prompt: str) -> str:
    return end_program()


CALLS: dict[str, Callable[[Rubric, PerCriterionGrader], object]] = {
    "grade_sync": lambda rubric, grader: rubric.grade_sync("text", grader=grader),
    "grade_many": lambda rubric, grader: list(grade_many(["one", "two", "three"], rubric, grader)),
    "RubricMetric": lambda rubric, grader: RubricMetric(rubric, grader=grader)(
        dspy.Example(question="Q").with_inputs("question"), dspy.Prediction(answer="A")
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("where", ["judge", "check", "metric", "hybrid metric"])
def test_end_of_the_program_in_a_users_code_ends_the_grade(
    call: Callable[[Rubric, PerCriterionGrader], object], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.CHECKS, "contains", end_program)
    register_metric("ending")(end_program)
    custom = {"type": "custom", "config": {"metric_function": "ending"}}
    checks = {"check": {"contains": "a"}, "metric": {"metric": custom}}
    criteria = [Criterion(requirement="r"), Criterion(requirement="s", check=cast("Any", checks.get(where)))]
    hybrid = [{"name": "m", "weight": 0.5, **custom}] if where == "hybrid metric" else []
    rubric = Rubric(criteria, hybrid_metrics=cast("Any", hybrid))
    grader = (
        PerCriterionGrader(generate_fn=end_program_in_a_model) if where == "judge" else PerCriterionGrader("offline")
    )
    error = error_of(lambda: call(rubric, grader))
    assert isinstance(error, SystemExit)
    assert error.code == "no licence"
    assert run_sync(asyncio.sleep(0, result="served")) == "served"
