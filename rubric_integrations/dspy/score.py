"""The score object that `RubricMetric` returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from rubric_integrations.judges.metric_score import MetricScore


class RubricScore(MetricScore):
    """The value that `RubricMetric` returns: it adds, compares and multiplies as a number, and carries the feedback.

    Every optimizer and evaluator of DSPy accepts it; `MetricScore` says why it has this form.

    Attributes:
        score: The score in [0, 1]; 0 where the report's score is undefined (`coverage` is then 0).
        passed: Whether the submission reached the rubric's pass mark and meets its required criteria. It is the score's
            truth value, so that only such submissions become demonstrations of `BootstrapFewShot`.
        feedback: What was unmet and why, then what was met.
        coverage: The share in [0, 1] of the rubric's weight that was assessed.
        objective_scores: The value in [0, 1] of each criterion by name, higher is better also for penalties, and the
            score of each tag as `tag.<tag>`; abstentions are left out. GEPA builds a Pareto front over them.

    Example:
        >>> score = RubricScore(score=0.5, passed=False, feedback="UNMET: Is brief", coverage=1.0)
        >>> 2 * score, bool(score), f"{score}"
        (1.0, False, '0.500 not passed')
    """

    def __new__(
        cls,
        score: float,
        passed: bool,
        feedback: str,
        coverage: float,
        objective_scores: Mapping[str, float] | None = None,
    ) -> Self:
        """Make the string part of the object, the score's digits."""
        return super().__new__(cls, score, passed, feedback, objective_scores)

    def __init__(
        self,
        score: float,
        passed: bool,
        feedback: str,
        coverage: float,
        objective_scores: Mapping[str, float] | None = None,
    ):
        super().__init__(score, passed, feedback, objective_scores)
        self.coverage = coverage

    def __reduce__(self) -> tuple[type[RubricScore], tuple[Any, ...]]:
        fields = ("score", "passed", "feedback", "coverage", "objective_scores")
        return RubricScore, tuple(self._store[field] for field in fields)
