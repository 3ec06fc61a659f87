"""Where a score can still lie while some criteria are unanswered; the scorer's own formula at both ends.

A sum of fractions over a sum of weights is greatest with the best answers above some level counted and those below it
left out, and least the other way round. So at each end it is enough to try the levels, one after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rubric_integrations.results.interpret import extreme_judgment
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import CannotAssess, Score, WeightedValue, score_parts


class ScoreRange(NamedTuple):
    """The least and the greatest normalized score that is still possible, each in [0, 1].

    `low` is None where the score could also end undefined, which reaches no mark, not even 0.
    """

    low: float | None
    high: float


def score_range(
    rubric: Rubric,
    values: Mapping[int, float | None],
    cannot_assess: CannotAssess = "skip",
    partial_credit: float = 0.5,
) -> ScoreRange:
    """The range of the score, with each unanswered criterion answered in any way, abstentions included.

    Args:
        rubric: All criteria.
        values: For each place in the rubric that has an answer, its value in [0, 1]; None for an abstention.
        cannot_assess: What an abstention counts.
        partial_credit: The share of a positive weight that `partial` gives.

    Example:
        >>> rubric = Rubric.from_dict([{"weight": 3, "requirement": "a"}, {"weight": 1, "requirement": "b"}])
        >>> score_range(rubric, {0: 1.0}, cannot_assess="zero")
        ScoreRange(low=0.75, high=1.0)
    """
    positive = any(criterion.weight > 0 for criterion in rubric.criteria)

    def scored(answers: Mapping[int, float | None]) -> Score:
        known = {**values, **answers}
        parts = [WeightedValue(c.weight, known.get(place), c.worst_value) for place, c in enumerate(rubric.criteria)]
        return score_parts(parts, cannot_assess, partial_credit)

    def end(best: bool) -> list[float]:
        """Scores of which one is the end of the range."""
        fixed: dict[int, float | None] = {}
        levels: list[tuple[float, int, float]] = []
        for place, criterion in enumerate(rubric.criteria):
            if place in values:
                continue
            value = extreme_judgment(criterion, "high" if best != criterion.is_penalty else "low").value or 0.0
            if cannot_assess == "skip" and (criterion.weight > 0 or not positive):
                levels.append((1 - value if criterion.is_penalty else value, place, value))
            else:  # it is in the divisor whatever it is, or never: so it adds what it adds
                given, abstained = ((scored({place: v}).raw or 0.0) for v in (value, None))
                fixed[place] = value if (given >= abstained) == best else None
        found = [scored(fixed).normalized]
        for _, place, value in sorted(levels, reverse=best):
            fixed[place] = value
            found.append(scored(fixed).normalized)
        return [score for score in found if score is not None]

    certain = scored({}).normalized is not None
    return ScoreRange(min(end(best=False), default=None) if certain else None, max(end(best=True), default=0.0))
