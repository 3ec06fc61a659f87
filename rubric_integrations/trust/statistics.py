"""Statistics: estimates with intervals for means, rates and differences, and measures of agreement.

Judgments of one submission depend on each other. The intervals are computed as for independent judgments, but with the
effective sample size instead of the number of judgments. The effective sample size is the number of independent
judgments that would give a figure with the same variance (Kish 1965; Korn and Graubard 1998). It is at most the number
of judgments.

A confusion table has a row for each level (possible answer) of the human labels, and a column for each level of the
judge. The levels come from the criterion and not from the data, because an unused level must keep its index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rubric_integrations._util.lazy import install_command
from rubric_integrations.scoring.labels import Estimate

# Scores are sums of floats. A difference of at most this size is a rounding error.
ROUNDING = 1e-12


def estimate_rate(successes: int, trials: int, level: float = 0.95) -> Estimate:
    """Estimate a rate with Jeffreys limits (Brown, Cai and DasGupta 2001). Undefined without trials.

    Example:
        >>> print(estimate_rate(30, 30))
        1.000 [0.920, 1.000] (n = 30)
    """
    if trials == 0:
        return Estimate(None, None, None, 0)
    return Estimate(successes / trials, *jeffreys_limits(successes, trials, level), trials)


def jeffreys_limits(successes: float, trials: float, level: float = 0.95) -> tuple[float, float]:
    """Compute Jeffreys limits of a rate with x successes in n trials: equal tails of Beta(x + 1/2, n - x + 1/2).

    The lower limit is 0 if x = 0, and the upper limit is 1 if x = n. Effective numbers of trials and successes need not
    be integers.
    """
    check_level(level)
    failures, tail = trials - successes, (1 - level) / 2
    inverse = special().betaincinv
    low = 0.0 if successes == 0 else float(inverse(successes + 0.5, failures + 0.5, tail))
    high = 1.0 if failures == 0 else float(inverse(successes + 0.5, failures + 0.5, 1 - tail))
    return low, high


def wilson_limits(mean: float, size: float, quantile: float) -> tuple[float, float]:
    """Compute Wilson's limits of a mean in [0, 1].

    Args:
        mean: The mean.
        size: The effective sample size, above 0.
        quantile: The two-sided quantile of the normal or Student's distribution, such as 1.96.
    """
    per_size = quantile**2 / size
    center = mean + per_size / 2
    half = quantile * math.sqrt(mean * (1 - mean) / size + per_size / (4 * size))
    # Rounding errors must not put the limits outside [0, 1] or exclude the mean.
    low, high = (center - half) / (1 + per_size), (center + half) / (1 + per_size)
    return max(0.0, min(low, mean)), min(1.0, max(high, mean))


def estimate_difference(differences: Sequence[float], level: float = 0.95) -> Estimate:
    """Estimate the mean of paired differences, or of other values without bounds, with Student's interval.

    There is no interval if all values are equal, because their variance cannot be estimated.
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
    """Compute the two-sided p-value of the paired t-test. None for fewer than two differences or equal differences."""
    if not len(differences):
        return None
    mean = math.fsum(differences) / len(differences)
    error = _standard_error(differences, mean)
    return None if error is None else 2 * float(special().stdtr(len(differences) - 1, -abs(mean / error)))


def effect_size(differences: Sequence[float]) -> float | None:
    """Compute Cohen's d of paired differences: their mean divided by their standard deviation.

    None for fewer than two differences or equal differences.

    Example:
        >>> effect_size([0.0, 1.0, 2.0]), effect_size([0.1, 0.1, 0.1])
        (1.0, None)
    """
    if not len(differences):
        return None
    mean = math.fsum(differences) / len(differences)
    error = _standard_error(differences, mean)
    return None if error is None else mean / (error * math.sqrt(len(differences)))


