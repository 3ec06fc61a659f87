"""OpenRubricRL's methods to convert a number on a scale to a reward."""

from __future__ import annotations

import math
from typing import Literal

from rubric_integrations.rubric.criterion import Scale


def normalize_score(score: float, scale: Scale, method: Literal["min_max", "sigmoid", "z_score"] = "min_max") -> float:
    """Convert a number on a scale to a reward in [0, 1], as OpenRubricRL does.

    Args:
        score: The number.
        scale: The scale.
        method: `min_max` is `(x - min) / (max - min)`. `sigmoid` is `1 / (1 + exp(-4 (x - mid) / (max - min)))`;
            `z_score` is the same function.

    Raises:
        ValueError: The method is `min_max` and the score is not on the scale.

    Example:
        >>> normalize_score(7.5, Scale(min=0, max=10))
        0.75
    """
    if method == "min_max":
        return scale.value_of(score)
    middle = (scale.min + scale.max) / 2
    return 1 / (1 + math.exp(-4 * (score - middle) / (scale.max - scale.min)))
