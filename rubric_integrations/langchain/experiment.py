"""A summary evaluator for LangSmith: the mean score of an experiment, corrected by people's labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from langsmith.evaluation import EvaluationResult
from langsmith.schemas import Example, Run

from rubric_integrations.agreement.calibration import Calibration, calibrate
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow

SummaryEvaluator = Callable[[Sequence[Run], Sequence[Example]], EvaluationResult]
"""What `client.evaluate` accepts in `summary_evaluators`."""


def corrected_mean_evaluator(
    graded: dict[str, GradedRow],
    labels: Iterable[LabelledJudgment],
    rubric: Rubric | None,
    key: str,
    judge_names: Callable[[], str],
) -> SummaryEvaluator:
    """Make a summary evaluator of the grades that an evaluator has collected.

    Args:
        graded: The grades, by the id of the run. Those of an experiment are removed when it is summarized.
        labels: People's labels of a random part of the experiment.
        rubric: The rubric of all runs; None if they have different ones.
        key: The feedback key.
        judge_names: Returns the names of the judges, once they have graded.
    """
    labels = list(labels)

    def corrected_mean(runs: Sequence[Run], examples: Sequence[Example]) -> EvaluationResult:
        rows = [graded.pop(str(run.id), None) for run in runs]
        try:
            calibration = calibrate([row for row in rows if row], labels, rubric=rubric)
        except ValueError as error:
            return EvaluationResult(key=key, comment=f"not corrected: {error}", extra={"error": True})
        return _feedback(calibration, key, judge_names())

    return corrected_mean


def _feedback(calibration: Calibration, key: str, judge: str) -> EvaluationResult:
    score, judge_score = calibration.score, calibration.judge_score
    by_judge = "none" if judge_score is None else f"{judge_score:.3f}"
    comment = "; ".join([f"{score} by people's labels, {by_judge} by the judge", *calibration.warnings])
    return EvaluationResult(
        key=key,
        score=score.value,
        comment=comment,
        evaluator_info={
            "corrected": True,
            "judge": judge,
            "low": score.low,
            "high": score.high,
            "labelled": score.n,
            "judge_score": judge_score,
        },
    )
