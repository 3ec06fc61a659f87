"""How often the intervals of `rubric_integrations.trust` contain the truth, and how often its gates pass wrongly.

    python benchmarks/coverage.py [--draws 2000] [--only kappa]

Each cell is a simulation with a known truth. Of an interval, it has the share of the draws whose 95 % interval contains
the truth, and the mean width. Of a gate, it has the share of the draws that pass though the program is exactly at the
threshold, and the share that pass if it is .05 above. Of `certify`, it has the share of the draws that break the
promise of delta = .1, and the share that certify something. Draws without an interval are left out.

Rows are independent, or in groups with an intraclass correlation. Of unequal groups, the largest of ten has 30 % of the
rows. A cell is marked with `!` if its coverage is below .93, or its wrong passes are above the promise, by the 95 %
limits of Clopper and Pearson over the draws. A letter marks a cell for which this is documented. The exit code is 1 if
a cell is marked with `!`. 2,000 draws take about a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby, product
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.special import ndtr, ndtri

from rubric_integrations import Criterion, Submission
from rubric_integrations.redteam.trials import Rate
from rubric_integrations.runs import GradedRow
from rubric_integrations.scoring import CriterionReport, EvaluationReport, LabelledJudgment, Vote
from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust import (
    Comparability,
    agreement,
    calibrate,
    certify,
    compare_judges,
    compare_runs,
    comparison,
    gate,
    gates,
    judge_pairs,
    panel_report,
)
from rubric_integrations.trust.alignment.keeping import estimate_gain
from rubric_integrations.trust.calibration import weight_table
from rubric_integrations.trust.cases import estimate_flips
from rubric_integrations.trust.certification import (
    SureAnswer,
    fixed_sequence_steps,
    lower_bound,
    thresholds_of,
    upper_bound,
)
from rubric_integrations.trust.comparison import PairedChanges, RunChanges, compare_changes
from rubric_integrations.trust.confidence import StatedJudgment, estimate_loss, overconfidence, squared_error
from rubric_integrations.trust.corrections import (
    RatedRow,
    Stratum,
    corrected_mean,
    corrected_rate,
    estimate_share,
    labelled_mean,
    recall_by_verdict,
    rogan_gladen_rate,
)
from rubric_integrations.trust.criterion_faults import FlipRate
from rubric_integrations.trust.gates import SequentialGate, estimate_for_gate
from rubric_integrations.trust.judge_drift import criterion_drifts
from rubric_integrations.trust.means import (
    FEW_GROUPS,
    FOR_GATE,
    FOR_INTERVAL,
    UNIT,
    Groups,
    estimate_ac1,
    estimate_bias,
    estimate_differences,
    estimate_kappa_difference,
    estimate_mean,
    estimate_mean_share,
    estimate_shift,
    kappa_of_cells,
    select_groups,
    widening,
)
from rubric_integrations.trust.reward_figures import Thirds, measure_shortfall, measure_trend
from rubric_integrations.trust.separation import measure_separation
from rubric_integrations.trust.statistics import (
    Count,
    alpha_limits,
    cohen_kappa,
    estimate_clustered_rate,
    gwet_ac1,
    level_distances,
)

Array = Any
"""A NumPy array."""


class Design(NamedTuple):
    """How many rows there are, and how they depend on each other.

    Attributes:
        rows: The number of rows.
        groups: The number of groups; 0 for independent rows.
        correlation: The intraclass correlation.
        is_equal: Whether the groups have equally many rows.
    """

    rows: int
    groups: int = 0
    correlation: float = 0.0
    is_equal: bool = True


SIZES = (10, 30, 100, 500)
ALONE = tuple(Design(rows) for rows in SIZES)
GROUPED = tuple(
    Design(rows, groups, correlation, is_equal)
    for groups, correlation, is_equal, rows in product((5, 10, 20, 50), (0.0, 0.1, 0.3), (True, False), SIZES)
    if groups <= rows / 2 and (groups == 5) == (rows == 10)
)
REAL_ROWS = (Design(30), Design(50, 10, 0.3))
"""The designs that go through the public functions, with reports and labels."""


class Sample:
    """Draws what happens to the rows of one run."""

    def __init__(self, rng: np.random.Generator, design: Design):
        self.rng, self.count, self.correlation = rng, design.rows, design.correlation
        self.groups = _groups(design)

    def more(self, times: int) -> Sample:
        """Return a sample of more rows in the same groups."""
        sample = Sample(self.rng, Design(self.count * times))
        sample.correlation = self.correlation
        sample.groups = None if self.groups is None else np.tile(self.groups, times)
        return sample

    def rates(self, rate: float, correlation: float | None = None) -> Array:
        """Draw the rate of each row: that of its group, from a beta distribution."""
        correlation = self.correlation if correlation is None else correlation
        if self.groups is None or not correlation or rate in (0, 1):
            return np.full(self.count, rate)
        size = 1 / correlation - 1
        return self.rng.beta(rate * size, (1 - rate) * size, self.groups.max() + 1)[self.groups]

    def happens(self, rate: float) -> Array:
        """Draw in which rows something happens."""
        return self.rng.random(self.count) < self.rates(rate)

    def normal(self) -> Array:
        """Draw a normal number for each row."""
        own = self.rng.standard_normal(self.count)
        if self.groups is None:
            return own
        shared = self.rng.standard_normal(self.groups.max() + 1)[self.groups]
        return np.sqrt(self.correlation) * shared + np.sqrt(1 - self.correlation) * own


@cache
def _groups(design: Design) -> Groups | None:
    if not design.groups:
        return None
    places = (np.arange(design.groups) + 0.5) / design.groups
    shares = np.ones(design.groups) if design.is_equal else np.exp(ndtri(places))
    # At least one row each; the others by the largest remainder.
    ends = np.rint(np.cumsum(shares) / shares.sum() * (design.rows - design.groups))
    return np.repeat(np.arange(design.groups), 1 + np.diff(ends, prepend=0).astype(int))


class Outcome(NamedTuple):
    """One draw.

    Attributes:
        happened: Whether the interval contains the truth, or the gate passes wrongly.
        size: The width of the interval, or whether the gate passes a program that is better.
    """

    happened: bool
    size: float


def contains(estimate: Estimate, truth: float) -> Outcome | None:
    """Compare an interval with the truth; None without an interval."""
    if estimate.low is None or estimate.high is None:
        return None
    return Outcome(estimate.low <= truth <= estimate.high, estimate.high - estimate.low)


def passes(estimate: Estimate, truth: float) -> Outcome | None:
    """Let a gate decide with the threshold at the truth, and .05 below."""
    return None if estimate.low is None else Outcome(estimate.low > truth, float(estimate.low > truth - 0.05))


def fails(estimate: Estimate, truth: float) -> Outcome | None:
    """Let a gate fail with the threshold at the truth, and .05 above."""
    return None if estimate.high is None else Outcome(estimate.high < truth, float(estimate.high < truth + 0.05))


Check = Callable[[Estimate, float], Outcome | None]


# Shapes of scores in [0, 1], with their means.


def _eight_criteria(sample: Sample) -> Array:
    # So that the scores of eight criteria have the intraclass correlation.
    correlation = sample.correlation / (8 - 7 * sample.correlation)
    return (sample.rng.random((8, sample.count)) < sample.rates(0.9, correlation)).mean(axis=0)


def _rare_failures(sample: Sample) -> Array:
    return np.where(sample.happens(0.07), 0.0, np.clip(0.86 + 0.04 * sample.normal(), 0, 1))


SCORES: dict[str, tuple[Callable[[Sample], Array], float]] = {
    "one criterion": (lambda sample: sample.happens(0.9).astype(float), 0.9),
    "8 criteria": (_eight_criteria, 0.9),
    ".86, 7 % zeros": (_rare_failures, 0.93 * 0.86),
    "beta(4, 1)": (lambda sample: ndtr(sample.normal()) ** 0.25, 0.8),
    ".3 or 1": (lambda sample: np.where(sample.happens(0.85), 1.0, 0.3), 0.895),
}


def draw_mean(sample: Sample, shape: str) -> Outcome | None:
    """Estimate a mean score."""
    draw, truth = SCORES[shape]
    return contains(estimate_mean(draw(sample), groups=sample.groups), truth)


# The probability of MET in each case of a rubric, the number of answers, and the probability that two of them differ.
FLIPS: dict[str, tuple[Callable[[Sample], Array], int, float]] = {
    "2 answers, all .95": (lambda sample: np.full(sample.count, 0.95), 2, 0.095),
    "5 answers, all .95": (lambda sample: np.full(sample.count, 0.95), 5, 0.095),
    "5 answers, a tenth .5": (lambda sample: np.where(sample.happens(0.1), 0.5, 1.0), 5, 0.05),
    "5 answers, half .5": (lambda sample: np.where(sample.happens(0.5), 0.5, 1.0), 5, 0.25),
}


def draw_flips(sample: Sample, shape: str) -> Outcome | None:
    """Estimate how often a repeated answer about a case differs from its first one."""
    draw, answers, truth = FLIPS[shape]
    met = sample.rng.random((answers, sample.count)) < draw(sample)
    return contains(estimate_flips((met[1:] != met[0]).mean(axis=0).tolist()), truth)


def draw_points(sample: Sample, _shape: str) -> Outcome | None:
    """Estimate a mean of points, which have no bounds."""
    return contains(estimate_differences((3 + 5 * sample.normal()).tolist(), 0.95, sample.groups), 3.0)


def draw_mean_gate(sample: Sample, shape: str, check: Check = passes) -> Outcome | None:
    """Gate a mean score."""
    draw, truth = SCORES[shape]
    return check(estimate_for_gate(draw(sample).tolist(), 0.9, sample.groups, UNIT), truth)


def draw_gate_failure(sample: Sample, shape: str) -> Outcome | None:
    """Gate a mean score; a failure is wrong."""
    return draw_mean_gate(sample, shape, fails)


def draw_sequential_gate(sample: Sample, shape: str) -> Outcome | None:
    """Gate a mean score after each row."""
    draw, truth = SCORES[shape]
    scores = draw(sample).tolist()

    def is_passed(threshold: float) -> bool:
        sequential = SequentialGate(threshold)
        return any(sequential.add(score) == "pass" for score in scores)

    return Outcome(is_passed(truth), float(is_passed(truth - 0.05)))


# Agreement: people's answers with a rate of MET, and a judge that gives the same answer with a probability.

JUDGES = {"people .5, judge .85": (0.5, 0.85), "people .8, judge .85": (0.8, 0.85), "people .8, judge .95": (0.8, 0.95)}


def _answers(sample: Sample, shape: str) -> tuple[Array, Array]:
    rate, accuracy = JUDGES[shape]
    people = sample.happens(rate)
    return people, people == sample.happens(accuracy)


def _table(people: Array, judge: Array) -> Array:
    return np.bincount(2 * people.astype(int) + judge, minlength=4).reshape(2, 2).astype(float)


def _shares(shape: str) -> Array:
    """Return the table of people's answers and the judge's, as shares."""
    rate, accuracy = JUDGES[shape]
    met, unmet = rate * np.array([1 - accuracy, accuracy]), (1 - rate) * np.array([accuracy, 1 - accuracy])
    return np.array([unmet, met])


def _true_kappa(shares: Array) -> float:
    return 1 - (1 - np.trace(shares)) / (1 - shares.sum(axis=0) @ shares.sum(axis=1))


def draw_accuracy(sample: Sample, shape: str) -> Outcome | None:
    """Estimate the share of equal answers."""
    people, judge = _answers(sample, shape)
    return contains(estimate_mean_share((people == judge).tolist(), 0.95, sample.groups), JUDGES[shape][1])


def _kappa(people: Array, judge: Array, groups: Groups | None) -> Estimate:
    table, apart = _table(people, judge), level_distances([0, 1])
    cells = kappa_of_cells(table, apart)
    times = 1.0 if groups is None else widening(cells[people.astype(int), judge.astype(int)], groups)
    return cohen_kappa(table / times, apart)


def draw_kappa(sample: Sample, shape: str) -> Outcome | None:
    """Estimate kappa of one criterion."""
    return contains(_kappa(*_answers(sample, shape), sample.groups), _true_kappa(_shares(shape)))


_CRITERIA = np.array([0.95, 0.8, 0.7, 0.5, 0.3])


def draw_pooled_kappa(sample: Sample, _shape: str) -> Outcome | None:
    """Estimate kappa of the judgments of five criteria in one table; within a submission, they correlate by .6."""
    own = 0.6 - min(sample.correlation, 0.6) if sample.groups is not None else 0.6

    def draw(rates: Array) -> Array:
        shared = np.sqrt(0.6 - own) * sample.normal() if sample.groups is not None else 0.0
        of_rows = np.sqrt(own) * sample.rng.standard_normal(sample.count) + shared
        return ndtr(of_rows[:, None] + np.sqrt(0.4) * sample.rng.standard_normal((sample.count, 5))) < rates

    people = draw(_CRITERIA)
    judge = people == draw(np.full(5, 0.85))
    codes = np.arange(sample.count) if sample.groups is None else sample.groups
    shares = np.array([[0.85 * (1 - _CRITERIA), 0.15 * (1 - _CRITERIA)], [0.15 * _CRITERIA, 0.85 * _CRITERIA]])
    estimate = _kappa(people.ravel(), judge.ravel(), np.repeat(codes, 5))
    return contains(estimate, _true_kappa(shares.mean(axis=2)))


def draw_bias(sample: Sample, shape: str) -> Outcome | None:
    """Estimate how much more often the judge says MET than people."""
    if shape in ONE_SIDED:
        people = sample.happens(0.9)
        judge = people | sample.happens(ONE_SIDED[shape])
        return contains(_rate_change(people, judge, sample.groups), 0.1 * ONE_SIDED[shape])
    people, judge = _answers(sample, shape)
    shares = _shares(shape)
    return contains(_rate_change(people, judge, sample.groups), shares[0, 1] - shares[1, 0])


ONE_SIDED = {"judge always MET": 1.0, "3 % too lenient": 0.3}


def _worse(sample: Sample) -> tuple[Array, Array]:
    return np.ones(sample.count), np.where(sample.happens(0.08), 0.2, 1.0)


def _always_best(sample: Sample) -> tuple[Array, Array]:
    return np.where(sample.happens(0.03), 0.0, 1.0), np.ones(sample.count)


def _both_ways(sample: Sample) -> tuple[Array, Array]:
    people = np.clip(np.rint(2 + sample.normal()), 0, 4)
    return people / 4, np.clip(people + sample.rng.integers(-1, 2, sample.count), 0, 4) / 4


def _lenient_scores(sample: Sample) -> tuple[Array, Array]:
    people = sample.rng.random((8, sample.count)) < sample.rates(0.9)
    return people.mean(axis=0), (people | (sample.rng.random(people.shape) < 0.2)).mean(axis=0)


VALUES: dict[str, tuple[Callable[[Sample], tuple[Array, Array]], float]] = {
    "8 % lose .8": (_worse, -0.064),
    "judge always 1": (_always_best, 0.03),
    "8 criteria, lenient": (_lenient_scores, 0.02),
    "a level up or down": (_both_ways, 0.0),
}


def draw_value_bias(sample: Sample, shape: str) -> Outcome | None:
    """Estimate the mean of the judge's values minus people's, of options, scales and scores."""
    draw, truth = VALUES[shape]
    people, judge = draw(sample)
    return contains(estimate_bias(people, judge, 0.95, sample.groups), truth)


def draw_recall(sample: Sample, shape: str) -> Outcome | None:
    """Estimate the share of people's answers of one kind that the judge gives, too."""
    people, judge = _answers(sample, "people .8, judge .85")
    rows = np.flatnonzero(people == (shape == "MET")).tolist()
    agreed = (judge == people)[rows].astype(float).tolist()
    return contains(estimate_mean_share(agreed, 0.95, select_groups(sample.groups, rows)), 0.85)


