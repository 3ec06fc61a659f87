"""A second round for a grade without some of its judgments, which a run or an optimizer would lose otherwise."""

from __future__ import annotations

from rubric_integrations.graders.base import Grader
from rubric_integrations.results.report import EvaluationReport, JudgeError, failure_kinds
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission


async def grade_in_two_rounds(grader: Grader, rubric: Rubric, submission: Submission) -> EvaluationReport:
    """Grade one submission, and once more if replies were lost or could not be read, unless retries are off.

    With a store, the second round requests only what the first has not stored. The report has the spend of both.

    Raises:
        JudgeError: A criterion could not be judged in the second round either.
    """
    first = await _grade(grader, rubric, submission)
    if not _may_succeed_later(first) or not grader.call_limiter.max_retries:
        return _report(first)
    second = await _grade(grader, rubric, submission)
    best = min(second, first, key=lambda result: _report_of(result).failed_count)
    spend = _report_of(first).spend + _report_of(second).spend
    report = _report_of(best).model_copy(update={"spend": spend})
    return _report(JudgeError(str(best), report) if isinstance(best, JudgeError) else report)


async def _grade(grader: Grader, rubric: Rubric, submission: Submission) -> EvaluationReport | JudgeError:
    try:
        return await grader.grade(rubric, submission)
    except JudgeError as error:
        return error


def _may_succeed_later(result: EvaluationReport | JudgeError) -> bool:
    report = _report_of(result)
    kinds = failure_kinds(report) if report.failed_count else set[str]()
    return bool(kinds) and kinds <= {"transport", "parse"}


def _report_of(result: EvaluationReport | JudgeError) -> EvaluationReport:
    return result.report if isinstance(result, JudgeError) else result


def _report(result: EvaluationReport | JudgeError) -> EvaluationReport:
    if isinstance(result, JudgeError):
        raise result
    return result
