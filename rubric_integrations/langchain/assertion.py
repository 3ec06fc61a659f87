"""An assertion for tests that fails with the unmet criteria, and logs feedback in LangSmith's pytest plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langsmith import testing

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.formats.rubric_like import RubricLike, as_rubric
from rubric_integrations.langchain.feedback import feedback_key
from rubric_integrations.langchain.resolve import resolve_grader
from rubric_integrations.langchain.tracing import evaluation_run
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.outcomes import higher_is_better
from rubric_integrations.results.report import EvaluationReport, JudgeError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.inputs import as_submission

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.submission.inputs import ToGradeInput


def assert_rubric(
    graded: EvaluationReport | ToGradeInput,
    rubric: RubricLike,
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    query: str | None = None,
    reference: str | None = None,
    min_score: float | None = None,
    key_prefix: str = "rubric",
) -> EvaluationReport:
    """Assert that a text or a report passes; in a test marked `langsmith`, log every criterion as feedback.

    Args:
        graded: A report, or a submission to grade.
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary.
        judge: What judges the criteria: a LangChain chat model, a model name, a `dspy.LM`, an async function or a
            judge. Pass either `judge` or `grader`, unless `graded` is a report.
        grader: A configured grader.
        query: The task.
        reference: An exemplary answer.
        min_score: The score that must be reached. If it is set, it replaces the condition that the report has passed.
        key_prefix: The feedback key of the score, and the part before the dot in the keys of the criteria.

    Returns:
        The report.

    Raises:
        AssertionError: The report has not passed, or its score is too low. The message lists the unmet criteria with
            the judge's reasons.
        JudgeError: A criterion could not be judged. This is not an `AssertionError`, because the text has not failed.

    Example:
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> assert_rubric("It is 41.", rubric, judge="offline")
        Traceback (most recent call last):
        ...
        AssertionError: scored 0.000, not passed (pass mark 0.8)
        - c1 (weight 1) UNMET: Says 42: does not state the number 42
    """
    __tracebackhide__ = True  # pytest then shows the line of the test as the place of the failure.
    rubric = as_rubric(rubric)
    if isinstance(graded, EvaluationReport):
        report = graded
    else:
        submission = as_submission(graded, query, reference)
        get_grader = resolve_grader(judge, grader, "assert_rubric")
        inputs = submission.model_dump(include={"response", "query", "reference"}, exclude_none=True)
        try:
            with evaluation_run("assert_rubric", inputs):
                report = run_sync(get_grader().grade(rubric, submission))
        except JudgeError as error:
            _log_feedback(error.report, key_prefix)
            raise
    _log_feedback(report, key_prefix)
    # Scores are rounded sums, which can be slightly less than the same number in a test.
    is_enough = report.passed if min_score is None else report.score is not None and report.score >= min_score - 1e-9
    if not is_enough:
        raise AssertionError(_failure_message(report, rubric, min_score))
    return report


def _failure_message(report: EvaluationReport, rubric: Rubric, min_score: float | None) -> str:
    score = "has no score" if report.score is None else f"scored {report.score:.3f}"
    mark = f"not passed (pass mark {rubric.pass_mark:g})" if min_score is None else f"below {min_score:g}"
    return "\n".join([f"{score}, {mark}", *(_criterion_line(row) for row in report.criteria if not row.passed)])


def _criterion_line(row: CriterionReport) -> str:
    verdict = row.verdict or "NOT JUDGED"
    return f"- {row.name} (weight {row.weight:g}) {verdict}: {row.requirement}: {row.explanation}"


def _log_feedback(report: EvaluationReport, key_prefix: str) -> None:
    """Log the score and every criterion to the current LangSmith test; outside of such a test, do nothing."""
    total = {"key": key_prefix, "score": report.score}
    rows: list[dict[str, Any]] = [_feedback_error(key_prefix, report.error) if report.error else total]
    for row in report.criteria:
        key = feedback_key(key_prefix, row.name)
        if row.error:
            rows.append(_feedback_error(key, row.error))
        else:
            answer = _answer(row)
            rows.append({"key": key, **answer, "comment": row.explanation})
    try:
        for fields in rows:
            _log(fields)
    except ValueError:
        return  # LangSmith raises ValueError in a test that is not marked `langsmith`


def _answer(row: CriterionReport) -> dict[str, Any]:
    if row.not_applicable:
        return {"score": None}
    if row.value is None:
        return {"value": "CANNOT_ASSESS"}
    return {"score": higher_is_better(row.value, is_penalty=row.weight < 0)}


def _log(fields: Mapping[str, Any]) -> None:
    if fields.get("score") is None and "value" not in fields:
        # LangSmith's terminal display reads the score or the value, and fails if keywords without both are passed.
        testing.log_feedback({"score": None, **fields}, key="")
    else:
        testing.log_feedback(**fields)


def _feedback_error(key: str, error: str) -> dict[str, Any]:
    """Return feedback that LangSmith displays as an error of the evaluator; it has neither a score nor a value."""
    return {"key": key, "comment": f"not judged: {error}", "error": True, "extra": {"error": True}}
