"""Release gates: test whether a run's true mean score is above a threshold, with a limited probability of a wrong pass.

It is not sufficient that the observed mean is above the threshold. A program whose true mean is equal to the threshold
would then pass in half of all cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import RunFile
from rubric_integrations.runs.run import Run
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.trust.calibration import calibrate
from rubric_integrations.trust.comparison import (
    RunChanges,
    RunPair,
    left_out_warnings,
    pair_runs,
)
from rubric_integrations.trust.matching import (
    Cluster,
    RunLike,
    as_run,
    dependence_warnings,
    group_rows,
    group_warnings,
    is_trained_on,
)
from rubric_integrations.trust.means import FOR_GATE, Bounds, Groups, estimate_mean, mean_limits
from rubric_integrations.trust.planning import FEWEST_LABELS
from rubric_integrations.trust.statistics import ROUNDING

Decision = Literal["pass", "fail", "inconclusive"]
"""The decision of a gate: the true mean is above the threshold, below the threshold, or not yet decided."""

Change = Literal["unchanged", "not worse", "worse", "unclear"]
"""The result of the comparison with a baseline: `worse` means a loss of more than the margin."""

# The quantile of a power of 80 %.
_POWER = 0.8416
_BETS = 20
# If more submissions than this would be needed, `more` is None: the mean is too close to the threshold.
_MOST = 1_000_000
# Up to this number of submissions, the number that decides is searched exactly. Above, it is extrapolated.
_MANY = 10_000


class GateResult(NamedTuple):
    """The decision of a gate.

    Attributes:
        decision: `pass`, `fail` or `inconclusive`.
        score: The mean score with its interval. The probability that the true mean is below the interval is at most
            `alpha`, and so is the probability that it is above the interval.
        min_score: The threshold.
        more: The approximate number of additional submissions that would decide. None if the gate is decided, if the
            mean is too close to the threshold, or with labels.
        missing: The number of submissions without `EvaluationReport.gate_score`: a criterion failed, or too few
            criteria were assessed. A run passes only if it would also pass if all missing scores were 0 (or `floor`).
            It fails only if it would also fail if all missing scores were 1.
        baseline: The run's mean score minus the baseline's mean score. None without a baseline.
        warnings: Limitations of the figures, and differences between the run and the baseline other than their
            answers.
        change: The result of the comparison with the baseline: `unchanged` (every answer and score is equal, which
            passes), `not worse`, `worse` or `unclear`. None without a baseline.
        least_margin: If `change` is `unclear`, the smallest `margin` that this number of rows can confirm for an
            equally good program in 80 % of cases. Otherwise None.
        unmatched: The number of rows that are only in the run or only in the baseline.
        needs_floor: Whether fewer submissions would be needed with a `floor`.
        in_groups: Whether the interval is computed for groups of submissions.
    """

    decision: Decision
    score: Estimate
    min_score: float
    more: int | None = None
    missing: int = 0
    baseline: Estimate | None = None
    warnings: tuple[str, ...] = ()
    change: Change | None = None
    least_margin: float | None = None
    unmatched: int = 0
    needs_floor: bool = False
    in_groups: bool = False

    def __str__(self) -> str:
        parts = [f"{self.decision}: {self.score} against {self.min_score:g}"]
        if self.baseline is not None:
            parts.append(f"{self.change}: {self.baseline} against the baseline")
        if self.unmatched:
            parts.append(f"{self.unmatched:,} rows in only one of the runs")
        if self.missing:
            parts.append(f"{self.missing:,} without a score")
        return "; ".join([*parts, *self.advice("`floor=`", "`margin=`"), *self.warnings])

    def advice(self, floor: str, margin: str) -> Iterator[str]:
        """Yield advice on how to decide an inconclusive gate.

        Args:
            floor: The name of the option that sets the floor (the lowest possible score), as the user writes it:
                `floor=` in Python, or `--floor` in the shell.
            margin: The name of the option that sets the margin (the accepted loss against the baseline), in the same
                form.
        """
        if self.decision != "inconclusive":
            return
        if self.more:
            fewer = f" (fewer with {floor}, if the rubric lets no row score 0)" if self.needs_floor else ""
            of_groups = " of further groups" if self.in_groups else ""
            yield f"about {self.more:,} more submissions{of_groups} would decide{fewer}"
        if self.least_margin is not None:
            yield f"{margin} {self.least_margin:.2f} is the smallest that so many rows could show"


def gate(
    run: RunLike,
    min_score: float,
    *,
    labels: Iterable[LabelledJudgment] | None = None,
    baseline: RunLike | None = None,
    margin: float = 0.0,
    cluster: Cluster | None = None,
    floor: float = 0.0,
    rubric: Rubric | None = None,
    alpha: float = 0.05,
    anyway: bool = False,
) -> GateResult:
    """Decide whether a run's true mean score is above a threshold, and optionally whether it is not below a baseline.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        min_score: The threshold, above 0 and below 1.
        labels: Human labels of a random part of the run, which correct the mean score. At least 50 submissions need a
            label for every criterion.
        baseline: An earlier run over the same inputs. The gate then passes only if the run is also not worse than the
            baseline. A run with the same answers and scores is `unchanged`, which passes.
        margin: The accepted loss: how much lower than the baseline the run's mean score may be, at least 0. With 0,
            most gates on equally good programs are inconclusive. `GateResult.least_margin` suggests a margin.
        cluster: How to group rows that depend on each other: `"id"`, `"query"`, a key of `metadata`, or a function that
            gets a row's id.
        floor: The lowest possible score of a row, at least 0 and below the threshold. Set it only if the rubric makes
            lower scores impossible. Do not take it from the scores of a run, because rare failures may be missing.
        rubric: The run's rubric. It is needed only with labels, if the rubric has groups.
        alpha: The probability of a wrong pass, and also of a wrong failure, above 0 and below 0.5.
        anyway: Whether to compare the run with the baseline although they cannot be compared (see `comparability`).

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves.
        ValueError: A setting is out of range, the run is empty or ended early, a score is not in [0, 1] or is below
            `floor`, there are too few labels, or the run and the baseline cannot be compared.
    """
    _check_settings(min_score, alpha, floor)
    if margin < 0:
        raise ValueError(f"`margin` must be at least 0, got {margin!r}: it is how much worse the run may be")
    graded = as_run(run, "the run", in_memory=True)
    rows = graded.rows
    # An outage or a limit would otherwise leave only the rows before it, as if they were all.
    if isinstance(run, Run) and run.summary.stopped:
        raise ValueError(
            f"the run has ended before all rows were graded ({run.summary.stopped}), and the gate would decide on the "
            "others alone: grade again with the same `ledger`; if a `SequentialGate` ended the run, use its `decision`"
        )
    if not rows:
        raise ValueError("the run is empty: there is nothing to decide on")
    score, warnings = None, dependence_warnings(rows, cluster)
    if labels is not None:
        if floor:
            raise ValueError("`floor` has no effect on a gate with `labels`: leave one of them out")
        calibration = calibrate(rows, labels, rubric=rubric, cluster=cluster, level=1 - 2 * alpha, imaginary=FOR_GATE)
        score = calibration.score
        warnings += calibration.warnings
        if score.n < FEWEST_LABELS:
            reasons = "".join(f"; {warning}" for warning in calibration.warnings)
            raise ValueError(
                f"only {score.n} submissions have human labels of every criterion, and a gate needs {FEWEST_LABELS}: "
                f"label more of them, drawn at random{reasons}"
            )
        rows_of_mean = [row for row in rows if not is_trained_on(row)]
    else:
        rows_of_mean = rows
    scores = [None if row.report is None else row.report.gate_score for row in rows_of_mean]
    groups = group_rows(rows_of_mean, cluster)
    result = decide_mean(scores, min_score, alpha, score=score, groups=groups, floor=floor)
    result = result._replace(warnings=(*result.warnings, *warnings))
    earlier = None if baseline is None else as_run(baseline, "the baseline")
    if earlier is not None:
        pair = pair_runs(earlier, graded, cluster=cluster, anyway=anyway)
        result = _with_baseline(result, pair, margin, alpha, anyway=anyway)
    return _without_decision(result, graded, earlier)


def _without_decision(result: GateResult, run: RunFile, baseline: RunFile | None) -> GateResult:
    """Return an inconclusive result if the run has missing rows, or if it would pass against a baseline that has."""
    parts = [run] if baseline is None else [run, baseline]
    notes = [f"{part.stop_note}: grade the rest with the same ledger" for part in parts if part.missing]
    if not run.missing and (not notes or result.decision != "pass"):
        return result._replace(warnings=(*result.warnings, *notes))
    return result._replace(decision="inconclusive", more=None, warnings=(*result.warnings, *notes))


def _with_baseline(result: GateResult, pair: RunPair, margin: float, alpha: float, *, anyway: bool) -> GateResult:
    """Combine the decision on the mean with the comparison with the baseline."""
    changes, level = pair.changes, 1 - 2 * alpha
    score = changes.require_scores()
    estimate = score.bounded_change(level, FOR_GATE) if score.are_bounded else score.mean_change(level)
    change: Change = "unclear"
    if changes.are_unchanged:
        change = "unchanged"
    elif estimate.low is not None and estimate.low > -margin and (anyway or not changes.is_partial):
        change = "not worse"
    elif estimate.high is not None and estimate.high < -margin:
        change = "worse"
    decision = result.decision
    if change == "worse":
        decision = "fail"
    elif change == "unclear" and decision == "pass":
        decision = "inconclusive"
    few = group_warnings(score.groups)
    warnings = dict.fromkeys((*result.warnings, *pair.comparable.all_warnings, *few, *left_out_warnings(changes)))
    return result._replace(
        decision=decision,
        more=None if decision == "fail" else result.more,
        baseline=estimate,
        warnings=tuple(warnings),
        change=change,
        least_margin=_least_margin(changes, estimate) if change == "unclear" and not changes.is_partial else None,
        unmatched=changes.unmatched,
    )


def _least_margin(changes: RunChanges, estimate: Estimate) -> float | None:
    """Return the margin at which an equally good program would pass in 80 % of cases, rounded up."""
    error = changes.score.standard_error()
    if estimate.value is None or estimate.low is None or error is None:
        return None
    return max(0.01, math.ceil(100 * (estimate.value - estimate.low + _POWER * error) - 1e-9) / 100)


def decide_mean(
    scores: Sequence[float | None],
    min_score: float,
    alpha: float = 0.05,
    *,
    score: Estimate | None = None,
    groups: Groups | None = None,
    floor: float = 0.0,
) -> GateResult:
    """Decide whether the true mean of scores in [0, 1] is above a threshold.

    The decision is `pass` if the lower end of the interval of `estimate_mean` is above the threshold, and `fail` if the
    upper end is below the threshold.

    Args:
        scores: The scores, or None for a submission without a score.
        min_score: The threshold, above 0 and below 1.
        alpha: The probability of a wrong pass, and also of a wrong failure.
        score: The mean after correction with labels, with its interval at the level `1 - 2 alpha`. None without labels.
        groups: The group of each submission, or None if they are independent. Fewer than five groups are inconclusive.
        floor: The lowest possible score of a submission.

    Raises:
        ValueError: A score is not in [0, 1], or below the floor.

    Example:
        >>> decide_mean([1.0] * 8, 0.7).decision, decide_mean([1.0] * 9, 0.7).decision
        ('inconclusive', 'pass')
        >>> decide_mean([0.8] * 9, 0.7).decision, decide_mean([0.8] * 9, 0.7, floor=0.6).decision
        ('inconclusive', 'pass')
    """
    present = [value for value in scores if value is not None]
    outside = next((value for value in present if not 0 <= value <= 1), None)
    if outside is not None:
        raise ValueError(
            f"scores must be in [0, 1], got {outside!r}: grade with `normalize=True`, as a threshold between 0 and 1 "
            "would mean nothing for raw points"
        )
    if (lowest_score := min(present, default=1.0)) < floor:
        raise ValueError(
            f"`floor` is {floor!r}, and a submission has the score {lowest_score!r}: it is a score below which none "
            "can be; leave it out, or the gate would pass too often"
        )
    missing = len(scores) - len(present)
    level, bounds = 1 - 2 * alpha, Bounds(floor, 1.0)

    def estimate_with(missing_score: float) -> Estimate:
        values = [missing_score if value is None else value for value in scores]
        return estimate_mean(values, level, groups=groups, bounds=bounds, imaginary=FOR_GATE)

    groups_present = None if groups is None else groups[[value is not None for value in scores]]
    if groups_present is not None:
        groups_present = np.unique(groups_present, return_inverse=True)[1]
    estimate = score or estimate_mean(present, level, groups=groups_present, bounds=bounds, imaginary=FOR_GATE)
    low, high = estimate.low, estimate.high
    if missing and score:
        share = missing / len(scores)
        low, high = low and low * (1 - share), high and high * (1 - share) + share
    elif missing:
        low, high = estimate_with(floor).low, estimate_with(1.0).high
    warnings = tuple(group_warnings(groups))
    result = GateResult(
        "inconclusive", estimate, min_score, None, missing, warnings=warnings, in_groups=groups is not None
    )
    if low is not None and low > min_score:
        return result._replace(decision="pass")
    if high is not None and high < min_score:
        return result._replace(decision="fail")
    more = None if score else _more_needed(present, min_score, level, groups_present, bounds)
    needs_floor = more is not None and floor == 0 and min(present) > 0 and (estimate.value or 0) > min_score
    return result._replace(more=more, needs_floor=needs_floor)


def fewest_to_pass(min_score: float, alpha: float = 0.05, *, sequential: bool = False, floor: float = 0.0) -> int:
    """Return the smallest number of submissions with which a gate can pass, if all of them have the score 1.

    Args:
        min_score: The threshold, above 0 and below 1.
        alpha: The probability of a wrong pass, above 0 and below 0.5.
        sequential: Whether the gate is a `SequentialGate`, which ignores `floor`.
        floor: The lowest possible score of a submission.

    Raises:
        ValueError: A setting is out of range.

    Example:
        >>> [fewest_to_pass(threshold) for threshold in (0.7, 0.8, 0.9, 0.95, 0.99)]
        [9, 13, 27, 54, 270]
        >>> [fewest_to_pass(threshold, sequential=True) for threshold in (0.7, 0.8, 0.9, 0.95, 0.99)]
        [13, 20, 43, 88, 450]
    """
    _check_settings(min_score, alpha, floor)
    if sequential:
        gate, count = SequentialGate(min_score, alpha), 1
        while gate.add(1.0) != "pass":
            count += 1
        return count
    bounds = Bounds(floor, 1.0)

    def passes(count: int) -> bool:
        estimate = estimate_mean([1.0] * count, 1 - 2 * alpha, bounds=bounds, imaginary=FOR_GATE)
        return estimate.low is not None and estimate.low > min_score

    return _first(passes, 2)


class SequentialGate:
    """A gate that is tested after every submission. It stops a run as soon as the decision is clear.

    Pass it to a run: `grade_many(..., stop_when=SequentialGate(0.8))`. Submissions must be independent. For rows in
    groups, grade all rows and use `gate(cluster=...)`.

    **The submissions must be in random order**. Shuffle them first (`random.Random(0).shuffle(rows)`), because a file
    that begins with the easy submissions would pass. Each run needs a new gate, because a gate keeps the scores that
    were added before.

    The test is a betting martingale (Waudby-Smith and Ramdas 2024), which bets on scores above the threshold. For the
    scores x_i and the threshold m, its capital is `mean_k prod_i (1 + l_k (x_i - m))`. The mean is over 20 stakes
    `l_k = (k - 1/2) / (20 m)`, for k from 1 to 20. The gate passes when the capital reaches `1 / alpha`. If the true
    mean is not above m, the probability that this ever happens is at most `alpha`. The test for a failure is the same,
    with 1 - x_i and 1 - m.

    Args:
        min_score: The threshold, above 0 and below 1.
        alpha: The probability of a wrong pass, and also of a wrong failure, above 0 and below 0.5.

    Attributes:
        decision: The decision so far. It does not change after it is `pass` or `fail`.
        count: The number of submissions so far, including submissions without a score.
        missing: The number of submissions without a score.

    Raises:
        ValueError: A setting or a score is out of range.

    Example:
        >>> gate = SequentialGate(0.8)
        >>> scores = [1, 1, 0.8, 1, 1, 0.6, 1, 1, 1, 0.8] * 6
        >>> next(number for number, score in enumerate(scores, start=1) if gate.add(score) == "pass")
        34
    """

    def __init__(self, min_score: float, alpha: float = 0.05):
        _check_settings(min_score, alpha)
        self.min_score, self.alpha = min_score, alpha
        self.decision: Decision = "inconclusive"
        self.count = self.missing = 0
        shares = (np.arange(1, _BETS + 1) - 0.5) / _BETS
        self._log_above, self._log_below = np.zeros(_BETS), np.zeros(_BETS)
        self._bets_above, self._bets_below = shares / min_score, shares / (1 - min_score)

    def add(self, score: float | None) -> Decision:
        """Add the score of the next submission, in [0, 1], and return the decision so far.

        A submission without a score (None) counts as 0 in the test for a pass and as 1 in the test for a failure.

        Raises:
            ValueError: The score is not in [0, 1].
        """
        if score is not None and not 0 <= score <= 1:
            raise ValueError(f"`score` must be in [0, 1], got {score!r}")
        lowest, highest = (0.0, 1.0) if score is None else (score, score)
        self.count += 1
        self.missing += score is None
        self._log_above += np.log1p(self._bets_above * (lowest - self.min_score))
        self._log_below += np.log1p(self._bets_below * (self.min_score - highest))
        if self.decision == "inconclusive":
            if self._capital(self._log_above) >= 1 / self.alpha:
                self.decision = "pass"
            elif self._capital(self._log_below) >= 1 / self.alpha:
                self.decision = "fail"
        return self.decision

    def __call__(self, score: float | None) -> str | None:
        """Add a score, and return the decision as a sentence, or None if the gate is still inconclusive.

        This is the interface of `stop_when` of `grade_many`.
        """
        if self.add(score) == "inconclusive":
            return None
        side, missing = "above" if self.decision == "pass" else "below", f", {self.missing:,} without a score"
        return (
            f"{self.decision} after {self.count:,} submissions{missing if self.missing else ''}: the mean score is "
            f"{side} {self.min_score:g} (alpha {self.alpha:g})"
        )

    @property
    def capital(self) -> float:
        """The evidence that the mean is above the threshold. The gate passes when it reaches `1 / alpha`."""
        return self._capital(self._log_above)

    @staticmethod
    def _capital(logs: np.ndarray) -> float:
        # A larger value would overflow. The decision is made long before.
        return float(np.exp(np.minimum(logs, 700.0)).mean())


def _check_settings(min_score: float, alpha: float, floor: float = 0.0) -> None:
    if not 0 < min_score < 1:
        raise ValueError(
            f"`min_score` must be above 0 and below 1, got {min_score!r}: no run could be above or below it"
        )
    if not 0 < alpha < 0.5:
        raise ValueError(f"`alpha` must be above 0 and below 0.5, got {alpha!r}")
    if not 0 <= floor < min_score:
        raise ValueError(
            f"`floor` must be at least 0 and below `min_score` {min_score:g}, got {floor!r}: it is a score below which "
            "no submission can be"
        )


def _more_needed(
    scores: Sequence[float], min_score: float, level: float, groups: Groups | None, bounds: Bounds
) -> int | None:
    """Estimate the number of additional submissions that would decide, if they have similar scores and groups."""
    if len(scores) < 2:
        return None

    if groups is not None:
        # Additional rows fill one group after the other.
        order = np.argsort(groups, kind="stable")
        scores, groups = np.asarray(scores, float)[order].tolist(), groups[order]

    def limits_of(count: int) -> tuple[float, float]:
        repeated = None
        if groups is not None:
            # Each repetition of the rows has new groups.
            repeated = np.resize(groups, count) + (np.arange(count) // len(scores)) * (int(groups.max()) + 1)
        values = np.resize(scores, count)
        return mean_limits(values, level, groups=repeated, bounds=bounds, imaginary=FOR_GATE) or bounds

    def is_decided(count: int) -> bool:
        low, high = limits_of(count)
        return low > min_score or high < min_score

    many = max(_MANY, len(scores))
    if is_decided(many):
        return _first(is_decided, len(scores)) - len(scores)
    # For larger numbers, the width of the interval is taken to fall with the square root of the number.
    mean, (low, high) = math.fsum(scores) / len(scores), limits_of(many)
    if abs(mean - min_score) <= ROUNDING:
        return None
    needed = many * ((mean - low if mean > min_score else high - mean) / (mean - min_score)) ** 2
    return math.ceil(needed) - len(scores) if needed <= _MOST else None


def _first(holds: Callable[[int], bool], start: int) -> int:
    """Return the first count from `start` at which a condition is true. It must stay true for larger counts."""
    high = start
    while not holds(high):
        high *= 2
    low = max(start, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