def estimate_rate_difference(
    *, rose: int, fell: int, pairs: int, level: float = 0.95, widening: float = 1.0
) -> Estimate:
    """Estimate the difference of two paired rates: the second minus the first (Bonnett and Price 2012).

    The estimate is undefined without pairs.

    Args:
        rose: The number of pairs in which only the second outcome is true.
        fell: The number of pairs in which only the first outcome is true.
        pairs: The number of all pairs.
        level: The confidence level of the interval, between 0 and 1.
        widening: For pairs in groups, the number of pairs divided by the effective number of independent pairs.

    Example:
        >>> print(estimate_rate_difference(rose=9, fell=3, pairs=60))
        0.100 [-0.019, 0.213] (n = 60)
    """
    if pairs == 0:
        return Estimate(None, None, None, 0)
    low, high = rate_difference_limits(rose / widening, fell / widening, pairs / widening, normal_quantile(level))
    return Estimate((rose - fell) / pairs, low, high, pairs)


def rate_difference_limits(rose: float, fell: float, pairs: float, quantile: float) -> tuple[float, float]:
    """Compute the limits of the difference of two paired rates (second minus first; Bonnett and Price 2012).

    The numbers need not be integers, because dependent pairs have an effective number.

    Args:
        rose: The number of pairs in which only the second outcome is true.
        fell: The number of pairs in which only the first outcome is true.
        pairs: The number of all pairs.
        quantile: The two-sided quantile of the normal or Student's distribution, such as 1.96.
    """
    up, down = (rose + 1) / (pairs + 2), (fell + 1) / (pairs + 2)
    half = quantile * math.sqrt((up + down - (up - down) ** 2) / (pairs + 2))
    return max(-1.0, up - down - half), min(1.0, up - down + half)


def mcnemar_p_value(rose: int, fell: int, *, exact: bool = False) -> float | None:
    """Compute the two-sided p-value of McNemar's test for a difference of two paired rates.

    By default, it is the mid-p value: if the true rates are equal, it is below .05 in about 5 % of samples, and in at
    most 6.5 % of samples of 10 to 300 pairs. The exact p-value is larger, and below .05 in at most 5 % of all samples.

    None if both numbers are 0.

    Args:
        rose: The number of pairs in which only the second outcome is true.
        fell: The number of pairs in which only the first outcome is true.
        exact: Whether to compute the exact p-value.

    Example:
        >>> mcnemar_p_value(6, 0), mcnemar_p_value(6, 0, exact=True)
        (0.015625, 0.03125)
    """
    discordant, fewer = rose + fell, min(rose, fell)
    if discordant == 0:
        return None
    at_most = float(special().bdtr(fewer, discordant, 0.5))
    if exact:
        return min(1.0, 2 * at_most)
    below = float(special().bdtr(fewer - 1, discordant, 0.5)) if fewer else 0.0
    return min(1.0, at_most + below)


def normal_quantile(level: float) -> float:
    """Return the two-sided quantile of the normal distribution, such as 1.96 for the level 0.95."""
    check_level(level)
    return float(special().ndtri((1 + level) / 2))


def student_quantile(freedom: float, level: float) -> float:
    """Return the two-sided quantile of Student's distribution with `freedom` degrees of freedom."""
    check_level(level)
    return float(special().stdtrit(freedom, (1 + level) / 2))


def special() -> Any:
    """Import and return `scipy.special`, when it is first needed, because scipy is an optional dependency.

    Raises:
        ImportError: scipy is not installed.
    """
    try:
        from scipy import special as functions
    except ImportError:
        raise ImportError(f"intervals need scipy: {install_command('agreement')}") from None
    return functions


def check_level(level: float) -> None:
    """Check the confidence level of an interval.

    Raises:
        ValueError: The level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"`level` must be above 0 and below 1, got {level!r}: write 0.95 for intervals of 95 %")


def check_alpha(alpha: float) -> None:
    """Check the probability of a wrong decision.

    Raises:
        ValueError: The probability is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"`alpha` must be above 0 and below 1, got {alpha!r}: write 0.05 to be wrong in 5 % of cases")


