"""Estimators of a rate and of a mean, from the judge's answers to all submissions and human labels of some of them.

In the formulas, Y is the human label and F is the judge's answer. Of the N judged submissions, n are labelled.

The submissions to label may be drawn separately for each verdict of the judge. A rare verdict is then more frequent
among the labelled submissions than in the run. Therefore, each label of a submission with the verdict v has the weight
p_v / n_v. Here, p_v is the share of the verdict in the run, and n_v is the number of labels with this verdict.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.means import (
    FEWEST_GROUPS,
    UNIT,
    Floats,
    Groups,
    Values,
    in_groups,
    low_end,
    select_groups,
)
from rubric_integrations.trust.statistics import (
    ROUNDING,
    jeffreys_limits,
    normal_quantile,
    student_quantile,
)


class Stratum(NamedTuple):
    """The submissions of a run to which the judge gave the same verdict, with counts of one answer of annotators.

    The rate of this answer is estimated. CANNOT_ASSESS counts as a verdict of the judge.

    Attributes:
        judged: The number of these submissions in the run.
        labelled: The number of these submissions with a label.
        true: The number of labelled submissions to which annotators give this answer. A submission with several raters
            counts as the share of its raters who give this answer.
        assessable: The number of labelled submissions that annotators could assess, or None if they could assess all.
        trials: The effective number of independent labels of the submissions that annotators could assess. None if each
            submission has one rater.
    """

    judged: int
    labelled: int
    true: float
    assessable: float | None = None
    trials: float | None = None

    @property
    def assessed(self) -> float:
        """The number of labelled submissions that annotators could assess."""
        return self.labelled if self.assessable is None else self.assessable

    @property
    def rate(self) -> float:
        """The share of the answer among the submissions that annotators could assess. 0.5 without such a submission."""
        return self.true / self.assessed if self.assessed else 0.5

    def limits(self, level: float) -> tuple[float, float]:
        """Compute Jeffreys limits of the rate at a confidence level, or 0 and 1 without a label."""
        trials = self.assessed if self.trials is None else self.trials
        return jeffreys_limits(self.rate * trials, trials, level) if self.assessed else (0.0, 1.0)


class CorrectedMean(NamedTuple):
    """A mean score after correction with human labels.

    Attributes:
        estimate: The mean with its interval.
        weight: How much the judge's scores of the unlabelled submissions influence the mean: the slope of the
            regression of the annotators' scores on the judge's scores. With 0, they have no influence.
        assessable: The share of the submissions that annotators could assess.
    """

    estimate: Estimate
    weight: float
    assessable: float = 1.0


def corrected_rate(strata: Sequence[Stratum], level: float = 0.95) -> Estimate:
    """Correct the judge's rate of an answer with labels that were drawn at random or by the judge's verdict.

    The result is a rate among the submissions that annotators could assess. It is the weighted mean of the rates of the
    strata (Tenenbein 1970). The weight of a stratum is its estimated share of these submissions (a ratio estimator,
    Cochran 1977). The limits combine the Jeffreys limits of the strata (MOVER, Zou and Donner 2008). The rate is
    undefined if no submission is judged, labelled or assessable.

    Args:
        strata: The counts of the submissions with each verdict of the judge.
        level: The confidence level of the interval, between 0 and 1.

    Example:
        >>> print(corrected_rate([Stratum(620, 31, 27), Stratum(380, 19, 4)]))
        0.620 [0.512, 0.719] (n = 50)
        >>> print(corrected_rate([Stratum(500, 500, 450), Stratum(500, 500, 50, assessable=100)]))
        0.833 [0.802, 0.862] (n = 600)
    """
    judged, assessed = sum(stratum.judged for stratum in strata), sum(stratum.assessed for stratum in strata)
    if judged == 0 or assessed == 0:
        return Estimate(None, None, None, 0)
    shares = np.array([stratum.judged / judged for stratum in strata])
    assessable = assessable_shares(strata)
    weights = shares * assessable / (shares @ assessable)
    rates = np.array([stratum.rate for stratum in strata])
    limits = np.array([stratum.limits(level) for stratum in strata])
    rate = float(weights @ rates)
    of_shares = float(shares @ (assessable * (rates - rate)) ** 2) / judged
    if (assessable < 1).any():
        labelled = np.array([stratum.labelled for stratum in strata])
        smoothed = (np.array([stratum.assessed for stratum in strata]) + 1) / (labelled + 2)
        of_assessable = (rates - rate) ** 2 * smoothed * (1 - smoothed) / np.maximum(labelled, 1)
        of_shares += float(shares**2 @ of_assessable)
    variance = normal_quantile(level) ** 2 * of_shares / float(shares @ assessable) ** 2
    below, above = (float(weights**2 @ (rates - ends) ** 2) for ends in limits.T)
    low, high = rate - math.sqrt(below + variance), rate + math.sqrt(above + variance)
    return Estimate(rate, max(0.0, low), min(1.0, high), round(assessed))


def assessable_shares(strata: Sequence[Stratum]) -> Floats:
    """Return, for each stratum, the share of its labelled submissions that annotators could assess.

    A stratum has the submissions to which the judge gave the same verdict.

    For a stratum without a label, it is the share of the labelled submissions of all strata.
    """
    labelled = sum(stratum.labelled for stratum in strata)
    overall = sum(stratum.assessed for stratum in strata) / labelled if labelled else 1.0
    return np.array([stratum.assessed / stratum.labelled if stratum.labelled else overall for stratum in strata])


class RatedRow(NamedTuple):
    """A judgment of a run with human labels, as data to estimate the share of one answer.

    Attributes:
        row: The index of the row in the run.
        verdict: The judge's verdict.
        share: The share of raters who gave the answer, among the raters who could assess the submission.
        assessed: The share of the raters who could assess the submission.
        raters: The number of raters who could assess the submission.
    """

    row: int
    verdict: str
    share: float
    assessed: float = 1.0
    raters: int = 1


def make_strata(judged: Mapping[int, str], rated: Sequence[RatedRow]) -> dict[str, Stratum]:
    """Return the stratum of each verdict of the judge: the number of its submissions, and counts of their labels.

    Args:
        judged: The judge's verdict in each row of the run, by the index of the row.
        rated: One record for each row with labels.
    """
    by_verdict: dict[str, list[RatedRow]] = {verdict: [] for verdict in judged.values()}
    for row in rated:
        if row.verdict in by_verdict:
            by_verdict[row.verdict].append(row)
    counts = Counter(judged.values())
    return {verdict: _make_stratum(counts[verdict], rows) for verdict, rows in by_verdict.items()}


def _make_stratum(judged: int, rows: Sequence[RatedRow]) -> Stratum:
    assessed, true = (
        math.fsum(values) for values in ([r.assessed for r in rows], [r.assessed * r.share for r in rows])
    )
    trials, raters = assessed, sum(row.raters for row in rows)
    if raters > assessed > 0:
        # Several raters give more information than one rater only if they disagree about a submission.
        rate = true / assessed
        spread = math.fsum(row.assessed * (row.share - rate) ** 2 for row in rows)
        size = rate * (1 - rate) * (assessed - 1) * assessed / spread if spread > ROUNDING else assessed
        trials = min(float(raters), max(assessed, size))
    return Stratum(judged, len(rows), true, assessed, trials)


def estimate_share(
    judged: Mapping[int, str], rated: Sequence[RatedRow], level: float = 0.95, groups: Groups | None = None
) -> Estimate:
    """Estimate the share of a run's submissions to which annotators would give one answer, also for rows in groups.

    The judge's verdicts on all submissions are corrected with the human labels of some of them. Submissions that
    annotators cannot assess are not counted.

    Args:
        judged: The judge's verdict in each row of the run, by the index of the row.
        rated: One record for each row with labels.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each row of the run, or None if the rows are independent.
    """
    strata = make_strata(judged, rated)
    return _widen(corrected_rate(list(strata.values()), level), judged, rated, strata, level, groups)


def recall_by_verdict(
    judged: Mapping[int, str], rated: Sequence[RatedRow], answer: str, level: float = 0.95, groups: Groups | None = None
) -> Estimate:
    """Estimate the judge's recall of an answer from labels that were drawn by the judge's verdict.

    Among the submissions to which annotators give the answer, the recall is the share to which the judge also gives it.
    The limits combine, on a logarithmic scale, the Jeffreys limits of the answer's share for each verdict of the judge
    (MOVER). There is an interval only if the judge gives exactly two verdicts in the run, where CANNOT_ASSESS counts as
    a verdict.

    Args:
        judged: The judge's verdict in each row of the run, by the index of the row.
        rated: One record for each row with labels. Its `share` is the share of raters who gave the answer.
        answer: The answer whose recall is estimated.
        level: The confidence level of the interval, between 0 and 1.
        groups: The group of each row of the run, or None if the rows are independent.
    """
    strata = make_strata(judged, rated)
    other = [stratum for verdict, stratum in strata.items() if verdict != answer]
    own = strata.get(answer, Stratum(0, 0, 0))
    support = sum(row.share > 0 for row in rated)
    if not support or any(stratum.judged and not stratum.labelled for stratum in strata.values()):
        return Estimate(None, None, None, support)
    right, missed = own.judged * own.rate, sum(stratum.judged * stratum.rate for stratum in other)
    value = right / (right + missed)
    if len(other) != 1 or not own.labelled:
        return Estimate(value, None, None, support)
    odds, below, above = 1.0, 0.0, 0.0
    for stratum, sign in ((own, 1), (other[0], -1)):
        smoothed = (stratum.true + 0.5) / (stratum.labelled + 1)
        low, high = stratum.limits(level)
        odds *= (stratum.judged * smoothed) ** sign
        of_low, of_high = (math.inf if end == 0 else math.log(end / smoothed) ** 2 for end in (low, high))
        of_share = normal_quantile(level) ** 2 / stratum.judged
        below, above = (below + of_low, above + of_high) if sign > 0 else (below + of_high, above + of_low)
        below, above = below + of_share, above + of_share
    low, high = (odds * math.exp(sign * math.sqrt(end)) for sign, end in ((-1, below), (1, above)))
    limits = min(value, low / (1 + low)), max(value, 1.0 if math.isinf(high) else high / (1 + high))
    answered = [row._replace(share=float(row.verdict == answer), assessed=row.share * row.assessed) for row in rated]
    return _widen(Estimate(value, *limits, support), judged, answered, make_strata(judged, answered), level, groups)


def _widen(
    estimate: Estimate,
    judged: Mapping[int, str],
    rated: Sequence[RatedRow],
    strata: Mapping[str, Stratum],
    level: float,
    groups: Groups | None,
) -> Estimate:
    """Widen the interval of a ratio over strata if rows are in groups."""
    if groups is None or estimate.value is None:
        return estimate
    of_rows = select_groups(groups, list(judged))
    if of_rows is None:
        return estimate
    if len(np.unique(groups[[row.row for row in rated]])) < FEWEST_GROUPS:
        return estimate._replace(low=None, high=None)
    assessable = dict(zip(strata, assessable_shares(list(strata.values())), strict=True))
    expected = {verdict: assessable[verdict] * (stratum.rate - estimate.value) for verdict, stratum in strata.items()}
    influences = {row: expected[verdict] for row, verdict in judged.items()}
    for row in rated:
        if row.row in influences:
            stratum = strata[row.verdict]
            apart = row.assessed * (row.share - estimate.value) - expected[row.verdict]
            influences[row.row] += stratum.judged / stratum.labelled * apart
    return in_groups(estimate, list(influences.values()), of_rows, level, UNIT)


FOR_LABELS = 0.5
"""The number of imaginary labels with the worst score, for the interval of a mean that is corrected with labels.

