"""`Explained`: asks another model afterwards for the reasons that a judge does not give."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

from rubric_integrations.judges.composite import CompositeJudge, Retrier
from rubric_integrations.judges.protocol import (
    BatchResult,
    Judge,
    JudgeLike,
    ModelLike,
    Question,
    Request,
    Retries,
    answers_independently,
    fingerprint_of,
    innermost,
    refusal_of,
    split_for,
)
from rubric_integrations.judges.spend import gather_calls
from rubric_integrations.rubric.criterion import CONDITION_PREFIX, Criterion
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Judgment, Spend, total_spend


class Explained(CompositeJudge):
    """A judge whose answers get a reason afterwards, from another model, where points are lost.

    A reason is requested for UNMET of a requirement, for MET of a penalty, and for every option or number. No reason is
    requested for an answer that already has one, for an abstention, and for a condition (`applies_when`). The reason
    begins with `given afterwards by`, because it is not the reasoning that led to the answer. It never changes the
    answer. If no reason can be given, the answer stays, and its reason says so.

    Each reason is one request, also if the judge answers several criteria in one request. Both judges have the retries,
    the timeout and the limits of the grader, and their own entries in a ledger. Therefore, a run with another explainer
    or without one reuses the stored answers. The cost of a reason counts as a cost of its answer. If a run cannot use
    the explainer at all, for example because its key is wrong, the run ends.

    Args:
        judge: Any judge, such as a `Cascade`, or a value that `judge=` of a grader accepts. A judge with thresholds
            stands inside, because the reason is for the final answer.
        by: The model that explains, or an `LMJudge`, of which only the model, its settings and its name are used. Also
            a judge of your own: it answers a question with a `given_answer` with a judgment that has this verdict and
            the reason.

    Attributes:
        answering: The judge that answers.
        explainer: The judge that explains.

    Raises:
        ValueError: `by` is a judge without a model, or the file of a judge.
        TypeError: `judge` or `by` is neither a judge nor a model.

    Example:
        >>> from rubric_integrations import Criterion, Submission
        >>> from rubric_integrations.judges import LMJudge
        >>> judge = Explained(LMJudge("openai/gpt-5-nano", reason="never"), by="openai/gpt-5-mini")
        >>> judge.explainer.lm.model
        'openai/gpt-5-mini'
    """

    def __init__(self, judge: JudgeLike, by: ModelLike | Judge):
        from rubric_integrations.judges import as_judge

        self.answering = as_judge(judge)
        self.explainer = _as_explainer(by)

    @property
    def members(self) -> tuple[Judge, ...]:
        """The judge that answers and the judge that explains."""
        return self.answering, self.explainer

    @property
    def answering_members(self) -> tuple[Judge, ...]:
        """The judge that answers."""
        return (self.answering,)

    @property
    def gives_reasons(self) -> bool:
        """True: the explainer gives the reasons."""
        return True

    @property
    def independent_answers(self) -> bool:
        """Whether the judge's answers to several questions in one request do not depend on each other."""
        return answers_independently(self.answering)

    def refusal(self, criterion: Criterion) -> str | None:
        """Return why the judge cannot answer a criterion. None if it can."""
        return refusal_of(self.answering, criterion)

    def split(self, questions: Mapping[int, Question]) -> Sequence[Mapping[int, Question]]:
        """Split questions into the requests that the judge accepts."""
        return split_for(self.answering, questions)

    def with_members(self, change: Callable[[Judge], Judge], retries: Retrier | None = None) -> Self:
        """Copy this judge, and replace both judges in the copy (see `CompositeJudge.with_members`)."""
        explained = copy.copy(self)
        explained.answering, explained.explainer = change(self.answering), change(self.explainer)
        explained._retries = retries or self._retries
        return explained

    def describe(self) -> dict[str, Any] | None:
        """Return the fingerprints of both judges, as JSON. None if one of them cannot be identified."""
        judge = innermost(self.answering)
        described = judge.describe() if isinstance(judge, CompositeJudge) else fingerprint_of(self.answering)
        explained_by = fingerprint_of(self.explainer)
        if described is None or explained_by is None:
            return None
        return {"judge": described, "explained_by": explained_by, "explainer": self._name}

    async def answer(self, request: Request) -> Any:
        """Answer one criterion, or several criteria about one submission, and explain the answers.

        Raises:
            JudgeFailure: There is no answer. It is not retryable if both judges already have their own retries.
        """
        result, lost = await self._ask(self.answering, request)
        if isinstance(result, JudgeFailure):
            final = copy.copy(result)
            final.retryable = result.retryable and self._may_retry
            raise final from result
        if request.questions is not None:
            return await self._explain_batch(request.questions, result, lost, request.retries)
        explained, spend = await self._explain(cast("Question", request.question), result, request.retries)
        return explained.model_copy(update={"spend": explained.spend + lost + spend})

    async def _explain_batch(
        self, questions: Mapping[int, Question], batch: BatchResult, lost: Spend, retries: Retries | None
    ) -> BatchResult:
        explaining = (self._explain(questions[number], judgment, retries) for number, judgment in batch.answers.items())
        explained = dict(zip(batch.answers, await gather_calls(explaining), strict=True))
        answers = {number: judgment for number, (judgment, _) in explained.items()}
        spend = total_spend([batch.spend, lost, *(spend for _, spend in explained.values())])
        return BatchResult(answers, batch.faults, spend)

    async def _explain(self, question: Question, judgment: Judgment, retries: Retries | None) -> tuple[Judgment, Spend]:
        """Return a judgment with a reason, and the spend of the reason."""
        if judgment.reason or not _needs_reason(question.criterion, judgment):
            return judgment, NO_SPEND
        to_explain = question._replace(given_answer=judgment.verdict, batch_criteria=(), warm_prompt_cache=False)
        request = Request(question.submission, to_explain, retries=retries)
        outcome, lost = await self._ask(self.explainer, request)
        if isinstance(outcome, JudgeFailure):
            reason = f"no reason could be given afterwards by {self._name}: {outcome.message}"
        elif outcome.verdict != judgment.verdict or not outcome.reason:
            reason = f"no reason could be given afterwards by {self._name}"
        else:
            reason = f"given afterwards by {self._name}: {outcome.reason}"
        return judgment.model_copy(update={"reason": reason}), outcome.spend + lost

    @property
    def _name(self) -> str:
        explainer: Any = innermost(self.explainer)
        model = getattr(getattr(explainer, "lm", None), "model", type(explainer).__name__)
        return str(getattr(explainer, "name", None) or model).rpartition("/")[2]


