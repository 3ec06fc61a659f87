"""The figures of a training run by step, and the trend of each criterion."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from rubric_integrations.agreement.intervals import ROUNDING, difference_p_value, estimate_difference
from rubric_integrations.results.estimate import Estimate
from rubric_integrations.training.health.columns import Columns, CriterionColumn
from rubric_integrations.training.health.result import CriterionTrend, StepFigures
from rubric_integrations.training.health.rollout_scores import CriterionKey
from rubric_integrations.training.health.trends import DIFFERENCE, FEWEST_GROUPS, UNIT, Trend, measure_trend

_MOST_STEPS = 20


def step_figures(columns: Columns, judge: Any, second: Any) -> tuple[StepFigures, ...]:
    """Return the figures by step, of which those of a long run are joined.

    Args:
        columns: The completions.
        judge: The score of each completion by its judge, where a second judge has graded it; NaN elsewhere.
        second: The score by the second judge.
    """
    names = columns.names()
    joined = np.array_split(np.arange(len(columns.step_numbers)), min(_MOST_STEPS, len(columns.step_numbers)))
    number_of = np.concatenate([np.full(len(part), number) for number, part in enumerate(joined)])
    numbers = number_of[columns.steps]
    of_criteria = {
        names[key]: _means(column.scores, numbers[column.places], len(joined))
        for key, column in columns.criteria.items()
    }
    series = {
        name: _means(values, numbers, len(joined))
        for name, values in (
            ("reward", columns.rewards), ("words", columns.words), ("length_correlation", columns.correlations),
            ("coverage", columns.coverage), ("abstained", columns.abstained), ("failed", columns.failed),
            ("ungraded", columns.ungraded), ("equal_groups", columns.equal_groups), ("judge", judge),
            ("second", second),
        )
    }  # fmt: skip
    return tuple(
        StepFigures(
            first=columns.step_numbers[part[0]],
            last=columns.step_numbers[part[-1]],
            completions=int((numbers == number).sum()),
            reward_error=_standard_error(columns, numbers == number),
            criteria={name: values[number] for name, values in of_criteria.items()},
            **{name: values[number] for name, values in series.items()},
        )
        for number, part in enumerate(joined)
    )


def length_correlation(columns: Columns, level: float) -> tuple[Estimate, float | None]:
    """Return the mean rank correlation of length and reward within groups, and its p-value.

    It is undefined without groups, and has neither an interval nor a p-value for fewer than five independent ones.
    """
    has_value = ~np.isnan(columns.correlations)
    if not has_value.any():
        return Estimate(None, None, None, 0), None
    _, places = np.unique(columns.thirds.clusters[has_value], return_inverse=True)
    means: list[float] = (np.bincount(places, columns.correlations[has_value]) / np.bincount(places)).tolist()
    estimate = estimate_difference(means, level)
    if len(means) < FEWEST_GROUPS or estimate.low is None or estimate.high is None:
        return estimate._replace(low=None, high=None), None
    estimate = estimate._replace(low=max(-1.0, estimate.low), high=min(1.0, estimate.high))
    return estimate, difference_p_value(means)


def criterion_trends(columns: Columns, has_risen: bool, level: float) -> dict[str, CriterionTrend]:
    """Return the trend of each criterion.

    Args:
        columns: The completions.
        has_risen: Whether the reward has surely risen.
        level: The level of the intervals.
    """
    names = columns.names()
    totals, weights = np.zeros(len(columns.steps)), np.zeros(len(columns.steps))
    for column in columns.criteria.values():
        decided = ~np.isnan(column.scores)
        totals[column.places[decided]] += abs(column.weight) * column.scores[decided]
        weights[column.places[decided]] += abs(column.weight)
    scores = {
        key: measure_trend(column.scores, columns.thirds.at(column.places), level, UNIT)
        for key, column in columns.criteria.items()
    }
    gains = {
        key: abs(columns.criteria[key].weight) * trend.change.value
        for key, trend in scores.items()
        if trend.change.value is not None
    }
    gain = math.fsum(gains.values())
    shares = {key: of_key / gain for key, of_key in gains.items()} if has_risen and gain > 0 else {}
    return {
        names[key]: _criterion_trend(columns, key, scores[key], shares.get(key), totals, weights, level)
        for key in columns.criteria
    }


def _criterion_trend(
    columns: Columns, key: CriterionKey, score: Trend, explains: float | None, totals: Any, weights: Any, level: float
) -> CriterionTrend:
    column = columns.criteria[key]
    thirds, weight = columns.thirds.at(column.places), abs(column.weight)
    others = weights[column.places] - weight
    others[others <= ROUNDING * weight] = math.nan
    leads = column.scores - (totals[column.places] - weight * column.scores) / others
    abstained = np.isnan(column.scores).astype(float)
    return CriterionTrend(
        requirement=column.requirement,
        weight=column.weight,
        score=score,
        lead=None if np.isnan(leads).all() else measure_trend(leads, thirds, level, DIFFERENCE),
        explains=explains,
        abstained=measure_trend(abstained, thirds, level, UNIT),
        saturated=_saturated(column, columns),
    )


def _saturated(column: CriterionColumn, columns: Columns) -> Literal["fulfilled", "unfulfilled"] | None:
    """Return whether all completions of the last third fulfil a criterion, or none does; None if they are few."""
    is_last = columns.thirds.last[column.places] & ~np.isnan(column.scores)
    if len(np.unique(columns.groups[column.places[is_last]])) < FEWEST_GROUPS:
        return None
    scores = column.scores[is_last]
    return "fulfilled" if scores.min() == 1 else "unfulfilled" if scores.max() == 0 else None


def _means(values: Any, numbers: Any, count: int) -> list[float | None]:
    has_value = ~np.isnan(values)
    counts = np.bincount(numbers[has_value], minlength=count)
    sums = np.bincount(numbers[has_value], values[has_value], minlength=count)
    return [float(total / number) if number else None for total, number in zip(sums, counts, strict=True)]


def _standard_error(columns: Columns, chosen: Any) -> float | None:
    """Return the standard error of a mean reward, of which each group is one observation."""
    chosen = chosen & ~np.isnan(columns.rewards)
    _, places = np.unique(columns.groups[chosen], return_inverse=True)
    count = int(places.max()) + 1 if len(places) else 0
    if count < 2:
        return None
    rewards = columns.rewards[chosen]
    sums = np.bincount(places, rewards - rewards.mean())
    return math.sqrt(float(sums @ sums) * count / (count - 1)) / len(rewards)
