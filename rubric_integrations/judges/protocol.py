"""The protocols that a judge implements, and the records that it takes and returns.

`JudgeWrapper` is the base class of judges that add something to another judge. `JudgeRequest` is an HTTP request as
data, for code that sends requests itself, such as a batch API. `AlignmentRecord` records the labels that a judge was
aligned with.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeAlias, cast, get_args, runtime_checkable

from rubric_integrations._util.records import Record
from rubric_integrations.rubric.answers import Option
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import JudgeFailure, Judgment, Spend
from rubric_integrations.scoring.labels import Estimate, judgment_digest
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory


class RunStopped(Exception):  # noqa: N818 -- not an error of the question for which it is raised
    """Raised if the run makes no further calls. It is not the failure of one question, and is never retried."""


class Question(NamedTuple):
    """One criterion about one submission.

    Attributes:
        submission: The text to judge, with its query and reference. If its `show_trajectory` is `if_needed`, read its
            trajectory only for criteria that have `trajectory` in their `needs`. For other criteria, the key of a
            stored judgment does not depend on the trajectory.
        criterion: The criterion.
        guidelines: The rubric's instructions for all its criteria. Empty if the rubric has no instructions.
        options: The options of a multi-choice criterion, in the order in which the judge sees them. Empty for the
            rubric's order.
        may_abstain: Whether CANNOT_ASSESS is a valid answer if the criterion has options, but none that is marked `na`.
            In all other cases, it is always valid.
        batch_criteria: All criteria of the request, if the request asks about several criteria. Otherwise empty. A
            repeated request about the unanswered questions keeps all criteria of the first request here.
        warm_prompt_cache: Whether this request is sent first, and answered before the other requests about the same
            submission. The provider can then cache the part of the prompt that these requests share.
        whole_response: The full response if `submission` has only a part of the response or a shortened response.
            Otherwise None.
        whole_trajectory: The complete trajectory if `submission` has only a part of it or shortened results of tools.
            Otherwise None.
        given_answer: The verdict of another judge that is to be explained and not to be changed. Empty for a question
            that is to be answered.
    """

    submission: Submission
    criterion: Criterion
    guidelines: str = ""
    options: Sequence[Option] = ()
    may_abstain: bool = True
    batch_criteria: Sequence[Criterion] = ()
    warm_prompt_cache: bool = False
    whole_response: str | None = None
    given_answer: str = ""
    whole_trajectory: Trajectory | None = None


def criteria_of_request(questions: Mapping[int, Question]) -> Sequence[Criterion]:
    """Return all criteria of a request. They decide which parts of the submission the judge sees.

    Args:
        questions: The questions of the request, by number.
    """
    first = next(iter(questions.values()))
    return first.batch_criteria or [question.criterion for question in questions.values()]


class BatchResult(NamedTuple):
    """The result of one request about several criteria.

    Attributes:
        answers: The judgments by question number, for each question with exactly one valid answer.
        faults: Why there is no answer, by question number, for all other questions. A text is an unreadable answer, and
            the question is asked once more. A `JudgeFailure` says itself what it is, such as the refusal of one
            question (`about_text`), which is final.
        spend: The token usage and the cost of the request.
    """

    answers: Mapping[int, Judgment]
    faults: Mapping[int, str | JudgeFailure]
    spend: Spend

    def failure(self, number: int) -> JudgeFailure:
        """Return the fault of a question as a failure."""
        fault = self.faults[number]
        return fault if isinstance(fault, JudgeFailure) else JudgeFailure("parse", fault, retryable=True)


class OverallResult(NamedTuple):
    """One score for a whole submission.

    Attributes:
        percent: The judge's score, from 0 to 100.
        reason: The judge's explanation of the score.
        spend: The token usage and the cost of the request.
        neutralized: Whether the sanitizer changed text that imitates the structure of a prompt, before the judge saw
            it.
        model: The model that the reply names. None if it names none.
    """

    percent: float
    reason: str
    spend: Spend
    neutralized: bool
    model: str | None = None


@runtime_checkable
class Judge(Protocol):
    """Anything that answers one criterion about one submission. To write a judge, write a class with this one method.

    Return a `Judgment`. `rubric_integrations.scoring.to_judgment` makes one from an answer to a criterion of any kind.
    If there is no answer, raise `JudgeFailure`. If you returned UNMET instead, an outage of your server would become a
    bad grade. Every answer is validated (`judges/validation.py`): an invalid verdict is a failure, never a score. Set
    the judgment's `spend` to its cost. Without it, the cost counts as unknown, not as zero.

    A judge may also have these methods:

    - `judge_batch` (see `BatchJudge`) and `judge_overall` (see `OverallJudge`), for the graders that need them.
    - `fingerprint() -> str`: a text that identifies everything that the answers depend on, except the texts to judge:
      model, endpoint, settings, prompts. A judge without this method cannot be used with a ledger or another store,
      because the store could return the answers of another judge.
    - `without_cache() -> Judge`: the same judge without any cache of responses. It is used to measure the judge's
      noise.
    - `highest_cost(text_bytes: int) -> float | None`: the highest possible cost of a call about texts of this size, in
      US dollars. A run with `max_cost` needs this method, or the price of the judge's tokens in `prices`.
    - `independent_answers: bool`: whether the answer to a question of `judge_batch` does not depend on the other
      questions of the request. `PerCriterionGrader` then asks all questions about a submission in one request.
    - `split(questions) -> Sequence[Mapping[int, Question]]`, with `independent_answers`: the questions of each request,
      if the server limits their number.
    - `refusal(criterion) -> str | None`: why the judge cannot answer a criterion, and what to do. A grader calls it
      before the first request.
    - `async prepare()`: loads data that all calls need. It runs before the first call, outside of that call's timeout.
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
        """Answer all questions in one request. The keys of `questions` are their numbers.

        Raises:
            JudgeFailure: No part of the reply can be used.
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


class DSPyModel(Protocol):
    """A `dspy.LM` or another `dspy.BaseLM`. This type exists because importing DSPy takes a second."""

    @property
    def model(self) -> str:
        """The name of the model."""
        ...

    @property
    def supports_response_schema(self) -> bool:
        """Whether the model accepts a JSON Schema for its reply."""
        ...


class ChatMessage(Protocol):
    """A message of LangChain, such as an `AIMessage`."""

    @property
    def content(self) -> object:
        """The text of the message, or a list of its parts."""
        ...


class ChatModel(Protocol):
    """A LangChain chat model, such as a `BaseChatModel` or the result of its `bind`."""

    def ainvoke(self, input: Any, config: Any = None, /) -> Awaitable[ChatMessage]:  # noqa: A002 -- LangChain's name
        """Send messages to the model, and return its reply."""
        ...


class DecisionClient(Protocol):
    """A decision model of another library: a `dspy.experimental.TypeSafe`, or an `OpenAIDecisions` of LangChain."""

    @property
    def model(self) -> str:
        """The name of the model."""
        ...

    @property
    def base_url(self) -> str | None:
        """The base URL of the server. None for the provider's own."""
        ...


