"""Fixed-sequence testing of thresholds: the surest answers first, and no further than a bound on their errors holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.agreement.intervals import special

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The shares of the answers, the surest first, that are tested one after another."""

# The probability that so many labels are enough.
_POWER_QUANTILE = 0.8416
_MAX_LABELS = 10_000_000


class SureAnswer(NamedTuple):
    """A labelled answer of a cheap judge.

    Attributes:
        confidence: How sure the judge is, above 0 and up to 1; None if no threshold keeps the answer.
        is_wrong: Whether the answer differs from the true one.
    """

    confidence: float | None
    is_wrong: bool


class CertificateStep(NamedTuple):
    """The test of one threshold.

    Attributes:
        share: The share of the run's judgments that the threshold keeps, in [0, 1].
        threshold: The threshold: an answer is kept if its confidence is not below it.
        kept: The number of labelled judgments that it keeps.
        errors: The number of those that are wrong.
        bound: The upper limit of the error rate among what the threshold keeps, at the level 1 - delta.
        holds: Whether the limit is at most alpha.
    """

    share: float
    threshold: float
    kept: int
    errors: int
    bound: float
    holds: bool


def upper_bound(errors: int, count: int, delta: float) -> float:
    """Compute the exact upper limit of an error rate at the level 1 - delta (Clopper and Pearson 1934, one-sided).

    Example:
        >>> [round(upper_bound(errors, 50, 0.1), 3) for errors in (0, 1, 2)]
        [0.045, 0.076, 0.103]
    """
    return 1.0 if errors >= count else float(special().betaincinv(errors + 1, count - errors, 1 - delta))


def lower_bound(errors: int, count: int, delta: float) -> float:
    """Compute the exact lower limit of an error rate at the level 1 - delta."""
    return 0.0 if errors == 0 else float(special().betaincinv(errors, count - errors + 1, delta))


def thresholds_of(confidences: Sequence[float]) -> list[float]:
    """Return the threshold that keeps each of `SHARES` of these confidences, or more where several are equal.

    Example:
        >>> thresholds_of([0.95, 0.95, 0.95, 0.9, 0.6])
        [0.95, 0.9, 0.6]
    """
    surest = sorted(confidences, reverse=True)
    if not surest:
        return []
    return list(dict.fromkeys(surest[math.ceil(share * len(surest) - 1e-9) - 1] for share in SHARES))


def fixed_sequence_steps(
    answers: Sequence[SureAnswer], steps: Sequence[tuple[float, float]], alpha: float, delta: float
) -> list[CertificateStep]:
    """Test thresholds in their order, up to the first one at which the bound is above alpha.

    The probability that any threshold holds here, and keeps more than alpha of wrong answers in truth, is at most
    delta: each is tested only if all before it hold, so that no correction for their number is needed.

    Args:
        answers: Labelled answers, independent of each other.
        steps: Each threshold, the highest first, with the share of the run that it keeps.
        alpha: The highest error rate.
        delta: The probability of a wrong decision.
    """
    tested: list[CertificateStep] = []
    for threshold, share in steps:
        kept = [answer for answer in answers if answer.confidence is not None and answer.confidence >= threshold]
        errors = sum(answer.is_wrong for answer in kept)
        bound = upper_bound(errors, len(kept), delta)
        tested.append(CertificateStep(share, threshold, len(kept), errors, bound, bound <= alpha))
        if bound > alpha:
            break
    return tested


def kept_needed(error: float, alpha: float, delta: float) -> int | None:
    """Return how many kept answers certify an error rate in about 80 % of cases; None if no number would.

    Example:
        >>> kept_needed(0.02, 0.1, 0.1), kept_needed(0.1, 0.1, 0.1)
        (65, None)
    """
    if error >= alpha:
        return None

    def is_enough(count: int) -> bool:
        expected = error * count + _POWER_QUANTILE * math.sqrt(count * error * (1 - error))
        return upper_bound(math.ceil(expected - 1e-9), count, delta) <= alpha

    high = 1
    while not is_enough(high):
        high *= 2
        if high > _MAX_LABELS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
