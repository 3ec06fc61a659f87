"""The range in which a score can still end while some criteria are not judged yet.

Both ends are computed with the scoring formula itself. A sum of `value * weight` over a sum of weights is highest if
the criteria with the best answers are counted and the others are left out, from some value on; it is lowest the other
way round. Hence it is enough to sort the open criteria by their best (or worst) value and to count them one after
another: one of these scores is the end of the range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rubric_integrations.results.interpret import extreme_judgment
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import Score, WeightedValue, score_parts
from rubric_integrations.scoring.policies import CannotAssess


class ScoreRange(NamedTuple):
    """The lowest and the highest normalized score that is still possible.

    Attributes:
        low: The lowest score in [0, 1]; None if the score can also end undefined, which reaches no pass mark, not
            even 0.
        high: The highest score in [0, 1].
    """

    low: float | None
    high: float


def score_range(
    rubric: Rubric,
    values: Mapping[int, float | None],
    cannot_assess: CannotAssess = "skip",
    partial_credit: float = 0.5,
) -> ScoreRange:
    """Compute the range of the score over all possible answers to the open criteria, including abstentions.

    Args:
        rubric: The rubric.
        values: The value in [0, 1] of each criterion that has a judgment, by its index in the rubric; None for an
            abstention. All other criteria are open.
        cannot_assess: How abstentions are scored.
        partial_credit: The value in [0, 1] of an abstention on a positive weight under `cannot_assess="partial"`.

    Example:
        >>> rubric = Rubric.from_dict([{"weight": 3, "requirement": "a"}, {"weight": 1, "requirement": "b"}])
        >>> score_range(rubric, {0: 1.0}, cannot_assess="zero")
        ScoreRange(low=0.75, high=1.0)
    """
    has_positive_weight = any(criterion.weight > 0 for criterion in rubric.criteria)

    def score_with(open_values: Mapping[int, float | None]) -> Score:
        """Score the rubric with these values for open criteria; those without a value abstain."""
        merged = {**values, **open_values}
        parts = [WeightedValue(c.weight, merged.get(index), c.worst_value) for index, c in enumerate(rubric.criteria)]
        return score_parts(parts, cannot_assess, partial_credit)

    def candidates(best: bool) -> list[float]:
        """Return scores that include the highest (`best`) or the lowest possible score."""
        assigned: dict[int, float | None] = {}
        to_sort: list[tuple[float, int, float]] = []
        for index, criterion in enumerate(rubric.criteria):
            if index in values:
                continue
            value = extreme_judgment(criterion, "high" if best != criterion.is_penalty else "low").value or 0.0
            if cannot_assess == "skip" and (criterion.weight > 0 or not has_positive_weight):
                to_sort.append((1 - value if criterion.is_penalty else value, index, value))
            else:
                # An abstention does not change the divisor here, so the raw sums decide which answer is the extreme.
                answered, abstained = (score_with({index: v}).raw or 0.0 for v in (value, None))
                assigned[index] = value if (answered >= abstained) == best else None
        scores = [score_with(assigned).normalized]
        for _, index, value in sorted(to_sort, reverse=best):
            assigned[index] = value
            scores.append(score_with(assigned).normalized)
        return [score for score in scores if score is not None]

    is_defined = score_with({}).normalized is not None
    low = min(candidates(best=False), default=None) if is_defined else None
    return ScoreRange(low, max(candidates(best=True), default=0.0))
