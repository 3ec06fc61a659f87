"""`Cascade`: asks a cheap judge first, and an expensive judge only if the cheap judge is not confident.

A cascade refuses a cheap judge that never states a confidence, because every question would be escalated. It also
refuses equal judges, because their answers would never differ.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, Self, TypeVar, cast

from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    JudgeLike,
    Question,
    Request,
    RequestJudge,
    Retries,
    answer,
    fingerprint_of,
    innermost,
    without_cache,
)
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Judgment, Spend
from rubric_integrations.scoring.labels import LabelledJudgment


def check_threshold(escalate_below: object) -> float:
    """Return a threshold as a float, after a check that it is a valid confidence.

    Raises:
        ValueError: The threshold is None or not a number in [0, 1].
    """
    if escalate_below is None:
        raise ValueError(
            "`escalate_below` is None: a certificate with this threshold certifies nothing, so use the expensive judge "
            "alone, or name a threshold; with 0, every verdict on which the cheap judges agree is kept"
        )
    is_number = isinstance(escalate_below, int | float) and not isinstance(escalate_below, bool)
    if not is_number or not 0 <= float(cast("float", escalate_below)) <= 1:
        raise ValueError(f"`escalate_below` must be a confidence in [0, 1], got {escalate_below!r}")
    return float(cast("float", escalate_below))


def as_cheap_judge(judge: JudgeLike, escalate_below: float) -> Judge:
    """Make a cheap judge from any value that a user can pass as a judge.

    A model becomes an `LMJudge`. If the threshold is above 0, this judge has `confidence=True`.

    Raises:
        ValueError: The threshold is above 0, and the judge would state no confidence.
        TypeError: `judge` is neither a judge nor a model.
    """
    from rubric_integrations.judges import NAMED_JUDGES, as_judge

    is_named = isinstance(judge, str) and (judge in NAMED_JUDGES or judge.endswith(".json"))
    is_model = not is_named and not isinstance(judge, Judge)
    made = as_judge(judge)
    if escalate_below == 0:
        return made
    if is_model:
        from rubric_integrations.judges.lm_judge import LMJudge

        made = LMJudge(cast("Any", judge), confidence=True)
    if (is_lm_judge(made) and not cast("Any", innermost(made)).confidence) or judge == "offline":
        raise ValueError(
            f"the cheap judge {judge!r} states no confidence, so that `escalate_below={escalate_below!r}` would "
            "escalate every question: use LMJudge(..., confidence=True); or pass two cheap judges, and 0, so that they "
            "must agree"
        )
    _require_choice(made)
    return made


def _require_choice(judge: Judge) -> None:
    if not is_lm_judge(judge):
        return
    from rubric_integrations.judges.prompts.signatures import Choice

    if Choice is None:
        raise ValueError(
            "the installed DSPy has no `dspy.experimental.Choice`, so that an LMJudge states no confidence and every "
            "question would be escalated: pass two cheap judges and `escalate_below=0`, or install a DSPy that has it"
        )


def is_lm_judge(judge: Judge) -> bool:
    """Whether the judge inside all wrappers is an `LMJudge`."""
    # The import takes two seconds. If nobody has imported the module, no judge can be an LMJudge.
    module: Any = sys.modules.get("rubric_integrations.judges.lm_judge")
    return module is not None and isinstance(innermost(judge), module.LMJudge)


def may_state_confidence(judge: Judge, question: Question) -> bool:
    """Whether a judge may state a confidence for a question. An LMJudge states one only for binary criteria."""
    return question.criterion.kind == "binary" or not is_lm_judge(judge)


def refuse_equal_answers(cheap: Sequence[Judge], strong: Judge) -> None:
    """Refuse equal judges, because the second answer would always equal the first.

    Raises:
        ValueError: Two judges always give the same answer.
    """
    fingerprints = [fingerprint_of(judge) for judge in cheap]
    identity = fingerprint_of(strong)
    if any(judge is strong for judge in cheap) or (identity is not None and identity in fingerprints):
        raise ValueError("`cheap` and `strong` are the same judge: an escalation would ask it once more")
    for place, judge in enumerate(cheap):
        is_repeated = fingerprints[place] is not None and fingerprints[place] in fingerprints[:place]
        lm: Any = getattr(innermost(judge), "lm", None)
        if is_repeated and lm is not None and getattr(lm, "kwargs", {}).get("temperature") == 0:
            raise ValueError(
                f"`cheap` has {getattr(lm, 'model', 'a model')!r} twice at temperature 0, so that both answers are "
                "equal and never differ: set one, such as LMJudge(..., temperature=0.7), or name another model"
            )


T = TypeVar("T")


class _Retries(Protocol):
    async def outcome(
        self, attempt: Callable[[], Awaitable[T]], retries: Retries | None = None
    ) -> tuple[T | JudgeFailure, Spend]: ...


class _NoRetries:
    async def outcome(
        self, attempt: Callable[[], Awaitable[T]], retries: Retries | None = None
    ) -> tuple[T | JudgeFailure, Spend]:
        try:
            return await attempt(), NO_SPEND
        except JudgeFailure as failure:
            return failure, NO_SPEND


class Cascade(RequestJudge):
    """A judge that asks a cheap judge first, and escalates uncertain questions to an expensive judge.

    A question is escalated if the cheap judge fails or abstains, if it states no `confidence`, or if its confidence is
    below a threshold. With several cheap judges, a question is also escalated if their verdicts differ. Once a question
    is escalated, the remaining cheap judges are not asked. The answer to an escalated question is the answer of the
    expensive judge. If the expensive judge fails, the question fails. The cheap answer is not used as a fallback.

    Each judge has the retries, the timeout and the limits of the grader, and its own judgments in a ledger. A run with
    another threshold therefore reuses the stored judgments. A grader with only the cheap judge also reuses them (see
    `rubric_integrations.trust.certify`). If a run cannot use the cheap judge at all, for example because its key is
    wrong, the run ends. Otherwise, every question would be escalated.

    An `LMJudge` states a confidence only for a binary criterion that has its own request. With `escalate_below` above
    0, criteria with options or a scale therefore go directly to the expensive judge, and `PerCriterionOneShotGrader`
    refuses the cascade. `RubricAsJudgeGrader` always refuses a cascade, because an overall score has no confidence.

    Args:
        cheap: The cheap judge, or several cheap judges that must agree. Each can be any value that `judge=` of a grader
            accepts. A model becomes an `LMJudge` with `confidence=True`. To compare two answers of one model, pass the
            same `LMJudge` with a temperature above 0 twice.
        strong: The expensive judge.
        escalate_below: The confidence in [0, 1] below which a question is escalated, such as
            `certify(...).threshold`. With 0, confidence is neither requested nor used. Then only failures, abstentions
            and differing verdicts are escalated. The value None is an error. `certify` returns it as the `threshold` if
            it could not certify any threshold.

    Attributes:
        cheap: The cheap judges, in the order in which they are asked.
        strong: The expensive judge.
        escalate_below: The threshold.

    Raises:
        ValueError: `escalate_below` is None or out of range, the cheap judge is an `LMJudge` that states no confidence,
            or two of the judges always give the same answer.
        TypeError: `cheap` or `strong` is neither a judge nor a model.

    Example:
        >>> cascade = Cascade(cheap="openai/gpt-4.1-nano", strong="openai/gpt-4.1", escalate_below=0.9)
        >>> cascade.cheap[0].confidence
        True
    """

    def __init__(self, cheap: JudgeLike | Sequence[JudgeLike], strong: JudgeLike, escalate_below: float | None):
        threshold = check_threshold(escalate_below)
        members = list(cheap) if isinstance(cheap, list | tuple) else [cheap]
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
        """All judges: the cheap judges, then the expensive judge."""
        return (*self.cheap, self.strong)

    def with_members(self, change: Callable[[Judge], Judge], retries: _Retries | None = None) -> Self:
        """Copy this cascade, and replace each of its judges in the copy.

        Args:
            change: A function that takes a judge and returns its replacement.
            retries: An object that makes the calls of each judge in the copy and repeats failed calls. None for the
                object that this cascade uses.
        """
        cascade = copy.copy(self)
        cascade.cheap, cascade.strong = tuple(map(change, self.cheap)), change(self.strong)
        cascade._retries = retries or self._retries
        return cascade

    async def answer(self, request: Request) -> Any:
        """Answer one criterion, or several criteria about one submission with one request to each judge.

        The request to the expensive judge is about the criteria that are escalated.

        Raises:
            JudgeFailure: All questions were escalated, and the expensive judge answered none of them. The failure is
                not retryable if each judge already has its own retries.
        """
        if request.questions is not None:
            return await self._answer_batch(request, request.questions)
        kept, spend = await self._cheap_judgment(request)
        if kept is not None:
            return kept.model_copy(update={"spend": spend, "escalation_cost": 0.0})
        judgment, lost = await self._ask(self.strong, request)
        if isinstance(judgment, JudgeFailure):
            raise self._failure(judgment, spend) from judgment
        paid = judgment.spend + lost
        return judgment.model_copy(
            update={"spend": spend + paid, "escalated": True, "escalation_cost": paid.cost},
        )

    async def _answer_batch(self, request: Request, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several questions: by the cheap judges and, for the questions that they leave, by the strong judge."""
        kept, spend = await self._cheap_answers(request, questions)
        answers = {number: answer.model_copy(update={"escalation_cost": 0.0}) for number, answer in kept.items()}
        escalated = {number: question for number, question in questions.items() if number not in kept}
        if not escalated:
            return BatchResult(answers, {}, spend)
        batch, lost = await self._ask(self.strong, request.about(escalated))
        if isinstance(batch, JudgeFailure):
            if not answers:
                raise self._failure(batch, spend) from batch
            return BatchResult(answers, dict.fromkeys(escalated, str(batch)), spend + batch.spend)
        paid: Spend = batch.spend + lost
        share = None if paid.cost is None else paid.cost / max(1, len(batch.answers))
        marks = {"escalated": True, "escalation_cost": share}
        answers |= {number: answer.model_copy(update=marks) for number, answer in batch.answers.items()}
        return BatchResult(answers, batch.faults, spend + paid)

    def _ask(self, judge: Judge, request: Request) -> Awaitable[tuple[Any, Spend]]:
        """Ask one of the judges, with its own retries. The result may be a failure."""
        return self._retries.outcome(partial(answer, judge, request), request.retries)

    def fingerprint(self) -> str | None:
        """Return a text that identifies the judges and the threshold. None if one judge cannot be identified."""
        description = self.describe()
        return None if description is None else f"cascade {json.dumps(description)}"

    def describe(self) -> dict[str, Any] | None:
        """Return the fingerprints of the judges and the threshold, as JSON. None if a judge cannot be identified."""
        members = [
            member.describe() if isinstance(member, Cascade) else fingerprint_of(member) for member in self.members
        ]
        if None in members:
            return None
        return {"cheap": members[:-1], "strong": members[-1], "escalate_below": self.escalate_below}

    def without_cache(self) -> Self:
        """Copy this cascade with judges that use neither a cache of responses nor a store."""
        return self.with_members(without_cache)

    def with_examples(self, examples: Sequence[LabelledJudgment], max_examples: int = 4) -> Self:
        """Copy this cascade and give its judges other few-shot examples.

        Args:
            examples: Labelled judgments that replace the judges' examples.
            max_examples: The largest number of examples that are shown before a question, at least 0.

        Raises:
            TypeError: One of the judges has no `with_examples`.
        """

        def change(judge: Judge) -> Judge:
            method = getattr(judge, "with_examples", None)
            if not callable(method):
                raise TypeError(f"{type(innermost(judge)).__name__} has no `with_examples`: it takes no examples")
            return cast("Judge", method(examples, max_examples))

        return self.with_members(change)

    def highest_cost(self, text_bytes: int) -> float | None:
        """Return the highest possible total cost if every judge is called once, in US dollars.

        Returns None if the cost is unknown for one of the judges.

        Args:
            text_bytes: The size of the texts of the call, in bytes of UTF-8.
        """
        bounds: list[Any] = [getattr(innermost(member), "highest_cost", None) for member in self.members]
        costs = [cast("float | None", bound(text_bytes)) if callable(bound) else None for bound in bounds]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    async def prepare(self) -> None:
        """Call `prepare` of each judge that has this method."""
        for member in self.members:
            prepare: Any = getattr(innermost(member), "prepare", None)
            if callable(prepare):
                await cast("Awaitable[None]", prepare())

    async def _cheap_judgment(self, request: Request) -> tuple[Judgment | None, Spend]:
        """Ask the cheap judges. Return the judgment that is kept, or None, and the total spend."""
        kept, spend = None, NO_SPEND
        for judge in self.cheap:
            if self.escalate_below > 0 and not may_state_confidence(judge, request.first_question):
                return None, spend
            judgment, lost = await self._ask(judge, request)
            spend += judgment.spend + lost
            if isinstance(judgment, JudgeFailure) or not is_kept(
                judgment.value, judgment.confidence, self.escalate_below
            ):
                return None, spend
            if kept is not None and kept.verdict != judgment.verdict:
                return None, spend
            kept = kept or judgment
        return kept, spend

    async def _cheap_answers(
        self, request: Request, questions: Mapping[int, Question]
    ) -> tuple[dict[int, Judgment], Spend]:
        """Ask the cheap judges about several criteria. Return the judgments that are kept, and the total spend."""
        kept: dict[int, Judgment] = {}
        spend, open_questions = NO_SPEND, dict(questions)
        for judge in self.cheap:
            batch, lost = await self._ask(judge, request.about(open_questions))
            spend += batch.spend + lost
            if isinstance(batch, JudgeFailure):
                return {}, spend
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
        """Return the expensive judge's failure with the total spend. It is final if the judge has its own retries."""
        final = copy.copy(failure)
        final.spend = spend + failure.spend
        final.retryable = failure.retryable and isinstance(self._retries, _NoRetries)
        return final


