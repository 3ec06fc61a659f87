"""Further rounds for a grade without some of its judgments, which a run or an optimizer would lose otherwise."""

from __future__ import annotations

from rubric_integrations.graders.base import Grader
from rubric_integrations.graders.observer import observed
from rubric_integrations.judges.models.incomplete import FILTERED
from rubric_integrations.results.failures import failure_kinds, failure_messages
from rubric_integrations.results.report import EvaluationReport, JudgeError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

_MAX_ROUNDS = 3
"""Where 13 % of the replies are unreadable, one of 150 runs of 160 rows with three criteria would lose a row after two
rounds, and one of 24,000 after three."""


async def grade_in_rounds(grader: Grader, rubric: Rubric, submission: Submission) -> EvaluationReport:
    """Grade one submission, up to three times while replies were lost or could not be read; once if retries are off.

    With a store, a further round requests only what the earlier ones have not stored. The report is the most complete
    one, with the spend of all rounds.

    Raises:
        JudgeError: A criterion could not be judged in the last round either.
    """
    return await observed(grader, rubric, submission, _grade_in_rounds(grader, rubric, submission))


async def _grade_in_rounds(grader: Grader, rubric: Rubric, submission: Submission) -> EvaluationReport:
    best = await _grade(grader, rubric, submission)
    spend = _report_of(best).spend
    max_rounds = _MAX_ROUNDS if grader.call_limiter.max_retries else 1
    for _ in range(1, max_rounds):
        if not _may_succeed_later(best):
            break
        latest = await _grade(grader, rubric, submission)
        spend += _report_of(latest).spend
        best = min(latest, best, key=lambda result: _report_of(result).failed_count)
    report = _report_of(best).model_copy(update={"spend": spend})
    if isinstance(best, JudgeError):
        best.report = report
        raise best
    return report


async def _grade(grader: Grader, rubric: Rubric, submission: Submission) -> EvaluationReport | JudgeError:
    try:
        return await grader.grade(rubric, submission)
    except JudgeError as error:
        return error


def _may_succeed_later(result: EvaluationReport | JudgeError) -> bool:
    report = _report_of(result)
    kinds = failure_kinds(report) if report.failed_count else set[str]()
    messages = [message for message in failure_messages(report) if not message.startswith("cancelled: ")]
    if all(FILTERED in message for message in messages):
        return False  # the filter decides about the text, which stays the same
    return bool(kinds) and kinds <= {"transport", "parse"}


def _report_of(result: EvaluationReport | JudgeError) -> EvaluationReport:
    return result.report if isinstance(result, JudgeError) else result
