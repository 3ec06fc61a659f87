"""Rubrics with known weights, and reports of known answers to them."""

from __future__ import annotations

from rubric_integrations import Criterion, EvaluationReport, PerCriterionGrader, Rubric, Submission
from rubric_integrations.scoring import JudgeFailure, Judgment
from rubric_integrations.scoring.judgment import VERDICT_VALUES, JudgeAnswers


def rubric_of(*weights: float) -> Rubric:
    """Return a rubric with one criterion for each weight."""
    return Rubric([Criterion(weight=w, requirement=f"r{i}") for i, w in enumerate(weights)])


def report_of(rubric: Rubric, *answers: str, **settings: object) -> EvaluationReport:
    """Return the report of these verdicts; `ERROR` stands for a failure of the judge."""
    grader = PerCriterionGrader("offline", **settings)  # pyright: ignore[reportArgumentType]
    values: dict[str, float | None] = {**VERDICT_VALUES}
    outcomes = [
        JudgeFailure("transport", "lost") if a == "ERROR" else Judgment(verdict=a, value=values[a], reason="r")
        for a in answers
    ]
    return grader.aggregate(rubric, Submission(response="text"), [JudgeAnswers(dict(enumerate(outcomes)))])
