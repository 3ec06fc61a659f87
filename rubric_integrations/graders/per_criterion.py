"""One call a criterion: the most careful strategy, and the default choice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rubric_integrations.graders.base import Answer, Grader
from rubric_integrations.judges.base import Question
from rubric_integrations.judges.checks import run_check
from rubric_integrations.rubric import Criterion, Rubric
from rubric_integrations.submission import Submission
from rubric_integrations.verdict import JudgeFailure


class PerCriterionGrader(Grader):
    """Asks the judge each criterion in a call of its own, concurrently up to the cap.

    Criteria with a check are computed and cost no call. Under `on_failure="raise"` the first criterion that fails
    for good cancels the calls under way.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "States the margin as 17.2%"}])
        >>> rubric.grade_sync("It was 17.2%.", grader=PerCriterionGrader(judge="offline")).score
        1.0
    """

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[Answer]:
        """Obtain one answer a criterion, in the rubric's order."""
        gave_up = False

        async def answer(criterion: Criterion) -> Answer:
            nonlocal gave_up
            try:
                found = await self._answer(rubric, submission, criterion)
            except asyncio.CancelledError:
                if not gave_up:
                    raise
                return JudgeFailure("transport", "not asked to the end, since another criterion had failed")
            if isinstance(found, JudgeFailure) and self.on_failure == "raise" and not gave_up:
                gave_up = True
                _cancel(tasks, but=asyncio.current_task())
            return found

        tasks = [asyncio.create_task(answer(criterion)) for criterion in rubric.criteria]
        try:
            return await asyncio.gather(*tasks)
        finally:
            _cancel(tasks)

    async def _answer(self, rubric: Rubric, submission: Submission, criterion: Criterion) -> Answer:
        if criterion.check is not None:
            try:
                return run_check(criterion.check, submission.response)
            except JudgeFailure as failure:
                return failure
        question = Question(submission, criterion, rubric.guidelines or "")
        return await self.ask(lambda: self.judged_by.judge(question))


def _cancel(tasks: Sequence[asyncio.Task[Answer]], but: asyncio.Task[Any] | None = None) -> None:
    for task in tasks:
        if task is not but:
            task.cancel()