def _standard_error(values: Sequence[float], mean: float) -> float | None:
    """Compute the standard error of a mean, or None for fewer than two values or equal values."""
    if len(values) < 2:
        return None
    deviation = float(np.std(values, ddof=1))
    return None if deviation <= ROUNDING * max(1.0, abs(mean)) else deviation / math.sqrt(len(values))


class Count(NamedTuple):
    """The number of right judgments and the number of all judgments of one submission."""

    right: int
    total: int


def estimate_clustered_rate(counts: Sequence[Count], level: float = 0.95) -> Estimate:
    """Estimate the share p of right judgments with Jeffreys limits. Undefined without a judgment.

    The judgments of a submission may depend on each other. Therefore, the interval is computed with an effective sample
    size: p (1 - p) divided by the variance of p. The variance is estimated from the differences between submissions.

    The effective size is the number of judgments if each submission has one judgment. Otherwise, it is limited to a
    range. The upper limit is the number of judgments. The lower limit is the effective size that would result if all
    judgments of a submission were equal. The lower limit is used if there is one submission, or if all judgments are
    right or all are wrong, because the dependence then cannot be estimated. In all other cases, the limited size is
    multiplied by `(normal quantile / Student's quantile)^2`, because the variance may be estimated from few
    submissions.

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
    """Return the effective sample size of the share of right judgments.

    This is the number of independent judgments whose share would have the same variance. `estimate_clustered_rate`
    explains the calculation.
    """
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
    # Student's quantile allows for the variance, which is an estimate from few submissions.
    return size * (normal_quantile(level) / student_quantile(submissions - 1, level)) ** 2


def estimate_clustered_difference(
    rose: Sequence[float], fell: Sequence[float], level: float = 0.95, *, widening: float = 1.0
) -> Estimate:
    """Estimate the difference of two rates over the same judgments: the second minus the first.

    An example is the rates of right answers of two judges. The method is by Bonnett and Price (2012).

    Args:
        rose: For each submission, the share of its judgments that count in the second rate but not in the first.
        fell: For each submission, the share of its judgments that count in the first rate but not in the second.
        level: The confidence level of the interval, between 0 and 1.
        widening: For submissions in groups, the number of submissions divided by the effective number of independent
            submissions.

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
    size, quantile = size / widening, student_quantile(submissions - 1, level)
    low, high = rate_difference_limits(up * size, down * size, size, quantile)
    return Estimate(up - down, low, high, submissions)


Matrix = NDArray[np.float64]
Weighting = Literal["nominal", "linear", "quadratic"]
"""The distance of two different levels: 1 (`nominal`), the difference of their values (`linear`), or its square."""


def level_distances(values: Sequence[float], weighting: Weighting = "quadratic") -> Matrix:
    """Compute the distance of each pair of levels from their values.

    Args:
        values: The value of each level. Only their number is used for `nominal`.
        weighting: The distance of two different levels: 1 (`nominal`), the difference of their values (`linear`), or
            its square (`quadratic`).

    Example:
        >>> level_distances([0, 0.5, 1]).tolist()
        [[0.0, 0.25, 1.0], [0.25, 0.0, 0.25], [1.0, 0.25, 0.0]]
    """
    if weighting == "nominal":
        return 1.0 - np.eye(len(values))
    differences = np.abs(np.subtract.outer(np.asarray(values, float), np.asarray(values, float)))
    return differences if weighting == "linear" else differences**2


