"""Converts a report to LangSmith feedback: one row for the score, one for each tag and one for each criterion.

This module also contains:

- `offline_client`: a client for LangSmith evaluations without a network.
- `evaluation_run`: records each evaluation as one run. The judge's calls do not become separate traces.
- `assert_rubric`: an assertion for LangSmith's pytest plugin.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from langsmith import Client, testing
from langsmith.evaluation import EvaluationResult
from langsmith.run_helpers import get_tracing_context, trace, tracing_context
from langsmith.run_trees import RunTree
from langsmith.utils import tracing_is_enabled

from rubric_integrations._host import HostGrader
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.graders import Grader
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import reaches_mark
from rubric_integrations.scoring.report import (
    CANNOT_ASSESS,
    CriterionReport,
    EvaluationReport,
    JudgeError,
    higher_is_better,
    summary_of,
    tag_key,
)
from rubric_integrations.submission.inputs import ToGradeInput, as_submission

MET_PENALTY = "MET: the error was committed"
UNMET_PENALTY = "UNMET: it was not"

_CONTINUOUS: dict[str, Any] = {"type": "continuous", "min": 0.0, "max": 1.0}


def feedback_key(key_prefix: str, name: str) -> str:
    """Return the feedback key of a criterion.

    Example:
        >>> feedback_key("rubric", "c1")
        'rubric.c1'
    """
    return f"{key_prefix}.{name}"


def to_feedback(
    rubric: Rubric, report: EvaluationReport, key_prefix: str, judge: str | None = None
) -> list[EvaluationResult]:
    """Convert a report to feedback: first the row of the score, then one row for each tag and for each criterion.

    Scores are in [0, 1]. Higher is better, also for penalties (see `higher_is_better`). An abstention has no score and
    the value `"CANNOT_ASSESS"`. A failure has neither a score nor a value, and `extra={"error": True}`. A criterion
    that does not apply has only a comment. A criterion that was not asked about has no row: its name is in the
    `evaluator_info` of the score. The key of a tag is `<key_prefix>.tag.<tag>`. A tag without a score has no row,
    because the row would be empty.

    LangSmith stores the `evaluator_info` of a row as the `source_info` of its feedback. There, each row has the name of
    the judge and `corrected: False`, because only a mean can be corrected with human labels, not the score of one run.
    """
    total = EvaluationResult(
        key=key_prefix,
        score=report.score,
        comment=summary_of(report),
        feedback_config=_CONTINUOUS if report.score is not None else None,
        evaluator_info={
            "passed": report.passed,
            "coverage": report.coverage,
            "raw_score": report.raw_score,
            "calls": report.spend.calls,
            "total_tokens": report.spend.total_tokens,
            "cost": report.cost,
            **({"is_lower_bound": True} if report.spend.is_lower_bound else {}),
            "not_asked": list(report.not_asked),
        },
    )
    rows = zip(rubric.criteria, report.criteria, strict=True) if report.report else ()
    tags = [
        EvaluationResult(key=feedback_key(key_prefix, tag_key(tag)), score=score, feedback_config=_CONTINUOUS)
        for tag, score in report.tags.items()
        if score is not None
    ]
    criteria = [_criterion_feedback(criterion, row, key_prefix) for criterion, row in rows if row.was_asked]
    feedback = [total, *tags, *criteria]
    source = {"corrected": False, "judge": judge}
    return [row.model_copy(update={"evaluator_info": source | row.evaluator_info}) for row in feedback]


def feedback_config(criterion: Criterion) -> dict[str, Any]:
    """Return LangSmith's display settings for the feedback of a criterion: categories, or a number in [0, 1]."""
    if criterion.kind == "binary":
        met, unmet = (MET_PENALTY, UNMET_PENALTY) if criterion.is_penalty else ("MET", "UNMET")
        met_score, unmet_score = (higher_is_better(value, is_penalty=criterion.is_penalty) for value in (1.0, 0.0))
        categories = [{"value": met_score, "label": met}, {"value": unmet_score, "label": unmet}]
        return {"type": "categorical", "categories": categories}
    options = criterion.choices if criterion.options is not None else ()
    # The score selects the category, so options of equal value would be displayed as the same category.
    if options and len({option.value for option in options}) == len(options):
        categories = [
            {"value": higher_is_better(option.value, is_penalty=criterion.is_penalty), "label": option.label}
            for option in options
        ]
        return {"type": "categorical", "categories": categories}
    return dict(_CONTINUOUS)


def _criterion_feedback(criterion: Criterion, row: CriterionReport, key_prefix: str) -> EvaluationResult:
    key, config = feedback_key(key_prefix, row.name), feedback_config(criterion)
    if row.error:
        return EvaluationResult(key=key, comment=f"not judged: {row.error}", extra={"error": True})
    if row.not_applicable:
        return EvaluationResult(key=key, comment=row.explanation)
    if row.value is None:
        return EvaluationResult(key=key, value=CANNOT_ASSESS, comment=row.explanation, feedback_config=config)
    comment = row.explanation if criterion.kind == "binary" else f"{row.verdict}: {row.explanation}"
    score = higher_is_better(row.value, is_penalty=criterion.is_penalty)
    return EvaluationResult(key=key, score=score, comment=comment, feedback_config=config)


