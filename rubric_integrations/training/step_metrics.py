"""What a training step logs about its grades: the same metrics and columns in every process, whatever has failed.

All processes of a trainer gather their metrics together, one after the other by name. A process that left one out would
hang the others, or its numbers would count for another metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.training.rollouts import Rollout

FIXED_METRICS = ("failed", "empty", "coverage", "passed", "informative_criteria")


def metrics_of(rollouts: Sequence[Rollout], shared: Rubric | None) -> dict[str, float]:
    """Return the metrics of a step by name, all of them in every step; NaN for a mean of nothing.

    Args:
        rollouts: The completions of the step, those of a group side by side.
        shared: The rubric of all rows, whose criteria are metrics; None if each row brings its own.
    """
    reports = [rollout.graded.report for rollout in rollouts if not rollout.failure]
    graded = [report for report in reports if report is not None]
    scores = [rollout.scores for rollout in rollouts]
    metrics = {
        "failed": _mean(rollout.failure is not None for rollout in rollouts),
        "empty": _mean(rollout.is_empty for rollout in rollouts),
        "coverage": _mean(report.coverage for report in graded),
        "passed": _mean(report.passed for report in graded),
        "informative_criteria": _mean(_informative(rollouts)),
    }
    for key, name in _criterion_metrics(shared):
        metrics[key] = _mean(values[name] for values in scores if name in values)
    return metrics


def columns_of(rollouts: Sequence[Rollout], shared: Rubric | None) -> Mapping[str, list[float | str | None]]:
    """Return the columns of a step's table of completions by name, with a value or None for each completion.

    Takes the arguments of `metrics_of`.
    """
    scores = [rollout.scores for rollout in rollouts]
    columns: dict[str, list[float | str | None]] = {"error": [rollout.failure for rollout in rollouts]}
    for key, name in _criterion_metrics(shared):
        columns[key] = [values.get(name) for values in scores]
    return columns


def _criterion_metrics(shared: Rubric | None) -> Iterator[tuple[str, str]]:
    """Yield the metric and the name of each criterion; the metric differs from those that every step has."""
    reserved = {*FIXED_METRICS, "error"}
    for name in shared.keys if shared else ():
        yield (f"criterion_{name}" if name in reserved else name), name


def _informative(rollouts: Iterable[Rollout]) -> Iterator[bool]:
    """Yield for each criterion of each group whether its graded completions have different scores."""
    for _, group in groupby(rollouts, key=lambda rollout: rollout.group):
        scores = [rollout.scores for rollout in group]
        for name in dict.fromkeys(name for values in scores for name in values):
            values = [completion[name] for completion in scores if name in completion]
            if len(values) > 1:
                yield max(values) > min(values)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan
