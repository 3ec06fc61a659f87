"""Means of bounded values with intervals that are valid for every distribution of values, also for rows in groups.

The limits are Gaffke's (Gaffke 2005; Learned-Miller and Thomas 2019). For each limit, an imaginary row with the worst
value is added: the lowest possible value for the lower limit, and the highest for the upper limit. The rows then get
random weights from a Dirichlet distribution. The limit is a quantile of the distribution of the weighted mean. This
distribution is approximated by the Pearson III distribution with the same mean, variance and skewness. If a program
rarely scores 0, most small samples contain no 0. These limits allow for this and are therefore wider than Student's
limits. Student's lower limit is often above the true mean of such a program.

Rows in groups, such as ten questions about one document, depend on each other. The limits of a mean are then computed
from the totals of the groups. The limits of other figures are computed with a smaller, effective number of rows (see
`widening`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.statistics import (
    ROUNDING,
    check_level,
    cohen_kappa,
    estimate_clustered_difference,
    estimate_difference,
    estimate_rate,
    estimate_rate_difference,
    gwet_ac1,
    normal_quantile,
    special,
    student_quantile,
    wilson_limits,
)

Floats = NDArray[np.float64]
Values = Sequence[float] | Floats
Groups = NDArray[np.intp]
"""The group of each row, numbered from 0."""

FEWEST_GROUPS = 5
"""The smallest number of groups for an interval. With fewer groups, a gate is inconclusive."""
FEW_GROUPS = 10
"""With fewer groups than this, a warning states that the interval is wide."""
FOR_INTERVAL, FOR_GATE = 0.75, 1.0
"""The number of imaginary rows with the worst value, for an interval, and for a gate, which decides by one limit.

