"""Means with bootstrap intervals, and a permutation test for paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rubric_integrations._util.extras import install_command

_RESAMPLES = 9_999


class Mean(NamedTuple):
    """A mean with its 95 % bootstrap interval.

    Attributes:
        mean: The mean.
        low, high: The ends of the interval; None for fewer than two values or if all are equal, because their spread is
            then unknown.
    """

    mean: float
    low: float | None
    high: float | None


def mean_with_interval(values: Sequence[float]) -> Mean:
    """Compute the mean of one or more values, with its 95 % BCa bootstrap interval (Efron 1987, 9,999 resamples).

    The random seed is fixed, so that the same values always give the same interval.

    Raises:
        ImportError: The extra `report` is not installed.
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2 or min(values) == max(values):
        return Mean(mean, None, None)
    stats, np = _scipy()
    interval = stats.bootstrap(
        (values,), np.mean, n_resamples=_RESAMPLES, rng=np.random.default_rng(0)
    ).confidence_interval
    low, high = float(interval.low), float(interval.high)
    return Mean(mean, low, high) if math.isfinite(low) and math.isfinite(high) else Mean(mean, None, None)


def sign_flip_p_value(differences: Sequence[float]) -> float | None:
    """Compute the two-sided p-value of a mean of paired differences, by a permutation test that flips their signs.

    The test is exact if all sign combinations fit into 9,999 resamples. Returns None for fewer than two differences.

    Raises:
        ImportError: The extra `report` is not installed.
    """
    if len(differences) < 2:
        return None
    stats, np = _scipy()
    result = stats.permutation_test(
        (np.asarray(differences),), np.mean, permutation_type="samples", n_resamples=_RESAMPLES,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(result.pvalue)


def _scipy() -> tuple[Any, Any]:
    try:
        import numpy as np
        from scipy import stats
    except ImportError:
        raise ImportError(f"a report's intervals need scipy: {install_command('report')}") from None
    return stats, np
