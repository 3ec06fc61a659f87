"""The path of a judgment from `grade_many` to the HTTP client: how many functions of ours, and how many tasks."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from benchmarks.calls import NEW_TASK, TaskLog, frames_at_request
from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import LMJudge
from tests.graders.rubrics import rubric_of
from tests.openai_server import OpenAIServer

OURS = " rubric_integrations."


class OwnTaskLog(TaskLog):
    """Counts the tasks that run a coroutine of ours."""

    def _start(self, loop: asyncio.AbstractEventLoop, coro: Any, **arguments: Any) -> asyncio.Task[Any]:
        task = super()._start(loop, coro, **arguments)
        self.count -= "rubric_integrations" not in Path(coro.cr_code.co_filename).parts[:-1]
        return task


class CallPath(NamedTuple):
    """The functions of ours on the stack at the moment of a request, from the task of the submission on.

    Attributes:
        frames: Their names.
        tasks: The tasks that were started for the submissions of the run.
    """

    frames: list[str]
    tasks: int


async def path_of_last_request(
    server: OpenAIServer, rubric: Rubric, ledger: Path | None, monkeypatch: pytest.MonkeyPatch
) -> CallPath:
    """Grade submissions by a rubric, and return the path of the last request."""
    log, send, frames = OwnTaskLog(), aiohttp.ClientSession._request, list[str]()  # pyright: ignore[reportPrivateUsage]

    async def record(self: Any, *arguments: Any, **options: Any) -> Any:
        frames[:] = frames_at_request(log, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        return await send(self, *arguments, **options)

    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url))

    async def grade(texts: list[str]) -> None:
        graded = [each async for each in grade_many(texts, rubric, grader, ledger=ledger)]
        assert all(each.score == 1.0 for each in graded)

    await grade(["the first request makes the template and the connection"])
    monkeypatch.setattr(aiohttp.ClientSession, "_request", record)
    log.install()
    try:
        await grade(["first", "second"])
    finally:
        asyncio.get_running_loop().set_task_factory(None)
    of_submission = frames[frames.index(NEW_TASK) + 1 :]
    return CallPath([frame for frame in of_submission if OURS in frame], log.count)


@pytest.mark.parametrize(("has_ledger", "most"), [(False, 12), (True, 13)])
async def test_path_from_a_run_to_the_http_client_has_few_functions(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ledger: bool, most: int
) -> None:
    path = await path_of_last_request(server, rubric_of(3), tmp_path / "ledger.db" if has_ledger else None, monkeypatch)
    assert any(frame.endswith("judges.lm_judge.LMJudge.judge") for frame in path.frames)
    assert len(path.frames) <= most, "\n".join(path.frames)


async def test_run_starts_one_task_for_each_submission_and_each_criterion(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await path_of_last_request(server, rubric_of(3), None, monkeypatch)
    assert path.tasks == 2 * (1 + 3)
