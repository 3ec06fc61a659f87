"""Estimates with their intervals: means, rates, and paired differences of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rubric_integrations._util.extras import install_command
from rubric_integrations.results.estimate import Estimate

# Scores are sums of floats: a spread of this size is rounding.
ROUNDING = 1e-12


def estimate_rate(successes: int, trials: int, level: float = 0.95) -> Estimate:
    """Estimate a rate with Jeffreys limits (Brown, Cai and DasGupta 2001); undefined without trials.

    Example:
        >>> print(estimate_rate(30, 30))
        1.000 [0.920, 1.000] (n = 30)
    """
    if trials == 0:
        return Estimate(None, None, None, 0)
    return Estimate(successes / trials, *jeffreys_limits(successes, trials, level), trials)


def jeffreys_limits(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Compute the limits of a rate: equal tails of Beta(x + 1/2, n - x + 1/2), 0 at x = 0 and 1 at x = n."""
    _check_level(level)
    failures, tail = trials - successes, (1 - level) / 2
    inverse = special().betaincinv
    low = 0.0 if successes == 0 else float(inverse(successes + 0.5, failures + 0.5, tail))
    high = 1.0 if failures == 0 else float(inverse(successes + 0.5, failures + 0.5, 1 - tail))
    return low, high


def estimate_mean(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Estimate a mean of values in [0, 1]: Wilson's interval at the effective sample size. One value has no interval.

    The effective size is `max(mean (1 - mean) n / variance, 0.9 n)`, so that the interval stays in [0, 1], and has a
    width also if all values are equal.

    Example:
        >>> print(estimate_mean([1.0] * 30))
        1.000 [0.878, 1.000] (n = 30)
    """
    count = len(values)
    if count == 0:
        return Estimate(None, None, None, 0)
    mean = min(1.0, max(0.0, math.fsum(values) / count))
    if count == 1:
        return Estimate(mean, None, None, 1)
    variance = float(np.var(values, ddof=1))
    return Estimate(mean, *mean_limits(mean, variance, count, level), count)


def estimate_scores(scores: Sequence[float], level: float = 0.95) -> Estimate:
    """Estimate the mean of scores: like `estimate_mean` if all are in [0, 1], and with Student's interval if not.

    Example:
        >>> print(estimate_scores([-1.0, 0.0, 4.0]))
        1.000 [-5.572, 7.572] (n = 3)
    """
    are_bounded = all(0 <= score <= 1 for score in scores)
    return estimate_mean(scores, level) if are_bounded else estimate_difference(scores, level)


def mean_limits(mean: float, variance: float, count: int, level: float = 0.95) -> tuple[float, float]:
    """Compute the limits of `estimate_mean` for at least two values, from their mean, their variance and number."""
    is_constant = variance <= ROUNDING or mean in (0.0, 1.0)
    size = count if is_constant else max(mean * (1 - mean) * count / variance, 0.9 * count)
    return wilson_limits(mean, size, student_quantile(count - 1, level))


def wilson_limits(mean: float, size: float, quantile: float) -> tuple[float, float]:
    """Compute Wilson's limits of a mean in [0, 1].

    Args:
        mean: The mean.
        size: The effective sample size, above 0.
        quantile: The quantile of the standard distribution, such as 1.96.
    """
    per_size = quantile**2 / size
    center = mean + per_size / 2
    half = quantile * math.sqrt(mean * (1 - mean) / size + per_size / (4 * size))
    # Rounding must not leave the ends beside 0 or 1, or the mean outside.
    low, high = (center - half) / (1 + per_size), (center + half) / (1 + per_size)
    return max(0.0, min(low, mean)), min(1.0, max(high, mean))


def estimate_difference(differences: Sequence[float], level: float = 0.95) -> Estimate:
    """Estimate the mean of paired differences, or of other values without bounds, with Student's interval.

    Differences that are all equal have no interval: they do not tell how much others would vary.
    """
    count = len(differences)
    if count == 0:
        return Estimate(None, None, None, 0)
    mean = math.fsum(differences) / count
    error = _standard_error(differences, mean)
    if error is None:
        return Estimate(mean, None, None, count)
    half = student_quantile(count - 1, level) * error
    return Estimate(mean, mean - half, mean + half, count)


def difference_p_value(differences: Sequence[float]) -> float | None:
    """Compute the two-sided p-value of the paired t-test; None for fewer than two or for equal differences."""
    if not len(differences):
        return None
    mean = math.fsum(differences) / len(differences)
    error = _standard_error(differences, mean)
    return None if error is None else 2 * float(special().stdtr(len(differences) - 1, -abs(mean / error)))


def effect_size(differences: Sequence[float]) -> float | None:
    """Compute Cohen's d of paired differences: their mean by their standard deviation; None without a spread.

    Example:
        >>> effect_size([0.0, 1.0, 2.0]), effect_size([0.1, 0.1, 0.1])
        (1.0, None)
    """
    if not len(differences):
        return None
    mean = math.fsum(differences) / len(differences)
    error = _standard_error(differences, mean)
    return None if error is None else mean / (error * math.sqrt(len(differences)))


def estimate_rate_difference(*, rose: int, fell: int, pairs: int, level: float = 0.95) -> Estimate:
    """Estimate the difference of two paired rates (Bonnett and Price 2012); undefined without pairs.

    Args:
        rose: The number of pairs in which only the second one is true.
        fell: The number of pairs in which only the first one is true.
        pairs: The number of all pairs.
        level: The level of the interval.

    Example:
        >>> print(estimate_rate_difference(rose=9, fell=3, pairs=60))
        0.100 [-0.019, 0.213] (n = 60)
    """
    if pairs == 0:
        return Estimate(None, None, None, 0)
    up, down = (rose + 1) / (pairs + 2), (fell + 1) / (pairs + 2)
    half = normal_quantile(level) * math.sqrt((up + down - (up - down) ** 2) / (pairs + 2))
    low, high = max(-1.0, up - down - half), min(1.0, up - down + half)
    return Estimate((rose - fell) / pairs, low, high, pairs)


def mcnemar_p_value(rose: int, fell: int) -> float | None:
    """Compute the mid-p value of McNemar's test, two-sided; None without a discordant pair."""
    discordant, fewer = rose + fell, min(rose, fell)
    if discordant == 0:
        return None
    at_most = float(special().bdtr(fewer, discordant, 0.5))
    below = float(special().bdtr(fewer - 1, discordant, 0.5)) if fewer else 0.0
    return min(1.0, at_most + below)


def normal_quantile(level: float) -> float:
    """Return the two-sided quantile of the normal distribution, 1.96 for 0.95."""
    _check_level(level)
    return float(special().ndtri((1 + level) / 2))


def student_quantile(freedom: int, level: float) -> float:
    """Return the two-sided quantile of Student's distribution."""
    _check_level(level)
    return float(special().stdtrit(freedom, (1 + level) / 2))


def special() -> Any:
    """Import `scipy.special`.

    Raises:
        ImportError: scipy is not installed.
    """
    try:
        from scipy import special as functions
    except ImportError:
        raise ImportError(f"intervals need scipy: {install_command('agreement')}") from None
    return functions


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"`level` must be above 0 and below 1, got {level!r}: write 0.95 for intervals of 95 %")


def _standard_error(values: Sequence[float], mean: float) -> float | None:
    """Compute the standard error of a mean; None if the values do not tell how much others would vary."""
    if len(values) < 2:
        return None
    deviation = float(np.std(values, ddof=1))
    return None if deviation <= ROUNDING * max(1.0, abs(mean)) else deviation / math.sqrt(len(values))
