"""Estimates over judgments of which those of one submission depend on each other.

The intervals are those of independent observations at the effective sample size: as many independent judgments as have
the same variance (Kish 1965; Korn and Graubard 1998). It is never taken to be larger than the number of judgments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rubric_integrations.agreement.intervals import (
    ROUNDING,
    jeffreys_limits,
    normal_quantile,
    rate_difference_limits,
    student_quantile,
)
from rubric_integrations.results.estimate import Estimate


class Count(NamedTuple):
    """How many judgments of one submission there are, and how many of them are right."""

    right: int
    total: int


def estimate_clustered_rate(counts: Sequence[Count], level: float = 0.95) -> Estimate:
    """Estimate the share of right judgments among all, with Jeffreys limits; undefined without a judgment.

    The effective size is p (1 - p) over the variance of the share between submissions. It lies between the number of
    judgments, and the size if those of one submission were all alike. The latter also counts if all judgments, or none,
    are right, because then nothing shows how they depend on each other.

    Example:
        >>> print(estimate_clustered_rate([Count(1, 1)] * 30))
        1.000 [0.920, 1.000] (n = 30)
        >>> print(estimate_clustered_rate([Count(3, 3)] * 30))
        1.000 [0.920, 1.000] (n = 90)
    """
    total = sum(count.total for count in counts)
    if not total:
        return Estimate(None, None, None, 0)
    rate, size = sum(count.right for count in counts) / total, effective_size(counts, level)
    return Estimate(rate, *jeffreys_limits(rate * size, size, level), total)


def effective_size(counts: Sequence[Count], level: float = 0.95) -> float:
    """Return how many independent judgments give an interval of the share of right ones that is as wide."""
    counts = [count for count in counts if count.total]
    submissions, total = len(counts), sum(count.total for count in counts)
    if submissions == total:
        return float(total)
    rate = sum(count.right for count in counts) / total
    if_alike = total**2 / sum(count.total**2 for count in counts)
    if submissions == 1 or rate in (0.0, 1.0):
        return if_alike
    residuals = [count.right - rate * count.total for count in counts]
    variance = math.fsum(r * r for r in residuals) * submissions / (submissions - 1) / total**2
    size = float(total) if variance <= ROUNDING else min(float(total), max(if_alike, rate * (1 - rate) / variance))
    # The variance is an estimate from few submissions.
    return size * (normal_quantile(level) / student_quantile(submissions - 1, level)) ** 2


def estimate_clustered_difference(rose: Sequence[float], fell: Sequence[float], level: float = 0.95) -> Estimate:
    """Estimate the mean difference of two paired shares of right judgments (Bonnett and Price 2012).

    Args:
        rose: For each submission, the share of its judgments of which only the second one is right.
        fell: For each submission, the share of which only the first one is right.
        level: The level of the interval.

    Example:
        >>> print(estimate_clustered_difference([1, 1, 1, 1] + [0] * 26, [0] * 29 + [1]))
        0.100 [-0.075, 0.263] (n = 30)
    """
    submissions = len(rose)
    if submissions == 0:
        return Estimate(None, None, None, 0)
    up, down = math.fsum(rose) / submissions, math.fsum(fell) / submissions
    if submissions == 1:
        return Estimate(up - down, None, None, 1)
    variance = float(np.var(np.subtract(rose, fell), ddof=1))
    spread = up + down - (up - down) ** 2
    size = float(submissions) if variance <= ROUNDING else max(spread * submissions / variance, 0.9 * submissions)
    quantile = student_quantile(submissions - 1, level)
    low, high = rate_difference_limits(up * size, down * size, size, quantile)
    return Estimate(up - down, low, high, submissions)
