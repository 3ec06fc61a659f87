"""The protocols that a judge implements, and the records that it takes and returns.

`JudgeWrapper` is the base class of judges that add something to another judge. `JudgeRequest` is a request as data, for
code that sends it itself, such as a batch API. `AlignmentRecord` says which labels a judge was aligned with.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeAlias, cast, runtime_checkable

from rubric_integrations._util.records import Record
from rubric_integrations.rubric.answers import Option
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import Judgment, Spend
from rubric_integrations.scoring.labels import Estimate, judgment_digest
from rubric_integrations.submission.submission import Submission


class RunStopped(Exception):  # noqa: N818 -- no error of the question that it is raised for
    """No further call of a run is made. It is no failure of one question: nothing retries it."""


class Question(NamedTuple):
    """One criterion about one submission.

    Attributes:
        submission: The text to judge, with its query and reference. In a store, an answer depends on its trajectory
            only where `show_trajectory` shows it with this criterion: do not read it otherwise.
        criterion: The criterion.
        guidelines: The rubric's instructions for all its criteria; empty where it has none.
        options: The options of a multi-choice criterion in the order in which the judge sees them; empty for the
            order of the rubric.
        may_abstain: Whether CANNOT_ASSESS is an answer where no option is marked `na`.
        batch_criteria: All criteria of the first request that contains this question, if it contains several.
        warm_prompt_cache: Whether this request is answered before the other requests about the same submission are
            sent, so that the provider should cache the part of the prompt that they share.
        whole_response: The response, if that of `submission` was cut or is a part of it; else None.
    """

    submission: Submission
    criterion: Criterion
    guidelines: str = ""
    options: Sequence[Option] = ()
    may_abstain: bool = True
    batch_criteria: Sequence[Criterion] = ()
    warm_prompt_cache: bool = False
    whole_response: str | None = None


def criteria_of_request(questions: Mapping[int, Question]) -> Sequence[Criterion]:
    """Return the criteria that decide what a request about these questions shows of their submission."""
    first = next(iter(questions.values()))
    return first.batch_criteria or [question.criterion for question in questions.values()]


class BatchResult(NamedTuple):
    """The result of one request about several criteria.

    Attributes:
        answers: A judgment for the number of each question that got exactly one valid answer.
        faults: For the numbers of the other questions, what was wrong with the answer.
        spend: What the request cost.
    """

    answers: Mapping[int, Judgment]
    faults: Mapping[int, str]
    spend: Spend


class OverallResult(NamedTuple):
    """One score for a whole submission.

    Attributes:
        percent: The judge's score, from 0 to 100.
        reason: Why, in the judge's words.
        spend: What the request cost.
        neutralized: Whether text that imitates the structure of a prompt was changed before the judge saw it.
    """

    percent: float
    reason: str
    spend: Spend
    neutralized: bool


@runtime_checkable
class Judge(Protocol):
    """Anything that answers one criterion about one submission. To write a judge, give a class this one method.

    Return a `Judgment`; `rubric_integrations.scoring.to_judgment` makes one of an answer to a criterion of any kind.
    Where there is no answer, raise `JudgeFailure`: to return UNMET instead would turn an outage of yours into a bad
    grade. Whatever you return is validated (`judges/validation.py`), so a wrong verdict is a failure, never a score.
    The `spend` of the judgment is its cost; without it, the cost is unknown, which is not zero.

    A judge may also have these methods:

    - `judge_batch` (see `BatchJudge`) and `judge_overall` (see `OverallJudge`), for the graders that need them.
    - `fingerprint() -> str`: everything beside the texts that its answers depend on (model, endpoint, settings,
      prompts). A judge without it cannot be used with a ledger or another store, where the answers of another judge
      would be taken for its own.
    - `without_cache() -> Judge`: the same judge without any cache of responses; used to measure its noise.
    - `highest_cost(text_bytes: int) -> float | None`: the most that a call about texts of so many bytes can cost, in US
      dollars. A run with `max_cost` needs it, or the price of the judge's tokens in `prices`.
    - `async prepare()`: called before the first call, and outside of its timeout, for what is loaded once.
    - `with_examples(examples, max_examples) -> Judge`: the same judge with labelled judgments as few-shot examples.
    """

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion about one submission.

        Raises:
            JudgeFailure: There is no answer.
        """
        ...


