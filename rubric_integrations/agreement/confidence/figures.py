"""Figures about confidences: bins, Brier scores, accuracy at coverage, and the AUROC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from rubric_integrations.agreement.clusters import Count, effective_size, estimate_clustered_rate
from rubric_integrations.agreement.intervals import normal_quantile
from rubric_integrations.agreement.matching import Match
from rubric_integrations.results.estimate import Estimate

_SHARES = tuple(share / 10 for share in range(1, 11))


class ConfidenceBin(NamedTuple):
    """The judgments with about the same confidence.

    Attributes:
        lowest: The lowest confidence of them, in [0, 1].
        highest: The highest.
        confidence: The mean confidence.
        accuracy: The share of them on which people agree, with Jeffreys limits at the effective number of judgments.
    """

    lowest: float
    highest: float
    confidence: float
    accuracy: Estimate

    @property
    def range(self) -> str:
        """The confidences as text."""
        return f"{self.lowest:.3g}" if self.lowest == self.highest else f"{self.lowest:.3g} to {self.highest:.3g}"


class SelectivePoint(NamedTuple):
    """The judgments that remain if those of less confidence go to people, or to a stronger judge.

    Attributes:
        threshold: The least confidence that is kept.
        coverage: The share of the judgments that is kept.
        accuracy: The share of these on which people agree.
    """

    threshold: float
    coverage: float
    accuracy: Estimate


class StatedJudgment(NamedTuple):
    """A judgment with its confidence.

    Attributes:
        row: The index of its row.
        confidence: The confidence, in [0, 1].
        right: Whether people give the same answer.
        expected: The expected value of the judge's probabilities; None if it states none.
        people: The value of people's answer.
    """

    row: int
    confidence: float
    right: bool
    expected: float | None
    people: float


def state_judgment(match: Match, right: bool) -> StatedJudgment:
    """Return a labelled judgment with its confidence, and whether people agree with it."""
    judged = match.judged
    return StatedJudgment(match.row, judged.confidence or 0.0, right, judged.expected_value, match.people_value or 0.0)


def _counts(items: Sequence[StatedJudgment]) -> list[Count]:
    of_rows: dict[int, list[bool]] = {}
    for item in items:
        of_rows.setdefault(item.row, []).append(item.right)
    return [Count(sum(of_row), len(of_row)) for of_row in of_rows.values()]


def accuracy_of(items: Sequence[StatedJudgment], level: float) -> Estimate:
    """Estimate the share of right judgments."""
    return estimate_clustered_rate(_counts(items), level)


def estimate_loss(
    items: Sequence[StatedJudgment], loss: Callable[[StatedJudgment, bool], float], level: float, *, least: float = 0.0
) -> Estimate:
    """Estimate the mean of what each judgment counts, which depends on whether it is right.

    The mean is `a r + (1 - a) w`, with the accuracy a, and the means r of right and w of wrong judgments. Its interval
    joins those of all three (MOVER, Zou and Donner 2008), so that it stays wide if few judgments are wrong.

    Args:
        items: The judgments.
        loss: What a judgment counts if it is right, and if it is wrong.
        level: The level of the interval.
        least: The least that a judgment can count; the most is 1.
    """
    if not items:
        return Estimate(None, None, None, 0)
    accuracy = accuracy_of(items, level)
    assert accuracy.value is not None and accuracy.low is not None and accuracy.high is not None  # noqa: PT018, S101
    share = effective_size(_counts(items), level) / len(items)
    means, within = [0.0, 0.0], 0.0
    for outcome, weight in ((False, 1 - accuracy.value), (True, accuracy.value)):
        losses = [loss(item, outcome) for item in items if item.right is outcome]
        # Without such a judgment, those of the others stand for what it would count.
        means[outcome] = float(np.mean(losses or [loss(item, outcome) for item in items]))
        if len(losses) > 1:
            within += weight**2 * float(np.var(losses, ddof=1)) / (len(losses) * share)
    slope, variance = means[True] - means[False], normal_quantile(level) ** 2 * within
    ends = sorted(((accuracy.low - accuracy.value) * slope, (accuracy.high - accuracy.value) * slope))
    value = accuracy.value * means[True] + (1 - accuracy.value) * means[False]
    low, high = value - math.sqrt(ends[0] ** 2 + variance), value + math.sqrt(ends[1] ** 2 + variance)
    return Estimate(value, max(least, low), min(1.0, high), len(items))


def overconfidence(item: StatedJudgment, right: bool) -> float:
    """Return how much the confidence of a judgment exceeds 1 if it is right, and 0 if it is wrong."""
    return item.confidence - right


def squared_error(item: StatedJudgment, right: bool) -> float:
    """Return the squared error of the confidence, for the Brier score."""
    return (item.confidence - right) ** 2


def expected_error(item: StatedJudgment, right: bool) -> float:
    """Return the squared error of the expected value, if people's value is such that the judgment is right."""
    people = item.people if right is item.right else 1 - item.people
    return ((item.expected or 0.0) - people) ** 2


def divide_by_confidence(stated: Sequence[StatedJudgment], bins: int) -> list[list[StatedJudgment]]:
    """Divide judgments into bins of about the same size; those of equal confidence stay together."""
    in_order = sorted(stated, key=lambda item: item.confidence)
    ties = [list(group) for _, group in groupby(in_order, key=lambda item: item.confidence)]
    if len(ties) <= bins:
        return ties
    divided: list[list[StatedJudgment]] = []
    previous = -1
    seen = 0
    for group in ties:
        # The bin in which the middle of the group lies.
        place = min(bins - 1, int((seen + len(group) / 2) * bins / len(stated)))
        seen += len(group)
        if place == previous:
            divided[-1] += group
        else:
            divided.append(list(group))
        previous = place
    return divided


def make_bin(items: Sequence[StatedJudgment], level: float) -> ConfidenceBin:
    """Make a bin of the reliability diagram."""
    confidences = [item.confidence for item in items]
    return ConfidenceBin(
        min(confidences), max(confidences), sum(confidences) / len(confidences), accuracy_of(items, level)
    )


def accuracy_at_coverage(stated: Sequence[StatedJudgment], level: float) -> list[SelectivePoint]:
    """Estimate the accuracy of the surest 10 %, 20 %, ... 100 %; one point for shares that ties make equal."""
    confidences = np.sort([item.confidence for item in stated])[::-1]
    needed = [int(np.ceil(share * len(stated) - 1e-9)) for share in _SHARES]
    points: list[SelectivePoint] = []
    for threshold in dict.fromkeys(float(confidences[count - 1]) for count in needed):
        kept = [item for item in stated if item.confidence >= threshold]
        points.append(SelectivePoint(threshold, len(kept) / len(stated), accuracy_of(kept, level)))
    return points


def auroc(stated: Sequence[StatedJudgment]) -> float | None:
    """Compute how often a right judgment has a higher confidence than a wrong one; a tie counts as half."""
    right = np.sort([item.confidence for item in stated if item.right])
    wrong = np.sort([item.confidence for item in stated if not item.right])
    if not right.size or not wrong.size:
        return None
    below = np.searchsorted(wrong, right, "left").sum()
    not_above = np.searchsorted(wrong, right, "right").sum()
    return float(below + not_above) / (2 * right.size * wrong.size)
