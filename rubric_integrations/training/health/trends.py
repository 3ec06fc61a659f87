"""What changes between the first and the last third of a training run, with intervals and p-values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rubric_integrations.agreement.intervals import ROUNDING, special, student_quantile
from rubric_integrations.results.estimate import Estimate

# Student's interval of fewer independent groups is too narrow, or says nothing.
FEWEST_GROUPS = 5
# With fewer prompts, each group of each step counts as independent.
_FEWEST_PROMPTS = 20

UNIT = (0.0, 1.0)
DIFFERENCE = (-1.0, 1.0)


class Trend(NamedTuple):
    """A figure in the first and in the last third of the steps.

    Attributes:
        first: Its mean in the first third; None without a value there.
        last: Its mean in the last third.
        change: The last one minus the first one. Completions of one prompt depend on each other, and its interval
            allows for it. There is no interval if a third has fewer than five groups of completions.
        p_value: The two-sided p-value of the change; None if there is no interval.
    """

    first: float | None
    last: float | None
    change: Estimate
    p_value: float | None

    @property
    def text(self) -> str:
        """The change in words, such as `0.20 in the first third and 0.90 in the last (+0.70 [0.61, 0.79])`."""
        if self.first is None or self.last is None or self.change.value is None:
            return "undefined"
        limits = ""
        if self.change.low is not None and self.change.high is not None:
            limits = f" [{_brief(self.change.low)}, {_brief(self.change.high)}]"
        change = f"{'+' if self.change.value >= 0 else ''}{_brief(self.change.value)}{limits}"
        return f"{_brief(self.first)} in the first third and {_brief(self.last)} in the last ({change})"


class Thirds(NamedTuple):
    """To which third of the steps, and to which cluster, each completion belongs.

    Attributes:
        first: Whether a completion is in the first third of the steps, as an array.
        last: Whether it is in the last third; that of a run with one step is empty.
        clusters: The number of the group of completions that depend on each other.
    """

    first: Any
    last: Any
    clusters: Any

    def at(self, places: Any) -> Thirds:
        """Return the thirds of some of the completions."""
        return Thirds(self.first[places], self.last[places], self.clusters[places])


def divide(steps: Any, prompts: Any, groups: Any) -> Thirds:
    """Divide completions into thirds of the steps.

    Args:
        steps: The number of the step of each completion, from 0 and without gaps.
        prompts: The number of its prompt.
        groups: The number of its group, which are the completions of one prompt in one step.
    """
    count = int(steps.max()) + 1
    size = max(1, count // 3)
    first, last = steps < size, (steps >= count - size) & (steps >= size)
    # Completions of one prompt in both thirds are a pair. Too few prompts do not tell how much prompts differ.
    fewest = min(len(np.unique(prompts[first])), len(np.unique(prompts[last])))
    return Thirds(first, last, prompts if fewest >= _FEWEST_PROMPTS else groups)


def measure_trend(values: Any, thirds: Thirds, level: float, bounds: tuple[float, float] | None = None) -> Trend:
    """Compare the mean of a figure in both thirds.

    The variance is that of sums over clusters, so that a prompt with completions in both thirds is compared with
    itself. For rates, and if all values of a third are equal, each third gets two more clusters, one at either bound
    (Agresti and Caffo 2000): the interval then has a width also if nothing varies.

    Args:
        values: The figure of each completion; NaN if it has none.
        thirds: Where the completions belong.
        level: The level of the interval.
        bounds: The least and the greatest possible value; None if there are no bounds.
    """
    has_value = ~np.isnan(values)
    parts: list[tuple[Any, Any]] = []
    for is_in in (thirds.first, thirds.last):
        chosen = is_in & has_value
        parts.append((values[chosen], thirds.clusters[chosen]))
    total = sum(len(of_third) for of_third, _ in parts)
    first, last = (float(of_third.mean()) if len(of_third) else None for of_third, _ in parts)
    if first is None or last is None:
        return Trend(first, last, Estimate(None, None, None, total), None)
    change = last - first
    interval = _interval(parts, bounds, level)
    if interval is None:
        return Trend(first, last, Estimate(change, None, None, total), None)
    center, half, p_value = interval
    widest = math.inf if bounds is None else bounds[1] - bounds[0]
    low, high = max(-widest, min(center - half, change)), min(widest, max(center + half, change))
    return Trend(first, last, Estimate(change, low, high, total), p_value)


def measure_shortfall(judge: Any, second: Any, thirds: Thirds, level: float) -> tuple[Estimate, float | None]:
    """Estimate how far a second judge falls short of what its agreement with the judge predicts, and a p-value.

    A second judge that errs rises by less than the judge does even if a policy improves honestly. Therefore its scores
    are regressed on those of the judge and on the third of the steps: the result is the effect of the last third, with
    the sign changed. Its variance is that of sums over clusters. It is undefined if the judge's scores do not vary
    within the thirds, and has no interval for fewer than five clusters in a third.

    Args:
        judge: The scores of the judge; NaN outside of the sample.
        second: Those of the second judge.
        thirds: Where the completions belong.
        level: The level of the interval.
    """
    chosen = (thirds.first | thirds.last) & ~np.isnan(judge)
    x, y, is_last, clusters = judge[chosen], second[chosen], thirds.last[chosen], thirds.clusters[chosen]
    undefined = Estimate(None, None, None, len(x)), None
    counts = [len(np.unique(clusters[is_in])) for is_in in (~is_last, is_last)]
    if not all(counts):
        return undefined
    sizes = np.where(is_last, is_last.sum(), -(~is_last).sum())
    x_rise, y_rise = float((x / sizes).sum()), float((y / sizes).sum())
    x_apart, y_apart = (
        values - np.where(is_last, values[is_last].mean(), values[~is_last].mean()) for values in (x, y)
    )
    spread = float(x_apart @ x_apart)
    if spread <= ROUNDING * len(x):
        return undefined
    slope = float(x_apart @ y_apart) / spread
    shortfall = slope * x_rise - y_rise
    residuals = y_apart - slope * x_apart
    influences = x_rise * x_apart * residuals / spread - residuals / sizes
    sums = np.bincount(np.unique(clusters, return_inverse=True)[1], influences)
    fewest = min(counts)
    if fewest < FEWEST_GROUPS:
        return Estimate(shortfall, None, None, len(x)), None
    variance = float(sums @ sums)
    if any(np.ptp(residuals[is_in]) <= ROUNDING for is_in in (~is_last, is_last)):
        # As for other changes: a cluster more at either bound, for judges that differ in nothing but the last third.
        variance += sum(2 / (count + 2) ** 2 for count in counts)
    variance *= fewest / (fewest - 1)
    error = math.sqrt(variance)
    half = student_quantile(fewest - 1, level) * error
    p_value = 2 * float(special().stdtr(fewest - 1, -abs(shortfall) / error))
    return Estimate(shortfall, shortfall - half, shortfall + half, len(x)), p_value


def _interval(
    parts: list[tuple[Any, Any]], bounds: tuple[float, float] | None, level: float
) -> tuple[float, float, float] | None:
    """Return the center and half the width of the interval of a change, and its p-value; None without an interval."""
    numbers, clusters = np.unique(np.concatenate([of_third for _, of_third in parts]), return_inverse=True)
    sums, variance, center, fewest = np.zeros(len(numbers)), 0.0, 0.0, math.inf
    if bounds and not _need_bounds([of_third for of_third, _ in parts], bounds):
        bounds = None
    start = 0
    for sign, (values, of_third) in zip((-1.0, 1.0), parts, strict=True):
        places = clusters[start : start + len(of_third)]
        start += len(of_third)
        count = len(np.unique(places))
        fewest = min(fewest, count)
        added = 0.0 if bounds is None else len(values) / count
        size = len(values) + 2 * added
        mean = (float(values.sum()) + added * sum(bounds or (0.0, 0.0))) / size
        sums += sign * np.bincount(places, (values - mean) / size, len(numbers))
        variance += sum((added * (bound - mean) / size) ** 2 for bound in bounds or ())
        center += sign * mean
    if fewest < FEWEST_GROUPS:
        return None
    variance = (variance + float(sums @ sums)) * fewest / (fewest - 1)
    if variance <= (ROUNDING * max(1.0, *(float(np.abs(values).max()) for values, _ in parts))) ** 2:
        return None
    freedom, error = int(fewest) - 1 + (2 if bounds else 0), math.sqrt(variance)
    p_value = 2 * float(special().stdtr(freedom, -abs(center) / error))
    return center, student_quantile(freedom, level) * error, p_value


def _need_bounds(of_thirds: list[Any], bounds: tuple[float, float]) -> bool:
    """Whether the values are rates, or those of a third do not vary, so that their spread says too little."""
    are_rates = all(bool(((values == bounds[0]) | (values == bounds[1])).all()) for values in of_thirds)
    return are_rates or any(np.ptp(values) <= ROUNDING for values in of_thirds)


def _brief(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