GenerateFn = Callable[[str, str], Awaitable[str]]
"""An async function that takes a system prompt and a user prompt, and returns the model's reply."""

ModelLike = str | DSPyModel | ChatModel | GenerateFn
"""A model: its name, a `dspy.LM`, a LangChain chat model, or an async function of a system prompt and a user prompt."""

JudgeLike = ModelLike | Judge | DecisionClient | Path
"""The type of every `judge=`: a model (see `ModelLike`), a `Judge`, a decision model of DSPy or LangChain, the name
`"offline"`, or the file of an aligned judge, as a `Path` or as a text that ends with `.json`."""


def fingerprint_of(judge: object) -> str | None:
    """Call a judge's `fingerprint`. Returns None if the judge has no such method."""
    fingerprint = getattr(judge, "fingerprint", None)
    return cast("str | None", fingerprint()) if callable(fingerprint) else None


def without_cache(judge: Judge) -> Judge:
    """Call a judge's `without_cache`. Returns the judge itself if it has no such method."""
    method: Any = getattr(judge, "without_cache", None)
    return cast("Judge", method()) if callable(method) else judge


Result: TypeAlias = Judgment | BatchResult | OverallResult
"""The result of a request about one question, about several questions, or about a whole submission."""


class Retries(NamedTuple):
    """How often a request is repeated.

    Attributes:
        unreadable: The number of retries after replies that cannot be parsed.
        outage: The shortest time in seconds for which a request without a reply is repeated. Such a request is also
            repeated at least `unreadable` times.
    """

    unreadable: int
    outage: float


