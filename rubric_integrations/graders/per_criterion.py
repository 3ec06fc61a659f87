"""One call a criterion: the most careful strategy, and the usual choice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from rubric_integrations.graders.base import PanelMember
from rubric_integrations.graders.by_criterion import CriterionGrader
from rubric_integrations.graders.early_stopping import decision_is_final, question_order
from rubric_integrations.judges.protocol import validate_judgment
from rubric_integrations.results.judgment import CANCELLED, JudgeAnswers, JudgeFailure, Judgment, Outcome
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission


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

    def __init__(self, *args: Any, stop_when_decided: bool | float = False, **settings: Any):
        """Set up a grader; see `Grader` for the other settings.

        Args:
            *args: As for `Grader`.
            stop_when_decided: Ask one criterion after another, and no more once nothing can change `passed`: checks
                first, then required criteria, then the heaviest. A number asks on until it is also certain on which
                side of it the score is. The report names what was `not_asked`, and has a `score_range` for a score.
            **settings: As for `Grader`.

        Raises:
            ValueError: A setting is missing, unknown or out of range.
        """
        super().__init__(*args, **settings)
        if not 0 <= stop_when_decided <= 1:
            raise ValueError(f"`stop_when_decided` must be True, False or a score in [0, 1], got {stop_when_decided!r}")
        self.may_leave_open = stop_when_decided is not False
        self.threshold = None if isinstance(stop_when_decided, bool) else stop_when_decided
        if self.may_leave_open and not self.policies.normalize:
            raise ValueError("`stop_when_decided` goes by the normalized score: it does not go with `normalize=False`")

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[JudgeAnswers]:
        """Obtain each judge's answers, to all criteria or until the decision is made."""
        if not self.may_leave_open:
            return await super().judge(rubric, submission)
        panel_answers = [JudgeAnswers({}, member.name, member.weight) for member in self.panel]
        for place in question_order(rubric, submission):
            report = self._blended(rubric, submission, panel_answers)
            if report.failed_count and self.policies.on_failure == "raise":
                break
            if decision_is_final(self._shortened(rubric, submission, report), rubric.pass_mark, self.threshold):
                break
            more = await self.vote(rubric, submission, [place])
            panel_answers = [
                answers_of_judge.joined(other) for answers_of_judge, other in zip(panel_answers, more, strict=True)
            ]
        return panel_answers

    async def poll(
        self, member: PanelMember, rubric: Rubric, submission: Submission, wanted: Sequence[int]
    ) -> JudgeAnswers:
        """Ask one judge about the criteria at these places, each in a call of its own."""
        if not wanted:
            return JudgeAnswers({}, member.name, member.weight)

        async def answer(index: int) -> Outcome:
            try:
                judgment, lost = await self.call_limiter.ask(partial(self._ask, member, rubric, submission, index))
            except JudgeFailure as failure:
                if self.stops_at_once:
                    _cancel(tasks, but=asyncio.current_task())
                return failure
            return judgment.model_copy(update={"spend": judgment.spend + lost}) if lost.calls else judgment

        tasks: list[asyncio.Task[Outcome]] = []
        try:
            for group in (wanted[:1], wanted[1:]) if self.warm_prompt_cache else (wanted,):
                if group and not (self.stops_at_once and _failed(tasks)):
                    tasks += [asyncio.create_task(answer(index)) for index in group]
                    await asyncio.wait(tasks)
        finally:
            _cancel(tasks)
        said = {i: task.result() for i, task in zip(wanted, tasks, strict=False) if not task.cancelled()}
        not_asked = JudgeFailure("transport", CANCELLED)
        return JudgeAnswers({i: said.get(i, not_asked) for i in wanted}, member.name, member.weight)

    async def _ask(self, member: PanelMember, rubric: Rubric, submission: Submission, index: int) -> Judgment:
        question = self.question(rubric, submission, index, member)
        return validate_judgment(question.criterion, await member.judge.judge(question))


def _failed(tasks: Sequence[asyncio.Task[Outcome]]) -> JudgeFailure | None:
    results = [task.result() for task in tasks if not task.cancelled()]
    return next((answer for answer in results if isinstance(answer, JudgeFailure)), None)


def _cancel(tasks: Sequence[asyncio.Task[Outcome]], but: asyncio.Task[Any] | None = None) -> None:
    for task in tasks:
        if task is not but:
            task.cancel()
