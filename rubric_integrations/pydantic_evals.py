"""Grades the cases of a pydantic-evals dataset (extra `pydantic-evals`).

pydantic-evals awaits evaluators concurrently. If you pass judges by name, such as `"openai/gpt-5-mini"`, all evaluators
of a process with the same judge share one grader and its concurrency limit.
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
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.report import NamedScore, outcomes_of
from rubric_integrations.submission.inputs import own_rubric_of, submission_of

try:
    from pydantic_evals.evaluators import EvaluationReason, Evaluator, EvaluatorContext
except ImportError as missing:
    raise ImportError(f"pydantic-evals is not installed: {install_command('pydantic-evals')}") from missing

__all__ = ["RubricEvaluator"]


# A grader cannot be written to a file.
_NotInFiles = WithJsonSchema({"type": "null"})
_Address = WithJsonSchema({"type": ["string", "null"]})


@dataclass(init=False, repr=False)
class RubricEvaluator(Evaluator[Any, Any, Any]):
    """Grades each case of a dataset against a rubric. The evaluator can be written to a YAML file with the dataset.

    A case gets the score `rubric`, the assertion `rubric_passed`, and for each criterion a score `rubric.<criterion>`
    with the judge's reason. Scores of criteria are in [0, 1]. Higher is better: a penalty has the score 0 if the error
    was committed. An abstention is the label `CANNOT_ASSESS` and is not included in averages. A failed grade is an
    `EvaluatorFailure` of the case, without any scores.

    The response is the case's output, the task is its `inputs`, and the reference answer is its `expected_output`. Each
    may be a text, chat messages, or a mapping. In a mapping, the keys with usual names are used, such as `answer` or
    `question`. An output without such a key, and values of other types, are used as JSON.

    Args:
        rubric: The path of a rubric file, a list, a dictionary or a `Rubric`. If a case has its own `rubric` in its
            metadata, it is graded by the criteria of both rubrics. Pass None if each case has its own rubric. A
            relative path in a dataset file is relative to the working directory.
        judge: The judge. For a dataset that is written to a file, the name of a model. Pass either `judge` or `grader`.
        name: The name of the score, and the part before the dot in the names of the criteria.
        grader: A configured grader, instead of `judge`. It cannot be written to a dataset file.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. An open ledger cannot be written to a dataset file. By default, judgments
            are not stored.

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` or `grader` has none of the accepted types.
        ValueError: Neither `judge` nor `grader` is passed, or both are.

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

    # Not the dataclass's own `__init__`: pydantic-evals writes the fields to files, and a grader cannot be written.
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
        """Grade one case. pydantic-evals calls this method.

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
        """Return the arguments as they are written to a dataset file: a rubric as its data or its path."""
        arguments = super().build_serialization_arguments()
        if isinstance(self.rubric, Rubric):
            arguments["rubric"] = self.rubric.without_cases().to_dict()
        elif isinstance(self.rubric, PathLike):
            arguments["rubric"] = str(self.rubric)
        if isinstance(self.ledger, PathLike):
            arguments["ledger"] = str(self.ledger)
        return arguments


def _result(outcome: NamedScore) -> EvaluationReason:
    """Return the score of an outcome, or its label. A failed criterion has the label `JUDGE_FAILED`."""
    label = "JUDGE_FAILED" if outcome.label is None else outcome.label
    return EvaluationReason(label if outcome.score is None else outcome.score, outcome.explanation or None)
