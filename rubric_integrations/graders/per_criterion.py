"""One call a criterion: the most careful strategy, and the usual choice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rubric_integrations.graders.base import Member
from rubric_integrations.graders.by_criterion import CriterionGrader
from rubric_integrations.graders.reports import Answer, Ballot
from rubric_integrations.rubric import Rubric
from rubric_integrations.submission import Submission
from rubric_integrations.verdict import JudgeFailure


class PerCriterionGrader(CriterionGrader):
    """Asks the judge each criterion in a call of its own, concurrently up to the cap.

    Criteria with a check are computed and cost no call. Under `on_failure="raise"` the first criterion that a single
    judge fails at for good cancels the calls under way.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "States the margin as 17.2%"}])
        >>> rubric.grade_sync("It was 17.2%.", grader=PerCriterionGrader(judge="offline")).score
        1.0
    """

    async def poll(self, member: Member, rubric: Rubric, submission: Submission, wanted: Sequence[int]) -> Ballot:
        """Ask one judge about the criteria at these places, each in a call of its own."""
        gave_up = False

        async def answer(index: int) -> Answer:
            nonlocal gave_up
            question = self.question(rubric, submission, index, member)
            try:
                judgment, lost = await self.budget.ask(lambda: member.judge.judge(question))
            except JudgeFailure as failure:
                if self.stops_at_once and not gave_up:
                    gave_up = True
                    _cancel(tasks, but=asyncio.current_task())
                return failure
            except asyncio.CancelledError:
                if not gave_up:
                    raise
                return JudgeFailure("transport", "not asked to the end, since another criterion had failed")
            return judgment.model_copy(update={"spend": judgment.spend + lost})

        tasks = [asyncio.create_task(answer(index)) for index in wanted]
        try:
            answers = await asyncio.gather(*tasks)
        finally:
            _cancel(tasks)
        return Ballot(dict(zip(wanted, answers, strict=True)), member.name, member.weight)


def _cancel(tasks: Sequence[asyncio.Task[Answer]], but: asyncio.Task[Any] | None = None) -> None:
    for task in tasks:
        if task is not but:
            task.cancel()