def _as_explainer(by: ModelLike | Judge) -> Judge:
    """Make the judge that explains. Raise a ValueError if it writes no text."""
    from rubric_integrations.judges import NAMED_JUDGES, judge_file_of
    from rubric_integrations.judges.decision_judge import DecisionJudge
    from rubric_integrations.judges.decisions import is_decision_model

    if isinstance(by, str) and (by in NAMED_JUDGES or judge_file_of(by)):
        raise ValueError(f"`by` is {by!r}, which explains nothing: name a model, such as 'openai/gpt-5-mini'")
    if is_decision_model(by) or isinstance(by, DecisionJudge):
        raise ValueError("`by` is a decision model, which writes no text: name a model, such as 'openai/gpt-5-mini'")
    is_judge = isinstance(by, Judge)
    if is_judge and not hasattr(by, "lm"):
        return by
    # The import of DSPy takes a second.
    from rubric_integrations.judges.lm_judge import Explainer, LMJudge

    if is_judge and not isinstance(by, LMJudge):
        return by
    return Explainer(by if isinstance(by, LMJudge) else LMJudge(by))


def _needs_reason(criterion: Criterion, judgment: Judgment) -> bool:
    """Whether points are lost, as far as the answer alone can show it."""
    if judgment.value is None or criterion.requirement.startswith(CONDITION_PREFIX):
        return False
    return criterion.kind != "binary" or judgment.value == (1.0 if criterion.is_penalty else 0.0)
