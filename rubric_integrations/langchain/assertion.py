"""A rubric in a test: fails with the unmet criteria, and logs each to LangSmith where it listens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langsmith import testing

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.langchain.evaluator import resolve_grader
from rubric_integrations.results.report import CriterionReport, EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import as_submission

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.submission.submission import ToGradeInput


def assert_rubric(
    graded: EvaluationReport | ToGradeInput,
    rubric: Rubric,
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    query: str | None = None,
    reference: str | None = None,
    min_score: float | None = None,
    key_prefix: str = "rubric",
) -> EvaluationReport:
    """Assert that a text, or a report, passes; in a test marked `langsmith` every criterion is logged as feedback.

    Args:
        graded: A report, or what is to be graded first.
        rubric: The rubric.
        judge: Who judges; not needed for a report.
        grader: In place of `judge`, a grader with settings of its own.
        query: The task.
        reference: An exemplary answer.
        min_score: In place of `passed`, the score that must be reached.
        key_prefix: What the feedback's keys begin with.

    Returns:
        The report.

    Raises:
        AssertionError: It does not pass; the message has the unmet criteria, each with its reason.
        JudgeError: A criterion could not be judged: that is no failure of the text.

    Example:
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> assert_rubric("It is 41.", rubric, judge="offline")
        Traceback (most recent call last):
        ...
        AssertionError: scored 0.000, not passed (pass mark 0.8)
        - c1 (weight 1) UNMET: Says 42: does not state the number 42
    """
    if isinstance(graded, EvaluationReport):
        report = graded
    else:
        submission = as_submission(graded, query, reference)
        report = run_sync(resolve_grader(judge, grader, "assert_rubric")().grade(rubric, submission))
    _log(report, key_prefix)
    enough = report.passed if min_score is None else report.score is not None and report.score >= min_score - 1e-9
    if not enough:
        raise AssertionError(_complaint(report, rubric, min_score))
    return report


def _complaint(report: EvaluationReport, rubric: Rubric, min_score: float | None) -> str:
    score = "has no score" if report.score is None else f"scored {report.score:.3f}"
    mark = f"not passed (pass mark {rubric.pass_mark:g})" if min_score is None else f"below {min_score:g}"
    return "\n".join([f"{score}, {mark}", *(_line(row) for row in report.criteria if not row.passed)])


def _line(row: CriterionReport) -> str:
    verdict = row.verdict or "NOT JUDGED"
    return f"- {row.name} (weight {row.weight:g}) {verdict}: {row.requirement}: {row.error or row.reason}"


def _log(report: EvaluationReport, key_prefix: str) -> None:
    rows: list[tuple[str, dict[str, Any]]] = [(key_prefix, {"score": report.score, "comment": report.error})]
    for row in report.criteria:
        said = {"value": "CANNOT_ASSESS"} if row.value is None else {"score": row.value}
        rows.append((f"{key_prefix}.{row.name}", {**said, "comment": row.reason or row.error}))
    try:
        for key, said in rows:
            testing.log_feedback(key=key, **{name: value for name, value in said.items() if value is not None})
    except ValueError:
        return  # not in a test marked `langsmith`