They were selected by simulation: 95 % intervals contain the true mean in 95 % of samples, and gates pass in 5 % of
samples if the true mean is equal to the threshold.
"""

# Selected by simulation, for intraclass correlations up to .6: a whole imaginary group would hide most changes.
_PART_OF_GROUP = 0.4


class Bounds(NamedTuple):
    """The lowest and the highest possible value of each row in a mean."""

    low: float
    high: float


UNIT = Bounds(0.0, 1.0)


def select_groups(groups: Groups | None, rows: Sequence[int]) -> Groups | None:
    """Return the groups of some rows, numbered from 0.

    None if these rows are independent: each of them has its own group, or `groups` is None.
    """
    if groups is None:
        return None
    numbers = number_groups(groups[list(rows)].tolist())
    return None if len(numbers) == numbers.max(initial=-1) + 1 else numbers


def number_groups(keys: Sequence[Hashable]) -> Groups:
    """Return the number of each row's group, from 0 in the order of their first rows.

    Rows with equal `keys` are a group.
    """
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.intp)


def estimate_mean(
    values: Values,
    level: float = 0.95,
    *,
    groups: Groups | None = None,
    weights: Values | None = None,
    bounds: Bounds = UNIT,
    imaginary: float = FOR_INTERVAL,
) -> Estimate:
    """Estimate a mean of bounded values.

    There is no interval for a single value, or for fewer than five groups. The estimate is undefined without a value.
    If all values are 0 or 1, without groups and weights, the interval is Wilson's.

    Args:
        values: The values, within the bounds.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each row, or None if the rows are independent.
        weights: The weight of each row, above 0 and at most 1, or None for equal weights.
        bounds: The lowest and the highest possible value.
        imaginary: The number of imaginary rows with the worst value (see the docstring of the module): `FOR_INTERVAL`,
            or `FOR_GATE` for a decision by one limit.

    Example:
        >>> print(estimate_mean([1.0] * 30))
        1.000 [0.878, 1.000] (n = 30)
        >>> print(estimate_mean([0.7] * 20))
        0.700 [0.599, 0.743] (n = 20)
    """
    count = len(values)
    if count == 0:
        return Estimate(None, None, None, 0)
    total = math.fsum(values) / count if weights is None else float(np.average(values, weights=weights))
    mean = min(bounds.high, max(bounds.low, total))
    limits = mean_limits(values, level, groups=groups, weights=weights, bounds=bounds, imaginary=imaginary)
    return Estimate(mean, *(limits or (None, None)), count)


def estimate_scores(scores: Sequence[float], level: float = 0.95, *, groups: Groups | None = None) -> Estimate:
    """Estimate the mean of scores, by `estimate_mean` if all are in [0, 1], otherwise with Student's interval.

    Example:
        >>> print(estimate_scores([-1.0, 0.0, 4.0]))
        1.000 [-5.572, 7.572] (n = 3)
    """
    if all(0 <= score <= 1 for score in scores):
        return estimate_mean(scores, level, groups=groups)
    return estimate_differences(scores, level, groups)


class GroupedScores:
    """Collects scores row by row, for a mean whose interval counts the samples of one prompt as one input.

    Attributes:
        values: The scores.
    """

    def __init__(self) -> None:
        self.values = array("d")
        self._keys: list[str | int] = []

    def add(self, score: float, group: str | None) -> None:
        """Add the score of a row with its `GradedRow.group`."""
        self._keys.append(len(self._keys) if group is None else group)
        self.values.append(score)

    @property
    def estimate(self) -> Estimate:
        """The mean with its 95 % interval, by `estimate_scores`. It is undefined without a score."""
        if not self.values:
            return Estimate(None, None, None, 0)
        return estimate_scores(self.values, groups=select_groups(number_groups(self._keys), range(len(self._keys))))


def mean_limits(
    values: Values,
    level: float = 0.95,
    *,
    groups: Groups | None = None,
    weights: Values | None = None,
    bounds: Bounds = UNIT,
    imaginary: float = FOR_INTERVAL,
) -> tuple[float, float] | None:
    """Compute the limits of a mean of bounded values, or None for fewer than two values or fewer than five groups.

    These are the limits of `estimate_mean`, with the same arguments: Wilson's if all values are 0 or 1, without groups
    and weights, otherwise Gaffke's.
    """
    x = np.asarray(values, float)
    sizes = np.ones(len(x)) if weights is None else np.asarray(weights, float)
    totals = x * sizes
    if groups is None or len(groups) == groups.max(initial=-1) + 1:
        if len(x) < 2:
            return None
        if bounds == UNIT and weights is None and np.isin(x, (0.0, 1.0)).all():
            mean, count = float(x.mean()), len(x)
            size = count if mean in (0.0, 1.0) else max(count - 1, 0.9 * count)
            return wilson_limits(mean, size, student_quantile(count - 1, level))
    else:
        totals, sizes = (np.bincount(groups, each).astype(float) for each in (totals, sizes))
        if len(sizes) < FEWEST_GROUPS:
            return None
    check_level(level)
    tail = (1 - level) / 2
    low = low_end(totals, sizes, bounds.low, tail, imaginary)
    high = -low_end(-totals, sizes, -bounds.high, tail, imaginary)
    return low, high


def low_end(totals: Floats, sizes: Floats, floor: float, tail: float, imaginary: float) -> float:
    """Compute the lower limit of the mean of rows in groups. Each independent row is a group of one row.

    Args:
        totals: The sum of the values of each group.
        sizes: The number of rows of each group.
        floor: The lowest possible value of a row.
        tail: The probability that the true mean is below the limit.
        imaginary: The number of imaginary groups of average size whose rows all have the lowest value.
    """
    size, weight = sizes.mean(), len(sizes) + imaginary
    mean = float((totals.sum() + imaginary * size * floor) / (weight * size))
    apart, far = (totals - sizes * mean) / size, floor - mean
    # CR2 correction (Bell and McCaffrey 2002), because the mean is close to the values of a large group.
    inflation = (1 - 1 / len(sizes)) / (1 - sizes / sizes.sum()) if len(sizes) > 1 else 1.0
    variance = float((apart**2 * inflation).sum() + imaginary * far**2) / (weight * (weight + 1))
    if variance <= ROUNDING**2:
        return mean
    third = float((apart**3).sum() + imaginary * far**3)
    skewness = 2 * third / (weight * (weight + 1) * (weight + 2)) / variance**1.5
    steps = _pearson_quantile(skewness, tail)
    if (sizes > 1).any():
        steps *= float(special().stdtrit(_freedom(sizes), tail) / special().ndtri(tail))
    return max(floor, mean + math.sqrt(variance) * steps)


def _pearson_quantile(skewness: float, tail: float) -> float:
    """Return the quantile of the Pearson III distribution with mean 0 and variance 1."""
    if abs(skewness) < 0.01:
        z = float(special().ndtri(tail))
        return z + (z * z - 1) * skewness / 6
    shape = 4 / skewness**2
    quantile = float(special().gammaincinv(shape, tail if skewness > 0 else 1 - tail))
    return math.copysign(1, skewness) * (quantile - shape) / math.sqrt(shape)


def _freedom(sizes: Floats) -> float:
    """Return Satterthwaite's degrees of freedom of the CR2 variance of groups (Bell and McCaffrey 2002)."""
    shares = sizes / sizes.sum()
    weights = shares**2 / (1 - shares)
    return float(1 / ((shares**2).sum() + weights.sum() ** 2 - (weights**2).sum()))


