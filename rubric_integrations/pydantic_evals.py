"""Grades the cases of a pydantic-evals dataset (extra `pydantic-evals`).

pydantic-evals awaits evaluators concurrently. All evaluators of a process with the same name of a judge share one
grader and its concurrency limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Annotated, Any

from pydantic import WithJsonSchema

from rubric_integrations._host import HostGrader
from rubric_integrations._util.lazy import install_command
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.graders import Grader
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.ledger import LedgerLike
from rubric_integrations.scoring.report import NamedScore, outcomes_of
from rubric_integrations.submission.inputs import own_rubric_of, submission_of

try:
    from pydantic_evals.evaluators import EvaluationReason, Evaluator, EvaluatorContext
except ImportError as missing:
    raise ImportError(f"pydantic-evals is not installed: {install_command('pydantic-evals')}") from missing

__all__ = ["RubricEvaluator"]


# A grader has no form in a file.
_NotInFiles = WithJsonSchema({"type": "null"})
_Address = WithJsonSchema({"type": ["string", "null"]})


@dataclass(init=False, repr=False)
class RubricEvaluator(Evaluator[Any, Any, Any]):
    """Grades each case of a dataset against a rubric, and is written to a YAML file with the dataset.

    A case has the score `rubric`, the assertion `rubric_passed`, and a score `rubric.<criterion>` with the judge's
    reason for each criterion. Scores of criteria are in [0, 1] and higher is better: a penalty has 0 if the error was
    committed. An abstention is the label `CANNOT_ASSESS`, which averages leave out. A grade that fails is an
    `EvaluatorFailure` of the case, and has no scores at all.

    The response is `output` of the context, the task its `inputs`, and the exemplary answer its `expected_output`. A
    mapping is read by the names of its keys, as in every host, and any other value is JSON.

    Args:
        rubric: The path of a rubric file, a list, a dictionary or a `Rubric`. A case that has a rubric of its own
            under `rubric` in its metadata is graded by both; None if each case has one. A relative path in a dataset
            file is relative to the working directory.
        judge: What judges the criteria; for a dataset that is written to a file, the name of a model. Pass either
            `judge` or `grader`.
        name: The name of the score, and the part before the dot in the names of the criteria.
        grader: A configured grader, which a dataset file cannot hold.
        ledger: Where judgments are stored, and not requested again: the path of a file, the URL of a PostgreSQL
            database, or an open ledger, which a dataset file cannot hold. By default they are not stored.

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` or `grader` is of no accepted type.
        ValueError: Neither or both of `judge` and `grader` are passed.

    Example:
        >>> from pydantic_evals import Case, Dataset
        >>> says_42 = [{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}]
        >>> evaluator = RubricEvaluator(says_42, judge="offline")
        >>> dataset = Dataset(name="products", cases=[Case(name="product", inputs="6 x 7?")], evaluators=[evaluator])
        >>> result = dataset.evaluate_sync(lambda question: "It is 42.", progress=False)
        >>> result.cases[0].scores["rubric.answer"].value
        1.0
    """

    rubric: RubricLike | None = None
    judge: Any = None
    name: str = "rubric"
    ledger: Any = None

    # Not that of the dataclass: its fields are what pydantic-evals writes to files, and a grader cannot be written.
    def __init__(
        self,
        rubric: RubricLike | None = None,
        judge: Any = None,
        *,
        grader: Annotated[Grader | None, _NotInFiles] = None,
        ledger: Annotated[LedgerLike | None, _Address] = None,
        name: str = "rubric",
    ):
        self.rubric, self.judge, self.ledger, self.name = rubric, judge, ledger, name
        self._rubrics = RowRubrics(rubric)
        self._grader = HostGrader("RubricEvaluator", judge, grader, ledger, is_shared=True)()

    async def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> dict[str, EvaluationReason]:
        """Grade one case; pydantic-evals calls this.

        Raises:
            JudgeError: A criterion could not be judged.
            ValueError: The output is empty, or the rubric of the case is invalid.
        """
        rubric = self._rubrics.of(ctx, own_rubric_of(ctx.metadata))
        report = await self._grader.grade(rubric, submission_of(ctx.output, ctx.inputs, ctx.expected_output))
        results = {outcome.name: _result(outcome) for outcome in outcomes_of(report, self.name)}
        if report.score is not None:
            results[f"{self.name}_passed"] = EvaluationReason(report.passed)
        return results

    def build_serialization_arguments(self) -> dict[str, Any]:
        """Return the arguments as a dataset file and the results hold them: a rubric as its data or its path."""
        arguments = super().build_serialization_arguments()
        if isinstance(self.rubric, Rubric):
            arguments["rubric"] = self.rubric.to_dict()
        elif isinstance(self.rubric, PathLike):
            arguments["rubric"] = str(self.rubric)
        if isinstance(self.ledger, PathLike):
            arguments["ledger"] = str(self.ledger)
        return arguments


def _result(outcome: NamedScore) -> EvaluationReason:
    """Return the score of an outcome, or its label; the error of one criterion can only be a label here."""
    label = "JUDGE_FAILED" if outcome.label is None else outcome.label
    return EvaluationReason(label if outcome.score is None else outcome.score, outcome.explanation or None)
