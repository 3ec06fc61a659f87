"""`Cascade`: asks a cheap judge first, and an expensive judge only if the cheap judge is not confident.

Without an expensive judge, the cascade abstains instead.

A cascade refuses a cheap judge that never states a confidence, because every question would be escalated. It also
refuses equal judges, because their answers would never differ.
"""

from __future__ import annotations

import copy
import os
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, cast

from rubric_integrations.judges.composite import CompositeJudge, Retrier
from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    JudgeLike,
    Question,
    Request,
    answers_independently,
    fingerprint_of,
    has_label_in,
    innermost,
    refusal_of,
    split_for,
)
from rubric_integrations.judges.spend import gather_calls
from rubric_integrations.judges.thresholds import Thresholds, ThresholdsLike, as_thresholds, read_thresholds
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Judgment, Spend, total_spend
from rubric_integrations.scoring.labels import LabelledJudgment


def check_threshold(escalate_below: object) -> float:
    """Return a threshold as a float, after a check that it is a valid confidence.

    Raises:
        ValueError: The threshold is None or not a number in [0, 1].
    """
    if escalate_below is None:
        raise ValueError(
            "`escalate_below` is None, and there are no `thresholds`: a certificate with this threshold certifies "
            "nothing, so use the expensive judge alone, or name a threshold; with 0, every verdict on which the cheap "
            "judges agree is kept"
        )
    is_number = isinstance(escalate_below, int | float) and not isinstance(escalate_below, bool)
    if not is_number or not 0 <= float(cast("float", escalate_below)) <= 1:
        raise ValueError(f"`escalate_below` must be a confidence in [0, 1], got {escalate_below!r}")
    return float(cast("float", escalate_below))


