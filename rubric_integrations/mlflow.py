"""Grades the rows of `mlflow.genai.evaluate` (extra `mlflow`).

MLflow scores rows in threads. If you pass judges by name, such as `"openai/gpt-5-mini"`, all scorers of a process with
the same judge share one grader and its concurrency limit.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from pydantic import PrivateAttr

from rubric_integrations._host import HostGrader
from rubric_integrations._util.lazy import install_command
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.graders import Grader
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, NamedScore, outcomes_of
from rubric_integrations.submission.inputs import submission_of

__all__ = ["RubricScorer"]

# MLflow logs the mean of each assessment as a metric. Any other character in the name of a metric is an error. It would
# end the evaluation after all rows were graded.
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

    A row gets the assessment `rubric` with the overall score, and an assessment `rubric.<criterion>` for each criterion
    with its score and the judge's reason. Scores of criteria are in [0, 1]. Higher is better: a penalty has the score 0
    if the error was committed. An abstention has the value `CANNOT_ASSESS` and is not included in the mean. If the
    judge fails for a criterion, the assessments `rubric` and `rubric.<criterion>` have an error and no value. The
    assessments of the other criteria are complete. The metadata of `rubric` contains `passed`, the coverage and the
    cost.

    The response is the row's `outputs`, the task is its `inputs`, and the reference answer is `expected_response` in
    its expectations. Each may be a text, chat messages, or a mapping. In a mapping, the keys with usual names are used,
    such as `answer` or `question`. Outputs without such a key, and values of other types, are used as JSON.

    MLflow accepts only letters, digits, spaces and `_.-` in names. Other characters are replaced by `_`.

    MLflow cannot register this scorer for monitoring, because MLflow stores only built-in scorers. MLflow's timeout for
    a scorer is switched off (`timeout=0`). The timeouts of the grader apply instead. Therefore no grade continues after
    its row was abandoned.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary. If a row has its own `criteria` in its
            expectations, it is graded by the criteria of this rubric and its own criteria. Pass None if each row has
            its own criteria. The key is not `rubric`, because MLflow records each expectation under its key. An
            expectation with the key `rubric` would hide the score `rubric`.
        judge: The judge, such as the name of a model. Pass either `judge` or `grader`.
        grader: A configured grader, instead of `judge`.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. By default, judgments are not stored.
        name: The name of the score, and the part before the dot in the names of the criteria.

    Raises:
        ImportError: MLflow is not installed.
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` or `grader` has none of the accepted types.
        ValueError: Neither `judge` nor `grader` is passed, or both are, or two criteria would have the same name.

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
        """Grade one row. MLflow calls this method, from any thread.

        Raises:
            ValueError: The outputs are empty, or the rubric of the row is invalid.
        """
        rubric = self._rubrics.of(expectations, (expectations or {}).get("criteria"))
        _check_names(rubric)
        reference = (expectations or {}).get("expected_response")
        submission = submission_of(outputs, inputs, reference)
        failure = None
        try:
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


def _import_entities() -> Any:
    try:
        return import_module("mlflow.entities")
    except ImportError as error:
        raise ImportError(f"MLflow is not installed: {install_command('mlflow')}") from error
