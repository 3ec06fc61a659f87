"""Closed-form 95 % intervals of means and differences: the same values always give the same figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rubric_integrations._util.extras import install_command

_UPPER = 0.975
# Scores are sums of floats: a spread of this size is rounding.
_ROUNDING = 1e-12


class Mean(NamedTuple):
    """A mean with its 95 % interval.

    Attributes:
        mean: The mean.
        low, high: The ends of the interval; None if the values do not tell how much others would vary.
    """

    mean: float
    low: float | None
    high: float | None


def mean_with_interval(values: Sequence[float]) -> Mean:
    """Compute the mean of one or more values, with its 95 % interval.

    For values in [0, 1], it is Wilson's interval at the effective sample size, which stays in [0, 1] and has a width
    also if all values are equal. For others, it is Student's. One value has no interval.

    Raises:
        ImportError: The extra `report` is not installed.
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Mean(mean, None, None)
    if not (min(values) >= 0 and max(values) <= 1):
        return _student(values)
    mean = min(1.0, max(0.0, mean))
    variance = _variance(values, mean)
    is_certain = variance <= _ROUNDING or mean in (0.0, 1.0)
    size = count if is_certain else max(mean * (1 - mean) * count / variance, 0.9 * count)
    t2 = _quantile(count - 1) ** 2
    center = mean + t2 / (2 * size)
    half = math.sqrt(t2 * mean * (1 - mean) / size + (t2 / (2 * size)) ** 2)
    low, high = ((center + sign * half) / (1 + t2 / size) for sign in (-1, 1))
    # Rounding must not leave the ends beside 0 or 1, or the mean outside.
    return Mean(mean, max(0.0, min(low, mean)), min(1.0, max(high, mean)))


def compare_means(differences: Sequence[float]) -> tuple[Mean, float | None]:
    """Compute the mean of paired differences with its 95 % interval, and the two-sided p-value of the paired t-test.

    The interval and the p-value are None for fewer than two differences, and for differences that are all equal.

    Raises:
        ImportError: The extra `report` is not installed.
    """
    mean = _student(differences)
    if mean.low is None or mean.high is None:
        return mean, None
    t = mean.mean / ((mean.high - mean.low) / 2) * _quantile(len(differences) - 1)
    return mean, 2 * float(_special().stdtr(len(differences) - 1, -abs(t)))


def compare_rates(*, rose: int, fell: int, pairs: int) -> Mean:
    """Compute the difference of two paired rates, with its 95 % interval (Bonnett and Price 2012).

    Args:
        rose: The number of pairs in which only the second one is true.
        fell: The number of pairs in which only the first one is true.
        pairs: The number of all pairs, at least 1.

    Example:
        >>> difference = compare_rates(rose=9, fell=3, pairs=60)
        >>> f"{difference.mean:.3f} [{difference.low:.3f}, {difference.high:.3f}]"
        '0.100 [-0.019, 0.213]'
    """
    z = float(_special().ndtri(_UPPER))
    up, down = (rose + 1) / (pairs + 2), (fell + 1) / (pairs + 2)
    half = z * math.sqrt((up + down - (up - down) ** 2) / (pairs + 2))
    return Mean((rose - fell) / pairs, max(-1.0, up - down - half), min(1.0, up - down + half))


def _student(values: Sequence[float]) -> Mean:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Mean(mean, None, None)
    variance = _variance(values, mean)
    if math.sqrt(variance) <= _ROUNDING * max(1.0, abs(mean)):
        return Mean(mean, None, None)
    half = _quantile(len(values) - 1) * math.sqrt(variance / len(values))
    return Mean(mean, mean - half, mean + half)


def _variance(values: Sequence[float], mean: float) -> float:
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _quantile(freedom: int) -> float:
    return float(_special().stdtrit(freedom, _UPPER))


def _special() -> Any:
    try:
        from scipy import special
    except ImportError:
        raise ImportError(f"a report's intervals need scipy: {install_command('report')}") from None
    return special
