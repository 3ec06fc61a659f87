"""Weights from words: the importance of a criterion gives its weight where the author wrote none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator

from rubric_integrations._util.records import Weight

DEFAULT_WEIGHT = 10.0

Importance = Literal["essential", "important", "optional", "pitfall"]
"""How much a criterion matters, in words; a `pitfall` is an error that the response should avoid."""

IMPORTANCE_WEIGHTS: dict[Importance, float] = {"essential": 10.0, "important": 7.0, "optional": 3.0, "pitfall": -8.0}
"""The weight of each importance, unless the rubric's `importance_weights` has another."""


def weight_of(importance: Importance | None, weights: Mapping[Importance, float] | None = None) -> float:
    """Return the weight of a criterion without a written one: that of its importance, or 10 without an importance.

    Args:
        importance: The criterion's importance.
        weights: Weights that replace some of `IMPORTANCE_WEIGHTS`.

    Example:
        >>> weight_of("pitfall"), weight_of("pitfall", {"pitfall": -2.0})
        (-8.0, -2.0)
    """
    return DEFAULT_WEIGHT if importance is None else {**IMPORTANCE_WEIGHTS, **(weights or {})}[importance]


def check_importance_weights(weights: dict[Importance, float]) -> dict[Importance, float]:
    """Check the signs of weights for `importance`.

    Raises:
        ValueError: The weight of `pitfall` is positive, or another one is negative.
    """
    for importance, weight in weights.items():
        if weight > 0 if importance == "pitfall" else weight < 0:
            sign = "negative, or the score would reward the error" if importance == "pitfall" else "positive"
            raise ValueError(f"has {weight:g} for `{importance}`: this weight must be {sign}")
    return weights


ImportanceWeights = Annotated[dict[Importance, Weight], AfterValidator(check_importance_weights)]
"""Weights that replace some of `IMPORTANCE_WEIGHTS`."""
