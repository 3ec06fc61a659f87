"""Evaluators for `langchain_classic.evaluation`: one grades a text, one compares two texts.

This is a separate module because it imports `langchain_classic`.
"""

from __future__ import annotations

from typing import Any

from langchain_classic.evaluation import PairwiseStringEvaluator, StringEvaluator
from langchain_core.runnables import RunnableLambda

from rubric_integrations._host import HostGrader
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.graders import Grader
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.langchain.evaluator import preference, validate_margin
from rubric_integrations.langchain.feedback import evaluation_run
from rubric_integrations.langchain.inputs import FieldSelector
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.submission import Submission


class RubricStringEvaluator(StringEvaluator):
    """Grades one text: `evaluate_strings(prediction=..., input=..., reference=..., callbacks=...)`.

    The result is a dictionary with `score` (in [0, 1], or None if no criterion was assessed), `value` (`"passed"` or
    `"not passed"`), `reasoning` (the verdict and the reason of each criterion) and `report`.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary.
        judge: The judge: a LangChain chat model, a model name, a `dspy.LM`, an async function or a `Judge`. Pass either
            `judge` or `grader`.
        grader: A configured grader, instead of `judge`.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. By default, judgments are not stored.

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` has none of the accepted types.
        ValueError: Neither `judge` nor `grader` is passed, or both are.

    Example:
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> RubricStringEvaluator(rubric, judge="offline").evaluate_strings(prediction="It is 42.")["value"]
        'passed'
    """

    def __init__(
        self,
        rubric: RubricLike,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
    ):
        self.rubric = as_rubric(rubric)
        self._grader = HostGrader("RubricStringEvaluator", judge, grader, ledger)

    @property
    def evaluation_name(self) -> str:
        """The name of the evaluation: the rubric's name, or `rubric` if it has no name."""
        return self.rubric.name or "rubric"

    def _check_evaluation_args(self, reference: str | None = None, input_: str | None = None) -> None:
        """Accept both arguments without LangChain's check, which would warn that they are ignored."""

    def _evaluate_strings(self, **texts: Any) -> dict[str, Any]:
        return run_sync(self._aevaluate_strings(**texts))

    async def _aevaluate_strings(self, **texts: Any) -> dict[str, Any]:
        report = await _grade(self.rubric, self._grader(), texts["prediction"], texts)
        value = "passed" if report.passed else "not passed"
        return {"score": report.score, "value": value, "reasoning": _reasoning(report), "report": report}


class RubricPairwiseStringEvaluator(PairwiseStringEvaluator):
    """Compares two texts by their scores: `evaluate_string_pairs(prediction=..., prediction_b=..., input=...)`.

    Each text is graded separately. Therefore neither its position nor the other text influences the judge. The result
    is a dictionary with `score` (1 if the first text is better, 0 if the second text is better, 0.5 for a tie, None if
    one of the texts could not be assessed), `value` (`"A"`, `"B"` or None), `reasoning` and `scores`.

    Args:
        rubric: The rubric for both texts: a `Rubric`, the path of a rubric file, a list or a dictionary.
        judge: The judge: a LangChain chat model, a model name, a `dspy.LM`, an async function or a `Judge`. Pass either
            `judge` or `grader`.
        grader: A configured grader, instead of `judge`.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, or an open ledger. Stored
            judgments are not requested again. By default, judgments are not stored.
        tie_margin: The largest difference between two scores that counts as a tie, in [0, 1).

    Raises:
        RubricError: The rubric, its file or its data is invalid.
        TypeError: `rubric` has none of the accepted types.
        ValueError: Neither `judge` nor `grader` is passed, or both are, or the margin is out of range.
    """

    def __init__(
        self,
        rubric: RubricLike,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
        tie_margin: float = 0.0,
    ):
        self.rubric = as_rubric(rubric)
        self._grader = HostGrader("RubricPairwiseStringEvaluator", judge, grader, ledger)
        self.tie_margin = validate_margin(tie_margin)

    def _check_evaluation_args(self, reference: str | None = None, input_: str | None = None) -> None:
        """Accept both arguments without LangChain's check, as `RubricStringEvaluator` does."""

    def _evaluate_string_pairs(self, **texts: Any) -> dict[str, Any]:
        return run_sync(self._aevaluate_string_pairs(**texts))

    async def _aevaluate_string_pairs(self, **texts: Any) -> dict[str, Any]:
        grader = self._grader()
        first = await _grade(self.rubric, grader, texts["prediction"], texts)
        second = await _grade(self.rubric, grader, texts["prediction_b"], texts)
        score = preference(first.score, second.score, self.tie_margin)
        value = {1.0: "A", 0.0: "B"}.get(score) if score is not None else None
        reasoning = f"A: {_reasoning(first)}\nB: {_reasoning(second)}"
        return {"score": score, "value": value, "reasoning": reasoning, "scores": (first.score, second.score)}


async def _grade(rubric: Rubric, grader: Grader, prediction: Any, texts: dict[str, Any]) -> EvaluationReport:
    """Grade a prediction with the `input`, the `reference` and the `callbacks` of LangChain's keyword arguments."""
    outputs, inputs = {"output": prediction}, {"input": texts.get("input")}
    submission = FieldSelector().select(inputs, outputs, {"reference": texts.get("reference")})
    if submission is None:
        raise ValueError("`prediction` is empty: there is nothing to grade")

    async def grade(submission: Submission) -> EvaluationReport:
        return await grader.grade(rubric, submission)

    name, callbacks = rubric.name or "rubric", texts.get("callbacks")
    with evaluation_run(name, {**inputs, **outputs, "reference": texts.get("reference")}):
        if callbacks is None:
            return await grade(submission)
        return await RunnableLambda(grade).ainvoke(submission, {"callbacks": callbacks, "run_name": name})


def _reasoning(report: EvaluationReport) -> str:
    rows = [f"{row.name}: {row.verdict}: {row.explanation}" for row in report.criteria if row.was_asked]
    return "; ".join([*rows, *([report.reason] if report.reason else [])])
