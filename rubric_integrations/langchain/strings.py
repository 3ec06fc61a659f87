"""The grade as evaluators of `langchain_classic.evaluation`: of one text, and of one text against another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_classic.evaluation import PairwiseStringEvaluator, StringEvaluator

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.langchain.evaluator import resolve_grader
from rubric_integrations.langchain.fields import Fields
from rubric_integrations.langchain.pairwise import preference, validate_margin
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike

_FIELDS = Fields("prediction", "input", "reference")


class RubricStringEvaluator(StringEvaluator):
    """Grades one text: `evaluate_strings(prediction=..., input=..., reference=...)`.

    The result has `score` (in [0, 1]; None where nothing was assessed), `value` (`"passed"` or `"not passed"`),
    `reasoning` (what was unmet and why) and `report`.
    """

    def __init__(self, rubric: Rubric, judge: JudgeLike | None = None, *, grader: Grader | None = None):
        """Set up an evaluator with a judge, or with a grader that has one.

        Raises:
            ValueError: Neither or both of `judge` and `grader` are given.
        """
        self.rubric, self._grader = rubric, resolve_grader(judge, grader, "RubricStringEvaluator")

    @property
    def evaluation_name(self) -> str:
        """The rubric's name."""
        return self.rubric.name or "rubric"

    def _check_evaluation_args(self, reference: str | None = None, input_: str | None = None) -> None:
        """Both are optional, and used where they are given; LangChain's check would warn that they are ignored."""

    def _evaluate_strings(self, **texts: Any) -> dict[str, Any]:
        return run_sync(self._aevaluate_strings(**texts))

    async def _aevaluate_strings(self, **texts: Any) -> dict[str, Any]:
        report = await _graded(self.rubric, self._grader(), texts)
        value = "passed" if report.passed else "not passed"
        return {"score": report.score, "value": value, "reasoning": _in_words(report), "report": report}


class RubricPairwiseStringEvaluator(PairwiseStringEvaluator):
    """Compares two texts by their scores: `evaluate_string_pairs(prediction=..., prediction_b=..., input=...)`.

    Each is graded for itself, so that neither its place nor the other can sway the judge. The result has `score` (1
    where the first is better, 0 where the second is, 0.5 for a tie, None where one could not be assessed), `value`
    (`"A"`, `"B"` or None), `reasoning` and `scores`.
    """

    def __init__(
        self,
        rubric: Rubric,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        tie_margin: float = 0.0,
    ):
        """Set up an evaluator.

        Args:
            rubric: What both are graded by.
            judge: Who judges.
            grader: In place of `judge`, a grader with settings of its own.
            tie_margin: Scores that differ by at most this are a tie, in [0, 1).

        Raises:
            ValueError: Neither or both of `judge` and `grader` are given, or the margin is out of range.
        """
        self.rubric, self._grader = rubric, resolve_grader(judge, grader, "RubricPairwiseStringEvaluator")
        self.tie_margin = validate_margin(tie_margin)

    def _check_evaluation_args(self, reference: str | None = None, input_: str | None = None) -> None:
        """As for `RubricStringEvaluator`."""

    def _evaluate_string_pairs(self, **texts: Any) -> dict[str, Any]:
        return run_sync(self._aevaluate_string_pairs(**texts))

    async def _aevaluate_string_pairs(self, **texts: Any) -> dict[str, Any]:
        first, second = [
            await _graded(self.rubric, self._grader(), {**texts, "prediction": texts[name]})
            for name in ("prediction", "prediction_b")
        ]
        score = preference(first.score, second.score, self.tie_margin)
        reasoning = f"A: {_in_words(first)}\nB: {_in_words(second)}"
        value = {1.0: "A", 0.0: "B"}.get(score) if score is not None else None
        return {"score": score, "value": value, "reasoning": reasoning, "scores": (first.score, second.score)}


async def _graded(rubric: Rubric, grader: Grader, texts: Mapping[str, Any]) -> EvaluationReport:
    submission = _FIELDS.submission({"input": texts.get("input")}, texts, {"reference": texts.get("reference")})
    if submission is None:
        raise ValueError("`prediction` is empty: there is nothing to grade")
    return await grader.grade(rubric, submission)


def _in_words(report: EvaluationReport) -> str:
    rows = [f"{row.name}: {row.verdict}: {row.reason}" for row in report.criteria]
    return "; ".join([*rows, *([report.reason] if report.reason else [])])