class Request:
    """A request to a judge: about one question, several questions about one submission, or a whole submission.

    Exactly one of `question`, `questions` and `rubric` is set. Wrappers pass all three kinds on with one method,
    `RequestWrapper.answer`.

    Args:
        submission: The submission.
        question: The question, if the request is about one question.
        questions: The questions by number, if the request is about several questions.
        rubric: The rubric, if the request is for one score of the whole submission.
        retries: How often the request is repeated. None for the limits of the grader.
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
        """The rubric's instructions for all criteria."""
        if self.rubric is not None:
            return self.rubric.instructions
        return self.first_question.guidelines

    @property
    def criteria(self) -> Sequence[Criterion]:
        """All criteria of the request. They decide which parts of the submission the judge sees."""
        if self.question is not None:
            return (self.question.criterion,)
        return self.rubric.criteria if self.rubric is not None else criteria_of_request(self.questions or {})

    @property
    def first_question(self) -> Question:
        """The question, or the first of several questions."""
        return self.question if self.question is not None else next(iter((self.questions or {}).values()))

    def about(self, questions: Mapping[int, Question]) -> Request:
        """Return a request about the same submission with other questions and the same retries."""
        return Request(self.submission, questions=questions, retries=self.retries)

    def with_submission(self, submission: Submission) -> Request:
        """Return the same request about another submission."""

        def moved(question: Question) -> Question:
            return question._replace(submission=submission, whole_response=None, whole_trajectory=None)

        question = None if self.question is None else moved(self.question)
        questions = None if self.questions is None else {key: moved(other) for key, other in self.questions.items()}
        return Request(submission, question, questions, self.rubric, self.retries)

    def send_to(self, judge: Any) -> Awaitable[Any]:
        """Call the judge's method for this kind of request."""
        if self.question is not None:
            return judge.judge(self.question)
        if self.questions is not None:
            return judge.judge_batch(self.questions)
        return judge.judge_overall(self.submission, self.rubric)


class AlignmentRecord(Record):
    """How a judge was aligned with human labels, and its agreement with other human labels before and after.

    Attributes:
        model: The name of the model that it was aligned for, without the address of its server.
        optimizer: The name of the optimizer, such as `GEPA`.
        labels: A digest of all labels, including the labels of the test set.
        trained_on: The digests (see `judgment_digest`) of the judgments whose labels the optimizer saw or used to
            choose among its candidates. Measurements of the judge exclude these judgments.
        test_set: A digest of the labels of the test set.
        attempts: How many judges have been tried on this test set, including this one.
        alpha: The highest probability that any of the attempts keeps a judge that is not better.
        before: The accuracy on the test set before the alignment.
        after: The accuracy on the test set after the alignment.
        gain: `after` minus `before`, with a one-sided lower limit.
        kept: Whether the lower limit of `gain` is above 0. If not, the judge has its earlier prompts and is not
            influenced by any label.
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
        """The digests of the judgments whose labels shaped the judge's prompts. Empty if the alignment was not kept."""
        return frozenset(self.trained_on if self.kept else ())

    @cached_property
    def training_digest(self) -> str:
        """A digest of `seen`, for the judge's fingerprint. Empty if `seen` is empty."""
        return sha256("\n".join(sorted(self.seen)).encode()).hexdigest()[:32] if self.seen else ""


def is_trained_on(alignment: AlignmentRecord | None, question: Question) -> bool:
    """Return whether a judge was aligned with a label for this criterion and this submission.

    A label may lack the query. Therefore two digests are looked up: one with the query and one without. If the question
    is about a part of a long response, the label of the full response is looked up.
    """
    return alignment is not None and has_label_in(alignment.seen, question)


def has_label_in(seen: frozenset[str], question: Question) -> bool:
    """Return whether the label of a question's submission and criterion is among the labels with these digests."""
    if not seen:
        return False
    submission = question.submission
    if question.whole_response is not None:
        submission = submission.model_copy(update={"response": question.whole_response})
    if question.whole_trajectory is not None:
        submission = submission.model_copy(update={"trajectory": question.whole_trajectory})
    without_query = submission.model_copy(update={"query": None})
    digests = {
        judgment_digest(labelled, question.criterion, with_trajectory=with_trajectory)
        for labelled in (submission, without_query)
        for with_trajectory in (True, False)
    }
    return not seen.isdisjoint(digests)


def mark_batch(alignment: AlignmentRecord | None, questions: Mapping[int, Question], batch: BatchResult) -> BatchResult:
    """Set `trained_on` to True for each answer of a batch if the judge was aligned with a label for its question."""
    trained = [number for number in batch.answers if is_trained_on(alignment, questions[number])]
    marked = {number: batch.answers[number].model_copy(update={"trained_on": True}) for number in trained}
    return batch._replace(answers={**batch.answers, **marked}) if marked else batch


RequestProtocol = Literal["openai", "anthropic"]
"""The protocol of a request's body: OpenAI's chat completions, or Anthropic's messages."""


ReplyFormat = Literal["schema", "json", "text"]
"""The strictest format of a reply: a JSON Schema, JSON mode, or a text whose form only the prompt describes."""

ReasonPolicy = Literal["always", "if_lost", "never"]
"""Which answers of a judge have a reason: all, only the answers that lose points, or none."""

