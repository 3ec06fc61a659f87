"""Grades the rows of `mlflow.genai.evaluate` (extra `mlflow`).

MLflow scores rows in threads. All scorers of a process with the same name of a judge share one grader and its
concurrency limit.
"""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from rubric_integrations._host import HostGrader
from rubric_integrations._util.lazy import install_command
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.graders import Grader
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, NamedScore, outcomes_of
from rubric_integrations.submission.inputs import submission_of

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.runs.ledger import LedgerLike

__all__ = ["RubricScorer"]

# MLflow logs the mean of each assessment as a metric. Any other character in the name of a metric is an error, which
# would end the whole evaluation after all rows were graded.
_NOT_IN_METRICS = re.compile(r"[^\w .-]")

# The scorers of MLflow are subclasses of its class. Without MLflow the name exists, and the constructor says why it
# cannot be used.
_Scorer: Any
try:
    _Scorer = import_module("mlflow.genai.scorers").Scorer
except ImportError:
    _Scorer = object


class RubricScorer(_Scorer):
    """Grades each row of `mlflow.genai.evaluate` against a rubric.

    A row has the assessment `rubric` with the score, and an assessment `rubric.<criterion>` with the judge's reason for
    each criterion. Scores of criteria are in [0, 1] and higher is better: a penalty has 0 if the error was committed.
    An abstention has the value `CANNOT_ASSESS`, which its mean leaves out. If the judge fails, the assessments of the
    score and of the criterion have an error and no value, and those of the other criteria remain. `passed`, the
    coverage and the cost are in the metadata of the score.

    The response is `outputs` of the row, the task its `inputs`, and the exemplary answer `expected_response` of its
    expectations. A mapping is read by the names of its keys, as in every host, and any other value is JSON.

    Characters of names that MLflow refuses, all but letters, digits, spaces and `_.-`, are written as `_`.

    MLflow cannot register this scorer for monitoring, since it stores only scorers of its own. MLflow's time limit of a
    scorer is switched off (`timeout=0`): the limits of the grader rule, and no grade goes on after it was given up.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary. A row that has criteria of its own under
            `criteria` in its expectations is graded by both; None if each row has some. MLflow records expectations
            by their names, so that one with the name `rubric` would hide the score.
        judge: What judges the criteria, such as the name of a model. Pass either `judge` or `grader`.
        grader: A configured grader.
        ledger: Where judgments are stored, and not requested again: the path of a file, the URL of a PostgreSQL
            database, or an open ledger. By default they are not stored.
        name: The name of the score, and the part before the dot in the names of the criteria.

    Raises:
        ImportError: MLflow is not installed.
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` or `grader` is of no accepted type.
        ValueError: Neither or both of `judge` and `grader` are passed, or two criteria would have the same name.

    Example:
        >>> import mlflow  # doctest: +SKIP
        >>> scorer = RubricScorer("rubric.yaml", "openai/gpt-5-mini")  # doctest: +SKIP
        >>> mlflow.genai.evaluate(data=rows, scorers=[scorer]).metrics["rubric/mean"]  # doctest: +SKIP
        0.6
    """

    _rubrics: Any = PrivateAttr()
    _grader: Any = PrivateAttr()

    def __init__(
        self,
        rubric: RubricLike | None = None,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
        name: str = "rubric",
    ):
        _import_entities()
        opened = HostGrader("RubricScorer", judge, grader, ledger, is_shared=True)
        super().__init__(name=name, timeout=0)
        self._rubrics, self._grader = RowRubrics(rubric), opened()
        if self._rubrics.shared:
            _check_names(self._rubrics.shared)

    def __call__(self, *, inputs: Any = None, outputs: Any = None, expectations: Any = None) -> list[Any]:
        """Grade one row; MLflow calls this, from any thread.

        Raises:
            ValueError: The outputs are empty, or the rubric of the row is invalid.
        """
        rubric = self._rubrics.of(expectations, (expectations or {}).get("criteria"))
        _check_names(rubric)
        reference = (expectations or {}).get("expected_response")
        submission = submission_of(outputs, inputs, reference)
        failure = None
        try:
            with _without_traces_of_judges():
                report = self._grader.grade_sync(rubric, submission)
        except JudgeError as error:
            report, failure = error.report, error
        total, *criteria = outcomes_of(report, self.name, failure)
        return [self._feedback(total, _totals(report)), *(self._feedback(outcome) for outcome in criteria)]

    def _feedback(self, outcome: NamedScore, metadata: dict[str, str] | None = None) -> Any:
        entities = _import_entities()
        source = entities.AssessmentSource("LLM_JUDGE", ", ".join(member.model for member in self._grader.panel))
        name = _metric_name(outcome.name)
        settings: dict[str, Any] = {"name": name, "source": source, "rationale": outcome.explanation}
        if outcome.kind == "failure":
            error = entities.AssessmentError(error_code="JUDGE_FAILED", error_message=outcome.error)
            return entities.Feedback(**settings, error=error, metadata=metadata)
        value = outcome.label if outcome.score is None else outcome.score
        return entities.Feedback(**settings, value=value, metadata={"label": outcome.label, **(metadata or {})})


def _metric_name(name: str) -> str:
    return _NOT_IN_METRICS.sub("_", name)


def _check_names(rubric: Rubric) -> None:
    names: dict[str, str] = {}
    for key in rubric.keys:
        if (other := names.setdefault(_metric_name(key), key)) != key:
            raise ValueError(
                f"the criteria {other!r} and {key!r} have the same name in MLflow: rename one, or their mean would be "
                "one metric"
            )


def _totals(report: EvaluationReport) -> dict[str, str]:
    totals = {"passed": report.passed, "coverage": report.coverage, "cost": report.cost}
    return {name: str(value) for name, value in totals.items() if value is not None}


def _without_traces_of_judges() -> AbstractContextManager[None]:
    """Leave MLflow's callback out of the calls of a judge.

    `mlflow.genai.evaluate` switches the tracing of DSPy on, for programs that it runs itself. Each call of a judge
    would be a trace among those of the program, and would take the ordinary path through DSPy, which is slower.
    """
    # Not imported: a grader whose judge has a model has imported it.
    dspy: Any = sys.modules.get("dspy")
    if dspy is None:
        return nullcontext()
    callbacks = [item for item in dspy.settings.callbacks if not type(item).__module__.startswith("mlflow.")]
    return dspy.context(callbacks=callbacks)


def _import_entities() -> Any:
    try:
        return import_module("mlflow.entities")
    except ImportError as error:
        raise ImportError(f"MLflow is not installed: {install_command('mlflow')}") from error