def cohen_kappa(confusion: Any, distances: Any, level: float = 0.95) -> Estimate:
    """Compute Cohen's weighted kappa with its interval. Undefined if only one level occurs.

    `kappa = 1 - sum(P D) / sum(p. .p D)`, where the sums are over the cells of the table. P is the share of the
    judgments in a cell, and D is the distance of its two levels. p. and .p are the marginal shares of its row and of
    its column. To compute the interval, 1/k is added to each cell, where k is the number of levels. The standard error
    is for large samples (Fleiss, Cohen and Everitt 1969).

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
    half = normal_quantile(level) * _kappa_error(smoothed, apart, center)
    return Estimate(value, max(-1.0, center - half), min(1.0, center + half), n)


def gwet_ac1(confusion: Any) -> float | None:
    """Compute Gwet's AC1 (Gwet 2008), which is useful if nearly all answers are equal. None for an empty table.

    The chance agreement is `pe = sum pi (1 - pi) / (q - 1)`, where pi is the mean of both marginal shares of a level,
    and q is the number of levels.

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
    """Compute Fleiss' kappa of several raters (Fleiss 1971). None if all answers are equal, or without a unit.

    Args:
        units: The indices of the levels that the raters of each unit gave. All units have the same number of raters, at
            least two.
        levels: The number of levels.

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
    """Compute Krippendorff's alpha of several raters, also with missing answers (Krippendorff 2011).

    None if all answers are equal, or if no unit has two answers.

    Args:
        units: The indices of the levels that the raters of each unit gave. A unit with fewer than two answers is left
            out.
        distances: The distance of each pair of levels.

    Example:
        >>> krippendorff_alpha([[0, 0], [1, 1], [0, 0, 0]], level_distances([0, 1]))
        1.0
    """
    apart = np.asarray(distances, float)
    pairs = np.zeros_like(apart)
    for unit in units:
        if len(unit) >= 2:
            pairs += _pairs_of(unit, len(apart))
    return alpha_of_pairs(pairs, apart)


def alpha_of_pairs(pairs: Matrix, apart: Matrix) -> float | None:
    """Compute Krippendorff's alpha from a table of pairs of answers.

    Args:
        pairs: The number of pairs of answers, summed over the units. A pair of a unit with m answers counts 1 / (m -
            1). The rows are the levels of the first answer of a pair, and the columns are the levels of the second
            answer.
        apart: The distance of each pair of levels.

    Returns:
        Alpha, or None without a pair or if all answers are equal.
    """
    totals = pairs.sum(axis=1)
    by_chance = float((np.outer(totals, totals) * apart).sum())
    return None if by_chance == 0 else 1 - (float(totals.sum()) - 1) * float((pairs * apart).sum()) / by_chance


def alpha_limits(
    units: Sequence[Sequence[int]], distances: Any, groups: Sequence[int] | None = None, level: float = 0.95
) -> tuple[float, float] | None:
    """Compute the limits of Krippendorff's alpha by the jackknife over units, or over their groups.

    Limits of 95 % contain the true alpha in 93 to 95 % of simulated samples of independent units, and in 86 to 95 % of
    samples of 10 groups or more. With 5 groups, they contain it in 74 to 80 % (`benchmarks/coverage.py`).

    Args:
        units: The indices of the levels that the raters of each unit gave.
        distances: The distance of each pair of levels.
        groups: The group of each unit, or None if the units are independent.
        level: The confidence level of the interval, between 0 and 1.

    Returns:
        The limits. None if fewer than three units (or groups) have two or more answers, or if alpha is undefined. Also
        None if alpha becomes undefined when one unit (or group) is left out.
    """
    apart = np.asarray(distances, float)
    parts: dict[int, Matrix] = {}
    for place, unit in enumerate(units):
        if len(unit) >= 2:
            key = place if groups is None else int(groups[place])
            parts[key] = parts.get(key, 0) + _pairs_of(unit, len(apart))
    total = sum(parts.values(), np.zeros_like(apart))
    without = [alpha_of_pairs(total - part, apart) for part in parts.values()]
    alpha, known = alpha_of_pairs(total, apart), [value for value in without if value is not None]
    count = len(known)
    if alpha is None or count < max(3, len(without)):
        return None
    error = math.sqrt((count - 1) * float(np.var(known)))
    half = student_quantile(count - 1, level) * error
    return max(-1.0, alpha - half), min(1.0, alpha + half)


def _pairs_of(unit: Sequence[int], levels: int) -> Matrix:
    """Return the counts of ordered pairs of levels in a unit, where each rater has the total weight 1."""
    counts = np.bincount(unit, minlength=levels).astype(float)
    return (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)


def _kappa(counts: Matrix, distances: Matrix) -> float | None:
    shares = counts / counts.sum()
    by_chance = float((np.outer(shares.sum(axis=1), shares.sum(axis=0)) * distances).sum())
    return None if by_chance == 0 else 1 - float((shares * distances).sum()) / by_chance


def _kappa_error(counts: Matrix, distances: Matrix, kappa: float) -> float:
    n = float(counts.sum())
    shares = counts / n
    people, judge = shares.sum(axis=1), shares.sum(axis=0)
    agreement = 1 - distances / distances.max()
    by_chance = float(people @ agreement @ judge)
    of_people, of_judge = agreement @ judge, people @ agreement
    terms = agreement - np.add.outer(of_people, of_judge) * (1 - kappa)
    variance = float((shares * terms**2).sum()) - (kappa - by_chance * (1 - kappa)) ** 2
    return math.sqrt(max(0.0, variance) / n) / (1 - by_chance)


class OrderedAgreement(NamedTuple):
    """Errors, correlations and distribution distances between the judge's values and the annotators' values.

    Attributes:
        mae: The mean absolute difference.
        rmse: The square root of the mean squared difference.
        pearson: Pearson's correlation of the values. None if all values of one side are equal.
        spearman: Spearman's rank correlation. None if all values of one side are equal.
        kendall: Kendall's rank correlation (tau-b). None if all values of one side are equal.
        emd: The earth mover's distance (Wasserstein-1) between the two distributions, in the unit of the values. It
            ignores which submission has which value: it is 0 if the judge gives each value as often as the annotators.
            It is at most `mae`.
        ks: The Kolmogorov-Smirnov distance between the two distributions, in [0, 1]: the largest difference between
            their cumulative shares.
    """

    mae: float
    rmse: float
    pearson: float | None
    spearman: float | None
    kendall: float | None
    emd: float
    ks: float


def compare_values(people: Sequence[float], judge: Sequence[float]) -> OrderedAgreement | None:
    """Compare the paired values of annotators and the judge, or return None without a pair.

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
    # Scores are sums of floats. Two scores that differ only by a rounding error are one point.
    y, f = (np.sort(np.round(values, 12)) for values in (y, f))
    points = np.concatenate([y, f])
    up_to = [np.searchsorted(values, points, side="right") / len(values) for values in (y, f)]
    return float(np.abs(up_to[0] - up_to[1]).max())


