"""The score object that a DSPy metric returns: a number, a truth value and feedback in one."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Self, SupportsFloat, cast

import dspy


def _unary(operation: Callable[[float], Any]) -> Any:
    def apply(self: Any) -> Any:
        return operation(float(self))

    return apply


def _binary(operation: Callable[[float, Any], Any]) -> Any:
    def apply(self: Any, other: Any) -> Any:
        return operation(float(self), other)

    return apply


def _reflected(operation: Callable[[Any, float], Any]) -> Any:
    def apply(self: Any, other: Any) -> Any:
        return operation(other, float(self))

    return apply


class _CoercedToFloat(type):
    """Makes `float` a virtual subclass of `MetricScore`: `statistics` adds only types where one is a subclass."""

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is float or super().__subclasscheck__(subclass)


class MetricScore(dspy.Prediction, str, metaclass=_CoercedToFloat):
    """The value of a DSPy metric. It is a number in arithmetic and comparisons, and also has the feedback.

    All operators, also with a number or an array of NumPy, `round`, `sum`, `max` and the functions of `math` and
    `statistics` treat it as `float(score)`. In an array, it is a text: convert it with `float(score)` first.

    Its type suits three consumers in DSPy:

    - `BootstrapFewShot` uses the truth value. A plain `dspy.Prediction` is always true, and wrong answers would become
      demonstrations. A `MetricScore` is true only if `passed` is true.
    - `Evaluate(save_as_json=...)` cannot write a plain `dspy.Prediction` and fails at the end of the run. A
      `MetricScore` is also a `str` of its digits, which JSON can represent.
    - SIMBA drops the feedback of a score that is a `float`. That is why a `MetricScore` is a `str` and not a `float`.

    Attributes:
        score: The score in [0, 1].
        passed: Whether the prediction is good enough for a demonstration.
        feedback: A text for an optimizer about the errors of the prediction.
        objective_scores: Scores in [0, 1] of single objectives by name. GEPA builds a Pareto front over them.

    Example:
        >>> score = MetricScore(score=0.5, passed=False, feedback="People answered UNMET.")
        >>> 2 * score, bool(score), f"{score}"
        (1.0, False, '0.500 not passed')
    """

    def __new__(
        cls,
        score: float,
        passed: bool | None = None,
        feedback: str = "",
        objective_scores: Mapping[str, float] | None = None,
    ) -> Self:
        """Make the string part of the object: the digits of the score.

        Returns:
            The object. Without `passed`, a plain float: `statistics` makes its results by calling the type with one
            number.
        """
        if not isinstance(cast("object", score), SupportsFloat):
            raise TypeError(f"`score` must be a number, got {score!r}: a submission without a score has none to add up")
        return str.__new__(cls, repr(float(score))) if passed is not None else cast("Self", float(score))

    def __init__(  # pyright: ignore[reportInconsistentConstructor] -- `passed` is missing only where a float is made
        self, score: float, passed: bool, feedback: str, objective_scores: Mapping[str, float] | None = None
    ):
        super().__init__(
            score=score, passed=passed, feedback=feedback, objective_scores=dict(objective_scores or {})
        )  # fmt: skip

    # NumPy's numbers and arrays leave operations with a score to the operators below. It would multiply the text.
    __array_ufunc__ = None

    def __bool__(self) -> bool:
        return bool(self._store["passed"])

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) if isinstance(other, dspy.Example) else float(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(float(self))

    # `str` has some of these operations itself: `2 * score` would be '0.50.5', and `max` would compare digits.
    __lt__: Any = _binary(operator.lt)
    __le__: Any = _binary(operator.le)
    __gt__: Any = _binary(operator.gt)
    __ge__: Any = _binary(operator.ge)
    __add__: Any = _binary(operator.add)
    __radd__: Any = _reflected(operator.add)
    __sub__: Any = _binary(operator.sub)
    __rsub__: Any = _reflected(operator.sub)
    __mul__: Any = _binary(operator.mul)
    __rmul__: Any = _reflected(operator.mul)
    __truediv__: Any = _binary(operator.truediv)
    __rtruediv__: Any = _reflected(operator.truediv)
    __floordiv__: Any = _binary(operator.floordiv)
    __rfloordiv__: Any = _reflected(operator.floordiv)
    __divmod__: Any = _binary(divmod)
    __rdivmod__: Any = _reflected(divmod)
    __pow__: Any = _binary(operator.pow)
    __rpow__: Any = _reflected(operator.pow)
    __mod__: Any = _binary(operator.mod)
    __neg__: Any = _unary(operator.neg)
    __pos__: Any = _unary(operator.pos)
    __abs__: Any = _unary(abs)
    __int__: Any = _unary(int)
    __trunc__: Any = _unary(math.trunc)
    __floor__: Any = _unary(math.floor)
    __ceil__: Any = _unary(math.ceil)

    def __rmod__(self, other: Any) -> Any:
        return str.__mod__(other, self) if isinstance(other, str) else other % float(self)

    def __round__(self, ndigits: int | None = None) -> float:
        return round(float(self), ndigits)

    def as_integer_ratio(self) -> tuple[int, int]:
        """Return the score as a numerator and a denominator, for `statistics.mean`."""
        return float(self).as_integer_ratio()

    def __str__(self) -> str:
        return f"{float(self):.3f} {'passed' if self else 'not passed'}"

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __reduce__(self) -> tuple[type[MetricScore], tuple[Any, ...]]:
        return type(self), tuple(self._store.values())