REPLY_FORMATS: tuple[ReplyFormat, ...] = get_args(ReplyFormat)
"""All formats, the strictest first."""


class RequestForm(NamedTuple):
    """The settings of a request that a server may refuse.

    Attributes:
        reply_format: The strictest format in which the reply is requested.
        default_temperature: Whether the judge's default temperature is sent. This has no effect if the judge has no
            default temperature.
    """

    reply_format: ReplyFormat = REPLY_FORMATS[0]
    default_temperature: bool = True


@dataclass(frozen=True)
class JudgeRequest:
    """The HTTP request about one question, as `LMJudge.prepare_request` makes it.

    Attributes:
        protocol: The protocol of the body.
        url: The URL to which the judge would send the request.
        headers: The HTTP headers. They contain the API key, so never write them to a file or a log. `repr` omits them.
        body: The JSON body in UTF-8. The judge would send the same bytes.
    """

    protocol: RequestProtocol
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes


class JudgeWrapper:
    """A judge that passes every question on to another judge. A subclass overrides the methods that it changes.

    Args:
        judge: The judge to wrap.

    Attributes:
        inner: The wrapped judge, which may be a wrapper itself. A wrapper has all methods of the protocols, even if
            the wrapped judge lacks some of them. The grader checks the wrapped judge when it is constructed.

    Example:
        >>> class Loud(JudgeWrapper):
        ...     async def judge(self, question: Question) -> Judgment:
        ...         print("judging", question.criterion.requirement)
        ...         return await super().judge(question)
    """

    def __init__(self, judge: Judge):
        self.inner: Any = judge

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion, by a call of the wrapped judge."""
        return await self.inner.judge(question)

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria in one request, by a call of the wrapped judge."""
        return await self.inner.judge_batch(questions)

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Score a whole submission, by a call of the wrapped judge."""
        return await self.inner.judge_overall(submission, rubric)

    def fingerprint(self) -> str | None:
        """Return the wrapped judge's fingerprint. Returns None if the wrapped judge does not have one."""
        return fingerprint_of(self.inner)

    def without_cache(self) -> Judge:
        """Return a copy of this wrapper that wraps the same judge without its cache of responses."""
        return self.wrapping(without_cache(self.inner))

    def wrapping(self, judge: Judge) -> Self:
        """Return a copy of this wrapper that wraps another judge."""
        wrapper = copy.copy(self)
        wrapper.inner = judge
        return wrapper


class RequestJudge(ABC):
    """Base class of the library's judges that answer all kinds of requests with one method, `answer`."""

    answers_requests: ClassVar[bool] = True

    @abstractmethod
    async def answer(self, request: Request) -> Any:
        """Answer a request about one question, several questions or a whole submission.

        Raises:
            JudgeFailure: There is no answer.
        """

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion, by a call of `answer`."""
        return await self.answer(Request(question.submission, question))

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria in one request, by a call of `answer`."""
        return await self.answer(Request(next(iter(questions.values())).submission, questions=questions))


class RequestWrapper(RequestJudge, JudgeWrapper):
    """Base class of the library's wrappers, which override only `answer`."""

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Score a whole submission, by a call of `answer`."""
        return await self.answer(Request(submission, rubric=rubric))


def answer(judge: Any, request: Request) -> Awaitable[Any]:
    """Pass a request on to a judge: to `answer` if it has it, else to `judge`, `judge_batch` or `judge_overall`."""
    # Not `isinstance`, which costs ten function calls for an abstract class.
    return judge.answer(request) if getattr(type(judge), "answers_requests", False) else request.send_to(judge)


def answers_independently(judge: Judge) -> bool:
    """Whether the judge's answers to several questions in one request do not depend on each other."""
    return bool(getattr(innermost(judge), "independent_answers", False))


def refusal_of(judge: Judge, criterion: Criterion) -> str | None:
    """Return why a judge cannot answer a criterion, and what to do. None if it can, or does not say."""
    refusal: Any = getattr(innermost(judge), "refusal", None)
    return cast("str | None", refusal(criterion)) if callable(refusal) else None


def split_for(judge: Judge, questions: Mapping[int, Question]) -> Sequence[Mapping[int, Question]]:
    """Split questions into the requests that a judge accepts. One request if the judge has no method `split`."""
    split: Any = getattr(innermost(judge), "split", None)
    return cast("Sequence[Mapping[int, Question]]", split(questions)) if callable(split) else [questions]


def innermost(judge: Judge) -> Judge:
    """Return the judge inside all wrappers."""
    while isinstance(judge, JudgeWrapper):
        judge = judge.inner
    return judge
