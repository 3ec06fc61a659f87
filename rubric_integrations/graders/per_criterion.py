"""`PerCriterionGrader`: one call for each criterion. The most careful strategy, and the default.

The module also orders the questions, stops when no further answer can change the decision, and judges a long response
in parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from rubric_integrations.graders.batches import ask_in_one_request, groups_of
from rubric_integrations.graders.grader import (
    DEFAULT_LIMITS,
    DEFAULT_OPTIONS,
    DEFAULT_TEXT_LIMITS,
    DEFAULT_VOTING,
    CriterionGrader,
    cancelled,
    is_computed,
)
from rubric_integrations.graders.panel import PanelMember
from rubric_integrations.graders.rounds import Criteria, Round
from rubric_integrations.graders.scheduler import AttemptResult, with_spend
from rubric_integrations.graders.settings import CallLimits, OptionDisplay, TextLimits, Voting
from rubric_integrations.judges.prompts.render import PART_NOTE
from rubric_integrations.judges.protocol import GenerateFn, JudgeLike, Question, Request, answer, answers_independently
from rubric_integrations.judges.spend import gather_calls
from rubric_integrations.rubric.criterion import Criterion, all_criteria, condition_indices
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.aggregate import applicable_criteria
from rubric_integrations.scoring.formula import reaches_mark
from rubric_integrations.scoring.judgment import (
    NO_SPEND,
    JudgeAnswers,
    JudgeFailure,
    Judgment,
    Outcome,
    Verdict,
    extreme_judgment,
    total_spend,
)
from rubric_integrations.scoring.length import LengthPenalty
from rubric_integrations.scoring.policies import CannotAssess, DefaultFallbackVerdicts, OnFailure
from rubric_integrations.scoring.report import EvaluationReport, total_escalation_cost
from rubric_integrations.submission.submission import Submission, shown_trajectory, split_response


def question_order(rubric: Rubric, submission: Submission) -> dict[int, Criterion]:
    """Order the criteria for a judge, to decide as early as possible whether the submission passes.

    Required criteria come first. The other criteria are ordered by their largest effect on the score, divided by the
    length of their prompt. A condition comes directly before the first criterion that has it. Criteria that need no
    judge are left out, because they are computed before.

    Returns:
        The criteria and conditions by their index in the answers.
    """
    texts = (submission.response, submission.query or "", submission.reference or "", *submission.context)
    shared = sum(map(len, texts))

    def effect(criterion: Criterion) -> float:
        low, high = (extreme_judgment(criterion, end).value or 0.0 for end in ("low", "high"))
        own = sum(map(len, (criterion.requirement, *(option.label for option in criterion.options or ()))))
        trajectory = shown_trajectory(submission, [criterion])
        steps = len(trajectory.text()) if trajectory else 0
        return abs(criterion.full_weight) * (high - low) / (shared + steps + own)

    every, condition_of = all_criteria(rubric.criteria), condition_indices(rubric.criteria)
    criteria = sorted(
        range(len(rubric)), key=lambda index: (not rubric.criteria[index].is_gate, -effect(rubric.criteria[index]))
    )
    order = [place for index in criteria for place in (condition_of[index], index) if place is not None]
    return {index: every[index] for index in order if not is_computed(every[index], submission)}


def decision_is_final(report: EvaluationReport, rubric: Rubric, threshold: float | None = None) -> bool:
    """Return whether the missing answers can no longer change the decision.

    The decision is `passed` and, with a threshold, whether the score reaches the threshold.

    Args:
        report: The report of the answers so far.
        rubric: The rubric.
        threshold: A score in [0, 1]. None if only `passed` matters.
    """
    if report.score_range is None:
        return True
    low, high = report.score_range
    gate_failed = any(row.required and row.was_asked and not row.passed for row in report.criteria)
    # `coverage` counts open criteria as not assessed, because judges may still abstain from all of them.
    is_sure = report.passed and reaches_mark(report.coverage, rubric.min_coverage)
    passed_is_final = is_sure or gate_failed or not reaches_mark(high, rubric.pass_mark)
    return passed_is_final and (threshold is None or reaches_mark(low, threshold) == reaches_mark(high, threshold))


_DECISIVE_FIRST: tuple[Verdict, ...] = ("MET", "CANNOT_ASSESS", "UNMET")


def split_question(question: Question, chunk_size: int) -> list[Question]:
    """Split a question about a binary criterion into one question for each part of the response.

    The guidelines of each question state the number of the part and the number of all parts. Therefore, a stored answer
    about a part is not used for an equal text at another position.

    Returns:
        The questions. If the response is short enough, the only entry is the unchanged question. This is also the case
        if the criterion has options or a scale, because answers about parts could not be joined.
    """
    submission = question.submission
    parts = split_response(submission, chunk_size) if question.criterion.kind == "binary" else [submission.response]
    if len(parts) == 1:
        return [question]
    return [
        question._replace(
            submission=submission.model_copy(update={"response": part}),
            guidelines=f"{question.guidelines}\n\n{PART_NOTE.format(number=number, count=len(parts))}".strip(),
            whole_response=question.whole_response or submission.response,
        )
        for number, part in enumerate(parts, start=1)
    ]


def join_outcomes(outcomes: Sequence[Outcome]) -> Judgment:
    """Join the answers about all parts of a response: MET if any part is MET, UNMET if all parts are UNMET.

    If no part is MET, a failure on any part is a failure of the criterion. Otherwise, an abstention on any part is an
    abstention, because this part may contain the evidence.

    Returns:
        The judgment, with the reasons and the evidence of the parts that decide it, and the spend of all parts. It has
        no confidence, because a judge states its confidence for one part only.

    Raises:
        JudgeFailure: No part is MET and there is a failure on a part.
    """
    spend = total_spend(outcome.spend for outcome in outcomes)
    judgments = {number: outcome for number, outcome in enumerate(outcomes, start=1) if isinstance(outcome, Judgment)}
    verdicts = {judgment.verdict for judgment in judgments.values()}
    failures = {
        number: outcome for number, outcome in enumerate(outcomes, start=1) if isinstance(outcome, JudgeFailure)
    }
    if failures and "MET" not in verdicts:
        number, failure = next(iter(failures.items()))
        message = f"part {number} of {len(outcomes)}: {failure.message}"
        raise JudgeFailure(failure.kind, message, about_text=failure.about_text, repeats=failure.repeats, spend=spend)
    verdict = next(verdict for verdict in _DECISIVE_FIRST if verdict in verdicts)
    models = dict.fromkeys(judgment.model for judgment in judgments.values() if judgment.model)
    deciding = {number: judgment for number, judgment in judgments.items() if judgment.verdict == verdict}
    return Judgment(
        verdict=verdict,
        value=next(iter(deciding.values())).value,
        reason="; ".join(
            f"part {number} of {len(outcomes)}" + (f": {part.reason}" if part.reason else "")
            for number, part in deciding.items()
        ),
        model=", ".join(models) or None,
        spend=spend,
        neutralized=any(judgment.neutralized for judgment in judgments.values()),
        evidence=tuple(sorted({step for part in deciding.values() for step in part.evidence})),
        escalated=any(judgment.escalated for judgment in judgments.values()),
        escalation_cost=total_escalation_cost(judgments.values()),
        trained_on=any(judgment.trained_on for judgment in judgments.values()),
    )


class PerCriterionGrader(CriterionGrader):
    """A grader that asks the judge about each criterion in a separate call. The calls run concurrently up to the limit.

    A judge whose answers do not depend on each other (`independent_answers`), such as a `DecisionJudge`, is asked about
    all criteria in one call, with the same stored judgments. One more call asks for the answers that were lost.

    Criteria with a check are computed without a call. A condition (`applies_when`) in words needs one call,
    before the calls for its criteria. If the condition is false, its criteria need no call. With
    `on_failure="raise"` and a single judge, the first final failure cancels the calls in progress.

    The other arguments are the same as for `Grader`.

    Args:
        stop_when_decided: Whether to ask about one criterion after another and to stop when no further answer can
            change `passed`. The order is: checks, required criteria, and the other criteria by their effect on the
            score. With a number in [0, 1], the grader stops only when it is also certain whether the score reaches this
            number. After an early stop, the report has a `score_range` instead of a score. The field `not_asked` of
            the report lists the criteria that the judge was not asked about.

    Raises:
        ValueError: A setting is missing, unknown, or out of range. Raised before any request.
        TypeError: `judge` has a type that cannot be used as a judge.

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
        on_failure: OnFailure = "raise",
        default_fallback_verdicts: DefaultFallbackVerdicts | None = None,
        options: OptionDisplay = DEFAULT_OPTIONS,
        max_retries: int | None = None,
        limits: CallLimits = DEFAULT_LIMITS,
        text_limits: TextLimits = DEFAULT_TEXT_LIMITS,
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
            on_failure=on_failure,
            default_fallback_verdicts=default_fallback_verdicts,
            options=options,
            max_retries=max_retries,
            limits=limits,
            text_limits=text_limits,
        )
        if not 0 <= stop_when_decided <= 1:
            raise ValueError(f"`stop_when_decided` must be True, False or a score in [0, 1], got {stop_when_decided!r}")
        self.may_leave_open = stop_when_decided is not False
        self.threshold = None if isinstance(stop_when_decided, bool) else stop_when_decided
        if self.may_leave_open and not normalize:
            raise ValueError("`stop_when_decided` goes by the normalized score: it does not go with `normalize=False`")
        independent = [answers_independently(member.judge) for member in self.panel]
        if self.may_leave_open and any(independent):
            raise ValueError(
                "`stop_when_decided` asks one criterion after another, and this judge answers all in one request: "
                "leave `stop_when_decided` out"
            )
        self.asks_conditions_first = not all(independent)

    # `CoroutineType`, which the type checker expects, has no parameters before Python 3.13.
    def judge(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, rubric: Rubric, submission: Submission
    ) -> Coroutine[Any, Any, Sequence[JudgeAnswers]]:
        """Obtain each judge's answers to all criteria. With `stop_when_decided`, stop when the decision is final."""
        # Not a coroutine, because each call would pass through one more.
        if self.may_leave_open:
            return self._judge_until_decided(rubric, submission)
        return super().judge(rubric, submission)

    async def _judge_until_decided(self, rubric: Rubric, submission: Submission) -> Sequence[JudgeAnswers]:
        """Obtain the answers to one criterion after another until the decision is final."""
        state = self.round_in_progress()
        panel = self.earlier_answers(state)
        computed = await self.run_checks(rubric, submission)
        for index, criterion in question_order(rubric, submission).items():
            applicable = applicable_criteria(rubric, panel, computed, self.policies)
            if not criterion.is_condition and index not in applicable:
                continue
            report = await self._report(rubric, submission, panel)
            if report.failed_count and self.policies.on_failure == "raise":
                break
            report = await self._with_penalty(rubric, submission, report)
            if decision_is_final(report, rubric, self.threshold):
                break
            panel = await self.ask_panel(rubric, submission, {index: criterion}, panel, state)
        return panel

    async def ask(
        self, member: PanelMember, rubric: Rubric, submission: Submission, criteria: Criteria, state: Round
    ) -> JudgeAnswers:
        """Ask one judge about these criteria: in separate calls if one answer may depend on another."""
        if answers_independently(member.judge):
            return await self._ask_together(member, rubric, submission, criteria, state)
        calls, warm_up, uses_cache = _Calls(state if self.stops_at_first_failure else None), self.runtime.warm_up, True
        try:
            for number, index in enumerate(criteria):
                if number == 1 and warm_up:
                    concurrency = self.call_limiter.concurrency
                    uses_cache = await warm_up.hold(calls.tasks[0], len(criteria) - 1, concurrency)
                if number == 1 and calls.is_final_failure(calls.tasks[0]):
                    break
                question = self.question(rubric, submission, index, member, criteria=criteria)
                if not uses_cache:
                    question = question._replace(warm_prompt_cache=False)
                calls.start(self._outcome(member, question, state))
            if calls.running:
                await calls.all_ended()
        finally:
            await calls.end()
        outcomes: dict[int, Outcome] = dict.fromkeys(criteria, cancelled())
        outcomes.update(zip(criteria, calls.outcomes(), strict=False))
        return JudgeAnswers(outcomes, member.name, member.weight)

    async def _ask_together(
        self, member: PanelMember, rubric: Rubric, submission: Submission, criteria: Criteria, state: Round
    ) -> JudgeAnswers:
        """Ask a judge whose answers do not depend on each other in as few requests as possible."""
        questions = ((i, self.question(rubric, submission, i, member, criteria=criteria)) for i in criteria)
        parts = ((index, part) for index, question in questions for part in self._parts(question))
        ask = partial(ask_in_one_request, self.call_limiter, member.judge, state, self.stops_at_first_failure)
        results = await gather_calls(map(ask, groups_of(member.judge, parts)))
        of_parts: dict[int, list[Outcome]] = {index: [] for index in criteria}
        for outcomes, _ in results:
            for index, outcome in outcomes.items():
                of_parts[index].append(outcome)
        joined = {index: _joined(outcomes) for index, outcomes in of_parts.items()}
        failed = [index for index, outcome in joined.items() if isinstance(outcome, JudgeFailure)]
        final = next((index for index in failed if not state.may_repeat(cast("JudgeFailure", joined[index]))), None)
        if final is not None and self.stops_at_first_failure:
            joined |= {index: cancelled() for index in failed if index != final}
        return JudgeAnswers(joined, member.name, member.weight, total_spend(spend for _, spend in results))

    def _parts(self, question: Question) -> list[Question]:
        """Split a question if `TextLimits.chunk_size` splits the response."""
        chunk_size = self.text_limits.chunk_size
        return [question] if chunk_size is None else split_question(question, chunk_size)

    def _outcome(
        self, member: PanelMember, question: Question, state: Round
    ) -> Coroutine[Any, Any, AttemptResult[Judgment]]:
        """Ask one question. If `TextLimits.chunk_size` splits the response, each part is a separate call."""
        limiter, retries, parts = self.runtime.call_limiter, state.retries, self._parts(question)
        calls: list[Coroutine[Any, Any, AttemptResult[Judgment]]] = []
        for part in parts:
            request = Request(part.submission, part, retries=retries)
            calls.append(limiter.outcome(partial(answer, member.judge, request), retries))
        return calls[0] if len(calls) == 1 else _join_calls(calls)


