"""Validates every answer of a judge once, before other code uses it.

The answer may come from a judge of this library, from a user's judge, or from a store. The verdict is made canonical
(`met` becomes MET). Its value must be the value that the criterion assigns to the verdict. Every question of a batch
must have an answer or a fault. An overall score must be between 0 and 100. Anything else is a `JudgeFailure`, never a
score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rubric_integrations.judges.exploration import ExplorationRequest, ExplorerReply, require_reply
from rubric_integrations.judges.protocol import BatchResult, OverallResult, Question, Request, Result
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import UNKNOWN_CALL, JudgeFailure, Judgment, interpret_answer
from rubric_integrations.submission.submission import Submission

# A judge may have computed the value itself, with a rounding error.
_ROUNDING = 1e-6


def validate(request: Request, result: object) -> Result | ExplorerReply:
    """Check the result of a request, and return it with canonical verdicts, such as `MET` for `met`.

    Raises:
        JudgeFailure: The failure's kind is `parse` for an invalid answer, and `config` for an object of a wrong type.
    """
    question = request.question
    if isinstance(request, ExplorationRequest):
        return require_reply(result)
    if question is not None:
        if isinstance(result, Judgment) and not result.spend.calls and "spend" not in result.model_fields_set:
            # If it counted as free, `max_cost` would have no effect.
            result = result.model_copy(update={"spend": UNKNOWN_CALL})
        return validate_judgment(question.criterion, result, question.may_abstain, question.submission)
    return validate_overall(result) if request.questions is None else validate_batch(request.questions, result)


def validate_judgment(
    criterion: Criterion, judgment: object, may_abstain: bool = True, submission: Submission | None = None
) -> Judgment:
    """Check one judgment, and make its verdict, its value and the numbers of its cited steps canonical.

    CANNOT_ASSESS is a valid answer, with one exception: `may_abstain` is False, and the criterion has options, but none
    that is marked `na`.

    Raises:
        JudgeFailure: The kind is `parse` if the verdict is not an answer to the criterion, if it has a wrong value, or
            if it cites a step that the submission's trajectory does not have. The kind is `config` if `judgment` is
            not a `Judgment`.
    """
    if not isinstance(judgment, Judgment):
        message = f"a judge must return a Judgment, got {type(judgment).__name__}: make one with `to_judgment`"
        raise JudgeFailure("config", message)
    try:
        verdict, value = interpret_answer(criterion, judgment.verdict, may_abstain)
        evidence = _existing_steps(judgment.evidence, submission)
    except ValueError as error:
        raise JudgeFailure("parse", str(error), retryable=True, spend=judgment.spend) from None
    if not _same_value(value, judgment.value):
        message = f"the verdict {judgment.verdict!r} came with the value {judgment.value!r}, and is worth {value!r}"
        raise JudgeFailure("parse", message, retryable=True, spend=judgment.spend)
    if verdict == judgment.verdict and value == judgment.value and evidence == judgment.evidence:
        return judgment
    return judgment.model_copy(update={"verdict": verdict, "value": value, "evidence": evidence})


def validate_batch(questions: Mapping[int, Question], batch: object) -> BatchResult:
    """Check the answers of one request. In the result, every question has a valid judgment or a fault.

    Answers to other questions are dropped.

    Raises:
        JudgeFailure: Of kind `config`, if `batch` is not a `BatchResult`.
    """
    if not isinstance(batch, BatchResult):
        message = f"`judge_batch` must return a BatchResult, got {type(batch).__name__}"
        raise JudgeFailure("config", message)
    answers: dict[int, Judgment] = {}
    faults: dict[int, str | JudgeFailure] = {}
    for number, question in questions.items():
        if number in batch.faults:
            faults[number] = batch.faults[number]
        elif number not in batch.answers:
            faults[number] = "no answer"
        else:
            try:
                answer = batch.answers[number]
                answers[number] = validate_judgment(
                    question.criterion, answer, question.may_abstain, question.submission
                )
            except JudgeFailure as failure:
                faults[number] = failure.message
    return BatchResult(answers, faults, batch.spend)


def validate_overall(overall: object) -> OverallResult:
    """Check a score for a whole submission. An invalid score is never clamped.

    Raises:
        JudgeFailure: The kind is `parse` if the score is not between 0 and 100, and `config` if `overall` is not an
            `OverallResult`.
    """
    if not isinstance(overall, OverallResult):
        message = f"`judge_overall` must return an OverallResult, got {type(overall).__name__}"
        raise JudgeFailure("config", message)
    percent: Any = overall.percent
    is_number = isinstance(percent, int | float) and not isinstance(percent, bool)
    if not (is_number and math.isfinite(percent) and 0 <= percent <= 100):
        message = f"the score {percent!r} is not between 0 and 100"
        raise JudgeFailure("parse", message, retryable=True, spend=overall.spend)
    return overall


def revalidate_stored(question: Question, judgment: Judgment) -> Judgment:
    """Give a stored verdict the value that the current criterion assigns to it.

    Raises:
        JudgeFailure: Of kind `parse`, if the stored verdict is no longer a valid answer to the criterion, or if it
            cites a step that does not exist.
    """
    try:
        verdict, value = interpret_answer(question.criterion, judgment.verdict, question.may_abstain)
        _existing_steps(judgment.evidence, question.submission)
    except ValueError as error:
        raise JudgeFailure("parse", f"a stored judgment is not valid: {error}") from None
    return judgment.model_copy(update={"verdict": verdict, "value": value})


def _existing_steps(numbers: Sequence[int], submission: Submission | None) -> tuple[int, ...]:
    """Return the numbers of the cited steps in order, without duplicates.

    Raises:
        ValueError: The submission has no step with such a number. The number is not dropped, because the rest of the
            judge's answer may depend on this step.
    """
    if not numbers:
        return ()
    existing = submission.trajectory.numbers if submission and submission.trajectory else ()
    for number in numbers:
        if number not in existing:
            raise ValueError(f"the judge cites the step {number}, and the submission has {_describe_steps(submission)}")
    return tuple(sorted(set(numbers)))


def _describe_steps(submission: Submission | None) -> str:
    if submission is None or (trajectory := submission.trajectory) is None:
        return "no trajectory"
    if trajectory.selection is None:
        return f"steps 1 to {len(trajectory.steps)}"
    return f"only the steps {', '.join(map(str, trajectory.numbers)) or 'of no selection'}, which were shown"


def _same_value(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is None and other is None
    return one == other or abs(one - other) <= _ROUNDING
