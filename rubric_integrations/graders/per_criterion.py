"""One call a criterion: the most careful strategy, and the usual choice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from rubric_integrations.graders.base import Member
from rubric_integrations.graders.by_criterion import CriterionGrader
from rubric_integrations.graders.reports import Answer, Ballot
from rubric_integrations.judges.base import checked
from rubric_integrations.rubric import Rubric
from rubric_integrations.submission import Submission
from rubric_integrations.verdict import JudgeFailure, Judgment


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
        if not wanted:
            return Ballot({}, member.name, member.weight)

        async def answer(index: int) -> Answer:
            try:
                judgment, lost = await self.budget.ask(partial(self._ask, member, rubric, submission, index))
            except JudgeFailure as failure:
                if self.stops_at_once:
                    _cancel(tasks, but=asyncio.current_task())
                return failure
            return judgment.model_copy(update={"spend": judgment.spend + lost}) if lost.calls else judgment

        tasks: list[asyncio.Task[Answer]] = []
        try:
            for group in (wanted[:1], wanted[1:]) if self.one_ahead else (wanted,):
                if group and not (self.stops_at_once and _failed(tasks)):
                    tasks += [asyncio.create_task(answer(index)) for index in group]
                    await asyncio.wait(tasks)
        finally:
            _cancel(tasks)
        said = {i: task.result() for i, task in zip(wanted, tasks, strict=False) if not task.cancelled()}
        first = _failed(tasks)
        not_asked = JudgeFailure("transport", f"not asked to the end, since another criterion had failed: {first}")
        return Ballot({i: said.get(i, not_asked) for i in wanted}, member.name, member.weight)

    async def _ask(self, member: Member, rubric: Rubric, submission: Submission, index: int) -> Judgment:
        question = self.question(rubric, submission, index, member)
        return checked(question.criterion, await member.judge.judge(question))


def _failed(tasks: Sequence[asyncio.Task[Answer]]) -> JudgeFailure | None:
    results = [task.result() for task in tasks if not task.cancelled()]
    return next((answer for answer in results if isinstance(answer, JudgeFailure)), None)


def _cancel(tasks: Sequence[asyncio.Task[Answer]], but: asyncio.Task[Any] | None = None) -> None:
    for task in tasks:
        if task is not but:
            task.cancel()