def is_kept(value: float | None, confidence: float | None, escalate_below: float) -> bool:
    """Whether a cascade keeps a cheap answer: it is a verdict, and its confidence is not below the threshold.

    Args:
        value: The value of the answer. None for an abstention.
        confidence: The confidence that the judge states. None if the judge does not state one. Such an answer is kept
            only if the threshold is 0.
        escalate_below: The threshold.

    Example:
        >>> is_kept(1.0, 0.8, 0.8), is_kept(1.0, None, 0.8), is_kept(1.0, None, 0.0), is_kept(None, 0.9, 0.8)
        (True, False, True, False)
    """
    if value is None:
        return False
    return escalate_below == 0 or (confidence is not None and confidence >= escalate_below)


def needs_confidence_in_batches(judge: Judge) -> bool:
    """Whether a judge is a cascade that needs confidences which its cheap judge does not state in a batch.

    A batch is one request about several criteria. Such a cascade would escalate every question. Therefore,
    `PerCriterionOneShotGrader` refuses it.
    """
    inner = innermost(judge)
    if not isinstance(inner, Cascade):
        return False
    states_none = inner.escalate_below > 0 and any(is_lm_judge(member) for member in inner.cheap)
    return states_none or any(needs_confidence_in_batches(member) for member in inner.members)


def judges_inside(judge: Judge) -> list[Judge]:
    """Return the judges inside all wrappers and cascades."""
    inner = innermost(judge)
    if not isinstance(inner, Cascade):
        return [inner]
    return [leaf for member in inner.members for leaf in judges_inside(member)]
