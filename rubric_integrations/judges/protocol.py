"""What a judge is: the protocols that a judge of your own implements, and the records that it takes and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from rubric_integrations.results.judgment import Judgment
from rubric_integrations.results.usage import Spend
from rubric_integrations.rubric.criterion import Criterion, Option
from rubric_integrations.rubric.rubric import Rubric
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

    Return a `Judgment`; `rubric_integrations.results.to_judgment` makes one of an answer to a criterion of any kind.
    Where there is no answer, raise `JudgeFailure`: to return UNMET instead would turn an outage of yours into a bad
    grade. Whatever you return is validated (`judges/validation.py`), so a wrong verdict is a failure, never a score.

    A judge may also have these methods:

    - `judge_batch` (see `BatchJudge`) and `judge_overall` (see `OverallJudge`), for the graders that need them.
    - `fingerprint() -> str`: everything beside the texts that its answers depend on (model, endpoint, settings,
      prompts). A judge without it cannot be used with a ledger or another store, where the answers of another judge
      would be taken for its own.
    - `without_cache() -> Judge`: the same judge without any cache of responses; used to measure its noise.
    - `highest_cost(text_bytes: int) -> float | None`: the most that a call about texts of so many bytes can cost, in US
      dollars, so that `max_cost` of a run holds; None if the price is not known.
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