_CallTask: TypeAlias = asyncio.Task[AttemptResult[Judgment]]


class _Calls:
    """Concurrent calls about one submission. The first final failure may cancel the others.

    Args:
        state: The round, which decides whether a failure is final. None if no failure cancels the other calls.

    Attributes:
        tasks: The calls, in the order in which they started.
        running: The number of calls that have not ended.
    """

    def __init__(self, state: Round | None):
        self.tasks: list[_CallTask] = []
        self.running = 0
        self._loop, self._state = asyncio.get_running_loop(), state
        self._first_failed: _CallTask | None = None
        self._all_ended: asyncio.Future[None] | None = None

    def start(self, call: Coroutine[Any, Any, AttemptResult[Judgment]]) -> None:
        """Start a call."""
        task = self._loop.create_task(call)
        task.add_done_callback(self._on_end)
        self.tasks.append(task)
        self.running += 1

    def _on_end(self, task: _CallTask) -> None:
        self.running -= 1
        if self._state is not None and self._first_failed is None and self.is_final_failure(task):
            self._first_failed = task
            self._cancel()
        if not self.running and self._all_ended and not self._all_ended.done():
            self._all_ended.set_result(None)

    def is_final_failure(self, task: _CallTask) -> bool:
        """Return whether a call has ended with a failure that ends the grade."""
        try:
            outcome = task.result()[0]
        except BaseException:  # noqa: BLE001 -- it has not ended, or was cancelled, or `outcomes` raises its error
            return False
        is_failure = isinstance(outcome, JudgeFailure)
        return is_failure and self._state is not None and not self._state.may_repeat(outcome)

    def all_ended(self) -> asyncio.Future[None]:
        """Return a future that ends with the last call that is running."""
        # Not a coroutine, because each call would pass through it.
        self._all_ended = self._loop.create_future()
        return self._all_ended

    def _cancel(self) -> None:
        # Also tasks that have ended. Otherwise, asyncio would log all exceptions that `outcomes` does not raise.
        for task in self.tasks:
            task.cancel()

    async def end(self) -> None:
        """Cancel the calls that are running and wait for their end, when their requests are counted."""
        self._cancel()
        if pending := [task for task in self.tasks if not task.done()]:
            await asyncio.wait(pending)

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of the calls. If one ended the grade, the other failures count as cancelled."""
        outcomes: list[Outcome] = []
        for task in self.tasks:
            outcome, lost = (cancelled(), NO_SPEND) if task.cancelled() else task.result()
            # Otherwise, the report would depend on whether the other calls failed before they could be cancelled.
            if self._first_failed not in (None, task) and isinstance(outcome, JudgeFailure):
                outcome, lost = cancelled(), outcome.spend + lost
            outcomes.append(with_spend(outcome, lost) if lost.calls else outcome)
        return outcomes


async def _join_calls(calls: Sequence[Coroutine[Any, Any, AttemptResult[Judgment]]]) -> AttemptResult[Judgment]:
    results = await gather_calls(calls)
    return _joined([with_spend(outcome, lost) for outcome, lost in results]), NO_SPEND


def _joined(outcomes: Sequence[Outcome]) -> Outcome:
    if len(outcomes) == 1:
        return outcomes[0]
    try:
        return join_outcomes(outcomes)
    except JudgeFailure as failure:
        return failure
