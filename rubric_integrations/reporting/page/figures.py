"""Computes the figures of the report page: the summary of a run, points lost per criterion, and two runs compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.reporting.page.loading import GradedRow, RunFile
from rubric_integrations.reporting.page.statistics import Mean, mean_with_interval, sign_flip_p_value
from rubric_integrations.results.report import CriterionReport
from rubric_integrations.results.usage import total_spend


class Summary(NamedTuple):
    """The figures of one run.

    Attributes:
        submissions: The number of submissions.
        score: The mean score of the complete grades; None if there is none.
        passed: The number of submissions that passed.
        graded: The number of complete grades.
        coverage: The mean coverage, in [0, 1]; None without a report.
        abstained: The number of criteria that a judge could not assess.
        failed: The number of submissions without a valid grade.
        calls: The number of calls to models.
        tokens: Tokens sent and received; None where a call did not report them.
        cost: US dollars; None where the price of a call is unknown.
    """

    submissions: int
    score: Mean | None
    passed: int
    graded: int
    coverage: float | None
    abstained: int
    failed: int
    calls: int
    tokens: int | None
    cost: float | None


class CriterionFigures(NamedTuple):
    """The figures of one criterion over a run.

    Attributes:
        name: The criterion's name.
        requirement: The criterion's text.
        weight: The weight, negative for a penalty.
        required: Whether a submission must fulfil it to pass.
        lost: Points lost per submission, on average over the submissions with an answer.
        worst: The most points that can be lost: the absolute weight.
        met, partly, unmet: The number of answers that are fully, partly and not at all as the author wants.
        abstained, failed, open: The number of missing answers: the judge could not tell, failed, or got no request.
        inapplicable: The number of submissions to which the criterion does not apply.
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
    inapplicable: int


class Comparison(NamedTuple):
    """Two runs compared on the submissions that both have scored.

    Attributes:
        pairs: The number of such submissions.
        difference: The second run's mean minus the first run's, with its interval.
        p_value: The probability of a difference at least this large if the runs were equally good.
        better, worse, same: The number of scores that rose, fell and stayed the same.
        flips: The number of criteria whose answer changed, among those with an answer in both runs.
    """

    pairs: int
    difference: Mean
    p_value: float | None
    better: int
    worse: int
    same: int
    flips: int


def summarize(rows: Sequence[GradedRow]) -> Summary:
    """Compute the figures of one run."""
    reports = [row.report for row in rows if row.report]
    complete = [row.report for row in rows if row.report and row.is_graded]
    scores = [report.score for report in complete if report.score is not None]
    spend = total_spend(report.spend for report in reports)
    return Summary(
        submissions=len(rows),
        score=mean_with_interval(scores) if scores else None,
        passed=sum(report.passed for report in complete),
        graded=len(complete),
        coverage=math.fsum(report.coverage for report in reports) / len(reports) if reports else None,
        abstained=sum(report.cannot_assess_count for report in reports),
        failed=sum(not row.is_graded for row in rows),
        calls=spend.calls,
        tokens=spend.total_tokens,
        cost=spend.cost,
    )


def desirability(row: CriterionReport) -> float | None:
    """Rate an answer from 0 to 1, where 1 is what the rubric's author wants, also for a penalty; None without one."""
    if row.value is None or row.error:
        return None
    return 1.0 - row.value if row.weight < 0 else row.value


def criterion_figures(run: RunFile) -> list[CriterionFigures]:
    """Compute the figures of each criterion, those that lost most points first."""
    by_key: dict[tuple[str, str], list[CriterionReport]] = {}
    for row in run.rows:
        for criterion in row.report.criteria if row.report else ():
            by_key.setdefault((criterion.name, criterion.requirement), []).append(criterion)
    figures = [_figures_of(rows) for rows in by_key.values()]
    return sorted(figures, key=lambda criterion: -criterion.lost)


def _figures_of(rows: Sequence[CriterionReport]) -> CriterionFigures:
    rated = [(row, value) for row in rows if (value := desirability(row)) is not None]
    values = [value for _, value in rated]
    lost = math.fsum(abs(row.weight) * (1 - value) for row, value in rated)
    return CriterionFigures(
        name=rows[0].name,
        requirement=rows[0].requirement,
        weight=rows[0].weight,
        required=rows[0].required,
        lost=lost / len(rated) if rated else 0.0,
        worst=max(abs(row.weight) for row in rows),
        met=sum(value == 1 for value in values),
        partly=sum(0 < value < 1 for value in values),
        unmet=sum(value == 0 for value in values),
        abstained=sum(row.abstained for row in rows),
        failed=sum(row.error is not None for row in rows),
        open=sum(not row.was_asked for row in rows),
        inapplicable=sum(row.not_applicable for row in rows),
    )


def compare(first: RunFile, second: RunFile) -> Comparison | None:
    """Compare two runs submission by submission; None if no submission is scored in both.

    Rows are matched by id, and those with an equal id in their order.
    """
    second_by_key = second.rows_by_key()
    differences: list[float] = []
    flips = 0
    for key, row in first.rows_by_key().items():
        other = second_by_key.get(key)
        if other is None or not row.report or not other.report:
            continue
        before = {criterion.name: criterion.verdict for criterion in row.report.criteria}
        after = {criterion.name: criterion.verdict for criterion in other.report.criteria}
        flips += sum(None not in (old := before.get(name), new) and old != new for name, new in after.items())
        if row.report.score is not None and other.report.score is not None:
            differences.append(other.report.score - row.report.score)
    if not differences:
        return None
    # Scores are sums of floats: a difference of this size is rounding.
    rounding = 1e-9
    return Comparison(
        pairs=len(differences),
        difference=mean_with_interval(differences),
        p_value=sign_flip_p_value(differences),
        better=sum(difference > rounding for difference in differences),
        worse=sum(difference < -rounding for difference in differences),
        same=sum(abs(difference) <= rounding for difference in differences),
        flips=flips,
    )