It was selected by simulation: 95 % intervals contain the true mean in 95 % of samples. Gates use `FOR_GATE`.
"""


def labelled_mean(
    people: Sequence[float],
    places: Sequence[int],
    run: Values,
    *,
    assessed: Sequence[float] | None = None,
    level: float = 0.95,
    imaginary: float = FOR_LABELS,
    groups: Groups | None = None,
) -> CorrectedMean:
    """Correct the judge's mean score, in [0, 1], with labels of a random part of the run.

    The interval is valid for any distribution of scores. A regression of the annotators' scores on the judge's scores
    predicts the annotators' mean from the judge's mean score in the run. The result is the mean score of the
    submissions that annotators could assess (a ratio estimator). The limits are Gaffke's (see the docstring of
    `trust/means.py`). They are computed from the scores and from the residuals of the regression, with the leverage
    correction of HC3.

    Args:
        people: The scores of the labelled submissions from the annotators' answers. The value of a submission that no
            rater could assess is ignored.
        places: The index of each labelled submission in the run.
        run: The judge's score of each submission of the run.
        assessed: The share of the raters of each labelled submission who could assess it, or None if all could.
        level: The confidence level of the interval, between 0 and 1.
        imaginary: The number of imaginary labels with the worst score that are added to compute each limit:
            `FOR_LABELS` for an interval, or `FOR_GATE` for a decision by one limit.
        groups: The group of each submission of the run, or None if they are independent.

    Returns:
        The corrected mean. It has no interval with fewer than three labels, or with labels in fewer than five groups.
    """
    judge = np.asarray(run, float)
    f, n = judge[list(places)], len(places)
    d = np.ones(n) if assessed is None else np.asarray(assessed, float)
    if not d.any():
        return CorrectedMean(Estimate(None, None, None, 0), 0.0, 0.0)
    y = np.where(d > 0, np.asarray(people, float), 0.0)
    count, is_whole = int((d > 0).sum()), bool((d == 1).all())
    apart, shift = f - f.mean(), float(judge.mean() - f.mean())
    spread = float(apart @ apart)
    if spread <= ROUNDING:
        spread = 0.0

    def slope_of(values: Floats) -> float:
        slope = float((values - values.mean()) @ apart) / spread if spread else 0.0
        return min(1.0, max(0.0, slope)) if is_whole else slope

    share = float(d.mean()) + slope_of(d) * shift
    share = min(1.0, share) if share > 0 else float(d.mean())
    mean = min(1.0, max(0.0, (float((d * y).mean()) + slope_of(d * y) * shift) / share))
    # The contribution of each submission to the ratio, and its lowest and highest possible value.
    x, floor, top = mean + d * (y - mean) / share, mean - mean / share, mean + (1 - mean) / share
    weight = slope_of(x)
    if n < 3 or (groups is not None and len(np.unique(groups[list(places)])) < FEWEST_GROUPS):
        return CorrectedMean(Estimate(mean, None, None, count), weight, share)
    rest = x - x.mean() - weight * apart
    leverage = 1 / n + (apart**2 / spread if spread else 0.0)
    growth = 1 + (n * shift * apart / spread if spread else 0.0)
    rest_grown = growth * rest / (1 - np.minimum(leverage, 0.9))
    rest_grown = rest_grown - rest_grown.mean()
    ends = weight * (np.array([judge.min(), judge.max()]) - f.mean())
    lowest = min(floor - x.mean() - ends.max(), float(rest_grown.min()))
    highest = max(top - x.mean() - ends.min(), float(rest_grown.max()))
    ones, tail = np.ones(n), (1 - level) / 2
    arms = [
        math.hypot(
            math.sqrt(1 - n / len(judge)) * low_end(sign * rest_grown, ones, sign * of_rest, tail, imaginary),
            math.sqrt(n / len(judge)) * (low_end(sign * x, ones, sign * of_x, tail, imaginary) - sign * x.mean()),
        )
        for sign, of_rest, of_x in ((1, lowest, floor), (-1, highest, top))
    ]
    estimate = Estimate(mean, max(0.0, mean - arms[0]), min(1.0, mean + arms[1]), count)
    if groups is not None:
        influences = weight * (judge - judge.mean())
        influences[list(places)] += len(judge) / n * rest
        estimate = in_groups(estimate, influences, groups, level, UNIT)
    return CorrectedMean(estimate, weight, share)


def corrected_mean(
    people: Sequence[float], judge: Sequence[float], judge_mean: float, judged: int, *, level: float = 0.95
) -> CorrectedMean:
    """Correct the judge's mean score with labels of a random part of the run, for scores without bounds.

    A regression of the annotators' scores on the judge's scores predicts the annotators' mean from the judge's mean
    score in the run. The interval is Student's interval with the HC3 variance.

    Args:
        people: The scores of the labelled submissions from the annotators' answers.
        judge: The scores of the same submissions from the judge's answers.
        judge_mean: The judge's mean score of all submissions of the run.
        judged: The number of all submissions of the run.
        level: The confidence level of the interval, between 0 and 1.

    Returns:
        The corrected mean. It has no interval with fewer than three labels, or if annotators' scores are all equal.

    Raises:
        ValueError: There are more labelled submissions than submissions in the run.
    """
    y, f = np.asarray(people, float), np.asarray(judge, float)
    n = len(y)
    if n > judged:
        raise ValueError(f"raters labelled {n} submissions of {judged}: the labelled ones must be a part of the run")
    if n == 0:
        return CorrectedMean(Estimate(None, None, None, 0), 0.0)
    y_apart, f_apart = y - y.mean(), f - f.mean()
    spread, shift = float(f_apart @ f_apart), judge_mean - float(f.mean())
    if spread <= ROUNDING:
        spread = 0.0
    weight = min(1.0, max(0.0, float(y_apart @ f_apart) / spread)) if spread else 0.0
    mean = float(y.mean()) + weight * shift
    # If all labels are equal, the variance of other labels cannot be estimated.
    if n < 3 or float(np.ptp(y)) <= ROUNDING:
        return CorrectedMean(Estimate(mean, None, None, n), weight)
    rest = y_apart - weight * f_apart
    leverage = 1 / n + (f_apart**2 / spread if spread else 0.0)
    growth = 1 + (n * shift * f_apart / spread if spread else 0.0)
    of_labels = float(((growth * rest / (1 - np.minimum(leverage, 0.9))) ** 2).sum()) / n**2
    variance_y, variance_rest = float(y_apart @ y_apart) / (n - 1), float(rest @ rest) / (n - 2)
    explained = max(variance_y - variance_rest, 0.0) / (n * (n - 1))
    variance = (1 - n / judged) * (of_labels + explained) + variance_y / judged
    half = student_quantile(n - 2, level) * math.sqrt(variance)
    return CorrectedMean(Estimate(mean, mean - half, mean + half, n), weight)


def rogan_gladen_rate(
    *, met: int, judged: int, sensitivity: tuple[int, int], specificity: tuple[int, int], level: float = 0.95
) -> Estimate | None:
    """Correct the judge's rate of MET with labels of other submissions (Rogan and Gladen; Lang and Reiczigel 2014).

    The correction assumes that the judge's sensitivity and specificity are the same on both sets of submissions.

    Args:
        met: The number of the run's submissions that the judge calls MET.
        judged: The number of the run's submissions.
        sensitivity: Two counts of labelled submissions. The first counts the submissions that both the annotators and
            the judge call MET. The second counts all submissions that the annotators call MET.
        specificity: The same two counts for UNMET.
        level: The confidence level of the interval, between 0 and 1.

    Returns:
        The corrected rate, or None if the judge is not better than chance on the labels or a count is 0.

    Example:
        >>> print(rogan_gladen_rate(met=620, judged=1000, sensitivity=(45, 50), specificity=(40, 50)))
        0.600 [0.495, 0.717] (n = 100)
    """
    (true_met, people_met), (true_unmet, people_unmet) = sensitivity, specificity
    if not judged or not people_met or not people_unmet:
        return None
    youden = true_met / people_met + true_unmet / people_unmet - 1
    if youden <= 0:
        return None
    rate = min(1.0, max(0.0, (met / judged + true_unmet / people_unmet - 1) / youden))
    z2 = normal_quantile(level) ** 2
    share = (met + z2 / 2) / (judged + z2)
    sens, spec = (true_met + 1) / (people_met + 2), (true_unmet + 1) / (people_unmet + 2)
    informedness = sens + spec - 1
    if informedness <= 0:
        return None
    center = (share + spec - 1) / informedness
    of_spec, of_sens = spec * (1 - spec) / (people_unmet + 2), sens * (1 - sens) / (people_met + 2)
    shift = 2 * z2 * (center * of_sens - (1 - center) * of_spec)
    variance = share * (1 - share) / (judged + z2) + (1 - center) ** 2 * of_spec + center**2 * of_sens
    half = math.sqrt(z2 * variance) / informedness
    low, high = (min(1.0, max(0.0, center + shift + sign * half)) for sign in (-1, 1))
    return Estimate(rate, low, high, people_met + people_unmet)
