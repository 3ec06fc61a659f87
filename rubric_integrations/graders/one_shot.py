"""`PerCriterionOneShotGrader`: all criteria in one call. The cheapest strategy with a reason for each criterion."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from rubric_integrations.graders.batches import ask_in_one_request
from rubric_integrations.graders.grader import (
    DEFAULT_LIMITS,
    DEFAULT_OPTIONS,
    DEFAULT_TEXT_LIMITS,
    DEFAULT_VOTING,
    CriterionGrader,
)
from rubric_integrations.graders.panel import PanelMember
from rubric_integrations.graders.rounds import Criteria, Round
from rubric_integrations.graders.settings import CallLimits, OptionDisplay, TextLimits, Voting
from rubric_integrations.judges.cascade import judges_inside, needs_confidence_in_batches
from rubric_integrations.judges.protocol import BatchJudge, GenerateFn, JudgeLike, Question
from rubric_integrations.judges.spend import gather_calls
from rubric_integrations.rubric.criterion import all_criteria
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import JudgeAnswers, Outcome, Spend, total_spend
from rubric_integrations.scoring.length import LengthPenalty
from rubric_integrations.scoring.policies import CannotAssess, DefaultFallbackVerdicts, OnFailure
from rubric_integrations.submission.submission import Submission

_ChunkResult = tuple[dict[int, Outcome], Spend]


class PerCriterionOneShotGrader(CriterionGrader):
    """A grader that asks the judge about all criteria in one call.

    Conditions (`applies_when`) are part of the same call. The answer to a criterion that does not apply is not used.

    Every criterion must get exactly one valid answer. Criteria with a missing, repeated or unreadable answer are
    requested again in one further call. A criterion that still has no answer is a failure, never UNMET.

    The other arguments are the same as for `Grader`.

    Args:
        max_criteria_per_call: The most criteria in one call, at least 1. A longer rubric is split into several calls.
            By default, there is no limit.

    Raises:
        ValueError: A setting is missing, unknown, or out of range. Raised before any request.
        TypeError: `judge` cannot judge several criteria in one call.

    Example:
        >>> async def generate(system_prompt: str, user_prompt: str) -> str:
        ...     return '{"judgments": [{"id": 1, "explanation": "It does.", "answer": "MET"}]}'
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "Is polite"}])
        >>> rubric.grade_sync("Please.", grader=PerCriterionOneShotGrader(generate)).score
        1.0
    """

    asks_conditions_first = False

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
        max_criteria_per_call: int | None = None,
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
        if max_criteria_per_call is not None and max_criteria_per_call < 1:
            raise ValueError(f"`max_criteria_per_call` must be at least 1, got {max_criteria_per_call!r}")
        self.max_criteria_per_call = max_criteria_per_call

    def check_settings(self) -> None:
        """Check that each judge can answer several criteria in one call and has no examples about single criteria.

        Raises:
            ValueError: A judge has examples, a cascade needs a confidence that its judge does not state, or a setting
                has no effect.
            TypeError: A judge answers one criterion at a time.
        """
        super().check_settings()
        for inner in (inner for member in self.panel for inner in judges_inside(member.judge, answering=True)):
            if not isinstance(inner, BatchJudge):
                raise TypeError(
                    f"the judge {type(inner).__name__} answers one criterion at a time: use PerCriterionGrader, or "
                    "give it a method `judge_batch`"
                )
            if getattr(inner, "examples", ()):
                raise ValueError("`examples` are about one criterion at a time: use PerCriterionGrader to show them")
        if any(needs_confidence_in_batches(member.judge) for member in self.panel):
            raise ValueError(
                "an LMJudge states no confidence where it answers several criteria at a time, so that its Cascade "
                "would escalate all of them: use PerCriterionGrader, or two cheap judges and `escalate_below=0`"
            )

    def settings(self) -> dict[str, Any]:
        """Return, as JSON, the constructor arguments that affect questions and scores."""
        return {**super().settings(), "max_criteria_per_call": self.max_criteria_per_call}

    async def ask(
        self, member: PanelMember, rubric: Rubric, submission: Submission, criteria: Criteria, state: Round
    ) -> JudgeAnswers:
        """Ask one judge about these criteria, in as few calls as `max_criteria_per_call` allows."""
        # A later round repeats the requests of the first round. Therefore, the answers have the same keys in a store.
        known = self.earlier_answers(state)[self.panel.index(member)].outcomes
        if known:
            every = all_criteria(rubric.criteria)
            order = sorted({*criteria, *known}, key=lambda index: (not every[index].is_condition, index))
            criteria = {index: every[index] for index in order}
        order, size = list(criteria), self.max_criteria_per_call or len(criteria)
        chunks = [order[start : start + size] for start in range(0, len(order), size)]
        chunks = [chunk for chunk in chunks if not known.keys() >= set(chunk)]

        def start(chunks: Sequence[Sequence[int]], uses_cache: bool) -> list[asyncio.Task[_ChunkResult]]:
            def question(index: int, chunk: Sequence[int]) -> Question:
                created = self.question(rubric, submission, index, member, chunk, criteria)
                return created if uses_cache else created._replace(warm_prompt_cache=False)

            requests = [{i: question(i, chunk) for i in chunk if i not in known} for chunk in chunks]
            ask = partial(ask_in_one_request, self.call_limiter, member.judge, state, self.stops_at_first_failure)
            return [asyncio.create_task(ask(questions)) for questions in requests]

        uses_cache, others, warm_up = True, chunks[1:], self.runtime.warm_up
        tasks = start(chunks[:1], uses_cache)
        try:
            if others and warm_up:
                uses_cache = await warm_up.hold(tasks[0], len(others), self.call_limiter.concurrency)
            tasks += start(others, uses_cache)
            results = await gather_calls(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        outcomes = {index: outcome for chunk, _ in results for index, outcome in chunk.items()}
        return JudgeAnswers(outcomes, member.name, member.weight, total_spend(spend for _, spend in results))
