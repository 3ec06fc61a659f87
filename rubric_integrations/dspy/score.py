"""What a DSPy metric returns: a number, a truth value and an explanation in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import dspy


class RubricScore(dspy.Prediction, str):
    """What a DSPy metric returns: it sums, compares and multiplies as a number, with its feedback beside it.

    Three habits of DSPy's consumers shape it. BootstrapFewShot tests its truth, and a plain `dspy.Prediction` is
    always true, so that wrong answers become demonstrations: this one is true exactly if the submission passed.
    `Evaluate(save_as_json=...)` fails on a plain one, after the run is paid for: this one is written as its digits.
    SIMBA takes a float for a bare number and shows its rule writer neither value nor feedback: so it is a text.

    Attributes:
        score: In [0, 1]; 0 where the report's score is undefined, with `coverage` 0 beside it.
        passed: Whether the rubric's pass mark and gates are met.
        feedback: What was unmet and why, then what was met.
        coverage: The share of the rubric's weight that was assessed.
        objective_scores: By criterion, in [0, 1], higher is better also for a penalty; abstentions are left out.
            GEPA keeps a Pareto front over them.
    """

    def __new__(
        cls,
        score: float,
        passed: bool,
        feedback: str,
        coverage: float,
        objective_scores: Mapping[str, float] | None = None,
    ) -> Self:
        """A text of the score's digits."""
        return str.__new__(cls, repr(float(score)))

    def __init__(
        self,
        score: float,
        passed: bool,
        feedback: str,
        coverage: float,
        objective_scores: Mapping[str, float] | None = None,
    ):
        super().__init__(
            score=score, passed=passed, feedback=feedback, coverage=coverage,
            objective_scores=dict(objective_scores or {}),
        )  # fmt: skip

    def __bool__(self) -> bool:
        return bool(self._store["passed"])

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) if isinstance(other, dspy.Example) else float(self) == other

    def __hash__(self) -> int:
        return hash(float(self))

    def __mul__(self, other: Any) -> Any:  # a text would repeat itself
        return float(self) * other

    def __rmul__(self, other: Any) -> Any:
        return float(self) * other

    def __str__(self) -> str:
        return f"{float(self):.3f} {'passed' if self else 'not passed'}"

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __reduce__(self) -> tuple[type[RubricScore], tuple[Any, ...]]:
        return RubricScore, tuple(self._store.values())