def as_cheap_judge(judge: JudgeLike, thresholds: Thresholds) -> Judge:
    """Make a cheap judge from any value that a user can pass as a judge.

    If a threshold is above 0, an `LMJudge` that is made from a model has `confidence=True`.

    Raises:
        ValueError: A threshold is above 0, and the judge would state no confidence.
        TypeError: `judge` is neither a judge nor a model.
    """
    from rubric_integrations.judges import NAMED_JUDGES, as_judge

    is_named = isinstance(judge, str) and (judge in NAMED_JUDGES or judge.endswith(".json"))
    is_model = not is_named and not isinstance(judge, Judge)
    made = as_judge(judge)
    if not thresholds.use_confidence:
        return made
    if is_model and is_lm_judge(made):
        from rubric_integrations.judges.lm_judge import LMJudge

        made = LMJudge(cast("Any", judge), confidence=True)
    if (is_lm_judge(made) and not cast("Any", innermost(made)).confidence) or judge == "offline":
        raise ValueError(
            f"the cheap judge {judge!r} states no confidence, so that `escalate_below={thresholds.pooled!r}` would "
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


def refuse_equal_answers(cheap: Sequence[Judge], strong: Judge | None) -> None:
    """Refuse equal judges, because the second answer would always equal the first.

    Raises:
        ValueError: Two judges always give the same answer.
    """
    fingerprints = [fingerprint_of(judge) for judge in cheap]
    identity = None if strong is None else fingerprint_of(strong)
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


class Cascade(CompositeJudge):
    """A judge that asks a cheap judge first, and escalates uncertain questions to an expensive judge.

    A question is escalated if the cheap judge fails or abstains, if it states no `confidence`, or if its confidence is
    below a threshold. With several cheap judges, a question is also escalated if their verdicts differ. Once a question
    is escalated, the remaining cheap judges are not asked. The answer to an escalated question is the answer of the
    expensive judge. If the expensive judge fails, the question fails. The cheap answer is not used as a fallback.

    Without an expensive judge, the cascade abstains from a question if it is not certain of the answer. A failure of
    the cheap judge is then a failure of the question.

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
        strong: The expensive judge. None for no expensive judge.
        escalate_below: The confidence in [0, 1] below which a question is escalated, such as
            `certify(...).threshold`. With 0, confidence is neither requested nor used. Then only failures, abstentions
            and differing verdicts are escalated. The value None needs `thresholds`, because `certify` returns None as
            the `threshold` if it could not certify any threshold.
        thresholds: Instead of `escalate_below`, the thresholds of each criterion and verdict, or the path of their
            file. They can change the cheap judge's verdict, but never the stored judgment.

    Attributes:
        cheap: The cheap judges, in the order in which they are asked.
        strong: The expensive judge, or None.
        thresholds: The thresholds. With `escalate_below`, they have only this pooled threshold.
        independent_answers: Whether the answers of the cheap judges to several questions in one request do not depend
            on each other. `PerCriterionGrader` then asks all questions about a submission in one request.

    Raises:
        ValueError: `escalate_below` is None or out of range, both `escalate_below` and `thresholds` are set, the cheap
            judge is an `LMJudge` that states no confidence, or two of the judges always give the same answer.
        TypeError: `cheap` or `strong` is neither a judge nor a model.

    Example:
        >>> cascade = Cascade(cheap="openai/gpt-4.1-nano", strong="openai/gpt-4.1", escalate_below=0.9)
        >>> cascade.cheap[0].confidence
        True
    """

    def __init__(
        self,
        cheap: JudgeLike | Sequence[JudgeLike],
        strong: JudgeLike | None = None,
        escalate_below: float | None = None,
        thresholds: ThresholdsLike | None = None,
    ):
        if thresholds is None:
            thresholds = Thresholds(pooled=check_threshold(escalate_below))
        elif escalate_below is not None:
            raise ValueError(
                f"`escalate_below` is {escalate_below!r}, and `thresholds` have their own `pooled` threshold: leave "
                "one of them out"
            )
        members = list(cheap) if isinstance(cheap, list | tuple) else [cheap]
        if not members:
            raise ValueError("`cheap` is empty: name at least one judge")
        from rubric_integrations.judges import as_judge

        self.thresholds = as_thresholds(thresholds)
        self._seen = frozenset(self.thresholds.trained_on)
        self.cheap = tuple(as_cheap_judge(cast("JudgeLike", member), self.thresholds) for member in members)
        self.strong = None if strong is None else as_judge(strong)
        refuse_equal_answers(self.cheap, self.strong)
        self._warn_of_other_judge()

    def _warn_of_other_judge(self) -> None:
        """Warn if the thresholds were made for another model than those of the cheap judges."""
        judges: list[Any] = [innermost(judge) for judge in self.cheap]
        models = [getattr(getattr(judge, "lm", None), "model", getattr(judge, "model_name", "")) for judge in judges]
        names, made_for = [str(model) for model in models if model], self.thresholds.judge
        ends = [name.rpartition("/")[2] for name in names]
        if made_for and names and made_for.rpartition("/")[2] not in ends:
            others = ", ".join(names)
            warnings.warn(
                f"the `thresholds` were made for the judge {made_for!r}, and the cheap judge is {others}: its "
                "probabilities may mean something else; make thresholds for it with `certify(..., by='criterion')`",
                stacklevel=3,
            )

    @property
    def escalate_below(self) -> float | None:
        """The pooled threshold, for criteria without their own. None if no such verdict is kept."""
        return self.thresholds.pooled

    @property
    def members(self) -> tuple[Judge, ...]:
        """All judges: the cheap judges, then the expensive judge if there is one."""
        return self.cheap if self.strong is None else (*self.cheap, self.strong)

    @property
    def independent_answers(self) -> bool:
        """Whether the cheap judges' answers in one request do not depend on each other."""
        return all(map(answers_independently, self.cheap))

    def refusal(self, criterion: Criterion) -> str | None:
        """Return why this cascade cannot answer a criterion. What a cheap judge cannot answer is escalated."""
        last = self.cheap if self.strong is None else (self.strong,)
        return next((problem for judge in last if (problem := refusal_of(judge, criterion))), None)

    def split(self, questions: Mapping[int, Question]) -> list[Mapping[int, Question]]:
        """Split questions into requests that each of the judges accepts."""
        groups: list[Mapping[int, Question]] = [questions]
        for judge in self.members:
            groups = [part for group in groups for part in split_for(judge, group)]
        return groups

    def with_members(self, change: Callable[[Judge], Judge], retries: Retrier | None = None) -> Self:
        """Copy this cascade, and replace each of its judges in the copy.

        Args:
            change: A function that takes a judge and returns its replacement.
            retries: An object that makes the calls of each judge in the copy and repeats failed calls. None for the
                object that this cascade uses.
        """
        cascade = copy.copy(self)
        cascade.cheap = tuple(map(change, self.cheap))
        cascade.strong = None if self.strong is None else change(self.strong)
        cascade._retries = retries or self._retries
        return cascade

    async def answer(self, request: Request) -> Any:
        """Answer one criterion, or several criteria about one submission.

        Each judge gets one request about several criteria, and the request to the expensive judge is about the
        criteria that are escalated. Exception: if only the cheap judges' answers do not depend on each other, the
        expensive judge gets one request for each of these criteria. It then shares its stored judgments with a run in
        which it is the only judge.

        Raises:
            JudgeFailure: All questions were escalated, and the expensive judge answered none of them. Or there is no
                expensive judge, and a cheap judge failed. The failure is not retryable if each judge already has its
                own retries.
        """
        if request.questions is not None:
            return await self._answer_batch(request, request.questions)
        question = request.first_question
        cheap, spend = await self._cheap_judgment(request, question)
        if isinstance(cheap, JudgeFailure):
            raise self._failure(cheap, spend) from cheap
        if cheap is not None:
            return self._marked(question, cheap, {"spend": spend, "escalation_cost": 0.0})
        judgment, lost = await self._ask(cast("Judge", self.strong), request)
        if isinstance(judgment, JudgeFailure):
            raise self._failure(judgment, spend + judgment.spend) from judgment
        paid = judgment.spend + lost
        return self._marked(
            question, judgment, {"spend": spend + paid, "escalated": True, "escalation_cost": paid.cost}
        )

    async def _answer_batch(self, request: Request, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several questions: by the cheap judges and, for the questions that they leave, by the strong judge."""
        cheap = await self._cheap_answers(request, questions)
        answers = {
            number: self._marked(questions[number], answer, {"escalation_cost": 0.0})
            for number, answer in cheap.answers.items()
        }
        escalated = {
            number: question
            for number, question in questions.items()
            if number not in answers and number not in cheap.faults
        }
        if not escalated:
            return cheap._replace(answers=answers)
        batch, cost = await self._strong_answers(request, escalated)
        if isinstance(batch, JudgeFailure):
            if not answers:
                raise self._failure(batch, cheap.spend + batch.spend) from batch
            return BatchResult(
                answers, dict.fromkeys(escalated, self._failure(batch, NO_SPEND)), cheap.spend + batch.spend
            )
        answers |= {
            number: self._marked(questions[number], answer, {"escalated": True, "escalation_cost": cost[number]})
            for number, answer in batch.answers.items()
        }
        return BatchResult(answers, batch.faults, cheap.spend + batch.spend)

    async def _strong_answers(
        self, request: Request, questions: Mapping[int, Question]
    ) -> tuple[BatchResult | JudgeFailure, Mapping[int, float | None]]:
        """Ask the expensive judge about escalated questions. Return its answers, and the cost of each answer."""
        strong = cast("Judge", self.strong)
        if self.independent_answers and not answers_independently(strong):
            return await self._single_answers(strong, request, questions)
        batch, lost = await self._ask(strong, request.about(questions))
        if isinstance(batch, JudgeFailure):
            return batch, {}
        paid: Spend = batch.spend + lost
        share = None if paid.cost is None else paid.cost / max(1, len(batch.answers))
        return batch._replace(spend=paid), dict.fromkeys(batch.answers, share)

    async def _single_answers(
        self, judge: Judge, request: Request, questions: Mapping[int, Question]
    ) -> tuple[BatchResult, Mapping[int, float | None]]:
        """Ask a judge several questions in one request each."""
        # Without the criteria of the other questions, the key of a stored judgment is that of a single question.
        singles = [question._replace(batch_criteria=()) for question in questions.values()]
        results = await gather_calls(
            self._ask(judge, Request(request.submission, question, retries=request.retries)) for question in singles
        )
        answers: dict[int, Judgment] = {}
        faults: dict[int, str | JudgeFailure] = {}
        cost: dict[int, float | None] = {}
        for number, (outcome, lost) in zip(questions, results, strict=True):
            paid = outcome.spend + lost
            if isinstance(outcome, JudgeFailure):
                faults[number] = self._failure(outcome, NO_SPEND)
            else:
                # The spend of a batch contains the spend of its answers.
                answers[number], cost[number] = outcome.model_copy(update={"spend": NO_SPEND}), paid.cost
        spend = total_spend(outcome.spend + lost for outcome, lost in results)
        return BatchResult(answers, faults, spend), cost

    def _marked(self, question: Question, judgment: Judgment, changes: dict[str, Any]) -> Judgment:
        """Copy a judgment with changes. Mark it if its label was used to find the thresholds."""
        if has_label_in(self._seen, question):
            changes = {**changes, "trained_on": True}
        return judgment.model_copy(update=changes)

    def describe(self) -> dict[str, Any] | None:
        """Return the fingerprints of the judges and the thresholds, as JSON. None if a judge cannot be identified."""
        members = [
            member.describe() if isinstance(member, CompositeJudge) else fingerprint_of(member)
            for member in self.members
        ]
        if None in members:
            return None
        strong = None if self.strong is None else members.pop()
        description: dict[str, Any] = {"cheap": members, "strong": strong, "escalate_below": self.escalate_below}
        is_pooled = self.thresholds == Thresholds(pooled=self.escalate_below)
        return description if is_pooled else {**description, "thresholds": self.thresholds.describe()}

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

    async def _cheap_judgment(
        self, request: Request, question: Question
    ) -> tuple[Judgment | JudgeFailure | None, Spend]:
        """Ask the cheap judges. Return their judgment, and the total spend.

        Returns:
            The judgment that is kept, or None for a question to escalate. Without an expensive judge, the judgment may
            be an abstention, or a failure.
        """
        kept, spend = None, NO_SPEND
        for judge in self.cheap:
            if self._states_nothing(judge, question):
                return None, spend
            judgment, lost = await self._ask(judge, request)
            spend += judgment.spend + lost
            if isinstance(judgment, JudgeFailure):
                return None if self.strong else judgment, spend
            verdict = self.thresholds.decide(question.criterion, judgment)
            if verdict is None or (kept is not None and kept.verdict != verdict.verdict):
                return None if self.strong else self._abstention(question, judgment, kept), spend
            kept = kept or verdict
        return kept, spend

    def _states_nothing(self, judge: Judge, question: Question) -> bool:
        """Whether a call of a cheap judge would be wasted, because the question would be escalated anyway."""
        if self.strong is None:
            return False
        states_none = self.thresholds.use_confidence and not may_state_confidence(judge, question)
        return states_none or refusal_of(judge, question.criterion) is not None

    async def _cheap_answers(self, request: Request, questions: Mapping[int, Question]) -> BatchResult:
        """Ask the cheap judges about several criteria.

        Returns:
            The judgments that are kept, and the total spend. Without an expensive judge, also abstentions and faults,
            so that every question has an answer or a fault.

        Raises:
            JudgeFailure: There is no expensive judge, and a cheap judge has no answer at all.
        """
        kept: dict[int, Judgment] = {}
        abstentions: dict[int, Judgment] = {}
        faults: dict[int, str | JudgeFailure] = {}
        spend, open_questions = NO_SPEND, dict(questions)
        for judge in self.cheap:
            open_questions = {
                number: question
                for number, question in open_questions.items()
                if not self._states_nothing(judge, question)
            }
            if not open_questions:
                return BatchResult({}, {}, spend)
            batch, lost = await self._ask(judge, request.about(open_questions))
            spend += batch.spend + lost
            if isinstance(batch, JudgeFailure):
                if self.strong is None:
                    raise self._failure(batch, spend) from batch
                return BatchResult({}, {}, spend)
            earlier, kept = kept, {}
            for number, judgment in batch.answers.items():
                question, before = questions[number], earlier.get(number)
                verdict = self.thresholds.decide(question.criterion, judgment)
                if verdict is not None and (before is None or before.verdict == verdict.verdict):
                    kept[number] = before or verdict
                else:
                    abstentions[number] = self._abstention(question, judgment, before)
            faults |= batch.faults
            open_questions = {number: questions[number] for number in kept}
            if not kept:
                break
        return BatchResult(kept, {}, spend) if self.strong else BatchResult(kept | abstentions, faults, spend)

    def _abstention(self, question: Question, judgment: Judgment, earlier: Judgment | None) -> Judgment:
        """Return the abstention from a question if there is no expensive judge.

        Args:
            question: The question.
            judgment: The judgment that is not certain, or that differs from the earlier one.
            earlier: The judgment of an earlier cheap judge, if there is one.
        """
        if judgment.value is None:
            return judgment
        own = self.thresholds.decide(question.criterion, judgment)
        if own is not None and earlier is not None:
            reason = f"the cheap judges differ: {earlier.verdict} and {own.verdict}"
        else:
            stated = "no confidence" if judgment.confidence is None else f"the probability {judgment.confidence:.3g}"
            limit = self.thresholds.limit(question.criterion, judgment.verdict)
            counts = "never counts, because nothing is certified" if limit is None else f"counts from {limit:.3g}"
            reason = f"not certain: {judgment.verdict} has {stated}, and {counts}"
        # The text of the judge is kept, because it explains the probability.
        reason = f"{reason}. {judgment.reason}" if judgment.reason else reason
        return judgment.model_copy(
            update={"verdict": "CANNOT_ASSESS", "value": None, "confidence": None, "reason": reason}
        )

    def _failure(self, failure: JudgeFailure, spend: Spend) -> JudgeFailure:
        """Return a judge's failure with another spend. It is final if the judge has its own retries."""
        final = copy.copy(failure)
        final.spend = spend
        final.retryable = failure.retryable and self._may_retry
        return final


def load_cascade(path: str | os.PathLike[str], make_judge: Callable[[str], JudgeLike] | None = None) -> Cascade:
    """Make a cascade without an expensive judge from a file of thresholds and the judge that the file names.

    Args:
        path: The file, as `Thresholds.save` wrote it.
        make_judge: Makes the judge from its name. None to pass the name itself to `Cascade`.

    Raises:
        ValueError: The file cannot be read, has no thresholds, or names no judge.
    """
    thresholds = read_thresholds(path)
    if thresholds.judge is None:
        example = f"Cascade(judge, thresholds={str(path)!r})"
        raise ValueError(f"{path}: names no judge: pass it together with the judge, as in `{example}`")
    return Cascade(make_judge(thresholds.judge) if make_judge else thresholds.judge, thresholds=thresholds)


def needs_confidence_in_batches(judge: Judge) -> bool:
    """Whether a judge is a cascade that needs confidences which its cheap judge does not state in a batch.

    A batch is one request about several criteria. Such a cascade would escalate every question. Therefore,
    `PerCriterionOneShotGrader` refuses it.
    """
    inner = innermost(judge)
    if not isinstance(inner, CompositeJudge):
        return False
    states_none = isinstance(inner, Cascade) and inner.thresholds.use_confidence and any(map(is_lm_judge, inner.cheap))
    return states_none or any(needs_confidence_in_batches(member) for member in inner.members)


def judges_inside(judge: Judge, *, answering: bool = False) -> list[Judge]:
    """Return the judges inside all wrappers, cascades and other composite judges.

    Args:
        judge: The judge.
        answering: Whether to leave out judges that answer no questions, such as the explainer of `Explained`.
    """
    inner = innermost(judge)
    if not isinstance(inner, CompositeJudge):
        return [inner]
    members = inner.answering_members if answering else inner.members
    return [leaf for member in members for leaf in judges_inside(member, answering=answering)]
