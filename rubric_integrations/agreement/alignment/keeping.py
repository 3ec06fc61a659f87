"""Decides whether an aligned judge is kept: a one-sided bound on its gain, corrected for the number of attempts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rubric_integrations.agreement.intervals import ROUNDING, normal_quantile, student_quantile
from rubric_integrations.results.estimate import Estimate

UNDEFINED = Estimate(None, None, None, 0)

FEWEST_SUBMISSIONS = 20
"""The fewest submissions of a test set: 40 % of the 50 labels below which no figure of this package is honest."""

# The share of answers that an alignment usually changes, by which the gain is planned that labels can show.
_CHANGED_ANSWERS = 0.2
_POWER = 0.8


def alpha_of_attempt(alpha: float, attempt: int) -> float:
    """Return the level at which one attempt on a test set is decided: `alpha / (k (k + 1))` for the k-th.

    The levels of all attempts sum up to `alpha`, however many there are. So `alpha` bounds the probability that any
    judge is kept that is not better (Bonferroni, spent over a sequence whose length nobody knows before). With
    `alpha / k`, ten attempts would keep one in up to 13 % of cases at `alpha` = 5 % (`benchmarks/alignment.py`).

    Example:
        >>> [round(alpha_of_attempt(0.05, attempt), 4) for attempt in (1, 2, 10)]
        [0.025, 0.0083, 0.0005]
    """
    return alpha / (attempt * (attempt + 1))


def estimate_gain(differences: Sequence[float], alpha: float, attempt: int = 1) -> Estimate:
    """Estimate the mean gain of submissions, with the one-sided lower limit `mean - t s / sqrt(n)`.

    The judge is kept if `low` is above 0. There is no upper limit. Differences that are all equal have the limit
    `mean`: `FEWEST_SUBMISSIONS` equal gains do not come by chance.

    Args:
        differences: For each submission, the share of right answers of the candidate less that of the judge before.
        alpha: The probability of keeping a judge that is not better, over all attempts.
        attempt: The number of this attempt on the same test set, from 1.

    Example:
        >>> gain = estimate_gain([1.0] * 20 + [-1.0] * 5 + [0.0] * 75, alpha=0.05)
        >>> round(gain.value, 3), round(gain.low, 3), gain.n
        (0.15, 0.055, 100)
    """
    count = len(differences)
    if count < 2:
        return Estimate(math.fsum(differences) / count if count else None, None, None, count)
    mean = math.fsum(differences) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in differences) / (count - 1))
    quantile = student_quantile(count - 1, 1 - 2 * alpha_of_attempt(alpha, attempt))
    low = mean - quantile * deviation / math.sqrt(count)
    return Estimate(mean, 0.0 if abs(low) <= ROUNDING else low, None, count)


def is_kept(gain: Estimate) -> bool:
    """Return whether a gain is proven: its lower limit is above 0."""
    return gain.low is not None and gain.low > 0


def smallest_gain(submissions: int, alpha: float = 0.05, attempt: int = 1) -> float:
    """Return the smallest gain that a test set shows with a probability of 80 %, if a fifth of the answers change.

    Solves `n = (z_alpha + z_power)^2 (d - g^2) / g^2` for the gain g, where d is the share of changed answers. A gain
    in which fewer answers change is shown by fewer submissions.

    Args:
        submissions: The submissions of the test set, n.
        alpha: The probability of keeping a judge that is not better, over all attempts.
        attempt: The number of the next attempt on this test set, from 1.

    Example:
        >>> [round(smallest_gain(count), 2) for count in (20, 50, 100, 200, 400)]
        [0.24, 0.16, 0.12, 0.09, 0.06]
    """
    level = alpha_of_attempt(alpha, attempt)
    squared = (normal_quantile(1 - 2 * level) + normal_quantile(2 * _POWER - 1)) ** 2
    return math.sqrt(squared * _CHANGED_ANSWERS / (submissions + squared))
