"""Scores the samples of an Inspect AI evaluation, or the samples of its log (extra `inspect`).

Inspect scores samples concurrently on one event loop. If you pass judges by name, such as `"openai/gpt-5-mini"`, all
scorers of a process with the same judge share one grader and its concurrency limit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rubric_integrations._host import HostGrader
from rubric_integrations._util.lazy import install_command
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.graders import Grader
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, NamedScore, outcomes_of
from rubric_integrations.submission.inputs import as_submission, own_rubric_of
from rubric_integrations.submission.messages import Respond, check_respond
from rubric_integrations.submission.submission import Submission

__all__ = ["rubric_scorer"]

Score = Callable[[Any, Any], Any]
"""The asynchronous function of a `TaskState` and a `Target` that Inspect calls for each sample."""

_NOT_SCORED = float("nan")

_logger = logging.getLogger(__name__)


def _registered(make_scorer: Callable[..., Score]) -> Any:
    """Register a scorer with Inspect. If Inspect is not installed, return the function unchanged.

    A call of the unregistered function raises an error that says how to install Inspect.
    """
    try:
        scorers: Any = import_module("inspect_ai.scorer")
    except ImportError:
        return make_scorer
    return scorers.scorer(metrics={"*": [scorers.mean(), scorers.stderr()]})(make_scorer)


@_registered
def rubric_scorer(
    rubric: RubricLike | None = None,
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    ledger: LedgerLike | None = None,
    name: str = "rubric",
    respond: Respond = "last",
) -> Score:
    """Return a scorer for an Inspect task that grades samples against a rubric.

    The value of a sample is a dictionary. `rubric` is the overall score, and `rubric.<criterion>` is the score of a
    criterion in [0, 1]. Inspect computes the mean and the standard error of each key, and reduces epochs key by key.
    Higher is better: a penalty has the score 0 if the error was committed. An abstention is NaN. Metrics and reducers
    leave it out, and `unscored_samples` counts it. A sample whose grade failed is `Score.unscored` with the reason
    `grader_failed`. A sample without a response is `Score.unscored` with the reason `no_response`. The metadata
    contains `passed`, the coverage, the cost, and each criterion with its reason.

    Inspect writes the arguments to the log, and `inspect score` makes the scorer again from the log. For a function or
    a grader, the log contains only its name, which is not enough to make it again. Therefore pass the path of a rubric
    file and the name of a judge.

    Args:
        rubric: The path of a rubric file, a list, a dictionary or a `Rubric`. If a sample has its own `rubric` in its
            metadata, it is graded by the criteria of both rubrics. Pass None if each sample has its own rubric. Inspect
            requires the same keys for all samples. Therefore the criteria of a sample's own rubric have no key: they
            count for the score and are in the metadata.
        judge: The judge, such as the name of a model. Pass either `judge` or `grader`.
        grader: A configured grader, instead of `judge`.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. By default, judgments are not stored.
        name: The key of the score, and the part before the dot in the keys of the criteria.
        respond: The part that is graded. `"last"`: the last answer, with the input of the sample as its task. Checks
            read the steps of the messages, and judges see the steps if a criterion needs them. Judges see the files in
            the messages. `"transcript"`: all messages. `"trajectory"`: all messages, with numbered steps.

    Raises:
        ImportError: Inspect is not installed.
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` or `grader` has none of the accepted types.
        ValueError: Neither `judge` nor `grader` is passed, or both are, or `respond` is unknown.

    Example:
        >>> from inspect_ai import Task  # doctest: +SKIP
        >>> Task(dataset=samples, scorer=rubric_scorer("rubric.yaml", "openai/gpt-5-mini"))  # doctest: +SKIP
    """
    unscored = _import_scorers().Score.unscored
    make_score = _import_scorers().Score
    check_respond(respond)
    rubrics, judging = RowRubrics(rubric), HostGrader("rubric_scorer", judge, grader, ledger, is_shared=True)()
    keys = [name, *(f"{name}.{key}" for key in (rubrics.shared.keys if rubrics.shared else ()))]

    async def score(state: Any, target: Any) -> Any:
        answer = state.output.completion
        if respond == "last" and not answer.strip():
            return unscored(reason="no_response", explanation="not graded: the completion is empty")
        rubric_of_sample = rubrics.of(state, own_rubric_of(state.metadata))
        try:
            report = await judging.grade(rubric_of_sample, _submission(state, target, respond))
        except JudgeError as error:
            return unscored(
                reason="grader_failed", answer=answer, explanation=f"not graded: {error}",
                metadata=_metadata(error.report, name, error),
            )  # fmt: skip
        outcomes = outcomes_of(report, name)
        scores = {outcome.name: outcome.score for outcome in outcomes if outcome.score is not None}
        return make_score(
            value={key: scores.get(key, _NOT_SCORED) for key in keys},
            answer=answer,
            explanation=_explanation(outcomes),
            metadata=_metadata(report, name),
        )

    return score


def _submission(state: Any, target: Any, respond: Respond) -> Submission:
    """Convert a sample's state and target to a submission, with its steps if they can be read."""
    if respond != "last":
        return as_submission({"messages": state.messages, "respond": respond}, None, target.text or None)
    submission = as_submission(state.output.completion, state.input_text or None, target.text or None)
    try:
        run = as_submission({"messages": state.messages, "respond": "trajectory"})
    except ValueError as error:
        # Most criteria need only the answer. An error would end the evaluation.
        _logger.warning(
            "sample %r is graded without its steps and files, because its messages cannot be read: %s",
            state.sample_id, error,
        )  # fmt: skip
        return submission
    shown = {"trajectory": run.trajectory, "show_trajectory": "if_needed", "attachments": run.attachments}
    return submission.model_copy(update=shown)


def _explanation(outcomes: list[NamedScore]) -> str:
    total, *criteria = outcomes
    lines = [f"{outcome.name}: {outcome.label or 'judge failed'}. {outcome.explanation}" for outcome in criteria]
    return "\n\n".join([total.explanation, *lines])


def _metadata(report: EvaluationReport, name: str, failure: Exception | None = None) -> dict[str, Any]:
    fields = {"label", "score", "explanation", "error"}
    criteria = outcomes_of(report, name, failure)[1:]
    return {
        "passed": report.passed, "coverage": report.coverage, "cost": report.cost,
        "criteria": {outcome.name: outcome.model_dump(include=fields, exclude_none=True) for outcome in criteria},
    }  # fmt: skip


def _import_scorers() -> Any:
    try:
        return import_module("inspect_ai.scorer")
    except ImportError as error:
        raise ImportError(f"Inspect is not installed: {install_command('inspect')}") from error
