"""Measures of agreement between ordered answers or scores: errors, correlations, and distances of distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rubric_integrations.agreement.intervals import ROUNDING


class OrderedAgreement(NamedTuple):
    """How close the judge's values are to people's.

    Attributes:
        mae: The mean absolute difference.
        rmse: The root of the mean squared difference.
        pearson: The correlation of the values; None if one side has the same value throughout, like the next two.
        spearman: The correlation of their ranks.
        kendall: The correlation of their order (tau-b).
        emd: The earth mover's distance of both distributions (Wasserstein-1), whoever got which value: 0 if the judge
            gives each value as often as people do, and never more than `mae`. It has the unit of the values: a share of
            the criterion's range, and never of the range that occurs.
        ks: The Kolmogorov-Smirnov distance of both distributions, from 0 to 1: the largest difference of the shares of
            values up to any point.
    """

    mae: float
    rmse: float
    pearson: float | None
    spearman: float | None
    kendall: float | None
    emd: float
    ks: float


def compare_values(people: Sequence[float], judge: Sequence[float]) -> OrderedAgreement | None:
    """Compare values in pairs; None without a pair.

    Example:
        >>> round(compare_values([0.0, 0.5, 1.0], [0.0, 1.0, 0.5]).kendall, 3)
        0.333
    """
    if not len(people):
        return None
    y, f = np.asarray(people, float), np.asarray(judge, float)
    apart = np.abs(y - f)
    ranks = _ranks(y), _ranks(f)
    return OrderedAgreement(
        float(apart.mean()),
        math.sqrt(float((apart**2).mean())),
        _correlation(y, f),
        _correlation(*ranks),
        _tau_b(*ranks),
        float(np.abs(np.sort(y) - np.sort(f)).mean()),
        _largest_difference(y, f),
    )


def _largest_difference(y: Any, f: Any) -> float:
    """Compute the largest difference of two cumulative distributions."""
    # Scores are sums of floats: two that differ by rounding are one point.
    y, f = (np.sort(np.round(values, 12)) for values in (y, f))
    points = np.concatenate([y, f])
    up_to = [np.searchsorted(values, points, side="right") / len(values) for values in (y, f)]
    return float(np.abs(up_to[0] - up_to[1]).max())


def _ranks(values: Any) -> Any:
    """Return the ranks of values, from 0; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[inverse]


def _correlation(y: Any, f: Any) -> float | None:
    y_apart, f_apart = y - y.mean(), f - f.mean()
    spread = math.sqrt(float(y_apart @ y_apart) * float(f_apart @ f_apart))
    return float(y_apart @ f_apart) / spread if spread > ROUNDING * len(y) else None


def _tau_b(y: Any, f: Any) -> float | None:
    """Compute Kendall's tau-b from the table of both rankings, in the square of the number of distinct values."""
    _, rows = np.unique(y, return_inverse=True)
    _, columns = np.unique(f, return_inverse=True)
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    # The number of pairs after each cell in both rankings, and in one ranking only.
    after = table[::-1, ::-1].cumsum(0).cumsum(1)[::-1, ::-1]
    before = table[::-1].cumsum(0).cumsum(1)[::-1]
    concordant = float((table[:-1, :-1] * after[1:, 1:]).sum()) if table.size else 0.0
    discordant = float((table[:-1, 1:] * before[1:, :-1]).sum()) if table.size else 0.0
    pairs = len(y) * (len(y) - 1) / 2
    tied_y, tied_f = (float((sums * (sums - 1) / 2).sum()) for sums in (table.sum(1), table.sum(0)))
    divisor = math.sqrt((pairs - tied_y) * (pairs - tied_f))
    return (concordant - discordant) / divisor if divisor else None