@runtime_checkable
class BatchJudge(Protocol):
    """A judge that answers several criteria about one submission in one request."""

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer all questions, by number.

        Raises:
            JudgeFailure: The reply as a whole is unusable.
        """
        ...


@runtime_checkable
class OverallJudge(Protocol):
    """A judge that scores a whole submission in one request."""

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Give one score from 0 to 100.

        Raises:
            JudgeFailure: There is no score.
        """
        ...


def fingerprint_of(judge: object) -> str | None:
    """Call a judge's `fingerprint`; None if it has no such method."""
    fingerprint = getattr(judge, "fingerprint", None)
    return cast("str | None", fingerprint()) if callable(fingerprint) else None


def without_cache(judge: Judge) -> Judge:
    """Call a judge's `without_cache`; the judge itself if it has no such method."""
    method: Any = getattr(judge, "without_cache", None)
    return cast("Judge", method()) if callable(method) else judge


Result: TypeAlias = Judgment | BatchResult | OverallResult
"""The result of a request: for one question, for several, or for a whole submission."""


class Retries(NamedTuple):
    """How often a request is repeated.

    Attributes:
        unreadable: The retries after replies that cannot be read.
        outage: Seconds for which a request is repeated while no reply arrives, beyond `unreadable`.
    """

    unreadable: int
    outage: float


class Request:
    """What a judge is requested to answer: one question, several questions about one submission, or a whole submission.

    Wrappers pass requests on with one method (`RequestWrapper.answer`), whichever of the three they are.

    Args:
        submission: The submission.
        question: The question; None for another kind of request.
        questions: Several questions by number; None for another kind of request.
        rubric: The rubric by which the whole submission is scored; None for another kind of request.
        retries: How often the request is repeated; None for the limits of the grader.
    """

    __slots__ = ("question", "questions", "retries", "rubric", "submission")

    def __init__(
        self,
        submission: Submission,
        question: Question | None = None,
        questions: Mapping[int, Question] | None = None,
        rubric: Rubric | None = None,
        retries: Retries | None = None,
    ):
        self.submission, self.question, self.questions, self.rubric = submission, question, questions, rubric
        self.retries = retries

    @property
    def guidelines(self) -> str:
        """The instructions for all criteria."""
        if self.rubric is not None:
            return self.rubric.instructions
        return self.first_question.guidelines

    @property
    def criteria(self) -> Sequence[Criterion]:
        """The criteria that decide what the request shows of the submission."""
        if self.question is not None:
            return (self.question.criterion,)
        return self.rubric.criteria if self.rubric is not None else criteria_of_request(self.questions or {})

    @property
    def first_question(self) -> Question:
        """The question, or the first of several."""
        return self.question if self.question is not None else next(iter((self.questions or {}).values()))

    def about(self, questions: Mapping[int, Question]) -> Request:
        """Return a request about other questions, with the same retries."""
        return Request(self.submission, questions=questions, retries=self.retries)

    def send_to(self, judge: Any) -> Awaitable[Any]:
        """Call the method of a judge that answers this kind of request."""
        if self.question is not None:
            return judge.judge(self.question)
        if self.questions is not None:
            return judge.judge_batch(self.questions)
        return judge.judge_overall(self.submission, self.rubric)


class AlignmentRecord(Record):
    """How a judge was aligned with people's labels, and how far it then agreed with people on labels it had not seen.

    Attributes:
        model: The name of the model that it was aligned for, without the address of its server.
        optimizer: The name of the optimizer, such as `GEPA`.
        labels: A digest of all labels, those of the test set included.
        trained_on: The digest of each judgment (see `judgment_digest`) whose label the optimizer saw, or by which its
            candidates were chosen. Figures about the judge leave these judgments out.
        test_set: A digest of the labels of the test set.
        attempts: How many judges have been tried on this test set, this one included.
        alpha: The probability of keeping a judge that is not better, over all attempts.
        before: The accuracy on the test set before the alignment.
        after: The accuracy on the test set after it.
        gain: The difference of both, with a one-sided lower limit.
        kept: Whether the lower limit is above 0. If not, the judge is as it was before, and has seen no label.
    """

    model: str
    optimizer: str
    labels: str
    trained_on: tuple[str, ...]
    test_set: str
    attempts: int
    alpha: float
    before: Estimate
    after: Estimate
    gain: Estimate
    kept: bool

    @cached_property
    def seen(self) -> frozenset[str]:
        """The digest of each judgment whose label has shaped the judge's prompts; none if it was not kept."""
        return frozenset(self.trained_on if self.kept else ())

    @cached_property
    def training_digest(self) -> str:
        """A digest of `seen`, for the judge's fingerprint; empty if the judge has seen no label."""
        return sha256("\n".join(sorted(self.seen)).encode()).hexdigest()[:32] if self.seen else ""


