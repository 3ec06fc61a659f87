"""Many submissions: graded side by side, handed back in order, and none lost to another's failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from rubric_integrations.graders import Grader
from rubric_integrations.responses import Row
from rubric_integrations.rubric import Rubric
from rubric_integrations.verdict import EvaluationReport, JudgeError


class Graded(NamedTuple):
    """What became of one row.

    Attributes:
        row: The row.
        report: Its grade; incomplete where `judge_error` is set, None where the row could not be graded.
        judge_error: Why the grade could not be completed.
    """

    row: Row
    report: EvaluationReport | None
    judge_error: str | None = None


async def grade_rows(
    rows: Iterable[Row], rubric: Rubric, grader: Grader, max_concurrency: int
) -> AsyncIterator[Graded]:
    """Grade rows and yield them in order, with at most `max_concurrency` under way or waiting to be yielded."""

    async def grade(row: Row) -> Graded:
        if row.submission is None:
            return Graded(row, None)
        try:
            return Graded(row, await grader.grade(rubric, row.submission))
        except JudgeError as error:
            return Graded(row, error.report, str(error))

    window: deque[asyncio.Task[Graded]] = deque()
    try:
        for row in rows:
            window.append(asyncio.create_task(grade(row)))
            if len(window) >= max_concurrency:
                yield await window.popleft()
        while window:
            yield await window.popleft()
    finally:
        for task in window:
            task.cancel()
