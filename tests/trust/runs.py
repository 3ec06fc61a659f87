"""Small runs and labels for the tests of this package."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rubric_integrations import Criterion, Rubric, Submission
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import EvaluationReport, JudgeFailure, LabelledJudgment, to_judgment
from rubric_integrations.scoring.aggregate import aggregate_answers
from rubric_integrations.scoring.judgment import JudgeAnswers, Outcome
from rubric_integrations.scoring.labels import Sampled
from rubric_integrations.scoring.policies import ScoringPolicies

STRATEGIES = {"binary": "majority", "ordinal": "mean", "scaled": "mean", "nominal": "mode"}


def report_of(rubric: Rubric, answers: Sequence[str | None]) -> EvaluationReport:
    """Make the report of one submission from the judge's answers; None is a failure."""
    outcomes: dict[int, Outcome] = {}
    for index, (criterion, answer) in enumerate(zip(rubric.criteria, answers, strict=True)):
        failure = JudgeFailure("transport", "no reply")
        outcomes[index] = failure if answer is None else to_judgment(criterion, answer)
    policies = ScoringPolicies(True, "skip", "abstain", STRATEGIES, True)  # type: ignore[arg-type]
    return aggregate_answers(rubric, [JudgeAnswers(outcomes)], JudgeAnswers({}, judge="check"), policies)


def run_of(rubric: Rubric, answers: Sequence[Sequence[str | None]], text: str = "response") -> list[GradedRow]:
    """Make a run: one row for each list of the judge's answers."""
    return [
        GradedRow(str(number), Submission(response=f"{text} {number}"), report_of(rubric, of_row), None)
        for number, of_row in enumerate(answers, start=1)
    ]


def scores_run(scores: Sequence[float] | np.ndarray, ids: Sequence[str] | None = None) -> list[GradedRow]:
    """Make a run of rows with these scores and without criteria."""
    report = report_of(binary_rubric(), ["MET"]).model_copy(update={"report": None})
    return [
        GradedRow(
            ids[place] if ids else str(place), Submission(response=f"It is {place}"),
            report.model_copy(update={"score": float(score)}), None,
        )
        for place, score in enumerate(scores)
    ]  # fmt: skip


def labels_of(
    rubric: Rubric,
    answers: Sequence[Sequence[str | None]],
    sampled: Sampled = "random",
    rater: str | None = None,
    text: str = "response",
) -> list[LabelledJudgment]:
    """Make people's labels of the first rows of such a run; None is no label."""
    return [
        LabelledJudgment(
            submission=Submission(response=f"{text} {number}"),
            criterion=criterion,
            verdict=answer,
            id=str(number),
            sampled=sampled,
            rater=rater,
        )
        for number, of_row in enumerate(answers, start=1)
        for criterion, answer in zip(rubric.criteria, of_row, strict=True)
        if answer is not None
    ]


def binary_rubric(count: int = 1) -> Rubric:
    """Make a rubric of binary criteria with equal weights."""
    return Rubric([Criterion(requirement=f"Does {index}", name=f"c{index}", weight=1.0) for index in range(count)])
