"""`plan_labels`: the number of labels that an interval needs. `choose_for_labels`: a random sample to label."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.labels import Sampled
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.corrections import FOR_LABELS, Stratum, corrected_rate
from rubric_integrations.trust.matching import Cluster, RunLike, group_rows, is_trained_on, read_rows
from rubric_integrations.trust.means import Groups, low_end
from rubric_integrations.trust.questions import QuestionToLabel, question_of
from rubric_integrations.trust.statistics import normal_quantile, student_quantile


class JudgmentToLabel(NamedTuple):
    """One judgment of a run that an annotator should label.

    Attributes:
        id: The row's id.
        criterion: The criterion's name in the rubric.
        requirement: The criterion's requirement.
        submission: The graded submission, or None if the run does not contain it.
        judged: The judge's answer. Do not show it to annotators, because they would tend to agree with it.
        sampled: How the judgment was drawn. Its label must have the same value of `sampled`.
        row: The index of the row in the run.
        question: The other texts to show to the annotator, and the answers to offer.
    """

    id: str
    criterion: str
    requirement: str
    submission: Submission | None
    judged: str | None
    sampled: Sampled
    row: int
    question: QuestionToLabel

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers to offer, with abstentions last. Empty if the run does not contain the possible answers."""
        return tuple(answer.verdict for answer in self.question.answers)


def choose_for_labels(
    run: RunLike, n: int, *, by_verdict: bool = False, cluster: Cluster | None = None, seed: int = 0
) -> list[JudgmentToLabel]:
    """Draw a random sample of a run's judgments for annotators to label.

    Criteria with a check are left out, because code answers them. Submissions with a label that was used to align the
    judge are also left out, because the judge makes fewer errors there.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        n: The number of submissions to draw, each with all its judgments. With `by_verdict`, the number of judgments to
            draw for each verdict on each criterion, or all of them if there are fewer.
        by_verdict: Whether to draw separately from the judgments of each verdict. The sample then has enough judgments
            of a rare verdict. Such labels correct the rates of criteria, but not the mean score.
        cluster: How to group rows that depend on each other, such as the questions about one document: a column of the
            graded table, `"id"`, `"query"`, or a function that gets a row's id. The sample then covers as many groups
            as possible. Each submission still has the same probability.
        seed: The random seed. The same seed draws the same sample.

    Returns:
        The judgments to label, grouped by submission. With `by_verdict`, all judgments are in random order.

    Raises:
        ValueError: `n` is less than 1, the run has no answer of a judge, or a row does not have the column of
            `cluster`.
    """
    if n < 1:
        raise ValueError(f"`n` must be at least 1, got {n!r}")
    all_rows = read_rows(run)
    groups = group_rows(all_rows, cluster)
    rows = [(place, row) for place, row in enumerate(all_rows) if _judged(row)]
    if not rows:
        raise ValueError("the run has no answers of a judge: there is nothing to label")
    pairs = [_Judgment(place, row, index, entry) for place, row in rows for index, entry in _judged(row)]
    rng = random.Random(seed)  # noqa: S311 -- a draw, not a secret
    if not by_verdict:
        drawn = _draw([place for place, _ in rows], n, groups, rng)
        of_row: dict[int, list[_Judgment]] = {}
        for pair in pairs:
            of_row.setdefault(pair.place, []).append(pair)
        return [_to_label(pair, "random") for place in drawn for pair in of_row[place]]
    strata: dict[tuple[str, str | None], dict[int, _Judgment]] = {}
    for pair in pairs:
        strata.setdefault((pair.entry.requirement, pair.entry.verdict), {})[pair.place] = pair
    chosen = [of_row[place] for of_row in strata.values() for place in _draw(list(of_row), n, groups, rng)]
    rng.shuffle(chosen)  # the order must not reveal the verdict
    return [_to_label(pair, "by_verdict") for pair in chosen]


def _draw(places: Sequence[int], n: int, groups: Groups | None, rng: random.Random) -> list[int]:
    """Draw rows at random. Rows in groups are sorted by group in random order and drawn at equal steps."""
    n = min(n, len(places))
    if groups is None:
        return rng.sample(places, n)
    keys = {group: rng.random() for group in sorted({int(groups[place]) for place in places})}
    in_order = sorted(rng.sample(places, len(places)), key=lambda place: keys[int(groups[place])])
    step, start = len(places) / n, rng.random()
    drawn = [in_order[int((start + number) * step)] for number in range(n)]
    rng.shuffle(drawn)
    return drawn


class _Judgment(NamedTuple):
    """A judgment with its row, the index of the row in the run, and its own index in the row's report."""

    place: int
    row: GradedRow
    position: int
    entry: CriterionReport


def _judged(row: GradedRow) -> Sequence[tuple[int, CriterionReport]]:
    if row.report is None or is_trained_on(row):
        return []
    entries = enumerate(row.report.criteria)
    return [(index, entry) for index, entry in entries if entry.was_judged and not entry.computed]


def _to_label(pair: _Judgment, sampled: Sampled) -> JudgmentToLabel:
    place, row, position, entry = pair
    return JudgmentToLabel(
        row.id, entry.name, entry.requirement, row.submission, entry.verdict, sampled, place, question_of(row, position)
    )