def estimate_change(
    changes: Values, level: float = 0.95, *, groups: Groups | None = None, imaginary: float = FOR_INTERVAL
) -> Estimate:
    """Estimate the mean change of paired values in [0, 1].

    The limits are Gaffke's, as in `estimate_mean`, with an imaginary row whose change is -1 for the lower limit and 1
    for the upper limit. A smaller change, such as a gain that the mean of the first values allows, would be too small:
    rare rows may gain much more. There is an interval even if all changes are equal.

    Args:
        changes: The second value of each row minus its first value.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each row, or None if the rows are independent.
        imaginary: The number of imaginary rows: `FOR_INTERVAL`, or `FOR_GATE` for a decision by one limit. For rows in
            groups, the number of imaginary groups is smaller, because the rows of a group rarely all change as much.

    Example:
        >>> print(estimate_change([-1.0] * 200))
        -1.000 [-1.000, -0.969] (n = 200)
    """
    if len(changes) == 0:
        return Estimate(None, None, None, 0)
    if groups is not None:
        imaginary *= max(_PART_OF_GROUP, (groups.max() + 1) / len(groups))
    limits = mean_limits(changes, level, groups=groups, bounds=Bounds(-1.0, 1.0), imaginary=imaginary)
    return Estimate(math.fsum(changes) / len(changes), *(limits or (None, None)), len(changes))


def intraclass_correlation(values: Values, groups: Groups) -> float | None:
    """Estimate the intraclass correlation: 0 if the values of a group are independent, and 1 if they are equal.

    The estimate comes from a one-way analysis of variance and is at least 0. None if each group has one row, or if
    there is only one group.

    Example:
        >>> intraclass_correlation([1.0, 1.0, 0.0, 0.0], np.array([0, 0, 1, 1]))
        1.0
    """
    x, sizes = np.asarray(values, float), np.bincount(groups).astype(float)
    count, number = len(x), len(sizes)
    if not 1 < number < count:
        return None
    means = np.bincount(groups, x) / sizes
    between = float(sizes @ (means - x.mean()) ** 2) / (number - 1)
    within = float(((x - means[groups]) ** 2).sum()) / (count - number)
    if between + within <= ROUNDING:
        return 0.0
    size = (count - float((sizes**2).sum()) / count) / (number - 1)
    return max(0.0, (between - within) / (between + (size - 1) * within))


def effective_groups(groups: Groups) -> float:
    """Return the effective number of groups: 1 divided by the sum of the squared shares of the rows in each group.

    It is the number of groups if all groups have the same size. It is small if a few groups contain most of the rows.
    """
    return float(1 / ((np.bincount(groups) / len(groups)) ** 2).sum())


