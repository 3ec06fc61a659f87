"""What a judge is: anything that answers one criterion about one submission, and for some graders more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from rubric_integrations.results.interpret import interpret_answer
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend
from rubric_integrations.rubric.criterion import Criterion, Option
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission


class Question(NamedTuple):
    """One criterion asked of one submission.

    Attributes:
        submission: The text, with its query and reference.
        criterion: What is asked.
        guidelines: The rubric's words to the judge for every criterion; empty where it has none.
        options: A multi-choice criterion's options in the order to show them; empty for the author's own order.
        may_abstain: Whether CANNOT_ASSESS is an answer where no option is marked `na`.
        beside: All criteria of the call that first asked this one, if it asked several.
        warm_prompt_cache: Whether one question about the submission is answered before its others are asked, so that the
            beginning of its prompt is worth caching.
    """

    submission: Submission
    criterion: Criterion
    guidelines: str = ""
    options: Sequence[Option] = ()
    may_abstain: bool = True
    batch_criteria: Sequence[Criterion] = ()
    warm_prompt_cache: bool = False


class BatchResult(NamedTuple):
    """What one call for several criteria gave.

    Attributes:
        answers: A judgment for the number of each question that got exactly one valid answer.
        faults: For the others, what was wrong.
        spend: What the call cost.
    """

    answers: Mapping[int, Judgment]
    faults: Mapping[int, str]
    spend: Spend


class OverallResult(NamedTuple):
    """One judgment of a whole submission.

    Attributes:
        percent: The judge's score, from 0 to 100.
        reason: Why.
        spend: What the call cost.
        neutralized: Whether text that imitates prompt structure was defused before the judge saw it.
    """

    percent: float
    reason: str
    spend: Spend
    neutralized: bool


@runtime_checkable
class Judge(Protocol):
    """Write your own judge by giving a class this one method.

    Answer with a `Judgment` (`rubric_integrations.results.to_judgment` makes one for a criterion of any kind). Where
    there is no answer raise `JudgeFailure`; returning UNMET instead would turn your outage into a bad grade.
    """

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion about one submission."""
        ...


@runtime_checkable
class BatchJudge(Protocol):
    """A judge that can answer several criteria about one submission in one call."""

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer all questions, by number; raise `JudgeFailure` where the reply as a whole is unusable."""
        ...


@runtime_checkable
class OverallJudge(Protocol):
    """A judge that can score a whole submission at once."""

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Give one score from 0 to 100."""
        ...


def validate_judgment(criterion: Criterion, judgment: Judgment) -> Judgment:
    """A judge's answer, if it is one to this criterion; a judge of the user's own may say anything.

    Raises:
        JudgeFailure: Of kind `parse`: the verdict is no answer, or its value is not what it is worth.
    """
    try:
        value = interpret_answer(criterion, judgment.verdict).value
    except ValueError as error:
        raise JudgeFailure("parse", str(error), spend=judgment.spend) from None
    if value != judgment.value and (value is None or judgment.value is None or abs(value - judgment.value) > 1e-6):
        message = f"the verdict {judgment.verdict!r} came with the value {judgment.value!r}, and is worth {value!r}"
        raise JudgeFailure("parse", message, spend=judgment.spend)
    return judgment
