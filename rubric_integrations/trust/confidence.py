"""`reliability`: measures how often a judge is right at each stated confidence, with figures and an SVG diagram.

A judge is calibrated if, for example, 90 % of its answers with a confidence of 0.9 are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rubric_integrations._util.records import Record, data_frame, html_table
from rubric_integrations.scoring.judgment import to_judgment
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.trust.matching import (
    Cluster,
    Match,
    RunLike,
    dependence_warnings,
    group_rows,
    group_warnings,
    match_labels,
    read_rows,
)
from rubric_integrations.trust.means import Groups, estimate_mean, number_groups, select_groups, widening
from rubric_integrations.trust.statistics import Count, effective_size, estimate_clustered_rate, normal_quantile

if TYPE_CHECKING:
    from pandas import DataFrame

_SIZE = 220
_MARGIN = 30


def diagram(points: Sequence[tuple[float, Estimate]]) -> str:
    """Draw accuracy over confidence as SVG: a point with its interval for each bin, and the line of equality.

    `points` has the mean confidence and the accuracy of each bin. A bin whose accuracy is undefined is left out.

    Example:
        >>> diagram([(0.9, Estimate(0.8, 0.6, 0.9, 20))]).count("<circle")
        1
    """
    low, high = _x(0), _x(1)
    parts = [
        f'<svg width="{_SIZE}" height="{_SIZE}" role="img" aria-label="accuracy by confidence" '
        'style="color:inherit" fill="none" stroke="currentColor" font-size="11">',
        f'<rect x="{low}" y="{_y(1)}" width="{high - low}" height="{high - low}" stroke-opacity=".4"/>',
        f'<line x1="{low}" y1="{_y(0)}" x2="{high}" y2="{_y(1)}" stroke-dasharray="4" stroke-opacity=".4"/>',
        f'<text x="{low}" y="{_SIZE - 8}" stroke="none" fill="currentColor">confidence, 0 to 1</text>',
        f'<text x="12" y="{_y(0)}" stroke="none" fill="currentColor" transform="rotate(-90 12 {_y(0)})">'
        "accuracy, 0 to 1</text>",
    ]
    for confidence, accuracy in points:
        if accuracy.value is None:
            continue
        x = _x(confidence)
        if accuracy.low is not None and accuracy.high is not None:
            parts.append(f'<line x1="{x}" y1="{_y(accuracy.low)}" x2="{x}" y2="{_y(accuracy.high)}"/>')
        parts.append(f'<circle cx="{x}" cy="{_y(accuracy.value)}" r="3" fill="currentColor"/>')
    return "".join([*parts, "</svg>"])


def _x(value: float) -> float:
    return round(_MARGIN + value * (_SIZE - 2 * _MARGIN), 1)


def _y(value: float) -> float:
    return round(_SIZE - _x(value), 1)


_SHARES = tuple(share / 10 for share in range(1, 11))


class ConfidenceBin(NamedTuple):
    """A bin of the reliability diagram: the judgments with similar confidence.

    Attributes:
        lowest: The lowest confidence in the bin, in [0, 1].
        highest: The highest confidence in the bin, in [0, 1].
        confidence: The mean confidence in the bin.
        accuracy: The share of the bin's judgments that agree with the human label, with its interval (Jeffreys limits
            at the effective number of judgments, or the interval for groups of rows).
    """

    lowest: float
    highest: float
    confidence: float
    accuracy: Estimate

    @property
    def range(self) -> str:
        """The range of confidences as text, such as "0.8 to 0.9"."""
        return f"{self.lowest:.3g}" if self.lowest == self.highest else f"{self.lowest:.3g} to {self.highest:.3g}"


class SelectivePoint(NamedTuple):
    """The accuracy of the judgments at or above one confidence threshold.

    The other judgments would go to annotators or to a stronger judge.

    Attributes:
        threshold: The lowest confidence that is kept.
        coverage: The share of the judgments that are kept, in [0, 1].
        accuracy: The share of the kept judgments that agree with the human label.
    """

    threshold: float
    coverage: float
    accuracy: Estimate


class StatedJudgment(NamedTuple):
    """A judgment with its confidence and the answer of one rater.

    Attributes:
        row: The index of the row, or of its group if rows depend on each other.
        confidence: The judge's confidence, in [0, 1].
        right: Whether the rater gives the judge's answer.
        expected: The expected value of the answer by the judge's probabilities, or None if it states no probabilities.
        people: The value of the rater's answer.
    """

    row: int
    confidence: float
    right: bool
    expected: float | None
    people: float


def state_judgments(match: Match, groups: Groups | None) -> list[StatedJudgment]:
    """Return one record for each rater who could assess the judgment of a match.

    A missing confidence of the judge becomes 0. If `groups` is not None, `StatedJudgment.row` is the number of the
    row's group.
    """
    judged, row = match.judged, match.row if groups is None else int(groups[match.row])
    values = [(answer, to_judgment(match.criterion, answer).value) for answer in match.answers]
    return [
        StatedJudgment(row, judged.confidence or 0.0, answer == match.judge_answer, judged.expected_value, value)
        for answer, value in values
        if value is not None
    ]


def _counts(items: Sequence[StatedJudgment]) -> list[Count]:
    of_rows: dict[int, list[bool]] = {}
    for item in items:
        of_rows.setdefault(item.row, []).append(item.right)
    return [Count(sum(of_row), len(of_row)) for of_row in of_rows.values()]


def accuracy_of(items: Sequence[StatedJudgment], level: float, *, are_grouped: bool = False) -> Estimate:
    """Estimate the share of right judgments.

    Args:
        items: The judgments.
        level: The confidence level of the interval, between 0 and 1.
        are_grouped: Whether `StatedJudgment.row` is the number of a group of rows instead of a row. With fewer than
            five groups, the estimate has no interval.
    """
    if are_grouped:
        return estimate_mean([float(item.right) for item in items], level, groups=_groups(items))
    return estimate_clustered_rate(_counts(items), level)


def _groups(items: Sequence[StatedJudgment]) -> Groups:
    return number_groups([item.row for item in items])


def estimate_loss(
    items: Sequence[StatedJudgment],
    loss: Callable[[StatedJudgment, bool], float],
    level: float,
    *,
    least: float = 0.0,
    are_grouped: bool = False,
) -> Estimate:
    """Estimate the mean of a loss that depends on whether a judgment is right.

    The mean is `a r + (1 - a) w`, with the accuracy a, the mean loss r of right judgments and the mean loss w of wrong
    judgments. The interval combines the intervals of all three (MOVER, Zou and Donner 2008). Therefore, it stays wide
    if few judgments are wrong.

    Args:
        items: The judgments.
        loss: A function that gets a judgment and whether it is right, and returns its loss.
        level: The confidence level of the interval, between 0 and 1.
        least: The lowest possible loss. The highest possible loss is 1.
        are_grouped: Whether the user set `cluster`. Fewer than five groups of rows then give no interval.
    """
    if not items:
        return Estimate(None, None, None, 0)
    accuracy = accuracy_of(items, level, are_grouped=are_grouped)
    assert accuracy.value is not None  # noqa: S101
    low, high = accuracy.low, accuracy.high
    if are_grouped and low is not None:
        share = 1 / widening([item.right - accuracy.value for item in items], _groups(items), level)
    else:
        share = effective_size(_counts(items), level) / len(items)
    means, within = [0.0, 0.0], 0.0
    for outcome, weight in ((False, 1 - accuracy.value), (True, accuracy.value)):
        losses = [loss(item, outcome) for item in items if item.right is outcome]
        # Without a judgment of this outcome, the other judgments give the loss that it would have.
        means[outcome] = float(np.mean(losses or [loss(item, outcome) for item in items]))
        if len(losses) > 1:
            within += weight**2 * float(np.var(losses, ddof=1)) / (len(losses) * share)
    slope, variance = means[True] - means[False], normal_quantile(level) ** 2 * within
    value = accuracy.value * means[True] + (1 - accuracy.value) * means[False]
    if low is None or high is None:
        return Estimate(value, None, None, len(items))
    ends = sorted(((low - accuracy.value) * slope, (high - accuracy.value) * slope))
    low, high = value - math.sqrt(ends[0] ** 2 + variance), value + math.sqrt(ends[1] ** 2 + variance)
    return Estimate(value, max(least, low), min(1.0, high), len(items))


def overconfidence(item: StatedJudgment, right: bool) -> float:
    """Return the confidence of a judgment minus 1 if `right` is true, otherwise the confidence itself."""
    return item.confidence - right


def squared_error(item: StatedJudgment, right: bool) -> float:
    """Return the squared error of the confidence, for the Brier score: the target is 1 if `right`, otherwise 0."""
    return (item.confidence - right) ** 2


def expected_error(item: StatedJudgment, right: bool) -> float:
    """Return the squared difference of the judge's expected value and the rater's value, for the Brier score.

    If all judgments are right (or all are wrong), `estimate_loss` also asks for the loss that they would have with the
    opposite outcome: `right` then differs from `item.right`. In this case, the rater's value is replaced by 1 minus
    this value.
    """
    people = item.people if right is item.right else 1 - item.people
    return ((item.expected or 0.0) - people) ** 2


def divide_by_confidence(stated: Sequence[StatedJudgment], bins: int) -> list[list[StatedJudgment]]:
    """Divide judgments into at most `bins` bins of similar size, sorted by confidence.

    Judgments with equal confidence stay in one bin.
    """
    in_order = sorted(stated, key=lambda item: item.confidence)
    ties = [list(group) for _, group in groupby(in_order, key=lambda item: item.confidence)]
    if len(ties) <= bins:
        return ties
    divided: list[list[StatedJudgment]] = []
    previous = -1
    seen = 0
    for group in ties:
        # The bin that contains the middle of the group.
        place = min(bins - 1, int((seen + len(group) / 2) * bins / len(stated)))
        seen += len(group)
        if place == previous:
            divided[-1] += group
        else:
            divided.append(list(group))
        previous = place
    return divided


def make_bin(items: Sequence[StatedJudgment], level: float, *, are_grouped: bool = False) -> ConfidenceBin:
    """Compute the mean confidence and the accuracy of the judgments in one bin of the reliability diagram."""
    confidences = [item.confidence for item in items]
    accuracy = accuracy_of(items, level, are_grouped=are_grouped)
    return ConfidenceBin(min(confidences), max(confidences), sum(confidences) / len(confidences), accuracy)


def accuracy_at_coverage(
    stated: Sequence[StatedJudgment], level: float, *, are_grouped: bool = False
) -> list[SelectivePoint]:
    """Estimate the accuracy of the 10 %, 20 %, ... 100 % of the judgments with the highest confidence.

    Shares that have the same threshold, because confidences are equal, give one point.
    """
    confidences = np.sort([item.confidence for item in stated])[::-1]
    needed = [int(np.ceil(share * len(stated) - 1e-9)) for share in _SHARES]
    points: list[SelectivePoint] = []
    for threshold in dict.fromkeys(float(confidences[count - 1]) for count in needed):
        kept = [item for item in stated if item.confidence >= threshold]
        points.append(
            SelectivePoint(threshold, len(kept) / len(stated), accuracy_of(kept, level, are_grouped=are_grouped))
        )
    return points


def auroc(stated: Sequence[StatedJudgment]) -> float | None:
    """Compute the probability that a right judgment has a higher confidence than a wrong one. A tie counts 0.5.

    None if all judgments are right or all are wrong.
    """
    right = np.sort([item.confidence for item in stated if item.right])
    wrong = np.sort([item.confidence for item in stated if not item.right])
    if not right.size or not wrong.size:
        return None
    below = np.searchsorted(wrong, right, "left").sum()
    not_above = np.searchsorted(wrong, right, "right").sum()
    return float(below + not_above) / (2 * right.size * wrong.size)


_COLUMNS = ("lowest", "highest", "mean confidence", "n", "accuracy")
_FEW_ERRORS = 10


class Reliability(Record):
    """Figures that compare a judge's confidence with its accuracy according to human labels.

    Attributes:
        accuracy: The share of the judgments that agree with the human labels.
        bins: The reliability diagram: the accuracy in each range of confidences.
        overconfidence: The mean confidence minus the accuracy. Above 0, the judge is overconfident.
        brier: The mean of (confidence - right)^2, where right is 1 or 0. A perfect judge has 0. A constant confidence
            of 0.5 gives 0.25.
        expected_brier: The mean of (expected value - label)^2, where MET is 1 and UNMET is 0. Undefined if the judge
            states no probabilities.
        calibration_error: The mean absolute difference of confidence and accuracy over the bins (ECE), weighted by the
            size of each bin. It depends on the bins. With few judgments, it is too large even for a perfectly
            calibrated judge.
        auroc: The probability that a right judgment has a higher confidence than a wrong one, where a tie counts 0.5.
            Random confidences have 0.5. None if all judgments are right, or all are wrong.
        selective: The accuracy of the 10 %, 20 %, ... 100 % of the judgments with the highest confidence. Judgments
            with equal confidence stay together.
        n: The number of labelled judgments that have a confidence and that both annotators and the judge decided.
        without_confidence: The number of other labelled judgments that were decided but have no confidence.
        warnings: Limitations of the figures, one sentence each.
    """

    accuracy: Estimate
    bins: tuple[ConfidenceBin, ...]
    overconfidence: Estimate
    brier: Estimate
    expected_brier: Estimate
    calibration_error: float | None
    auroc: float | None
    selective: tuple[SelectivePoint, ...]
    n: int
    without_confidence: int
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return the figures as text, with a line for each bin and for each point of `selective`."""
        lines = [f"accuracy {self.accuracy}, mean confidence less accuracy {self.overconfidence}"]
        error, auroc = (
            "undefined" if value is None else f"{value:.3f}" for value in (self.calibration_error, self.auroc)
        )
        lines.append(f"Brier score {self.brier}, calibration error {error}, AUROC {auroc}")
        lines += [f"confidence {row.range}: accuracy {row.accuracy}" for row in self.bins]
        lines += [
            f"surest {row.coverage:.0%} (at least {row.threshold:.3g}): accuracy {row.accuracy}"
            for row in self.selective
        ]
        return "\n".join([*lines, *self.warnings])

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with one row for each bin.

        Raises:
            ImportError: pandas is not installed.
        """
        return data_frame([dict(zip(_COLUMNS, row, strict=True)) for row in self._rows()], _COLUMNS)

    def _repr_html_(self) -> str:
        rows = [[str(cell) if isinstance(cell, Estimate) else cell for cell in row] for row in self._rows()]
        title = f"Confidence and accuracy of {self.n:,} judgments: Brier score {self.brier}"
        points = [(row.confidence, row.accuracy) for row in self.bins]
        return diagram(points) + html_table(title, _COLUMNS, rows)

    def _rows(self) -> list[tuple[object, ...]]:
        return [(row.lowest, row.highest, row.confidence, row.accuracy.n, row.accuracy) for row in self.bins]


def reliability(
    run: RunLike,
    labels: Iterable[LabelledJudgment],
    *,
    bins: int = 5,
    cluster: Cluster | None = None,
    level: float = 0.95,
) -> Reliability:
    """Compare the confidence of a judge with its accuracy according to human labels.

    The judgments of one submission depend on each other. Therefore, intervals are computed for the effective number of
    independent judgments. If a judgment has several raters, each rater's answer counts as one judgment.

    Args:
        run: A run of a judge with `confidence=True`: the path of a file that `grade --out` wrote, results of
            `grade_many`, or reports.
        labels: Human labels of some of its judgments, drawn at random.
        bins: The number of bins of the confidences, at least 1. Bins have similar numbers of judgments. If there are at
            most `bins` different confidences, each one is a bin.
        cluster: How to group rows that depend on each other: a column of the graded table, `"id"`, `"query"`, or a
            function that gets a row's id. The intervals are then computed for groups of rows.
        level: The confidence level of the intervals, between 0 and 1.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves.
        ValueError: `bins` is less than 1, no labelled judgment has a confidence, or a row does not have the column of
            `cluster`.
    """
    if isinstance(bins, bool) or bins < 1:
        raise ValueError(f"`bins` must be at least 1, got {bins!r}")
    rows = read_rows(run)
    groups = group_rows(rows, cluster)
    are_grouped = groups is not None
    matches = match_labels(rows, labels).matches
    random = [match for match in matches if match.is_random]
    decided = [match for match in random if match.right is not None]
    with_confidence = [match for match in decided if match.judged.confidence is not None]
    stated = [item for match in with_confidence for item in state_judgments(match, groups)]
    if not stated:
        raise ValueError(
            "no labelled judgment has a confidence: grade with `LMJudge(model, confidence=True)`, and draw labels at "
            "random; one judge, and not a panel, states a confidence, on binary criteria"
        )
    expected = [item for item in stated if item.expected is not None]
    in_bins = divide_by_confidence(stated, bins)
    of_bins = [make_bin(items, level, are_grouped=are_grouped) for items in in_bins]
    errors = sum(not item.right for item in stated)
    warnings: list[str] = []
    if len(random) < len(matches):
        warnings.append(
            f"{len(matches) - len(random):,} labelled judgments are left out: they were drawn by the judge's verdict, "
            "and have more of the rare verdicts than the run"
        )
    rarer = min(errors, len(stated) - errors)
    if rarer < _FEW_ERRORS:
        kind = "wrong" if rarer == errors else "right"
        warnings.append(
            f"only {rarer:,} of {len(stated):,} judgments are {kind}: label more to see what confidence tells"
        )
    warnings += dependence_warnings(rows, cluster)
    warnings += group_warnings(select_groups(groups, [match.row for match in with_confidence]))
    return Reliability(
        accuracy=accuracy_of(stated, level, are_grouped=are_grouped),
        bins=tuple(of_bins),
        overconfidence=estimate_loss(stated, overconfidence, level, least=-1.0, are_grouped=are_grouped),
        brier=estimate_loss(stated, squared_error, level, are_grouped=are_grouped),
        expected_brier=estimate_loss(expected, expected_error, level, are_grouped=are_grouped),
        calibration_error=sum(
            len(items) * abs(row.confidence - (row.accuracy.value or 0.0))
            for items, row in zip(in_bins, of_bins, strict=True)
        )
        / len(stated),
        auroc=auroc(stated),
        selective=tuple(accuracy_at_coverage(stated, level, are_grouped=are_grouped)),
        n=len(with_confidence),
        without_confidence=len(decided) - len(with_confidence),
        warnings=tuple(warnings),
    )