def _ranks(values: Any) -> Any:
    """Return the ranks of values, from 0. Equal values get the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[inverse]


def _correlation(y: Any, f: Any) -> float | None:
    y_apart, f_apart = y - y.mean(), f - f.mean()
    spread = math.sqrt(float(y_apart @ y_apart) * float(f_apart @ f_apart))
    return float(y_apart @ f_apart) / spread if spread > ROUNDING * len(y) else None


def _tau_b(y: Any, f: Any) -> float | None:
    """Compute Kendall's tau-b from the table of both rankings, in time quadratic in the number of distinct values."""
    _, rows = np.unique(y, return_inverse=True)
    _, columns = np.unique(f, return_inverse=True)
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    # The number of values that follow each cell in both rankings, and in only one ranking.
    after = table[::-1, ::-1].cumsum(0).cumsum(1)[::-1, ::-1]
    before = table[::-1].cumsum(0).cumsum(1)[::-1]
    concordant = float((table[:-1, :-1] * after[1:, 1:]).sum()) if table.size else 0.0
    discordant = float((table[:-1, 1:] * before[1:, :-1]).sum()) if table.size else 0.0
    pairs = len(y) * (len(y) - 1) / 2
    tied_y, tied_f = (float((sums * (sums - 1) / 2).sum()) for sums in (table.sum(1), table.sum(0)))
    divisor = math.sqrt((pairs - tied_y) * (pairs - tied_f))
    return (concordant - discordant) / divisor if divisor else None