def widening(influences: Values, groups: Groups, level: float = 0.95) -> float:
    """Return the number of rows divided by the effective number of independent rows, for rows in groups.

    To use an interval for independent rows, divide a table of counts by this factor, or multiply the half width of the
    interval by the square root of the factor. The factor already contains the correction for a small number of groups.
    Therefore, the interval must use the normal quantile and not Student's quantile.

    Args:
        influences: The influence of each row on the figure: the derivative of the figure with respect to the weight of
            the row, multiplied by the number of rows. The sum of the influences is 0.
        groups: The group of each row, at least five groups.
        level: The confidence level of the interval, between 0 and 1.
    """
    u, sizes = np.asarray(influences, float), np.bincount(groups).astype(float)
    count = len(u)
    if len(sizes) == count:
        return 1.0
    shares, sums = sizes / count, np.bincount(groups, u)
    variance_of_rows = float(u @ u) * count / (count - 1)
    # Observed groups may be similar by chance, so a tenth of a group is assumed to be as extreme as the worst row.
    unseen = 0.1 * (sizes.mean() * np.abs(u).max()) ** 2
    if variance_of_rows > ROUNDING**2:
        effect = max(1.0, (float((sums**2 / (1 - shares)).sum()) + unseen) / variance_of_rows)
    else:
        effect = count * float((shares**2).sum())
    quantile = float(special().stdtrit(_freedom(sizes), (1 + level) / 2))
    return effect * (quantile / normal_quantile(level)) ** 2


def in_groups(
    estimate: Estimate, influences: Values, groups: Groups, level: float = 0.95, bounds: Bounds | None = None
) -> Estimate:
    """Widen an interval for independent rows to an interval for rows in groups.

    With fewer than five groups, the interval is removed.

    Args:
        estimate: The figure with its interval for independent rows.
        influences: The influence of each row on the figure (see `widening`).
        groups: The group of each row.
        level: The confidence level of the interval, between 0 and 1.
        bounds: The lowest and the highest possible value of the figure, or None if there are no bounds.
    """
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    if groups.max(initial=-1) + 1 < FEWEST_GROUPS:
        return estimate._replace(low=None, high=None)
    root, (low, high) = math.sqrt(widening(influences, groups, level)), bounds or Bounds(-math.inf, math.inf)
    return estimate._replace(
        low=max(low, estimate.value - root * (estimate.value - estimate.low)),
        high=min(high, estimate.value + root * (estimate.high - estimate.value)),
    )


def estimate_mean_share(
    shares: Sequence[float], level: float, groups: Groups | None, weights: Sequence[float] | None = None
) -> Estimate:
    """Estimate a mean of shares in [0, 1].

    The interval has Jeffreys limits if all shares are 0 or 1, without groups and weights. Otherwise it is the interval
    of `estimate_mean`.
    """
    if groups is None and weights is None and all(share in (0, 1) for share in shares):
        return estimate_rate(round(sum(shares)), len(shares), level)
    return estimate_mean(shares, level, groups=groups, weights=weights)


def estimate_differences(differences: Sequence[float], level: float, groups: Groups | None) -> Estimate:
    """Estimate the mean of differences without bounds, with Student's interval.

    For rows in groups, the interval is wider. With fewer than five groups, there is no interval.
    """
    estimate = estimate_difference(differences, level)
    if groups is None:
        return estimate
    return in_groups(estimate, np.asarray(differences, float) - (estimate.value or 0.0), groups, level)


