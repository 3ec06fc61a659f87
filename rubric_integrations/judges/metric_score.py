"""The score object that a DSPy metric returns: a number, a truth value and feedback in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import dspy


class MetricScore(dspy.Prediction, str):
    """The value of a DSPy metric: it adds, compares and multiplies as a number, and carries the feedback.

    Three consumers in DSPy determine its form:

    - `BootstrapFewShot` tests its truth. A plain `dspy.Prediction` is always true, so that wrong answers would become
      demonstrations; a `MetricScore` is true only if `passed` is.
    - `Evaluate(save_as_json=...)` cannot write a plain `dspy.Prediction` and fails at the end of the run. A
      `MetricScore` is also a `str` of its digits, which JSON can represent.
    - SIMBA drops the feedback of a score that is a `float`. That is why a `MetricScore` is a `str` and not a `float`.

    Attributes:
        score: The score in [0, 1].
        passed: Whether the prediction is good enough for a demonstration.
        feedback: What an optimizer should know about it.
        objective_scores: Scores in [0, 1] of single objectives by name, over which GEPA builds a Pareto front.

    Example:
        >>> score = MetricScore(score=0.5, passed=False, feedback="People answered UNMET.")
        >>> 2 * score, bool(score), f"{score}"
        (1.0, False, '0.500 not passed')
    """

    def __new__(
        cls, score: float, passed: bool, feedback: str, objective_scores: Mapping[str, float] | None = None
    ) -> Self:
        """Make the string part of the object, the score's digits."""
        return str.__new__(cls, repr(float(score)))

    def __init__(self, score: float, passed: bool, feedback: str, objective_scores: Mapping[str, float] | None = None):
        super().__init__(
            score=score, passed=passed, feedback=feedback, objective_scores=dict(objective_scores or {})
        )  # fmt: skip

    def __bool__(self) -> bool:
        return bool(self._store["passed"])

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) if isinstance(other, dspy.Example) else float(self) == other

    def __hash__(self) -> int:
        return hash(float(self))

    # Without these, `str` would repeat its digits: `2 * score` would be '0.50.5'.
    def __mul__(self, other: Any) -> Any:
        return float(self) * other

    def __rmul__(self, other: Any) -> Any:
        return float(self) * other

    def __str__(self) -> str:
        return f"{float(self):.3f} {'passed' if self else 'not passed'}"

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __reduce__(self) -> tuple[type[MetricScore], tuple[Any, ...]]:
        return type(self), tuple(self._store.values())