def draw_recall_by_verdict(sample: Sample, shape: str) -> Outcome | None:
    """Estimate a recall by as many labels of each verdict, of a run of 1,000."""
    people, judge = _answers(Sample(sample.rng, Design(1000)), shape)
    drawn = [sample.rng.permutation(np.flatnonzero(judge == answer))[: sample.count // 2] for answer in (0, 1)]
    rated = [RatedRow(row, str(int(judge[row])), float(people[row])) for row in np.concatenate(drawn).tolist()]
    verdicts = {row: str(int(answer)) for row, answer in enumerate(judge)}
    return contains(recall_by_verdict(verdicts, rated, "1"), JUDGES[shape][1])


def draw_ac1(sample: Sample, shape: str) -> Outcome | None:
    """Estimate AC1."""
    people, judge = _answers(sample, shape)
    cells = list(zip(people.astype(int).tolist(), judge.astype(int).tolist(), strict=True))
    return contains(estimate_ac1(_table(people, judge), cells, 0.95, sample.groups), gwet_ac1(_shares(shape)) or 0.0)


def draw_alpha(sample: Sample, shape: str) -> Outcome | None:
    """Estimate Krippendorff's alpha of two raters."""
    people, judge = _answers(sample, shape)
    groups = None if sample.groups is None else sample.groups.tolist()
    units = np.stack([people, judge], axis=1).astype(int).tolist()
    limits, shares = alpha_limits(units, level_distances([0, 1]), groups), _shares(shape)
    met = float(shares[1].sum() + shares[:, 1].sum()) / 2
    truth = 1 - (1 - float(np.trace(shares))) / (2 * met * (1 - met))
    return None if limits is None else Outcome(limits[0] <= truth <= limits[1], limits[1] - limits[0])


def _rate_change(before: Array, after: Array, groups: Groups | None) -> Estimate:
    rose, fell = (after & ~before).astype(float), (before & ~after).astype(float)
    return estimate_shift(rose.tolist(), fell.tolist(), 0.95, groups)


def draw_weighted_kappa(sample: Sample, shape: str) -> Outcome | None:
    """Estimate kappa by as many labels of each verdict, of a run of 1,000."""
    shares = _shares(shape)
    run, half = sample.rng.multinomial(1000, shares.ravel()).reshape(2, 2), sample.count // 2
    judged = run.sum(axis=0)
    drawn = [min(half, int(count)) for count in judged]
    right = [int(sample.rng.hypergeometric(met, unmet, n)) for (unmet, met), n in zip(run.T, drawn, strict=True)]
    table = np.array([[drawn[0] - right[0], drawn[1] - right[1]], right], float)
    weighted = weight_table(table, ["UNMET", "MET"], {"UNMET": int(judged[0]), "MET": int(judged[1])})
    return contains(cohen_kappa(weighted, level_distances([0, 1])), _true_kappa(shares))


def draw_four_levels(sample: Sample, _shape: str) -> Outcome | None:
    """Estimate kappa of four ordered answers."""
    near = np.exp(-np.abs(np.subtract.outer(range(4), range(4))) * 1.2) * np.outer([1, 1, 2, 6], [1, 1, 2, 6])
    apart, shares = level_distances([0, 1 / 3, 2 / 3, 1]), near / near.sum()
    truth = cohen_kappa(np.rint(shares * 1e9), apart).value or 0.0
    return contains(cohen_kappa(sample.rng.multinomial(sample.count, shares.ravel()).reshape(4, 4), apart), truth)


# Corrected figures: people labelled as many rows as the design has, of a run of 1,000 rows, or of twice as many.


def _labelled(sample: Sample) -> tuple[Sample, Array]:
    """Return the rows of the whole run, and which of them are labelled."""
    run = sample.more(2) if sample.groups is not None else Sample(sample.rng, Design(max(1000, 2 * sample.count)))
    return run, sample.rng.permutation(run.count) < sample.count


def draw_rate(sample: Sample, shape: str) -> Outcome | None:
    """Correct a rate by labels at random."""
    run, is_labelled = _labelled(sample)
    people, judge = _answers(run, shape)
    verdicts = dict(enumerate(judge.tolist()))
    rated = [RatedRow(row, verdicts[row], float(people[row])) for row in np.flatnonzero(is_labelled).tolist()]
    return contains(estimate_share(verdicts, rated, groups=run.groups), JUDGES[shape][0])


def draw_rate_with_abstentions(sample: Sample, shape: str) -> Outcome | None:
    """Correct a rate by labels of people who cannot assess 80 % of the UNMET submissions."""
    run, is_labelled = _labelled(sample)
    people, judge = _answers(run, shape)
    is_assessed = (people | (run.rng.random(run.count) < 0.2)) & is_labelled
    strata = [
        Stratum(int(of.sum()), int((of & is_labelled).sum()), int((of & is_assessed & people).sum()),
                int((of & is_assessed).sum()))
        for of in (~judge, judge)
    ]  # fmt: skip
    rate = JUDGES[shape][0]
    return contains(corrected_rate(strata), rate / (rate + 0.2 * (1 - rate)))


def draw_rate_by_verdict(sample: Sample, shape: str) -> Outcome | None:
    """Correct a rate by as many labels of each verdict, of a run of 1,000."""
    run, half = sample.rng.multinomial(1000, _shares(shape).ravel()).reshape(2, 2), sample.count // 2
    strata: list[Stratum] = []
    for unmet, met in run.T:
        drawn = min(half, int(unmet + met))
        strata.append(Stratum(int(unmet + met), drawn, int(sample.rng.hypergeometric(met, unmet, drawn))))
    return contains(corrected_rate(strata), JUDGES[shape][0])


def draw_assessable(sample: Sample, shape: str) -> Outcome | None:
    """Estimate the share of submissions that people can assess: .95 where the judge says MET, otherwise .6."""
    run, is_labelled = _labelled(sample)
    _, judge = _answers(run, shape)
    is_assessed = run.rng.random(run.count) < np.where(judge, 0.95, 0.6)
    verdicts = dict(enumerate(judge.tolist()))
    rated = [RatedRow(row, verdicts[row], float(is_assessed[row])) for row in np.flatnonzero(is_labelled).tolist()]
    met = float(_shares(shape)[:, 1].sum())
    return contains(estimate_share(verdicts, rated, groups=run.groups), 0.95 * met + 0.6 * (1 - met))


def draw_corrected_points(sample: Sample, _shape: str) -> Outcome | None:
    """Correct a mean of points, which have no bounds."""
    people = 3 + 5 * sample.rng.standard_normal(2 * sample.count + 500)
    judge = people + 4 * sample.rng.standard_normal(len(people))
    labelled = slice(sample.count)
    corrected = corrected_mean(people[labelled].tolist(), judge[labelled].tolist(), float(judge.mean()), len(people))
    return contains(corrected.estimate, 3.0)


def draw_rate_from_elsewhere(sample: Sample, shape: str) -> Outcome | None:
    """Correct a rate by labels of other submissions."""
    rate, accuracy = JUDGES[shape]
    met, half = int(sample.rng.binomial(1000, _shares(shape)[:, 1].sum())), sample.count // 2
    right = [(int(sample.rng.binomial(half, accuracy)), half) for _ in range(2)]
    estimate = rogan_gladen_rate(met=met, judged=1000, sensitivity=right[0], specificity=right[1])
    return None if estimate is None else contains(estimate, rate)


def draw_corrected_mean(sample: Sample, shape: str, check: Check | None = None) -> Outcome | None:
    """Correct a mean score; the judge gives people's score with a probability of .8, and another row's if not."""
    run, is_labelled = _labelled(sample)
    draw, truth = SCORES[shape]
    people = draw(run)
    judge = np.where(run.happens(0.8), people, draw(run))
    places = np.flatnonzero(is_labelled).tolist()
    settings: dict[str, Any] = {"level": 0.9, "imaginary": FOR_GATE} if check else {}
    estimate = labelled_mean(people[places].tolist(), places, judge, groups=run.groups, **settings).estimate
    return (check or contains)(estimate, truth)


def draw_labelled_gate(sample: Sample, shape: str) -> Outcome | None:
    """Gate a corrected mean."""
    return draw_corrected_mean(sample, shape, passes)


def draw_labelled_failure(sample: Sample, shape: str) -> Outcome | None:
    """Gate a corrected mean; a failure is wrong."""
    return draw_corrected_mean(sample, shape, fails)


# Comparisons of two runs that are equally good in truth.


def _few_change(sample: Sample) -> tuple[Array, Array]:
    before, again = ((sample.rng.random((5, sample.count)) < sample.rates(0.8)).mean(axis=0) for _ in range(2))
    return before, np.where(sample.happens(0.3), again, before)


def _few_lose_much(sample: Sample) -> tuple[Array, Array]:
    before = np.clip(0.9 + 0.01 * sample.normal(), 0, 1)
    # No two changes are equal: `compare_runs` has another interval for equal ones.
    gained = before + 0.027 / 0.97 + 0.001 * sample.rng.standard_normal(sample.count)
    return before, np.where(sample.happens(0.03), before - 0.9, gained).clip(0, 1)


def _binary(sample: Sample) -> tuple[Array, Array]:
    before = sample.happens(0.8)
    return before, np.where(sample.happens(0.2), sample.happens(0.8), before)


def _few_gain_much(sample: Sample) -> tuple[Array, Array]:
    before, after = _few_lose_much(sample)
    return after, before


def _few_bad_lose_much(sample: Sample) -> tuple[Array, Array]:
    before, after = _few_gain_much(sample)
    return 1 - before, 1 - after


def _few_fail(sample: Sample) -> tuple[Array, Array]:
    return 1.0 - sample.happens(0.02), 1.0 - sample.happens(0.02)


RARE = {
    "3 % lose .9": _few_lose_much,
    "3 % gain .9": _few_gain_much,
    "3 % lose .9, mean .1": _few_bad_lose_much,
    "2 % fail": _few_fail,
}
PAIRS = {"30 % of rows again": _few_change, **RARE}
BINARY_PAIRS = {"20 % of rows again": _binary}


def _changes(sample: Sample, pair: tuple[Array, Array]) -> PairedChanges:
    groups = [None] * sample.count if sample.groups is None else sample.groups.tolist()
    changes = PairedChanges()
    for before, after, group in zip(*(values.astype(float).tolist() for values in pair), groups, strict=True):
        changes.add(before, after, group)
    return changes


def draw_change(sample: Sample, shape: str) -> Outcome | None:
    """Compare the mean scores of two runs."""
    return contains(_changes(sample, PAIRS[shape](sample)).mean_change(0.95), 0.0)


def draw_cautious_change(sample: Sample, shape: str) -> Outcome | None:
    """Compare mean scores with the interval that allows for rare large losses and gains."""
    return contains(_changes(sample, PAIRS[shape](sample)).bounded_change(0.95, FOR_INTERVAL), 0.0)


def draw_criterion_change(sample: Sample, shape: str) -> Outcome | None:
    """Compare the rates of a criterion in two runs."""
    before, after = BINARY_PAIRS[shape](sample)
    if sample.groups is None:
        return contains(_rate_change(before, after, None), 0.0)
    return contains(_changes(sample, (before, after)).mean_change(0.95), 0.0)


def draw_baseline_gate(sample: Sample, shape: str) -> Outcome | None:
    """Gate a run against a baseline, with a margin that the run is worse by."""
    return passes(_changes(sample, PAIRS[shape](sample)).bounded_change(0.9, FOR_GATE), 0.0)


def draw_baseline_failure(sample: Sample, shape: str) -> Outcome | None:
    """Gate a run against a baseline; a failure is wrong."""
    return fails(_changes(sample, PAIRS[shape](sample)).bounded_change(0.9, FOR_GATE), 0.0)


def draw_gain(sample: Sample, shape: str) -> Outcome | None:
    """Keep an aligned judge that is not better; the lower limit decides."""
    before, after = PAIRS[shape](sample)
    return passes(estimate_gain(np.subtract(after, before, dtype=float).tolist(), 0.05), 0.0)


def draw_corrected_change(sample: Sample, _shape: str) -> Outcome | None:
    """Compare two equal runs of 500 rows by a judge that is more lenient to the second, corrected by labels."""
    people = sample.rng.random((2, 500, 8)) < sample.rng.beta(4.8, 3.2, (500, 1))
    scores: list[Array] = []
    for answers, (sensitivity, specificity) in zip(people, ((0.9, 0.85), (0.93, 0.75)), strict=True):
        agreed = sample.rng.random(answers.shape) < np.where(answers, sensitivity, specificity)
        scores.append(np.where(agreed, answers, ~answers).mean(axis=1))
    y, f = np.subtract(*people.mean(axis=2)[::-1]), scores[1] - scores[0]
    labels = slice(sample.count)
    corrected = corrected_mean(y[labels], f[labels], float(f.mean()), len(f))
    return contains(corrected.estimate, 0.0)


def draw_kappa_change(sample: Sample, _shape: str) -> Outcome | None:
    """Estimate the difference of the kappas of two judges, whose errors are independent."""
    people, strong, cheap = (each.astype(int).tolist() for each in _two_judges(sample))
    estimate = estimate_kappa_difference(people, cheap, strong, level_distances([0, 1]), 0.95, sample.groups)
    return contains(estimate, _TWO_JUDGES["kappa"])


def draw_attack(sample: Sample, _shape: str) -> Outcome | None:
    """Estimate how often an attack succeeds."""
    rate = Rate.of(int(sample.happens(0.1).sum()), sample.count)
    return contains(Estimate(rate.rate, rate.low, rate.high, rate.trials), 0.1)


def draw_flip_limit(sample: Sample, shape: str) -> Outcome | None:
    """Compute one exact limit of the rate of flips of mutants, and miss the truth with it."""
    truth = 0.1
    rate = FlipRate.of(int(sample.happens(truth).sum()), sample.count)
    check = passes if shape == "low" else fails
    return check(Estimate(rate.flips / rate.count, rate.low, rate.high, rate.count), truth)


def draw_separation(sample: Sample, shape: str) -> Outcome | None:
    """Estimate how many pairs of answers a rubric and length alone order rightly, with ties in a tenth of them."""
    right, longer, tied = sample.happens(0.8), sample.happens(0.6), sample.rng.random(sample.count) < 0.1
    result = measure_separation(
        [(0.5, 0.5) if tie else (float(own), float(not own)) for own, tie in zip(right, tied, strict=True)],
        [(2, 1) if own else (1, 2) for own in longer],
        np.arange(sample.count) if sample.groups is None else sample.groups,
        longer_is_better=True,
    )
    estimate, truth = (result.rubric, 0.77) if shape == "share" else (result.over_length, 0.77 - 0.6)
    return contains(estimate, truth)


def _two_judges(sample: Sample) -> tuple[Array, Array, Array]:
    """Draw people's answers, and those of a strong and a cheap judge with independent errors."""
    people = sample.happens(0.8)
    return people, people == sample.happens(0.95), people == sample.happens(0.85)


def _difference_of(figure: Callable[[Array], float]) -> float:
    return figure(_shares("people .8, judge .85")) - figure(_shares("people .8, judge .95"))


_TWO_JUDGES = {
    "accuracy": -0.1,
    "kappa": _difference_of(_true_kappa),
    "bias": _difference_of(lambda shares: shares[0, 1] - shares[1, 0]),
    "recall": -0.1,
}
"""The true differences of the cheap judge and the strong one."""


# Panels and stated confidences: one judgment of each submission, or five that are alike.

JUDGMENTS = {"1 judgment a row": 1, "5 judgments a row": 5}


def _alike(sample: Sample, shape: str) -> Array:
    """Draw a uniform number for each judgment; two of one submission are equal in 30 % of cases."""
    shape_of_rows = (sample.count, JUDGMENTS[shape])
    shared = ndtr(sample.normal())[:, None]
    return np.where(sample.rng.random(shape_of_rows) < 0.3**0.5, shared, sample.rng.random(shape_of_rows))


def draw_panel(sample: Sample, shape: str) -> Outcome | None:
    """Compare a panel with and without one of its judges."""
    drawn = _alike(sample, shape)
    rose, fell = (drawn < 0.1).mean(axis=1), (drawn > 0.95).mean(axis=1)
    return contains(estimate_shift(rose.tolist(), fell.tolist(), 0.95, sample.groups, clustered=True), 0.05)


def draw_accuracy_by_row(sample: Sample, shape: str) -> Outcome | None:
    """Estimate the accuracy over all criteria: the mean over submissions."""
    return contains(estimate_mean((_alike(sample, shape) < 0.9).mean(axis=1), groups=sample.groups), 0.9)


def draw_stated_accuracy(sample: Sample, shape: str) -> Outcome | None:
    """Estimate the accuracy of answers with a confidence: the share over all of them."""
    right = _alike(sample, shape) < 0.9
    if sample.groups is not None:
        groups = np.repeat(sample.groups, right.shape[1])
        return contains(estimate_mean(right.ravel().astype(float), groups=groups), 0.9)
    return contains(estimate_clustered_rate([Count(int(row.sum()), row.size) for row in right]), 0.9)


_STATED = np.array([0.9, 0.95, 1.0])


def _stated(sample: Sample, shape: str) -> list[StatedJudgment]:
    """Draw the judgments of a judge that is right in 60 %, whatever confidence it states."""
    drawn = _alike(sample, shape)
    confidences = _STATED[sample.rng.integers(0, 3, drawn.shape)]
    return [
        StatedJudgment(
            row if sample.groups is None else int(sample.groups[row]),
            float(confidences[row, place]), bool(drawn[row, place] < 0.6), None, 1.0,
        )
        for row, place in product(*map(range, drawn.shape))
    ]  # fmt: skip


def draw_brier(sample: Sample, shape: str) -> Outcome | None:
    """Estimate the Brier score."""
    items, truth = _stated(sample, shape), float((0.6 * (1 - _STATED) ** 2 + 0.4 * _STATED**2).mean())
    return contains(estimate_loss(items, squared_error, 0.95, are_grouped=sample.groups is not None), truth)


def draw_overconfidence(sample: Sample, shape: str) -> Outcome | None:
    """Estimate the mean confidence minus the accuracy."""
    items, is_grouped = _stated(sample, shape), sample.groups is not None
    return contains(estimate_loss(items, overconfidence, 0.95, least=-1.0, are_grouped=is_grouped), 0.35)


# Training runs: the first and the last third of the steps, with the prompts of the design in both.

CHANGES = {"rates, .8 to .9": (0.8, 0.9), "rates, unchanged": (0.95, 0.95)}


def _thirds(sample: Sample) -> Thirds:
    clusters = np.tile(np.arange(sample.count) if sample.groups is None else sample.groups, 2)
    is_last = np.arange(2 * sample.count) >= sample.count
    return Thirds(~is_last, is_last, clusters)


def draw_trend(sample: Sample, shape: str) -> Outcome | None:
    """Estimate the change of a rate from the first third to the last."""
    first, last = CHANGES[shape]
    values = np.concatenate([sample.happens(first), sample.happens(last)]).astype(float)
    return contains(measure_trend(values, _thirds(sample), 0.95, (0.0, 1.0)).change, last - first)


def draw_shortfall(sample: Sample, _shape: str) -> Outcome | None:
    """Estimate how much less a second judge's scores rise than the first's predict, if they rise alike."""
    quality = np.concatenate([sample.normal(), 0.5 + sample.normal()])
    second = 0.5 * quality + 0.5 * sample.rng.standard_normal(len(quality))
    return contains(measure_shortfall(quality, second, _thirds(sample), 0.95)[0], 0.0)


def draw_length_correlation(sample: Sample, _shape: str) -> Outcome | None:
    """Estimate the mean rank correlation of length and reward in groups of four completions."""
    ranks = sample.rng.permuted(np.tile(np.arange(4), (sample.count, 1)), axis=1)
    correlations = 1 - ((ranks - np.arange(4)) ** 2).sum(axis=1) / 10
    return contains(estimate_differences(correlations.tolist(), 0.95, None), 0.0)


# The promise of `certify`: at most .1 of the kept answers are wrong, with probability .9.

_SURENESS = np.round(np.random.default_rng(1).beta(5, 1, 1_000_000), 2)
_ALPHA = _DELTA = 0.1


def _error_at(confidences: Array) -> Array:
    return np.minimum(0.5, 0.62 * (1 - confidences))


@cache
def _true_error(threshold: float) -> float:
    return float(_error_at(_SURENESS[threshold <= _SURENESS]).mean())


def _broken(threshold: float | None) -> Outcome:
    return Outcome(threshold is not None and _true_error(threshold) > _ALPHA, float(threshold is not None))


def _sure_answers(sample: Sample) -> tuple[Array, Array]:
    confidences = np.round(sample.rng.beta(5, 1, sample.count), 2)
    return confidences, ndtr(sample.normal()) < _error_at(confidences)


def draw_certificate(sample: Sample, _shape: str) -> Outcome | None:
    """Certify a threshold by one answer of each group."""
    confidences, wrong = _sure_answers(sample)
    places = range(sample.count) if sample.groups is None else np.flatnonzero(np.diff(sample.groups, prepend=-1))
    answers = [SureAnswer(float(confidences[place]) or None, bool(wrong[place])) for place in places]
    steps = [(threshold, 0.0) for threshold in thresholds_of(confidences.tolist())]
    held = [step for step in fixed_sequence_steps(answers, steps, _ALPHA, _DELTA) if step.holds]
    return _broken(held[-1].threshold if held else None)


# The public functions, with rows and labels. Reports and labels are immutable, and made once.

_CRITERION = Criterion(requirement="Is polite", name="polite", weight=1.0)
_VERDICTS = ("UNMET", "MET")


@cache
def _submission(number: int) -> Submission:
    return Submission(response=f"response {number}")


@cache
def _report(answer: float | None, confidence: float | None = None, votes: tuple[int, ...] = ()) -> EvaluationReport:
    verdict = "CANNOT_ASSESS" if answer is None else _VERDICTS[round(answer)]
    value = None if answer is None else round(answer)
    entry = CriterionReport(
        name="polite", requirement="Is polite", weight=1.0, verdict=verdict, value=value, confidence=confidence,
        votes=tuple(Vote(judge=f"judge {n}", verdict=_VERDICTS[vote], value=vote) for n, vote in enumerate(votes)),
    )  # fmt: skip
    score: dict[str, Any] = {"score": answer, "raw_score": answer, "passed": False, "complete": True, "coverage": 1.0}
    return EvaluationReport(**score, report=(entry,))


@cache
def _label(number: int, answer: int) -> LabelledJudgment:
    return LabelledJudgment(
        submission=_submission(number), criterion=_CRITERION, verdict=_VERDICTS[answer], id=str(number),
        sampled="random", blind=True,
    )  # fmt: skip


def _rows(reports: Sequence[EvaluationReport], groups: Groups | None) -> list[GradedRow]:
    topics = [
        None if groups is None else {"topic": int(group)}
        for group in (range(len(reports)) if groups is None else groups)
    ]
    return [
        GradedRow(str(number), _submission(number), report, None, metadata=topic)
        for number, (report, topic) in enumerate(zip(reports, topics, strict=True))
    ]


def _cluster(sample: Sample) -> dict[str, Any]:
    return {} if sample.groups is None else {"cluster": "topic"}


def _agreement(sample: Sample) -> Any:
    people, judge = _answers(sample, "people .8, judge .85")
    rows = _rows([_report(int(answer)) for answer in judge], sample.groups)
    labels = [_label(number, int(answer)) for number, answer in enumerate(people)]
    return agreement(rows, labels, **_cluster(sample)).criteria["polite"]


PUBLIC_AGREEMENT: dict[str, Callable[[Any], Estimate]] = {
    "accuracy": lambda row: row.accuracy,
    "kappa": lambda row: row.kappa,
    "bias": lambda row: row.bias,
}


def public_agreement(sample: Sample, shape: str) -> Outcome | None:
    """Estimate a figure with `agreement`."""
    shares = _shares("people .8, judge .85")
    truths = {"accuracy": np.trace(shares), "kappa": _true_kappa(shares), "bias": shares[0, 1] - shares[1, 0]}
    return contains(PUBLIC_AGREEMENT[shape](_agreement(sample)), truths[shape])


def public_calibration(sample: Sample, shape: str) -> Outcome | None:
    """Correct a rate, or a mean score of one criterion, with `calibrate`."""
    run = sample.more(2)
    is_labelled = sample.rng.permutation(run.count) < sample.count
    people, judge = _answers(run, "people .8, judge .85")
    rows = _rows([_report(int(answer)) for answer in judge], run.groups)
    labels = [_label(int(number), int(people[number])) for number in np.flatnonzero(is_labelled)]
    result = calibrate(rows, labels, **_cluster(sample))
    rate = result.criteria["polite"].rate
    assert rate is not None  # the criterion is binary  # noqa: S101
    return contains(rate if shape == "rate" else result.score, 0.8)


def public_comparison(sample: Sample, shape: str) -> Outcome | None:
    """Compare mean scores, rates of passes, or the rates and answers of a criterion, with `compare_runs`."""
    runs = [_rows([_report(int(answer)) for answer in run], sample.groups) for run in _binary(sample)]
    result = compare_runs(runs[0], runs[1], **_cluster(sample))
    criterion = result.criteria["polite"]
    if shape == "kappa":
        # A fifth of the answers is drawn again, with the same rate.
        return contains(criterion.kappa, 0.8)
    return contains(result.score if shape == "score" else criterion.difference, 0.0)


def public_judges(sample: Sample, shape: str) -> Outcome | None:
    """Compare two judges with `compare_judges`."""
    people, strong, cheap = _two_judges(sample)
    runs = [_rows([_report(int(answer)) for answer in judge], sample.groups) for judge in (strong, cheap)]
    labels = [_label(number, int(answer)) for number, answer in enumerate(people)]
    # P-values take most of the time.
    with patch.object(judge_pairs, "p_value_of", return_value=None):
        result = compare_judges(runs[0], runs[1], labels, **_cluster(sample)).criteria["polite"]
    change = result.recalls["MET"] if shape == "recall" else getattr(result, shape)
    return contains(change.difference, _TWO_JUDGES[shape])


_FLIPS, _ABSTAINS = 0.1, 0.05


def drift_figures(sample: Sample, shape: str) -> Outcome | None:
    """Compare the earlier answers of a judge that contradicts itself with two new answers, as `drift` does."""
    usual, runs = sample.happens(0.7), list[list[GradedRow]]()
    for _ in range(3):
        answers = usual ^ (sample.rng.random(sample.count) < _FLIPS)
        abstains = sample.rng.random(sample.count) < _ABSTAINS
        reports = [_report(None if is_open else int(met)) for met, is_open in zip(answers, abstains, strict=True)]
        runs.append(_rows(reports, sample.groups))
    keys = [(str(number), 1) for number in range(sample.count)]
    changes = RunChanges(None if sample.groups is None else dict(zip(keys, sample.groups.tolist(), strict=True)))
    for key, before, after in zip(keys, runs[0], runs[1], strict=True):
        changes.add(key, before, after)
    with patch.object(comparison, "p_value_of", return_value=None):
        compared = compare_changes(changes, comparable=Comparability(passing=False))
    drifts = criterion_drifts(runs, changes, compared, sample.groups, 0.95)["polite"]
    same = 1 - 2 * _FLIPS * (1 - _FLIPS)
    flips = 1 - _ABSTAINS**2 - (1 - _ABSTAINS) ** 2 * same
    met = 0.7 * (1 - _FLIPS) + 0.3 * _FLIPS
    chance = met**2 + (1 - met) ** 2
    truths = {"flips": flips, "own_flips": flips, "kappa": (same - chance) / (1 - chance)}
    return contains(getattr(drifts, shape), truths.get(shape, 0.0))


def public_gate(sample: Sample, shape: str) -> Outcome | None:
    """Decide with `gate`."""
    draw, truth = SCORES[shape]
    rows = _rows([_report(round(float(score), 4)) for score in draw(sample)], sample.groups)
    # How many more rows would decide takes nearly all the time.
    with patch.object(gates, "_MOST", 1_000):
        result = gate(rows, truth, **_cluster(sample))
    return Outcome(result.decision == "pass", float((result.score.low or 0.0) > truth - 0.05))


def public_certificate(sample: Sample, _shape: str) -> Outcome | None:
    """Certify with `certify`."""
    confidences, wrong = _sure_answers(sample)
    rows = _rows([_report(1, float(confidence)) for confidence in confidences], sample.groups)
    labels = [_label(number, int(not error)) for number, error in enumerate(wrong)]
    return _broken(certify(rows, labels, alpha=_ALPHA, delta=_DELTA, **_cluster(sample)).threshold)


def public_panel(sample: Sample, _shape: str) -> Outcome | None:
    """Measure what the first of three judges adds, with `panel_report`; two of them give a tie to UNMET."""
    people = sample.happens(0.8)
    votes = np.where(sample.rng.random((3, sample.count)) < 0.85, people, ~people).astype(int)
    reports = [_report(int(of_row.sum() >= 2), None, tuple(map(int, of_row))) for of_row in votes.T]
    labels = [_label(number, int(answer)) for number, answer in enumerate(people)]
    result = panel_report(_rows(reports, sample.groups), labels, **_cluster(sample))
    right, both = 0.85**2 * (3 - 2 * 0.85), 0.85**2
    without = 0.8 * both + 0.2 * (1 - 0.15**2)
    return contains(result.judges["judge 0"].adds, right - without)


class Figure(NamedTuple):
    """A public figure, and how it is simulated.

    Attributes:
        name: Where it stands in the results.
        draw: Estimates it once.
        shapes: The data that it is simulated with.
        in_groups: Those of them that it is also simulated with for rows in groups.
        designs: The numbers of independent rows.
        promise: The highest share of wrong passes; None for an interval.
    """

    name: str
    draw: Callable[[Sample, str], Outcome | None]
    shapes: Sequence[str]
    in_groups: Sequence[str] = ()
    designs: Sequence[Design] = ALONE
    promise: float | None = None

    @property
    def cells(self) -> list[Cell]:
        """All simulations of the figure."""
        alone, grouped = product(self.shapes, self.designs), product(self.in_groups, GROUPED)
        return [Cell(self.name, shape, design) for shape, design in (*alone, *grouped)]


_SCORES, _JUDGES = (*SCORES,), (*JUDGES,)
FIGURES = (
    Figure("mean score", draw_mean, _SCORES, _SCORES[:3]),
    Figure("run_cases: flips", draw_flips, (*FLIPS,), designs=ALONE[:3]),
    Figure("mean of points", draw_points, ("normal",), ("normal",)),
    Figure("agreement: accuracy", draw_accuracy, _JUDGES[1:], _JUDGES[1:]),
    Figure("agreement: accuracy of all", draw_accuracy_by_row, (*JUDGMENTS,), ("5 judgments a row",)),
    Figure("agreement: kappa", draw_kappa, _JUDGES, _JUDGES[:2]),
    Figure("agreement: kappa, 4 levels", draw_four_levels, ("",)),
    Figure("agreement: kappa by verdict", draw_weighted_kappa, _JUDGES),
    Figure("agreement: pooled kappa", draw_pooled_kappa, ("5 criteria",), ("5 criteria",)),
    Figure("agreement: bias", draw_bias, (*_JUDGES, *ONE_SIDED), (*_JUDGES[:2], *ONE_SIDED)),
    Figure("agreement: bias of values", draw_value_bias, (*VALUES,), (*VALUES,)),
    Figure("agreement: recall", draw_recall, ("MET", "UNMET"), ("MET",)),
    Figure("agreement: recall by verdict", draw_recall_by_verdict, _JUDGES, designs=ALONE[1:]),
    Figure("agreement: alpha of raters", draw_alpha, _JUDGES[:2], _JUDGES[:1], ALONE[1:]),
    Figure("benchmark: AC1", draw_ac1, _JUDGES, _JUDGES[:2]),
    Figure("benchmark: kappa difference", draw_kappa_change, ("",), ("",)),
    Figure("align: gain", draw_gain, ("30 % of rows again", "2 % fail"), designs=ALONE[1:], promise=0.05),
    Figure("probe: rate", draw_attack, ("10 % succeed",)),
    Figure("mutations: limit of flips", draw_flip_limit, ("low", "high"), promise=0.05),
    Figure("separation", draw_separation, ("share", "beyond length"), ("share", "beyond length")),
    Figure("calibrate: rate", draw_rate, _JUDGES, _JUDGES[1:2]),
    Figure("calibrate: rate, abstentions", draw_rate_with_abstentions, _JUDGES),
    Figure("calibrate: rate by verdict", draw_rate_by_verdict, _JUDGES),
    Figure("calibrate: assessable", draw_assessable, _JUDGES[:2], _JUDGES[:1]),
    Figure("calibrate_rate", draw_rate_from_elsewhere, _JUDGES),
    Figure("calibrate: mean score", draw_corrected_mean, _SCORES, _SCORES[1:3]),
    Figure("calibrate: mean of points", draw_corrected_points, ("normal",), designs=ALONE[2:]),
    Figure("compare_runs: score", draw_change, (*PAIRS,), (*PAIRS,)),
    Figure("compare_runs: cautious", draw_cautious_change, (*PAIRS,), (*PAIRS,)),
    Figure("compare_runs: criterion", draw_criterion_change, (*BINARY_PAIRS,), (*BINARY_PAIRS,)),
    Figure("compare_runs: corrected", draw_corrected_change, ("lenient to one",), designs=ALONE[1:]),
    Figure("panel_report: adds", draw_panel, (*JUDGMENTS,), (*JUDGMENTS,)),
    Figure("reliability: accuracy", draw_stated_accuracy, (*JUDGMENTS,), ("5 judgments a row",)),
    Figure("reliability: brier", draw_brier, (*JUDGMENTS,), (next(iter(JUDGMENTS)),), ALONE[:3]),
    Figure("reliability: overconfidence", draw_overconfidence, (*JUDGMENTS,), designs=ALONE[:3]),
    Figure("reward health: change", draw_trend, (*CHANGES,), (*CHANGES,)),
    Figure("reward health: second judge", draw_shortfall, ("normal",), ("normal",)),
    Figure("reward health: length", draw_length_correlation, ("4 completions",)),
    Figure("gate", draw_mean_gate, _SCORES, _SCORES[:3], promise=0.05),
    Figure("gate: wrong failures", draw_gate_failure, _SCORES, _SCORES[:3], promise=0.05),
    Figure("gate with labels", draw_labelled_gate, _SCORES, _SCORES[2:3], ALONE[2:], 0.05),
    Figure("gate with labels: failures", draw_labelled_failure, _SCORES, _SCORES[2:3], ALONE[2:], 0.05),
    Figure("baseline gate: failures", draw_baseline_failure, (*PAIRS,), (*PAIRS,), promise=0.05),
    Figure("gate with a baseline", draw_baseline_gate, (*PAIRS,), (*PAIRS,), promise=0.05),
    Figure("SequentialGate", draw_sequential_gate, _SCORES[1:3], designs=ALONE[1:], promise=0.05),
    Figure("certify", draw_certificate, ("alpha .1",), ("alpha .1",), promise=_DELTA),
    Figure("agreement(...)", public_agreement, (*PUBLIC_AGREEMENT,), designs=REAL_ROWS),
    Figure("calibrate(...)", public_calibration, ("rate", "score"), designs=REAL_ROWS),
    Figure("compare_runs(...)", public_comparison, ("score", "criterion", "kappa"), designs=REAL_ROWS),
    Figure("compare_judges(...)", public_judges, (*_TWO_JUDGES,), designs=REAL_ROWS),
    Figure("drift(...)", drift_figures, ("flips", "own_flips", "difference", "kappa", "abstentions"), (), REAL_ROWS),
    Figure("panel_report(...)", public_panel, ("adds",), designs=REAL_ROWS),
    Figure("gate(...)", public_gate, _SCORES[2:3], designs=REAL_ROWS, promise=0.05),
    Figure("certify(...)", public_certificate, ("alpha .1",), designs=REAL_ROWS, promise=_DELTA),
)
"""Each figure with the function that estimates it. Those with parentheses go through the public function itself."""
_BY_NAME = {figure.name: figure for figure in FIGURES}

INTERVALS = {
    "Agreement.accuracy": "agreement: accuracy of all",
    "Agreement.kappa": "agreement: pooled kappa",
    "Agreement.pooled_kappa": "agreement: pooled kappa",
    "Alignment.after": "agreement: accuracy of all",
    "Alignment.before": "agreement: accuracy of all",
    "Alignment.gain": "align: gain",
    "Calibration.assessable": "calibrate: assessable",
    "Calibration.score": "calibrate: mean score",
    "Certificate.kept": "agreement: accuracy of all",
    "ConfidenceBin.accuracy": "reliability: accuracy",
    "CorrectedMean.estimate": "calibrate: mean score",
    "CriterionAgreement.accuracy": "agreement: accuracy",
    "CriterionAgreement.bias": "agreement: bias",
    "CriterionAgreement.kappa": "agreement: kappa",
    "CriterionAgreement.sensitivity": "agreement: recall",
    "CriterionAgreement.specificity": "agreement: recall",
    "CriterionCalibration.assessable": "calibrate: assessable",
    "CriterionCalibration.options": "calibrate: rate",
    "CriterionCalibration.rate": "calibrate: rate",
    "CriterionCases.flips": "run_cases: flips",
    "CriterionChange.difference": "compare_runs: criterion",
    "CriterionChange.kappa": "compare_runs(...)",
    "CriterionDisagreements.bias": "agreement: bias of values",
    "CriterionDisagreements.kappa": "agreement: kappa",
    "CriterionDrift.abstentions": "drift(...)",
    "CriterionDrift.difference": "drift(...)",
    "CriterionDrift.flips": "drift(...)",
    "CriterionDrift.kappa": "drift(...)",
    "CriterionDrift.own_flips": "drift(...)",
    "DriftReport.score": "compare_runs: score",
    "FlipRate.low": "mutations: limit of flips",
    "GateResult.baseline": "gate with a baseline",
    "GateResult.observed": "gate",
    "JudgeChange.difference": "compare_judges(...)",
    "JudgeDifference.accuracy": "panel_report: adds",
    "JudgeDifference.kappa": "benchmark: kappa difference",
    "JudgeFigures.ac1": "benchmark: AC1",
    "JudgeFigures.accuracy": "agreement: accuracy of all",
    "JudgeFigures.bias": "agreement: bias",
    "JudgeFigures.kappa": "agreement: kappa",
    "JudgeFigures.weighted_kappa": "agreement: kappa, 4 levels",
    "JudgeGap.shortfall": "reward health: second judge",
    "JudgeOnPanel.accuracy": "agreement: accuracy of all",
    "JudgeOnPanel.adds": "panel_report: adds",
    "JudgeOnPanel.panel_gain": "panel_report: adds",
    "PanelWeights.equal": "agreement: accuracy of all",
    "PanelWeights.gain": "panel_report: adds",
    "PanelWeights.weighted": "agreement: accuracy of all",
    "Rate.low": "probe: rate",
    "Reliability.accuracy": "reliability: accuracy",
    "Reliability.brier": "reliability: brier",
    "Reliability.expected_brier": "reliability: brier",
    "Reliability.overconfidence": "reliability: overconfidence",
    "RewardReport.length_correlation": "reward health: length",
    "RunComparison.cautious": "compare_runs: cautious",
    "RunComparison.corrected": "compare_runs: corrected",
    "RunComparison.passed": "compare_runs: criterion",
    "RunComparison.score": "compare_runs: score",
    "ScoreAgreement.bias": "agreement: bias of values",
    "SelectivePoint.accuracy": "reliability: accuracy",
    "Separation.base": "separation",
    "Separation.length": "separation",
    "Separation.over_base": "separation",
    "Separation.over_length": "separation",
    "Separation.rubric": "separation",
    "Trend.change": "reward health: change",
}
"""The figure that simulates each interval of a record, by the name of the field."""

EXCUSES = {
    "a": "`compare_runs` keeps Student's interval, whose power finds regressions: rare large changes may not be seen",
    "b": "very unequal groups, with a coverage of .90 at least: the largest of ten has 30 % of the rows",
    "c": f"fewer than {FEW_GROUPS} groups, about which a warning says that the figure is uncertain",
    "d": "a rate has Jeffreys' interval, whose exact coverage is .924 at .85 and 30 rows: counts are whole numbers",
    "e": "alpha of rows in groups has limits from a jackknife, which a warning prints: .86 to .95 of 10 groups or more",
}


class Cell(NamedTuple):
    """One simulation.

    Attributes:
        figure: The name of its figure.
        shape: The shape of the data.
        design: The number of rows, and their groups.
    """

    figure: str
    shape: str
    design: Design

    @property
    def line(self) -> tuple[str, str, str, str]:
        """The names of its line in the table; its column is the number of rows."""
        _, groups, correlation, is_equal = self.design
        if not groups:
            return self.figure, self.shape, "-", "-"
        return self.figure, self.shape, f"{groups}{'' if is_equal else ' unequal'}", f"{correlation:g}"

    @property
    def excuse(self) -> str | None:
        """The letter of the documented reason for which the cell may fail; None without one."""
        if _BY_NAME[self.figure].draw is draw_change and self.shape in RARE and not self.design.groups:
            return "a"
        if _BY_NAME[self.figure].draw is draw_alpha and self.design.groups:
            return "e"
        if self.design.groups and not self.design.is_equal:
            return "b"
        if 0 < self.design.groups < FEW_GROUPS:
            return "c"
        is_accuracy = self.figure == "agreement: accuracy" or self.shape == "accuracy"
        return "d" if is_accuracy and not self.design.groups else None


class Result(NamedTuple):
    """How often it happened that an interval contains the truth, or that a gate passes wrongly.

    Attributes:
        happened: How often it happened.
        draws: In how many draws; those without an interval are left out.
        size: The mean width of the interval, or the share of better programs that pass.
    """

    happened: int
    draws: int
    size: float

    def is_broken(self, promise: float | None, least: float = 0.93) -> bool:
        """Return whether the share is significantly below the least coverage, or above the promise of a gate."""
        if promise is None:
            return upper_bound(self.happened, self.draws, 0.025) < least
        return lower_bound(self.happened, self.draws, 0.025) > promise

    def mark(self, cell: Cell) -> str:
        """Return how the table marks the cell: empty if it keeps its promise."""
        promise = _BY_NAME[cell.figure].promise
        if not self.draws or not self.is_broken(promise):
            return ""
        # The docs promise .90 for very unequal groups.
        is_excused = cell.excuse != "b" or promise is not None or not self.is_broken(promise, 0.9)
        return (cell.excuse or "!") if is_excused else "!"


def simulate(cell: Cell, draws: int) -> Result:
    """Simulate a cell; the seed is that of the cell."""
    rng, draw = np.random.default_rng(zlib.crc32(repr(cell).encode())), _BY_NAME[cell.figure].draw
    outcomes = [draw(Sample(rng, cell.design), cell.shape) for _ in range(draws)]
    kept = [outcome for outcome in outcomes if outcome is not None]
    sizes = [outcome.size for outcome in kept]
    return Result(int(sum(outcome.happened for outcome in kept)), len(kept), float(np.mean(sizes)) if sizes else 0.0)


def _simulate(task: tuple[Cell, int]) -> Result:
    return simulate(*task)


_COLUMNS = sorted({design.rows for design in ALONE + GROUPED + REAL_ROWS})


def main() -> None:
    """Print the table, and exit with 1 if a promise is broken without an excuse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", default="", help="only the figures with this in their name")
    arguments = parser.parse_args()
    cells = [cell for figure in FIGURES if arguments.only in figure.name for cell in figure.cells]
    print("95 % intervals: coverage (width). Gates: wrong passes (passes at .05 above the threshold).\n")
    print(_line(("figure", "data", "groups", "correlation"), [f"{size} rows  " for size in _COLUMNS]))
    marks: Counter[str] = Counter()
    with multiprocessing.get_context("fork").Pool() as pool:
        results = zip(cells, pool.imap(_simulate, [(cell, arguments.draws) for cell in cells]), strict=True)
        for line, of_line in groupby(results, key=lambda item: item[0].line):
            shown: dict[int, str] = {}
            for cell, result in of_line:
                mark = result.mark(cell)
                marks[mark] += 1
                share = f"{result.happened / result.draws:.3f} ({result.size:.2f})" if result.draws else "no interval"
                shown[cell.design.rows] = f"{share} {mark:1}"
            print(_line(line, [shown.get(size, "") for size in _COLUMNS]), flush=True)
    print()
    for letter, reason in EXCUSES.items():
        print(f"{letter}  {marks[letter]:,} cells: {reason}")
    print(f"!  {marks['!']:,} of {len(cells):,} cells break their promise")
    sys.exit(1 if marks["!"] else 0)


def _line(names: Sequence[str], figures: Sequence[str]) -> str:
    widths = (30, 22, 12, 13)
    cells = [f"{name:{width}}" for name, width in zip(names, widths, strict=True)]
    return "".join([*cells, *(f"{figure:>16}" for figure in figures)]).rstrip()


if __name__ == "__main__":
    main()
