"""One call for each criterion: the most careful strategy, and the usual choice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rubric_integrations.graders.base import DEFAULT_LIMITS, DEFAULT_OPTIONS, DEFAULT_VOTING
from rubric_integrations.graders.by_criterion import CriterionGrader
from rubric_integrations.graders.early_stopping import decision_is_final, question_order
from rubric_integrations.graders.panel import PanelMember
from rubric_integrations.graders.settings import CallLimits, OptionDisplay, Voting
from rubric_integrations.judges.chunks import join_outcomes, split_question
from rubric_integrations.judges.protocol import Question
from rubric_integrations.results.judgment import JudgeAnswers, JudgeFailure, Judgment, Outcome
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.applicability import applicable_criteria
from rubric_integrations.scoring.length import LengthPenalty
from rubric_integrations.scoring.policies import CannotAssess, DefaultFallbackVerdicts, OnFailure
from rubric_integrations.submission.submission import Submission

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.judges.models import GenerateFn


class PerCriterionGrader(CriterionGrader):
    """A grader that asks the judge about each criterion in a call of its own, concurrently up to the limit.

    Criteria with a check are computed and cost no call. A condition (`applies_when`) in words is a call that all its
    criteria share, before theirs; a criterion that does not apply costs no call of its own. Under `on_failure="raise"`,
    the first criterion that a single judge finally fails at cancels the calls under way.

    Args:
        judge: A model name, a `dspy.LM`, a LangChain chat model, an async function, a `Judge`, or `"offline"`. There is
            no default: inside DSPy, a judge that is not named would use the student's own model.
        generate_fn: An async function `(system_prompt, user_prompt) -> reply` in place of `judge`, under the name that
            it has in the `rubric` package.
        judges: A panel of judges in place of `judge`.
        voting: How a panel votes.
        system_prompt: Instructions in place of the built-in ones; goes with a model, not with a `Judge`.
        normalize: Whether `score` is in [0, 1]; if not, it is the raw weighted sum.
        length_penalty: What long responses lose; in points where `normalize` is False. By default nothing.
        cannot_assess: How an abstention is scored: `skip`, `zero`, `partial` or `fail`.
        partial_credit: The share in [0, 1] of a positive weight that `cannot_assess="partial"` gives.
        on_failure: How a judge's failure is handled: `raise` a `JudgeError`, count it as an abstention (`abstain`), as
            the `worst_case`, or as fallback verdicts by the weight's sign, `{"positive": "UNMET", "negative": "MET"}`.
        default_fallback_verdicts: Fallback verdicts under the name that they have in the `rubric` package.
        options: How judges see the options of multi-choice criteria.
        max_retries: Retries after a failed call, at least 0; 2 means up to three attempts. An outage has a limit of its
            own: `CallLimits.max_outage`.
        limits: The limits on concurrent calls and on the time of each.
        stop_when_decided: Whether to ask about one criterion after another, and to stop once no further answer can
            change `passed`: checks first, then required criteria, then the heaviest. A number in [0, 1] continues until
            it is also certain on which side of it the score is. The report then lists `not_asked`, and has a
            `score_range` in place of a score.

    Raises:
        ValueError: A setting is missing, unknown, or out of range; raised before any request.
        TypeError: `judge` is nothing that can judge.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "States the margin as 17.2%"}])
        >>> rubric.grade_sync("It was 17.2%.", grader=PerCriterionGrader(judge="offline")).score
        1.0
    """

    judges_chunks = True

    def __init__(
        self,
        judge: JudgeLike | None = None,
        *,
        generate_fn: GenerateFn | None = None,
        judges: Sequence[JudgeLike] | None = None,
        voting: Voting = DEFAULT_VOTING,
        system_prompt: str | None = None,
        normalize: bool = True,
        length_penalty: LengthPenalty | None = None,
        cannot_assess: CannotAssess = "skip",
        partial_credit: float = 0.5,
        on_failure: OnFailure = "raise",
        default_fallback_verdicts: DefaultFallbackVerdicts | None = None,
        options: OptionDisplay = DEFAULT_OPTIONS,
        max_retries: int = 2,
        limits: CallLimits = DEFAULT_LIMITS,
        stop_when_decided: bool | float = False,
    ):
        super().__init__(
            judge,
            generate_fn=generate_fn,
            judges=judges,
            voting=voting,
            system_prompt=system_prompt,
            normalize=normalize,
            length_penalty=length_penalty,
            cannot_assess=cannot_assess,
            partial_credit=partial_credit,
            on_failure=on_failure,
            default_fallback_verdicts=default_fallback_verdicts,
            options=options,
            max_retries=max_retries,
            limits=limits,
        )
        if not 0 <= stop_when_decided <= 1:
            raise ValueError(f"`stop_when_decided` must be True, False or a score in [0, 1], got {stop_when_decided!r}")
        self.may_leave_open = stop_when_decided is not False
        self.threshold = None if isinstance(stop_when_decided, bool) else stop_when_decided
        if self.may_leave_open and not normalize:
            raise ValueError("`stop_when_decided` goes by the normalized score: it does not go with `normalize=False`")

    async def judge(self, rubric: Rubric, submission: Submission) -> Sequence[JudgeAnswers]:
        """Obtain each judge's answers, to all criteria or until the decision is final."""
        if not self.may_leave_open:
            return await super().judge(rubric, submission)
        panel = [JudgeAnswers({}, member.name, member.weight) for member in self.panel]
        computed = await self.run_checks(rubric, submission)
        for index in question_order(rubric, submission):
            if index < len(rubric) and index not in applicable_criteria(rubric, panel, computed, self.policies):
                continue
            report = await self._report(rubric, submission, panel)
            if report.failed_count and self.policies.on_failure == "raise":
                break
            report = await self._with_penalty(rubric, submission, report)
            if decision_is_final(report, rubric.pass_mark, self.threshold):
                break
            later = await self.ask_panel(rubric, submission, [index])
            panel = [earlier.merged(more) for earlier, more in zip(panel, later, strict=True)]
        return panel

    async def ask(
        self, member: PanelMember, rubric: Rubric, submission: Submission, indices: Sequence[int]
    ) -> JudgeAnswers:
        """Ask one judge about these criteria, each in a call of its own."""
        if not indices:
            return JudgeAnswers({}, member.name, member.weight)

        async def answer(index: int) -> Outcome:
            question = self.question(rubric, submission, index, member)
            if not uses_cache:
                question = question._replace(warm_prompt_cache=False)
            try:
                return await self._judge_parts(member, question)
            except JudgeFailure as failure:
                if self.stops_at_first_failure:
                    _cancel(tasks, but=asyncio.current_task())
                return failure

        uses_cache, others = True, indices[1:]
        tasks = [asyncio.create_task(answer(indices[0]))]
        try:
            if others and self.warm_up:
                uses_cache = await self.warm_up.hold(tasks[0], len(others), self.call_limiter.concurrency)
            if not (self.stops_at_first_failure and _has_failed(tasks)):
                tasks += [asyncio.create_task(answer(index)) for index in others]
            await asyncio.wait(tasks)
        finally:
            _cancel(tasks)
        outcomes = {i: task.result() for i, task in zip(indices, tasks, strict=False) if not task.cancelled()}
        cancelled = JudgeFailure("cancelled", "another criterion had failed")
        return JudgeAnswers({i: outcomes.get(i, cancelled) for i in indices}, member.name, member.weight)

    async def _judge_parts(self, member: PanelMember, question: Question) -> Judgment:
        """Ask one question; if `CallLimits.chunk_size` splits the response, about each part in a call of its own."""
        chunk_size = self.call_limiter.limits.chunk_size
        parts = [question] if chunk_size is None else split_question(question, chunk_size)
        if len(parts) == 1:
            return await self._request(member, question)

        async def outcome(part: Question) -> Outcome:
            try:
                return await self._request(member, part)
            except JudgeFailure as failure:
                return failure

        return join_outcomes(await asyncio.gather(*map(outcome, parts)))

    async def _request(self, member: PanelMember, question: Question) -> Judgment:
        judgment, lost = await self.call_limiter.call(partial(member.judge.judge, question))
        return judgment.model_copy(update={"spend": judgment.spend + lost}) if lost.calls else judgment


def _has_failed(tasks: Sequence[asyncio.Task[Outcome]]) -> bool:
    return any(isinstance(task.result(), JudgeFailure) for task in tasks if task.done() and not task.cancelled())


def _cancel(tasks: Sequence[asyncio.Task[Outcome]], but: asyncio.Task[Any] | None = None) -> None:
    for task in tasks:
        if task is not but:
            task.cancel()
