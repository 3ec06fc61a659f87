"""All criteria in one call: the cheapest strategy that still gives a reason for each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rubric_integrations.graders.base import PanelMember
from rubric_integrations.graders.by_criterion import CriterionGrader
from rubric_integrations.judges.protocol import BatchJudge
from rubric_integrations.results.judgment import JudgeAnswers, JudgeFailure, Outcome
from rubric_integrations.results.usage import Spend, total_spend
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission


class PerCriterionOneShotGrader(CriterionGrader):
    """Asks the judge all criteria in one call.

    Every criterion must get exactly one valid answer. Those that do not (missing, repeated, unreadable) are asked
    again in one further call; what is still unanswered then is a failure of that criterion, never UNMET.

    Example:
        >>> async def generate(system_prompt: str, user_prompt: str) -> str:
        ...     return '{"judgments": [{"id": 1, "explanation": "It does.", "answer": "MET"}]}'
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "Is polite"}])
        >>> rubric.grade_sync("Please.", grader=PerCriterionOneShotGrader(generate)).score
        1.0
    """

    def __init__(self, *args: Any, max_criteria_per_call: int | None = None, **settings: Any):
        """Set up a grader; see `Grader` for the other settings.

        Args:
            *args: As for `Grader`.
            max_criteria_per_call: Splits a long rubric into calls of at most this many criteria; at least 1.
            **settings: As for `Grader`.

        Raises:
            ValueError: A setting is missing, unknown or out of range.
            TypeError: The judge can answer only one criterion at a time.
        """
        super().__init__(*args, **settings)
        if settings.get("examples"):
            raise ValueError("`examples` are about one criterion at a time: use PerCriterionGrader to show them")
        if max_criteria_per_call is not None and max_criteria_per_call < 1:
            raise ValueError(f"`max_criteria_per_call` must be at least 1, got {max_criteria_per_call!r}")
        self.max_criteria_per_call = max_criteria_per_call
        for member in self.panel:
            if not isinstance(member.judge, BatchJudge):
                raise TypeError(
                    f"the judge {type(member.judge).__name__} answers one criterion at a time: use PerCriterionGrader, "
                    "or give it a method `judge_batch`"
                )

    def question_settings(self) -> dict[str, Any]:
        """The settings that what is asked depends on."""
        return {**super().question_settings(), "max_criteria_per_call": self.max_criteria_per_call}

    async def poll(
        self, member: PanelMember, rubric: Rubric, submission: Submission, wanted: Sequence[int]
    ) -> JudgeAnswers:
        """Ask one judge about the criteria at these places, in as few calls as the limit allows."""
        size = self.max_criteria_per_call or max(1, len(wanted))
        chunks = [wanted[start : start + size] for start in range(0, len(wanted), size)]
        asked: list[tuple[dict[int, Outcome], Spend]] = []
        for group in (chunks[:1], chunks[1:]) if self.warm_prompt_cache else (chunks,):
            asked += await asyncio.gather(*(self._chunk(member, rubric, submission, chunk) for chunk in group))
        answers = {index: answer for chunk, _ in asked for index, answer in chunk.items()}
        return JudgeAnswers(answers, member.name, member.weight, total_spend(spend for _, spend in asked))

    async def _chunk(
        self, member: PanelMember, rubric: Rubric, submission: Submission, wanted: Sequence[int]
    ) -> tuple[dict[int, Outcome], Spend]:
        answers: dict[int, Outcome] = {}
        spend = Spend()
        left = list(wanted)
        for _ in range(2):  # the call, and one to repair it
            found, cost = await self._call(member, rubric, submission, left, wanted)
            spend += cost
            answers |= found
            left = [index for index in left if isinstance(answers[index], JudgeFailure)]
            if not left or any(not _may_repair(answers[index]) for index in left):
                break
        return answers, spend

    async def _call(
        self,
        member: PanelMember,
        rubric: Rubric,
        submission: Submission,
        wanted: Sequence[int],
        batch_criteria: Sequence[int],
    ) -> tuple[dict[int, Outcome], Spend]:
        # Numbered by their place in the rubric, so that no answer to one call can be read as one to another.
        questions = {index + 1: self.question(rubric, submission, index, member, batch_criteria) for index in wanted}
        judge: Any = member.judge
        try:
            batch, lost = await self.call_limiter.ask(lambda: judge.judge_batch(questions))
        except JudgeFailure as failed:
            # Each criterion fails for the same reason; what the attempts cost is counted once.
            message = str(failed).removeprefix(f"{failed.kind}: ")
            return {index: JudgeFailure(failed.kind, message) for index in wanted}, failed.spend
        faults = {number: JudgeFailure("parse", fault, retryable=True) for number, fault in batch.faults.items()}
        return {number - 1: answer for number, answer in {**batch.answers, **faults}.items()}, batch.spend + lost


def _may_repair(answer: Outcome) -> bool:
    return isinstance(answer, JudgeFailure) and answer.retryable