def estimate_bias(people: Values, judge: Values, level: float, groups: Groups | None) -> Estimate:
    """Estimate the mean of the judge's values minus the annotators' values, for independent rows or rows in groups.

    For values in [0, 1], the limits are those of `estimate_mean`, because rare errors may be missing in the sample. For
    rows in groups, they are widened. Otherwise the interval is Student's.

    Example:
        >>> print(estimate_bias([1.0] * 50, [1.0] * 50, 0.95, None))
        0.000 [-0.061, 0.061] (n = 50)
    """
    differences, bounds = np.subtract(judge, people), Bounds(-1.0, 1.0)
    if not all(0 <= value <= 1 for value in (*people, *judge)):
        return estimate_differences(differences.tolist(), level, groups)
    estimate = estimate_mean(differences.tolist(), level, bounds=bounds)
    return estimate if groups is None else in_groups(estimate, differences - differences.mean(), groups, level, bounds)


def estimate_shift(
    rose: Sequence[float], fell: Sequence[float], level: float, groups: Groups | None, *, clustered: bool = False
) -> Estimate:
    """Estimate the difference of two paired rates (second minus first), for independent rows or rows in groups.

    Args:
        rose: For each row, the share of its judgments or raters that count in the second rate but not in the first.
        fell: For each row, the share of its judgments or raters that count in the first rate but not in the second.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each row, or None if the rows are independent.
        clustered: Whether a row may have several judgments. If not, and all shares are 0 or 1, each row counts as one
            judgment in `estimate_rate_difference`. Otherwise, `estimate_clustered_difference` allows for several
            judgments of a row.
    """
    times, is_whole = 1.0, not clustered and all(share in (0, 1) for share in (*rose, *fell))
    differences = np.subtract(rose, fell)
    has_interval = groups is None or groups.max(initial=-1) + 1 >= FEWEST_GROUPS
    if groups is not None and has_interval and len(rose):
        times = widening(differences - differences.mean(), groups, level)
    if is_whole:
        estimate = estimate_rate_difference(
            rose=round(sum(rose)), fell=round(sum(fell)), pairs=len(rose), level=level, widening=times
        )
    else:
        estimate = estimate_clustered_difference(rose, fell, level, widening=times)
    return estimate if has_interval else estimate._replace(low=None, high=None)


def p_value_of(interval_at: Callable[[float], Estimate]) -> float | None:
    """Return the two-sided p-value that belongs to an interval: 1 minus the level at which one limit is 0.

    Args:
        interval_at: A function that gets a confidence level and returns the estimate with its interval.

    Returns:
        The p-value, or None if the estimate has no interval.
    """

    def contains(p_value: float) -> bool | None:
        estimate = interval_at(1 - p_value)
        return None if estimate.low is None or estimate.high is None else estimate.low <= 0 <= estimate.high

    low, high = 1e-12, 1 - 1e-12
    if contains(low) is None:
        return None
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if contains(middle) else (low, middle)
    return high


def kappa_influences(people: Sequence[int], judge: Sequence[int], distances: Any) -> Floats:
    """Return the influence of each judgment on kappa, to compute an interval for judgments in groups (see `widening`).

    A level is a possible answer.

    Args:
        people: The index of each human answer in the levels.
        judge: The index of each answer of the judge in the levels.
        distances: The distance of each pair of levels.
    """
    table = np.zeros_like(np.asarray(distances, float))
    np.add.at(table, (people, judge), 1)
    return kappa_of_cells(table, distances)[people, judge]


def estimate_kappa_difference(
    people: Sequence[int],
    judge: Sequence[int],
    other: Sequence[int],
    distances: Any,
    level: float,
    groups: Groups | None,
) -> Estimate:
    """Estimate a judge's kappa minus another judge's kappa on the same questions, with Student's interval.

    The interval is computed from the differences of the influences. The estimate is undefined if a kappa is undefined.

    Args:
        people: The index of each human answer in the levels.
        judge: The index of each answer of the judge in the levels.
        other: The index of each answer of the other judge in the levels.
        distances: The distance of each pair of levels.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each question, or None if the questions are independent.

    Example:
        >>> people, judge, other = [0, 1] * 20, [0, 1] * 15 + [1, 0] * 5, [0, 1] * 10 + [1, 0] * 10
        >>> print(estimate_kappa_difference(people, judge, other, 1 - np.eye(2), 0.95, None))
        0.500 [0.220, 0.780] (n = 40)
    """
    figures: list[tuple[float, Floats]] = []
    for answers in (judge, other):
        table = np.zeros_like(np.asarray(distances, float))
        np.add.at(table, (people, answers), 1)
        kappa = cohen_kappa(table, distances, level).value
        if kappa is None:
            return Estimate(None, None, None, len(people))
        figures.append((kappa, kappa_influences(people, answers, distances)))
    (kappa, influences), (other_kappa, other_influences) = figures
    # The mean of the influences is 0.
    differences = kappa - other_kappa + influences - other_influences
    return estimate_differences(differences.tolist(), level, groups)