class _OfflineClient(Client):
    """A client that drops every run instead of uploading it."""

    def __init__(self) -> None:
        # An empty `info` prevents the request for the server's settings, and without batching there is no upload
        # thread.
        super().__init__(api_key="offline", info={}, auto_batch_tracing=False)

    def create_run(self, *args: Any, **kwargs: Any) -> None:
        """Drop the run."""

    def update_run(self, *args: Any, **kwargs: Any) -> None:
        """Drop the update."""


def offline_client() -> Client:
    """Make a LangSmith client that sends nothing: `evaluate(..., upload_results=False, client=offline_client())`.

    `upload_results=False` alone does not prevent uploads. `aevaluate` of some versions uploads every run of the target
    with its inputs. Both `evaluate` and `aevaluate` upload the LangChain runnables inside a target or an evaluator as
    traces. An ordinary client also requests the server's settings first. This client drops every run and sends no
    requests.

    Example:
        >>> offline_client().create_run("a run", {"text": "graded"}, "chain") is None
        True
    """
    return _OfflineClient()


@contextmanager
def suppress_tracing_if_offline() -> Generator[None]:
    """Disable tracing of the judge's runs inside an evaluation that uploads nothing.

    In such an evaluation, LangSmith's tracing context has `enabled="local"`. LangChain's tracer ignores this value and
    would upload the runs.
    """
    context: dict[str, Any] = dict(get_tracing_context())
    if context.get("enabled") == "local" or isinstance(context.get("client"), _OfflineClient):
        context["enabled"] = False
    with tracing_context(**context):
        yield


@contextmanager
def evaluation_run(
    name: str,
    inputs: Mapping[str, Any],
    *,
    run_id: uuid.UUID | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Generator[RunTree | None]:
    """Record the code in the `with` block as one LangSmith run, with the calls of a LangChain judge as its children.

    If the caller is inside another run, the new run is a child of that run. An exception in the block is recorded as
    the error of the run.

    Args:
        name: The name of the run.
        inputs: The graded texts, as LangSmith should display them.
        run_id: The id of the run. By default, a new id.
        metadata: Further metadata of the run.

    Yields:
        The run, or None if tracing is disabled. The caller sets the run's outputs with `end`.
    """
    with suppress_tracing_if_offline():
        if tracing_is_enabled() is not True:
            yield None
            return
        with trace(name, inputs=dict(inputs), run_id=run_id, metadata=dict(metadata or {})) as run:
            yield run


def assert_rubric(
    graded: EvaluationReport | ToGradeInput,
    rubric: RubricLike,
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    ledger: LedgerLike | None = None,
    query: str | None = None,
    reference: str | None = None,
    min_score: float | None = None,
    name: str = "rubric",
) -> EvaluationReport:
    """Assert that a text or a report passes. In a test marked `langsmith`, also log every criterion as feedback.

    Args:
        graded: A report, or a submission to grade.
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary.
        judge: The judge: a LangChain chat model, a model name, a `dspy.LM`, an async function or a `Judge`. Pass either
            `judge` or `grader`, unless `graded` is a report.
        grader: A configured grader, instead of `judge`.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. By default, judgments are not stored.
        query: The task.
        reference: A reference answer.
        min_score: The score that must be reached. It replaces the condition that the report has passed.
        name: The feedback key of the score, and the part before the dot in the keys of the criteria.

    Returns:
        The report.

    Raises:
        AssertionError: The report has not passed, or its score is too low. The message lists the unmet criteria with
            the judge's reasons.
        JudgeError: A criterion could not be judged. This is not an `AssertionError`, because the text did not fail.

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
        get_grader = HostGrader("assert_rubric", judge, grader, ledger)
        inputs = submission.model_dump(include={"response", "query", "reference"}, exclude_none=True)
        try:
            with closing(get_grader), evaluation_run("assert_rubric", inputs):
                report = run_sync(get_grader().grade(rubric, submission))
        except JudgeError as error:
            _log_feedback(error.report, name)
            raise
    _log_feedback(report, name)
    is_enough = report.passed if min_score is None else reaches_mark(report.gate_score, min_score)
    if not is_enough:
        raise AssertionError(_failure_message(report, rubric, min_score))
    return report


def _failure_message(report: EvaluationReport, rubric: Rubric, min_score: float | None) -> str:
    score = "has no score" if report.score is None else f"scored {report.score:.3f}"
    mark = f"not passed (pass mark {rubric.pass_mark:g})" if min_score is None else f"below {min_score:g}"
    if report.missing_text:
        mark = f"{mark if min_score is None else 'which does not count'}: {report.missing_text}"
    lines = [_criterion_line(row) for row in report.criteria if row.was_asked and not row.passed]
    return "\n".join([f"{score}, {mark}", *lines])


def _criterion_line(row: CriterionReport) -> str:
    verdict = row.verdict or "NOT JUDGED"
    return f"- {row.name} (weight {row.weight:g}) {verdict}: {row.requirement}: {row.explanation}"


def _log_feedback(report: EvaluationReport, key_prefix: str) -> None:
    """Log the score and every criterion to the current LangSmith test. Outside of such a test, do nothing."""
    total = {"key": key_prefix, "score": report.score}
    rows: list[dict[str, Any]] = [_feedback_error(key_prefix, report.error) if report.error else total]
    for row in report.criteria:
        if not row.was_asked:
            continue
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
    """Return feedback without a score and a value, which LangSmith displays as an error of the evaluator."""
    return {"key": key, "comment": f"not judged: {error}", "error": True, "extra": {"error": True}}
