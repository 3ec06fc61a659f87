"""Agreement beyond chance: Cohen's kappa with its interval, Gwet's AC1, Fleiss' kappa, and Krippendorff's alpha.

A confusion table has a row for each level that people chose, and a column for each level that the judge chose. The
levels come from the criterion and never from the data: a level that nobody chose must not renumber the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rubric_integrations.agreement.intervals import normal_quantile
from rubric_integrations.results.estimate import Estimate

Matrix = NDArray[np.float64]
Weighting = Literal["nominal", "linear", "quadratic"]
"""How far two levels are apart: equally (`nominal`), by the difference of their values, or by its square."""


def level_distances(values: Sequence[float], weighting: Weighting = "quadratic") -> Matrix:
    """Compute the distance of each pair of levels, from the levels' values.

    Example:
        >>> level_distances([0, 0.5, 1]).tolist()
        [[0.0, 0.25, 1.0], [0.25, 0.0, 0.25], [1.0, 0.25, 0.0]]
    """
    if weighting == "nominal":
        return 1.0 - np.eye(len(values))
    differences = np.abs(np.subtract.outer(np.asarray(values, float), np.asarray(values, float)))
    return differences if weighting == "linear" else differences**2


def cohen_kappa(confusion: Any, distances: Any, level: float = 0.95) -> Estimate:
    """Compute kappa with its interval; undefined if people and the judge both use one level only, or no distances.

    `kappa = 1 - sum(P D) / sum(p. .p D)`. The interval is that of the table with 1/k added to each of the k x k cells,
    with the large-sample standard error (Fleiss, Cohen and Everitt 1969).

    Example:
        >>> print(cohen_kappa([[31, 4], [6, 19]], level_distances([0, 1])))
        0.653 [0.435, 0.828] (n = 60)
    """
    counts, apart = np.asarray(confusion, float), np.asarray(distances, float)
    n = int(counts.sum())
    value = _kappa(counts, apart) if n else None
    if value is None:
        return Estimate(None, None, None, n)
    smoothed = counts + 1 / len(counts)
    center = _kappa(smoothed, apart)
    assert center is not None  # each smoothed level is used  # noqa: S101
    half = normal_quantile(level) * _standard_error(smoothed, apart, center)
    return Estimate(value, max(-1.0, center - half), min(1.0, center + half), n)


def gwet_ac1(confusion: Any) -> float | None:
    """Compute AC1 (Gwet 2008), which stays meaningful if nearly all answers are alike; None without answers.

    `pe = sum pi (1 - pi) / (q - 1)`, with pi the mean of both marginal shares, and q the levels that are offered.

    Example:
        >>> round(gwet_ac1([[31, 4], [6, 19]]), 3)
        0.679
    """
    counts = np.asarray(confusion, float)
    if not counts.sum():
        return None
    shares = counts / counts.sum()
    mean_shares = (shares.sum(axis=0) + shares.sum(axis=1)) / 2
    by_chance = float((mean_shares * (1 - mean_shares)).sum() / (len(counts) - 1))
    return (float(np.trace(shares)) - by_chance) / (1 - by_chance)


def fleiss_kappa(units: Sequence[Sequence[int]], levels: int) -> float | None:
    """Compute kappa among several raters (Fleiss 1971); None if all answers are the same, and without a unit.

    Args:
        units: For each unit, the indices of the levels that its raters chose, as many in each unit, at least two.
        levels: How many levels there are.

    Example:
        >>> fleiss_kappa([[0, 0, 0], [1, 1, 1]], 2)
        1.0
    """
    if not units:
        return None
    counts = np.array([np.bincount(unit, minlength=levels) for unit in units], float)
    raters = counts[0].sum()
    equal = ((counts**2).sum(axis=1) - raters) / (raters * (raters - 1))
    by_chance = float(((counts.sum(axis=0) / counts.sum()) ** 2).sum())
    return None if by_chance >= 1 else (float(equal.mean()) - by_chance) / (1 - by_chance)


def krippendorff_alpha(units: Sequence[Sequence[int]], distances: Any) -> float | None:
    """Compute alpha among several raters with gaps (Krippendorff 2011); None if it is undefined.

    Args:
        units: For each unit, the indices of the levels that its raters chose; a unit with fewer than two is left out.
        distances: The distance of each pair of levels.

    Example:
        >>> krippendorff_alpha([[0, 0], [1, 1], [0, 0, 0]], level_distances([0, 1]))
        1.0
    """
    apart = np.asarray(distances, float)
    pairs = np.zeros_like(apart)
    for unit in units:
        if len(unit) >= 2:
            counts = np.bincount(unit, minlength=len(apart)).astype(float)
            pairs += (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    totals = pairs.sum(axis=1)
    by_chance = float((np.outer(totals, totals) * apart).sum())
    return None if by_chance == 0 else 1 - (float(totals.sum()) - 1) * float((pairs * apart).sum()) / by_chance


def _kappa(counts: Matrix, distances: Matrix) -> float | None:
    shares = counts / counts.sum()
    by_chance = float((np.outer(shares.sum(axis=1), shares.sum(axis=0)) * distances).sum())
    return None if by_chance == 0 else 1 - float((shares * distances).sum()) / by_chance


def _standard_error(counts: Matrix, distances: Matrix, kappa: float) -> float:
    n = float(counts.sum())
    shares = counts / n
    people, judge = shares.sum(axis=1), shares.sum(axis=0)
    agreement = 1 - distances / distances.max()
    by_chance = float(people @ agreement @ judge)
    of_people, of_judge = agreement @ judge, people @ agreement
    terms = agreement - np.add.outer(of_people, of_judge) * (1 - kappa)
    variance = float((shares * terms**2).sum()) - (kappa - by_chance * (1 - kappa)) ** 2
    return math.sqrt(max(0.0, variance) / n) / (1 - by_chance)