def kappa_of_cells(confusion: Any, distances: Any) -> Floats:
    """Return, for each cell of a confusion table, the influence of a judgment in this cell on kappa.

    The influences are needed for an interval of judgments in groups (see `widening`). A level is a possible answer.

    Args:
        confusion: The confusion table of counts or weights.
        distances: The distance of each pair of levels.

    Returns:
        A table of influences. All are 0 if kappa is undefined.
    """
    shares, apart = np.asarray(confusion, float), np.asarray(distances, float)
    shares = shares / shares.sum()
    of_people, of_judge = shares.sum(axis=1), shares.sum(axis=0)
    observed, expected = float((shares * apart).sum()), float(of_people @ apart @ of_judge)
    if expected <= ROUNDING:
        return np.zeros_like(shares)
    by_chance = np.add.outer(apart @ of_judge, of_people @ apart)
    return -(apart - observed) / expected + observed / expected**2 * (by_chance - 2 * expected)


def estimate_ac1(confusion: Any, cells: Sequence[tuple[int, int]], level: float, groups: Groups | None) -> Estimate:
    """Estimate Gwet's AC1, for independent judgments or judgments in groups.

    To compute the interval, 1/k is added to each cell of the table, where k is the number of levels, as in
    `cohen_kappa`. With fewer than five groups, there is no interval.

    Args:
        confusion: The confusion table of counts.
        cells: The cell of each judgment: the indices of the human answer and of the judge's answer in the levels.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each judgment, or None if the judgments are independent.

    Example:
        >>> cells = [(0, 0)] * 31 + [(0, 1)] * 4 + [(1, 0)] * 6 + [(1, 1)] * 19
        >>> print(estimate_ac1([[31, 4], [6, 19]], cells, 0.95, None))
        0.679 [0.470, 0.846] (n = 60)
    """
    counts, times = np.asarray(confusion, float), 1.0
    value = gwet_ac1(counts)
    if value is None:
        return Estimate(None, None, None, 0)
    if groups is not None:
        if groups.max(initial=-1) + 1 < FEWEST_GROUPS:
            return Estimate(value, None, None, len(cells))
        times = widening(_ac1_of_cells(counts)[tuple(np.array(cells).T)], groups, level)
    smoothed = counts / times + 1 / len(counts)
    center, size = gwet_ac1(smoothed) or 0.0, float(smoothed.sum())
    half = normal_quantile(level) * math.sqrt(float((smoothed * _ac1_of_cells(smoothed) ** 2).sum())) / size
    return Estimate(value, max(-1.0, center - half), min(1.0, center + half), len(cells))


def _ac1_of_cells(counts: Floats) -> Floats:
    """Return the influence on AC1 of a judgment in each cell of a confusion table (see `widening`)."""
    shares = counts / counts.sum()
    means, observed = (shares.sum(axis=0) + shares.sum(axis=1)) / 2, float(np.trace(shares))
    of_level = (1 - 2 * means) / (len(shares) - 1)
    by_chance = float((means * (1 - means)).sum()) / (len(shares) - 1)
    chance = np.add.outer(of_level, of_level) / 2 - float(of_level @ means)
    return ((np.eye(len(shares)) - observed) * (1 - by_chance) - chance * (1 - observed)) / (1 - by_chance) ** 2
