"""Release gates: whether a run's mean score is above a threshold, with a bounded probability of a wrong pass.

A mean above the threshold is not enough: a program that is exactly at it would pass every second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.trust.calibration import calibrate
from rubric_integrations.trust.comparison import compare_runs
from rubric_integrations.trust.matching import RunLike, is_trained_on, read_rows
from rubric_integrations.trust.means import FOR_GATE, Values, estimate_mean, mean_limits
from rubric_integrations.trust.planning import FEWEST_LABELS

Decision = Literal["pass", "fail", "inconclusive"]
"""Whether the true mean is above the threshold, below it, or not yet known."""

_BETS = 20
# If as many submissions would not decide, a gate says only that the mean is too close to the threshold.
_MOST = 1_000_000


class GateResult(NamedTuple):
    """The decision of a gate.

    Attributes:
        decision: `pass`, `fail` or `inconclusive`.
        score: The mean score with its interval, whose ends are each exceeded with probability `alpha`.
        min_score: The threshold.
        more: About how many further submissions would decide; None if it is decided, or the mean is too close.
        missing: How many submissions have no score that counts (`EvaluationReport.gate_score`): a criterion failed, or
            too little was assessed. A pass holds with each of them as 0, and a failure as 1.
        baseline: The difference from the baseline; None without one.
        warnings: What limits the correction by labels.
    """

    decision: Decision
    score: Estimate
    min_score: float
    more: int | None = None
    missing: int = 0
    baseline: Estimate | None = None
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        about = f": about {self.more:,} more submissions would decide" if self.more else ""
        missing = f"; {self.missing:,} without a score" if self.missing else ""
        change = f"; {self.baseline} against the baseline" if self.baseline else ""
        warnings = "".join(f"; {warning}" for warning in self.warnings)
        return f"{self.decision}: {self.score} against {self.min_score:g}{change}{missing}{about}{warnings}"


def gate(
    run: RunLike,
    min_score: float,
    *,
    labels: Iterable[LabelledJudgment] | None = None,
    baseline: RunLike | None = None,
    margin: float = 0.0,
    rubric: Rubric | None = None,
    alpha: float = 0.05,
) -> GateResult:
    """Decide whether a run's true mean score reaches a threshold, and whether it is not worse than another run.

    Args:
        run: The run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        min_score: The threshold, above 0 and below 1.
        labels: People's labels of a random part of the run, by which the mean is corrected: of 50 submissions at least.
        baseline: An earlier run over the same inputs. The gate then passes only if the run is also not worse than it.
        margin: How much worse than the baseline the run may be, at least 0.
        rubric: The run's rubric, for labels, if groups make its score.
        alpha: The probability of a wrong decision, at each side.

    Raises:
        ChosenLabelsError: All labels were chosen by people.
        ValueError: A setting is out of range, the run is empty, or there are too few labels.
    """
    _check_settings(min_score, alpha)
    rows = read_rows(run)
    if not rows:
        raise ValueError("the run is empty: there is nothing to decide on")
    score, warnings = None, ()
    if labels is not None:
        calibration = calibrate(rows, labels, rubric=rubric, level=1 - 2 * alpha)
        score, warnings = calibration.score, calibration.warnings
        if score.n < FEWEST_LABELS:
            reasons = "".join(f"; {warning}" for warning in warnings)
            raise ValueError(
                f"people have answered every criterion of {score.n} submissions, and a gate needs {FEWEST_LABELS}: "
                f"label more of them, drawn at random{reasons}"
            )
    scores = [
        None if row.report is None else row.report.gate_score
        for row in rows
        if labels is None or not is_trained_on(row)
    ]
    result = decide_mean(scores, min_score, alpha, score=score)._replace(warnings=warnings)
    if baseline is None or result.decision == "fail":
        return result
    change = compare_runs(baseline, rows, margin=margin, level=1 - 2 * alpha)
    if change.score.high is not None and change.score.high < -margin:
        return result._replace(decision="fail", baseline=change.score, more=None)
    decision = result.decision if change.is_not_worse else "inconclusive"
    return result._replace(decision=decision, baseline=change.score)


def decide_mean(
    scores: Sequence[float | None], min_score: float, alpha: float = 0.05, *, score: Estimate | None = None
) -> GateResult:
    """Decide whether the true mean of scores in [0, 1] reaches a threshold.

    It passes if the lower end of the interval of `estimate_mean` is above the threshold, and fails if the upper end is
    below.

    Args:
        scores: The scores; None for a submission without a score.
        min_score: The threshold, above 0 and below 1.
        alpha: The probability of a wrong decision, at each side.
        score: The mean with its interval at the level `1 - 2 alpha`, if labels have corrected it.

    Raises:
        ValueError: A score is not in [0, 1].

    Example:
        >>> decide_mean([1.0] * 8, 0.7).decision, decide_mean([1.0] * 9, 0.7).decision
        ('inconclusive', 'pass')
    """
    present = [value for value in scores if value is not None]
    outside = next((value for value in present if not 0 <= value <= 1), None)
    if outside is not None:
        raise ValueError(
            f"scores must be in [0, 1], got {outside!r}: grade with `normalize=True`, as a threshold between 0 and 1 "
            "would mean nothing for raw points"
        )
    missing = len(scores) - len(present)
    level = 1 - 2 * alpha
    estimate = score or _estimate(present, level)
    if missing:
        share = missing / len(scores)
        lowest = score or _estimate([0.0 if value is None else value for value in scores], level)
        highest = score or _estimate([1.0 if value is None else value for value in scores], level)
        low = None if lowest.low is None else lowest.low * (1 - share if score else 1)
        high = None if highest.high is None else highest.high * (1 - share) + share if score else highest.high
    else:
        low, high = estimate.low, estimate.high
    if low is not None and low > min_score:
        return GateResult("pass", estimate, min_score, None, missing)
    if high is not None and high < min_score:
        return GateResult("fail", estimate, min_score, None, missing)
    more = None if score else _more_needed(present, min_score, level)
    return GateResult("inconclusive", estimate, min_score, more, missing)


def fewest_to_pass(min_score: float, alpha: float = 0.05, *, sequential: bool = False) -> int:
    """Return how many submissions a gate needs at least: as many as a run of perfect scores needs to pass.

    Raises:
        ValueError: A setting is out of range.

    Example:
        >>> [fewest_to_pass(threshold) for threshold in (0.7, 0.8, 0.9, 0.95, 0.99)]
        [9, 13, 27, 54, 270]
        >>> [fewest_to_pass(threshold, sequential=True) for threshold in (0.7, 0.8, 0.9, 0.95, 0.99)]
        [13, 20, 43, 88, 450]
    """
    _check_settings(min_score, alpha)
    if sequential:
        gate, count = SequentialGate(min_score, alpha), 1
        while gate.add(1.0) != "pass":
            count += 1
        return count
    return _first(lambda count: (_estimate([1.0] * count, 1 - 2 * alpha).low or 0.0) > min_score, 2)


class SequentialGate:
    """A gate that may be asked after every submission, and stops a run as soon as it is decided.

    It bets against the threshold (Waudby-Smith and Ramdas 2024): the capital `mean_k prod_i (1 + l_k (x_i - m))`, with
    `l_k = (k - 1/2) / (20 m)` for k from 1 to 20, exceeds `1 / alpha` with probability `alpha` at most if the true mean
    is `m`, whenever one looks. With `grade_many(..., stop_when=SequentialGate(0.8))`, it ends the run.

    **The submissions must come in random order**: shuffle them first (`random.Random(0).shuffle(rows)`), because a file
    that begins with the easy ones would pass. Each run needs a new gate: one that has seen scores counts them twice.

    Args:
        min_score: The threshold, above 0 and below 1.
        alpha: The probability of a wrong decision, at each side.

    Attributes:
        decision: The decision so far; once it is `pass` or `fail` it stays.
        count: The number of submissions so far, with those that have no score.
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

        A submission without a score (None) counts as 0 for a pass, and as 1 for a failure.
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
        """Add a score, and return the decision as a sentence if there is one, as `stop_when` of `grade_many` needs."""
        if self.add(score) == "inconclusive":
            return None
        side, missing = "above" if self.decision == "pass" else "below", f", {self.missing:,} without a score"
        return (
            f"{self.decision} after {self.count:,} submissions{missing if self.missing else ''}: the mean score is "
            f"{side} {self.min_score:g} (alpha {self.alpha:g})"
        )

    @property
    def capital(self) -> float:
        """The evidence so far that the mean is above the threshold; it passes at `1 / alpha`."""
        return self._capital(self._log_above)

    @staticmethod
    def _capital(logs: np.ndarray) -> float:
        # Beyond this, the decision is made long ago; larger powers would overflow.
        return float(np.exp(np.minimum(logs, 700.0)).mean())


def _check_settings(min_score: float, alpha: float) -> None:
    if not 0 < min_score < 1:
        raise ValueError(
            f"`min_score` must be above 0 and below 1, got {min_score!r}: no run could be above or below it"
        )
    if not 0 < alpha < 0.5:
        raise ValueError(f"`alpha` must be above 0 and below 0.5, got {alpha!r}")


def _estimate(scores: Values, level: float) -> Estimate:
    return estimate_mean(scores, level, imaginary=FOR_GATE)


def _more_needed(scores: Sequence[float], min_score: float, level: float) -> int | None:
    """Estimate how many more submissions would decide, if they are like these."""
    if len(scores) < 2:
        return None

    def is_decided(count: int) -> bool:
        low, high = mean_limits(np.resize(scores, count), level, imaginary=FOR_GATE) or (0.0, 1.0)
        return low > min_score or high < min_score

    return _first(is_decided, len(scores)) - len(scores) if is_decided(_MOST) else None


def _first(holds: Callable[[int], bool], start: int) -> int:
    """Return the first count, from `start`, at which a condition holds that stays true."""
    high = start
    while not holds(high):
        high *= 2
    low = max(start, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
