"""What a run comes to: means with their uncertainty, what each criterion cost, and two runs compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rubric_integrations.reporting.page.loading import GradedRow, RunFile
from rubric_integrations.results.report import CriterionReport

_RESAMPLES = 9_999


class Mean(NamedTuple):
    """A mean and its 95 % bootstrap interval; None where fewer than two scores tell nothing of their spread."""

    mean: float
    low: float | None
    high: float | None


class CriterionFigures(NamedTuple):
    """One criterion over a run.

    Attributes:
        lost: Points lost a submission, on average over those with an answer.
        worst: The most that can be lost: the weight without its sign.
        met: How many answers hold fully; `unmet` not at all; `partly` in between.
        abstained, failed, open: How many have no value, and why: the judge could not tell, failed, or was not asked.
    """

    name: str
    requirement: str
    weight: float
    required: bool
    lost: float
    worst: float
    met: int
    partly: int
    unmet: int
    abstained: int
    failed: int
    open: int


class Comparison(NamedTuple):
    """Two runs on the submissions that both have scored.

    Attributes:
        pairs: How many those are.
        difference: The second run's mean less the first's, with its interval.
        p_value: The chance of a difference as large if the runs were the same: a sign-flip permutation test, two-sided.
        better, worse, same: How many scores rose, fell and stayed.
        flips: Answers of criteria that changed, where both runs have one.
    """

    pairs: int
    difference: Mean
    p_value: float | None
    better: int
    worse: int
    same: int
    flips: int


class Summary(NamedTuple):
    """A run in one line."""

    submissions: int
    score: Mean | None
    passed: int
    graded: int
    coverage: float | None
    abstained: int
    failed: int
    calls: int
    tokens: int
    cost: float | None


def mean_with_interval(scores: Sequence[float]) -> Mean:
    """The mean, and the interval of its bootstrap distribution (Efron's BCa, 9,999 resamples, a fixed seed)."""
    mean = math.fsum(scores) / len(scores)
    if len(scores) < 2 or min(scores) == max(scores):
        return Mean(mean, None, None)
    stats, np = _scipy()
    found = stats.bootstrap(
        (scores,), np.mean, n_resamples=_RESAMPLES, rng=np.random.default_rng(0)
    ).confidence_interval
    low, high = float(found.low), float(found.high)
    return Mean(mean, low, high) if math.isfinite(low) and math.isfinite(high) else Mean(mean, None, None)


def summarize(rows: Sequence[GradedRow]) -> Summary:
    """All that the page's first line says."""
    reports = [row.report for row in rows if row.report]
    complete = [row.report for row in rows if row.report and row.is_graded]
    scores = [report.score for report in complete if report.score is not None]
    costs = [report.cost for report in reports]
    return Summary(
        submissions=len(rows),
        score=mean_with_interval(scores) if scores else None,
        passed=sum(report.passed for report in complete),
        graded=len(complete),
        coverage=math.fsum(report.coverage for report in reports) / len(reports) if reports else None,
        abstained=sum(report.cannot_assess_count for report in reports),
        failed=sum(not row.is_graded for row in rows),
        calls=sum(report.spend.calls for report in reports),
        tokens=sum(report.token_usage.total_tokens for report in reports),
        cost=None if None in costs else math.fsum(cost for cost in costs if cost is not None),
    )


def goodness(row: CriterionReport) -> float | None:
    """An answer's value from the good end: 1 is as the author wants it, for penalties too."""
    if row.value is None or row.error:
        return None
    return 1.0 - row.value if row.weight < 0 else row.value


def criterion_figures(run: RunFile) -> list[CriterionFigures]:
    """Each criterion over a run, those that cost most first."""
    by_key: dict[tuple[str, str], list[CriterionReport]] = {}
    for row in run.rows:
        for criterion in row.report.criteria if row.report else ():
            by_key.setdefault((criterion.name, criterion.requirement), []).append(criterion)
    found: list[CriterionFigures] = []
    for (name, requirement), rows in by_key.items():
        good = [value for value in map(goodness, rows) if value is not None]
        worst = max(abs(row.weight) for row in rows)
        lost = math.fsum(abs(row.weight) * (1 - g) for row in rows if (g := goodness(row)) is not None)
        found.append(
            CriterionFigures(
                name=name,
                requirement=requirement,
                weight=rows[0].weight,
                required=rows[0].required,
                lost=lost / len(good) if good else 0.0,
                worst=worst,
                met=sum(value == 1 for value in good),
                partly=sum(0 < value < 1 for value in good),
                unmet=sum(value == 0 for value in good),
                abstained=sum(row.value is None and not row.error and row.was_asked for row in rows),
                failed=sum(row.error is not None for row in rows),
                open=sum(not row.was_asked for row in rows),
            )
        )
    return sorted(found, key=lambda figures: -figures.lost)


def compare(first: RunFile, second: RunFile) -> Comparison | None:
    """Two runs, submission by submission; None where no submission is scored in both."""
    theirs = {row.id: row for row in second.rows}
    differences: list[float] = []
    flips = 0
    for row in first.rows:
        other = theirs.get(row.id)
        if other is None or not row.report or not other.report:
            continue
        answers = {criterion.name: criterion.verdict for criterion in row.report.criteria}
        flips += sum(
            None not in (c.verdict, was := answers.get(c.name)) and c.verdict != was for c in other.report.criteria
        )
        if row.report.score is not None and other.report.score is not None:
            differences.append(other.report.score - row.report.score)
    if not differences:
        return None
    return Comparison(
        pairs=len(differences),
        difference=mean_with_interval(differences),
        p_value=_p_value(differences),
        better=sum(difference > 1e-9 for difference in differences),
        worse=sum(difference < -1e-9 for difference in differences),
        same=sum(abs(difference) <= 1e-9 for difference in differences),
        flips=flips,
    )


def _p_value(differences: Sequence[float]) -> float | None:
    if len(differences) < 2:
        return None
    stats, np = _scipy()
    found = stats.permutation_test(
        (np.asarray(differences),), np.mean, permutation_type="samples", n_resamples=_RESAMPLES,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(found.pvalue)


def _scipy() -> tuple[Any, Any]:
    try:
        import numpy as np
        from scipy import stats
    except ImportError:
        raise ImportError("a report's intervals need scipy: pip install 'rubric-integrations[report]'") from None
    return stats, np