# The lower end of a corrected figure should be above the true value in 2.5 % of runs. With 20 labels, it is above in up
# to 6.7 % of runs, and with 50 labels in up to 4.8 %. Therefore, gates need 50 labels.
FEWEST_LABELS = 50


def plan_labels(
    half_width: float,
    *,
    judged: int,
    rate: float | None = None,
    sd: float | None = None,
    correlation: float = 0.0,
    groups: float | None = None,
    icc: float = 0.0,
    level: float = 0.95,
) -> int | None:
    """Return the number of human labels that a corrected rate or mean needs for an interval of a chosen width.

    It is the smallest number at which the interval of `calibrate` is narrow enough. The calculation assumes a judge
    that gives MET at the same rate as annotators, or scores in [0, 1] that are symmetric.

    Args:
        half_width: Half the width of the interval, h, above 0.
        judged: The number of judged submissions, N.
        rate: The expected rate, in [0, 1]. Set it to plan for a rate, and leave out `sd`.
        sd: The expected standard deviation of the scores. Set it to plan for a mean score, and leave out `rate`.
        correlation: The expected correlation r between the judge's answers and the human labels, in [-1, 1]. A negative
            value counts as 0.
        groups: The number G of groups of submissions that depend on each other, such as documents with several
            questions, at least 2. None for independent submissions.
        icc: The expected intraclass correlation i: the correlation of two submissions of a group, in [0, 1].
        level: The confidence level of the interval, between 0 and 1.

    Returns:
        The number of labelled submissions. It is at least 50, or `judged` if fewer are judged. None if labels for all
        submissions would not be sufficient.

    Raises:
        ValueError: An argument is out of range, or not exactly one of `rate` and `sd` is set.

    Example:
        >>> [plan_labels(0.05, judged=1000, rate=0.8, correlation=r) for r in (0, 0.5, 0.7, 0.9)]
        [243, 194, 147, 83]
        >>> plan_labels(0.1, judged=1000, rate=0.8, groups=100, icc=0.3)
        74
    """
    if (rate is None) == (sd is None):
        raise ValueError("set exactly one of `rate` and `sd`")
    for name, value, least, most in (("half_width", half_width, 0, math.inf), ("correlation", correlation, -1, 1)):
        if not least <= value <= most or (name == "half_width" and value == 0):
            raise ValueError(f"`{name}` is out of range, got {value!r}")
    if not 0 <= icc <= 1:
        raise ValueError(f"`icc` must be in [0, 1], got {icc!r}")
    if groups is not None and not groups >= 2:
        raise ValueError(
            f"`groups` must be at least 2, got {groups!r}: nothing tells how one group differs from others"
        )
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError(f"`rate` must be in [0, 1], got {rate!r}")
    spread = math.sqrt(rate * (1 - rate)) if rate is not None else float(sd or 0.0)
    if spread == 0:
        return min(FEWEST_LABELS, judged)
    # The share of variance that the judge explains. A judge with a negative correlation explains nothing.
    explained = max(0.0, correlation) ** 2
    quantile = normal_quantile(level) if groups is None else student_quantile(groups - 1, level)
    of_groups = 0.0 if groups is None else icc / groups
    fewest, correlation, tail = min(FEWEST_LABELS, judged), math.sqrt(explained), (1 - level) / 2

    def is_narrow(n: int) -> bool:
        alone = (1 - explained) / n + explained / judged
        times = math.sqrt((alone + of_groups) / alone) * quantile / normal_quantile(level)
        if rate is not None:
            expected = _rate_half_width(n, judged, rate, correlation, level)
        elif spread > 0.5:  # scores in [0, 1] have no larger deviation
            expected = normal_quantile(level) * spread * math.sqrt(alone)
        else:
            expected = _mean_half_width(n, judged, spread, correlation, tail)
        return times * expected <= half_width

    numbers = range(fewest, judged + 1)
    place = bisect_left(numbers, True, key=is_narrow)
    return numbers[place] if place < len(numbers) else None


def _rate_half_width(n: int, judged: int, rate: float, correlation: float, level: float) -> float:
    """Return half the width of the interval of `corrected_rate`, if the judge gives MET at the same rate."""
    met, labelled = round(judged * rate), round(n * rate)
    right, missed = rate + correlation * (1 - rate), rate - correlation * rate
    strata = Stratum(met, labelled, labelled * right), Stratum(judged - met, n - labelled, (n - labelled) * missed)
    estimate = corrected_rate(strata, level)
    return ((estimate.high or 1.0) - (estimate.low or 0.0)) / 2


def _mean_half_width(n: int, judged: int, sd: float, correlation: float, tail: float) -> float:
    """Return half the width of the interval of `labelled_mean` for symmetric scores with the mean 0.5."""

    def arm(deviation: float, farthest: float) -> float:
        values = np.resize((deviation, -deviation), n)
        return low_end(values - values.mean(), np.ones(n), -farthest, tail, FOR_LABELS)

    residual = sd * math.sqrt(1 - correlation**2) * n / max(1, n - 2)
    of_labels, of_run = arm(residual, 0.5 + correlation / 2), arm(sd, 0.5)
    return math.hypot(math.sqrt(1 - n / judged) * of_labels, math.sqrt(n / judged) * of_run)