def is_trained_on(alignment: AlignmentRecord | None, question: Question) -> bool:
    """Return whether a judge was aligned with a label of the very judgment that a question asks for.

    A label may lack the query, so that both digests are looked up: with it and without it. About a part of a long
    response, the label of the whole counts.
    """
    if alignment is None or not alignment.seen:
        return False
    submission = question.submission
    if question.whole_response is not None:
        submission = submission.model_copy(update={"response": question.whole_response})
    without_query = submission.model_copy(update={"query": None})
    digests = {judgment_digest(labelled, question.criterion) for labelled in (submission, without_query)}
    return not alignment.seen.isdisjoint(digests)


def mark_batch(alignment: AlignmentRecord | None, questions: Mapping[int, Question], batch: BatchResult) -> BatchResult:
    """Mark those answers of a request to several questions whose labels the judge was aligned with."""
    trained = [number for number in batch.answers if is_trained_on(alignment, questions[number])]
    marked = {number: batch.answers[number].model_copy(update={"trained_on": True}) for number in trained}
    return batch._replace(answers={**batch.answers, **marked}) if marked else batch


RequestProtocol = Literal["openai", "anthropic"]
"""The protocol of a request's body: OpenAI's chat completions, or Anthropic's messages."""


@dataclass(frozen=True)
class JudgeRequest:
    """A request about one question, as `LMJudge.prepare_request` makes it.

    Attributes:
        protocol: The protocol of the body.
        url: Where the judge itself would send it.
        headers: Its HTTP headers, with the key: they are in no `repr`, and are not to be written anywhere.
        body: Its JSON in UTF-8, the same bytes that the judge itself would send.
    """

    protocol: RequestProtocol
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes


class JudgeWrapper:
    """A judge that passes every question on to another judge. A subclass overrides what it adds to.

    Args:
        judge: The judge to wrap.

    Attributes:
        inner: The wrapped judge, which may be a wrapper itself. A wrapper has all methods of the protocols; whether
            the judge inside has them is checked when a grader is made.

    Example:
        >>> class Loud(JudgeWrapper):
        ...     async def judge(self, question: Question) -> Judgment:
        ...         print("judging", question.criterion.requirement)
        ...         return await super().judge(question)
    """

    def __init__(self, judge: Judge):
        self.inner: Any = judge

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion."""
        return await self.inner.judge(question)

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria in one request."""
        return await self.inner.judge_batch(questions)

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Score a whole submission."""
        return await self.inner.judge_overall(submission, rubric)

    def fingerprint(self) -> str | None:
        """Return the wrapped judge's fingerprint; None if it has none."""
        return fingerprint_of(self.inner)

    def without_cache(self) -> Judge:
        """Wrap the judge without its cache of responses."""
        return self.wrapping(without_cache(self.inner))

    def wrapping(self, judge: Judge) -> Self:
        """Copy this wrapper around another judge."""
        wrapper = copy.copy(self)
        wrapper.inner = judge
        return wrapper


class RequestJudge(ABC):
    """A judge of our own: one method, `answer`, for requests of every kind, in place of one method for each kind."""

    answers_requests: ClassVar[bool] = True

    @abstractmethod
    async def answer(self, request: Request) -> Any:
        """Answer a request.

        Raises:
            JudgeFailure: There is no answer.
        """

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion, as `answer` does."""
        return await self.answer(Request(question.submission, question))

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria in one request, as `answer` does."""
        return await self.answer(Request(next(iter(questions.values())).submission, questions=questions))


class RequestWrapper(RequestJudge, JudgeWrapper):
    """A wrapper of our own, which overrides `answer` alone."""

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Score a whole submission, as `answer` does."""
        return await self.answer(Request(submission, rubric=rubric))


def answer(judge: Any, request: Request) -> Awaitable[Any]:
    """Pass a request on to a judge: to the one method of a judge of ours, or to that for this kind of request."""
    # Not `isinstance`, which costs ten function calls for an abstract class.
    return judge.answer(request) if getattr(type(judge), "answers_requests", False) else request.send_to(judge)


def innermost(judge: Judge) -> Judge:
    """Return the judge inside all wrappers."""
    while isinstance(judge, JudgeWrapper):
        judge = judge.inner
    return judge
