"""The lowest score that a rubric allows, for responses without anything to grade."""

from __future__ import annotations

import math

from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.length import LengthPenalty


def least_score(rubric: Rubric, *, normalize: bool = True, length_penalty: LengthPenalty | None = None) -> float:
    """Return 0; or for weighted sums, the sum of the negative weights, less the highest length penalty.

    Example:
        >>> from rubric_integrations import Criterion
        >>> rubric = Rubric([Criterion(requirement="Says 42", weight=3), Criterion(requirement="Is rude", weight=-2)])
        >>> least_score(rubric), least_score(rubric, normalize=False)
        (0.0, -2.0)
    """
    if normalize:
        return 0.0
    weights = [root.weight for root in rubric.tree] if rubric.tree else [c.full_weight for c in rubric.criteria]
    penalty = length_penalty.penalty_at_cap if length_penalty else 0.0
    return math.fsum(min(0.0, weight) for weight in weights) - penalty
