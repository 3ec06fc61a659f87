"""Figures of a run that people's labels correct: a rate, a mean score, and a rate by labels from elsewhere.

In the formulas, Y is people's answer and F the judge's; n of the N judged submissions are labelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rubric_integrations.agreement.intervals import (
    ROUNDING,
    jeffreys_limits,
    normal_quantile,
    student_quantile,
    wilson_limits,
)
from rubric_integrations.results.estimate import Estimate


class Stratum(NamedTuple):
    """The submissions to which the judge gave one verdict; CANNOT_ASSESS is a verdict.

    Attributes:
        judged: How many of the run's submissions they are.
        labelled: How many of them have a label.
        true: On how many of the labelled ones people say that it holds.
    """

    judged: int
    labelled: int
    true: int


class CorrectedMean(NamedTuple):
    """A mean score that labels correct.

    Attributes:
        estimate: The mean with its interval.
        weight: How much the judge's scores of the other submissions count, from 0 (not at all) to 1.
    """

    estimate: Estimate
    weight: float


def corrected_rate(strata: Sequence[Stratum], level: float = 0.95) -> Estimate:
    """Correct the judge's rate by labels that were drawn at random, or by the judge's verdict.

    The rates of the strata are weighted by their shares (Tenenbein 1970); the limits combine Jeffreys limits of each
    stratum (MOVER, Zou and Donner 2008). Undefined if nothing is judged or labelled.

    Example:
        >>> print(corrected_rate([Stratum(620, 31, 27), Stratum(380, 19, 4)]))
        0.620 [0.512, 0.719] (n = 50)
    """
    judged, labelled = sum(stratum.judged for stratum in strata), sum(stratum.labelled for stratum in strata)
    if judged == 0 or labelled == 0:
        return Estimate(None, None, None, labelled)
    shares = np.array([stratum.judged / judged for stratum in strata])
    rates = np.array([stratum.true / stratum.labelled if stratum.labelled else 0.5 for stratum in strata])
    limits = np.array([jeffreys_limits(s.true, s.labelled, level) if s.labelled else (0.0, 1.0) for s in strata])
    rate = float(shares @ rates)
    of_shares = normal_quantile(level) ** 2 * max(0.0, float(shares @ rates**2) - rate**2) / judged
    below = float((shares**2) @ (rates - limits[:, 0]) ** 2)
    above = float((shares**2) @ (limits[:, 1] - rates) ** 2)
    low, high = rate - math.sqrt(below + of_shares), rate + math.sqrt(above + of_shares)
    return Estimate(rate, max(0.0, low), min(1.0, high), labelled)


def corrected_mean(
    people: Sequence[float], judge: Sequence[float], judge_mean: float, judged: int, *, level: float = 0.95,
    bounded: bool = True,
) -> CorrectedMean:  # fmt: skip
    """Correct the judge's mean score by labels of a random part of the run.

    People's scores are regressed on the judge's, and predicted at the run's mean judge score, with the HC3 variance;
    the interval is Wilson's at the effective sample size, or Student's for scores without bounds.

    Args:
        people: The scores by people's answers, of the labelled submissions.
        judge: The scores by the judge's answers, of the same submissions.
        judge_mean: The judge's mean score of all submissions of the run.
        judged: The number of all submissions of the run.
        level: The level of the interval.
        bounded: Whether scores are in [0, 1].

    Returns:
        The mean; without an interval for fewer than three labels, and for equal labels of scores without bounds.

    Raises:
        ValueError: There are more labelled submissions than judged ones, of which they are a part.
    """
    y, f = np.asarray(people, float), np.asarray(judge, float)
    n = len(y)
    if n > judged:
        raise ValueError(f"people labelled {n} submissions of {judged}: the labelled ones must be a part of the run")
    if n == 0:
        return CorrectedMean(Estimate(None, None, None, 0), 0.0)
    y_apart, f_apart = y - y.mean(), f - f.mean()
    spread, shift = float(f_apart @ f_apart), judge_mean - float(f.mean())
    if spread <= ROUNDING:
        spread = 0.0
    weight = min(1.0, max(0.0, float(y_apart @ f_apart) / spread)) if spread else 0.0
    mean = float(y.mean()) + weight * shift
    if bounded:
        mean = min(1.0, max(0.0, mean))
    if n < 3:
        return CorrectedMean(Estimate(mean, None, None, n), weight)
    rest = y_apart - weight * f_apart
    leverage = 1 / n + (f_apart**2 / spread if spread else 0.0)
    growth = 1 + (n * shift * f_apart / spread if spread else 0.0)
    of_labels = float(((growth * rest / (1 - np.minimum(leverage, 0.9))) ** 2).sum()) / n**2
    variance_y, variance_rest = float(y_apart @ y_apart) / (n - 1), float(rest @ rest) / (n - 2)
    explained = max(variance_y - variance_rest, 0.0) / (n * (n - 1))
    variance = (1 - n / judged) * (of_labels + explained) + variance_y / judged
    quantile = student_quantile(n - 2, level)
    is_constant = float(np.ptp(y)) <= ROUNDING
    if not bounded:
        # Labels that are all equal do not tell how much others would vary.
        half = None if is_constant else quantile * math.sqrt(variance)
        limits = (None, None) if half is None else (mean - half, mean + half)
        return CorrectedMean(Estimate(mean, *limits, n), weight)
    size = n if is_constant or mean in (0.0, 1.0) or variance <= 0 else max(mean * (1 - mean) / variance, 0.9 * n)
    return CorrectedMean(Estimate(mean, *wilson_limits(mean, size, quantile), n), weight)


def rogan_gladen_rate(
    *, met: int, judged: int, sensitivity: tuple[int, int], specificity: tuple[int, int], level: float = 0.95
) -> Estimate | None:
    """Correct the judge's rate by labels of other submissions (Rogan and Gladen; Lang and Reiczigel 2014).

    It assumes that the judge is as sensitive and as specific here as it was there.

    Args:
        met: On how many submissions of the run the judge says MET.
        judged: How many submissions the run has.
        sensitivity: On how many submissions that people call MET the judge does so, too; and how many these are.
        specificity: The same for UNMET.
        level: The level of the interval.

    Returns:
        The rate; None if the judge is no better than chance there, so that its rate tells nothing.

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


def strata_by_verdict(judged: Mapping[str, int], labelled: Mapping[str, tuple[int, int]]) -> list[Stratum]:
    """Make the strata of a rate: one for each verdict of the judge.

    Args:
        judged: How often the judge gave each verdict in the run.
        labelled: For each verdict, how many of these submissions people labelled, and on how many of them it holds.
    """
    return [Stratum(count, *labelled.get(verdict, (0, 0))) for verdict, count in judged.items()]
