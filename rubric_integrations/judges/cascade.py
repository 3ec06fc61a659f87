"""A judge that asks a cheap judge first, and an expensive one only where the cheap judge's answer is not sure."""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

from rubric_integrations.judges.cascade_members import (
    as_cheap_judge,
    check_threshold,
    is_lm_judge,
    may_state_confidence,
    refuse_equal_answers,
)
from rubric_integrations.judges.protocol import BatchResult, Judge, Question, fingerprint_of, without_cache
from rubric_integrations.judges.wrappers import innermost
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.results.usage import NO_SPEND, Spend

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike

T = TypeVar("T")


class _Retries(Protocol):
    async def call(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, Spend]: ...


class _NoRetries:
    async def call(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, Spend]:
        return await attempt(), NO_SPEND


class Cascade:
    """A judge that asks a cheap judge first, and passes on to an expensive one what the cheap judge is not sure about.

    A question is escalated if the cheap judge fails or abstains, if its `confidence` is below a threshold, or if it
    states none. With several cheap judges it is also escalated if their verdicts differ; a later one is not asked once
    the question is escalated. The answer to an escalated question is the expensive judge's, with its reason. If that
    judge fails, the question has failed: the cheap answer never takes its place.

    Each of the judges has the retries, the timeout and the limits of the grader, and its own judgments in a ledger. So
    another threshold requests nothing that is stored, and the cheap judge alone, in a grader of its own, finds its
    answers there (see `rubric_integrations.agreement.certify`). A cheap judge that a run cannot use at all, for example
    because its key is wrong, ends the run: otherwise every question would be escalated.

    An `LMJudge` states a confidence for a binary criterion in a call of its own, and for nothing else. So criteria with
    options or a scale go to the expensive judge at once, unless `escalate_below` is 0, and `PerCriterionOneShotGrader`
    refuses the cascade. `RubricAsJudgeGrader` always refuses it, because nothing says how sure a score of the whole is.

    Args:
        cheap: The cheap judge, whatever `judge=` of a grader takes; or several, which must agree. Of a model,
            an `LMJudge` with `confidence=True` is made. Two answers of one model need a temperature above 0: pass an
            `LMJudge` with a temperature twice.
        strong: The expensive judge.
        escalate_below: The confidence in [0, 1] below which a question is escalated, such as
            `certify(...).threshold`. With 0, confidence is neither requested nor used: failures, abstentions and
            differing verdicts alone are escalated. None, the threshold of a certificate that certifies nothing, is
            refused.

    Attributes:
        cheap: The cheap judges, in the order in which they are asked.
        strong: The expensive judge.
        escalate_below: The threshold.

    Raises:
        ValueError: `escalate_below` is None or out of range; the cheap judge is an `LMJudge` that states no confidence;
            or two of the judges always give the same answer.
        TypeError: `cheap` or `strong` is nothing that can judge.

    Example:
        >>> cascade = Cascade(cheap="openai/gpt-4.1-nano", strong="openai/gpt-4.1", escalate_below=0.9)
        >>> cascade.cheap[0].confidence
        True
    """

    def __init__(self, cheap: JudgeLike | Sequence[JudgeLike], strong: JudgeLike, escalate_below: float | None):
        threshold = check_threshold(escalate_below)
        members = list(cast("Sequence[JudgeLike]", cheap)) if isinstance(cheap, list | tuple) else [cheap]
        if not members:
            raise ValueError("`cheap` is empty: name at least one judge")
        from rubric_integrations.judges import as_judge

        self.cheap = tuple(as_cheap_judge(cast("JudgeLike", member), threshold) for member in members)
        self.strong = as_judge(strong)
        self.escalate_below = threshold
        self._retries: _Retries = _NoRetries()
        refuse_equal_answers(self.cheap, self.strong)

    @property
    def members(self) -> tuple[Judge, ...]:
        """The cheap judges, and the expensive one last."""
        return (*self.cheap, self.strong)

    def with_members(self, change: Callable[[Judge], Judge], retries: _Retries | None = None) -> Self:
        """Copy this cascade, and replace each of its judges.

        Args:
            change: Returns the judge that takes the place of one.
            retries: Repeats the calls of each judge from now on; None for no change.
        """
        cascade = copy.copy(self)
        cascade.cheap, cascade.strong = tuple(map(change, self.cheap)), change(self.strong)
        cascade._retries = retries or self._retries
        return cascade

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion.

        Raises:
            JudgeFailure: The question was escalated, and the expensive judge has no answer. It is not to be retried
                where the judges have retries of their own.
        """
        kept, spend = await self._cheap_judgment(question)
        if kept is not None:
            return kept.model_copy(update={"spend": spend, "escalation_cost": 0.0})
        try:
            judgment, lost = await self._retries.call(partial(self.strong.judge, question))
        except JudgeFailure as failure:
            raise self._failure(failure, spend) from failure
        paid = judgment.spend + lost
        return judgment.model_copy(
            update={"spend": spend + paid, "escalated": True, "escalation_cost": paid.cost},
        )

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria about one submission, with one request to each judge.

        The request to the expensive judge is about the criteria that are escalated.

        Raises:
            JudgeFailure: All questions were escalated, and the expensive judge has no answer to any.
        """
        kept, spend = await self._cheap_answers(questions)
        answers = {number: answer.model_copy(update={"escalation_cost": 0.0}) for number, answer in kept.items()}
        escalated = {number: question for number, question in questions.items() if number not in kept}
        if not escalated:
            return BatchResult(answers, {}, spend)
        try:
            batch, lost = await self._retries.call(partial(cast("Any", self.strong).judge_batch, escalated))
        except JudgeFailure as failure:
            if not answers:
                raise self._failure(failure, spend) from failure
            return BatchResult(answers, dict.fromkeys(escalated, str(failure)), spend + failure.spend)
        paid: Spend = batch.spend + lost
        share = None if paid.cost is None else paid.cost / max(1, len(batch.answers))
        marks = {"escalated": True, "escalation_cost": share}
        answers |= {number: answer.model_copy(update=marks) for number, answer in batch.answers.items()}
        return BatchResult(answers, batch.faults, spend + paid)

    def fingerprint(self) -> str | None:
        """Describe all judges and the threshold; None if one of the judges cannot be identified."""
        description = self.describe()
        return None if description is None else f"cascade {json.dumps(description)}"

    def describe(self) -> dict[str, Any] | None:
        """Return the fingerprints of the judges, and the threshold, as JSON; None if one cannot be identified."""
        members = [
            member.describe() if isinstance(member, Cascade) else fingerprint_of(member) for member in self.members
        ]
        if None in members:
            return None
        return {"cheap": members[:-1], "strong": members[-1], "escalate_below": self.escalate_below}

    def without_cache(self) -> Self:
        """Copy this cascade with judges that use no cache of responses, and no store."""
        return self.with_members(without_cache)

    def with_examples(self, examples: Sequence[LabelledJudgment], max_examples: int = 4) -> Self:
        """Copy this cascade with judges that are shown other few-shot examples.

        Raises:
            TypeError: One of them takes none.
        """

        def change(judge: Judge) -> Judge:
            method = getattr(judge, "with_examples", None)
            if not callable(method):
                raise TypeError(f"{type(innermost(judge)).__name__} has no `with_examples`: it takes no examples")
            return cast("Judge", method(examples, max_examples))

        return self.with_members(change)

    def highest_cost(self, text_bytes: int) -> float | None:
        """Return the most that one call of each judge can cost, in US dollars; None if it is not known."""
        bounds: list[Any] = [getattr(innermost(member), "highest_cost", None) for member in self.members]
        costs = [cast("float | None", bound(text_bytes)) if callable(bound) else None for bound in bounds]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    async def prepare(self) -> None:
        """Load what the first call of each judge needs."""
        for member in self.members:
            prepare: Any = getattr(innermost(member), "prepare", None)
            if callable(prepare):
                await cast("Awaitable[None]", prepare())

    async def _cheap_judgment(self, question: Question) -> tuple[Judgment | None, Spend]:
        """Ask the cheap judges; return the judgment that is kept, or None, and what they cost."""
        kept, spend = None, NO_SPEND
        for judge in self.cheap:
            if self.escalate_below > 0 and not may_state_confidence(judge, question):
                return None, spend
            try:
                judgment, lost = await self._retries.call(partial(judge.judge, question))
            except JudgeFailure as failure:
                return None, spend + failure.spend
            spend += judgment.spend + lost
            if not is_kept(judgment.value, judgment.confidence, self.escalate_below):
                return None, spend
            if kept is not None and kept.verdict != judgment.verdict:
                return None, spend
            kept = kept or judgment
        return kept, spend

    async def _cheap_answers(self, questions: Mapping[int, Question]) -> tuple[dict[int, Judgment], Spend]:
        """Ask the cheap judges about several criteria; return the judgments that are kept, and what they cost."""
        kept: dict[int, Judgment] = {}
        spend, open_questions = NO_SPEND, dict(questions)
        for judge in self.cheap:
            try:
                batch, lost = await self._retries.call(partial(cast("Any", judge).judge_batch, open_questions))
            except JudgeFailure as failure:
                return {}, spend + failure.spend
            spend += batch.spend + lost
            answers: dict[int, Judgment] = {
                number: answer
                for number, answer in batch.answers.items()
                if is_kept(answer.value, answer.confidence, self.escalate_below)
                and (number not in kept or kept[number].verdict == answer.verdict)
            }
            kept = {number: kept.get(number, answer) for number, answer in answers.items()}
            open_questions = {number: questions[number] for number in kept}
            if not kept:
                break
        return kept, spend

    def _failure(self, failure: JudgeFailure, spend: Spend) -> JudgeFailure:
        """Return the failure of the expensive judge with the spend of all; one that was retried is final."""
        final = copy.copy(failure)
        final.spend = spend + failure.spend
        final.retryable = failure.retryable and isinstance(self._retries, _NoRetries)
        return final


def is_kept(value: float | None, confidence: float | None, escalate_below: float) -> bool:
    """Whether a cascade keeps a cheap answer: it is a verdict, and its confidence is not below the threshold.

    Args:
        value: The value of the answer; None for an abstention.
        confidence: The confidence that the judge states; None if it states none, which only a threshold of 0 keeps.
        escalate_below: The threshold.

    Example:
        >>> is_kept(1.0, 0.8, 0.8), is_kept(1.0, None, 0.8), is_kept(1.0, None, 0.0), is_kept(None, 0.9, 0.8)
        (True, False, True, False)
    """
    if value is None:
        return False
    return escalate_below == 0 or (confidence is not None and confidence >= escalate_below)


def needs_confidence_in_batches(judge: Judge) -> bool:
    """Whether a judge is a cascade with a threshold, whose cheap judge states no confidence in a batch."""
    inner = innermost(judge)
    if not isinstance(inner, Cascade):
        return False
    states_none = inner.escalate_below > 0 and any(is_lm_judge(member) for member in inner.cheap)
    return states_none or any(needs_confidence_in_batches(member) for member in inner.members)


def judges_inside(judge: Judge) -> list[Judge]:
    """Return the judges that are asked in the end: the innermost one, and in its place all members of a cascade."""
    inner = innermost(judge)
    if not isinstance(inner, Cascade):
        return [inner]
    return [leaf for member in inner.members for leaf in judges_inside(member)]
