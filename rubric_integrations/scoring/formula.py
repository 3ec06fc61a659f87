"""The one scorer: pure functions from values and weights to a score. No I/O, no model, no randomness.

With `w` a criterion's weight and `v` in [0, 1] the value of its answer, over the criteria not left out:

    P = sum of w > 0        N = sum of |w| for w < 0        S = sum of v * w

    the rubric has a positive weight:   score = clamp01(S / P)
    the rubric is all negative:         score = clamp01(1 + S / N)

Which line holds is read off the whole rubric, so that an abstention cannot move a rubric to the other one. Where
its divisor is zero, because nothing on that side was assessed, the score is None: undefined, not 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypedDict, cast, get_args

from rubric_integrations.results.interpret import extreme_judgment, to_judgment
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Blend, Rubric

CannotAssess = Literal["skip", "zero", "partial", "fail"]
"""What an abstention counts: nothing and leaves its weight out; 0; a share of a positive weight; the worst value."""

# A rounding error of the division must not fail a release gate.
ROUNDING = 1e-9


class DefaultFallbackVerdicts(TypedDict, total=False):
    """The verdict that stands in for a failure, by the sign of the weight; UNMET where one is not given."""

    positive: Literal["MET", "UNMET"]
    negative: Literal["MET", "UNMET"]


OnFailure = Literal["raise", "abstain", "worst_case"] | DefaultFallbackVerdicts
"""What a failure does: ends the grade, counts as an abstention, as the worst value, or as a fallback verdict."""


class WeightedValue(NamedTuple):
    """One criterion as the scorer sees it.

    Attributes:
        weight: Its weight.
        value: Its answer's value in [0, 1]; None for an abstention.
        worst: The value it can have that scores least.
    """

    weight: float
    value: float | None
    worst: float


class Score(NamedTuple):
    """The outcome: `normalized` in [0, 1], `raw` the weighted sum; None where undefined."""

    normalized: float | None
    raw: float | None


def score_parts(
    parts: Sequence[WeightedValue], cannot_assess: CannotAssess = "skip", partial_credit: float = 0.5
) -> Score:
    """Score the parts of a whole rubric by the formula above.

    Example:
        >>> score_parts([WeightedValue(10, 1.0, 0.0), WeightedValue(8, None, 0.0), WeightedValue(-15, 0.0, 1.0)])
        Score(normalized=1.0, raw=10.0)
    """
    filled = [(part.weight, _value(part, cannot_assess, partial_credit)) for part in parts]
    counted = [(weight, value) for weight, value in filled if value is not None]
    if not counted:
        return Score(None, None)
    raw = math.fsum(weight * value for weight, value in counted)
    if any(part.weight > 0 for part in parts):
        divisor = math.fsum(weight for weight, _ in counted if weight > 0)
        return Score(_clamp(raw / divisor) if divisor else None, raw)
    divisor = math.fsum(-weight for weight, _ in counted)
    return Score(_clamp(1 + raw / divisor) if divisor else None, raw)


def _value(part: WeightedValue, cannot_assess: CannotAssess, partial_credit: float) -> float | None:
    if part.value is not None:
        return part.value
    match cannot_assess:
        case "skip":
            return None
        case "zero":
            return 0.0
        case "partial":
            return partial_credit if part.weight > 0 else 0.0
        case "fail":
            return part.worst


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


def fallback_judgment(criterion: Criterion, on_failure: OnFailure) -> Judgment | None:
    """What stands in for a failed judgment; None where it is to count as an abstention.

    A fallback verdict on a criterion with options or a scale is its lowest (UNMET) or highest (MET) value.
    """
    if isinstance(on_failure, Mapping):
        verdict = on_failure.get("negative" if criterion.is_penalty else "positive", "UNMET")
        return extreme_judgment(criterion, "high" if verdict == "MET" else "low")
    return extreme_judgment(criterion, "worst") if on_failure == "worst_case" else None


def criterion_holds(criterion: Criterion, value: float | None) -> bool:
    """Whether a criterion is as its author wants it: the gate of `required` and `min_score`.

    The value counts from the good end (1 - value for a penalty), and must be above the worst and at least
    `min_score`. An abstention does not hold, and neither does a failure, which has no genuine value.
    """
    if value is None:
        return False
    good = 1.0 - value if criterion.is_penalty else value
    return good > 0 and good >= (criterion.min_score or 0.0) - ROUNDING


def reaches_mark(score: float | None, pass_mark: float) -> bool:
    """Whether a normalized score passes; an undefined one does not."""
    return score is not None and score >= pass_mark - ROUNDING


def coverage(rubric: Rubric, assessed: Sequence[bool]) -> float:
    """The share in [0, 1] of the rubric's absolute weights that was assessed."""
    weights = [abs(criterion.weight) for criterion in rubric.criteria]
    seen = math.fsum(weight for weight, known in zip(weights, assessed, strict=True) if known)
    return min(1.0, seen / math.fsum(weights))


def blend_scores(score: float, metrics: Sequence[tuple[float, float]], blend: Blend) -> float:
    """Join the judge's score with metrics, given as pairs of weight and value, all in [0, 1].

        weighted_average   score * (1 - sum of w) + sum of w * h
        multiplicative     score * product of h ** w
        max, min           of the score and every h

    Example:
        >>> blend_scores(0.5, [(0.5, 1.0)], "weighted_average")
        0.75
    """
    if not metrics:
        return score
    values = [value for _, value in metrics]
    match blend:
        case "weighted_average":
            left = max(0.0, 1.0 - math.fsum(weight for weight, _ in metrics))
            return math.fsum([score * left, *(weight * value for weight, value in metrics)])
        case "multiplicative":
            return score * math.prod(value**weight for weight, value in metrics)
        case "max":
            return max(score, *values)
        case "min":
            return min(score, *values)


def score_overall(rubric: Rubric, percent: float) -> Score:
    """The score of one holistic judgment of 0 to 100, with `raw` on the scale of the weighted sum.

    `raw = s/100 * P`, and for an all-negative rubric `-N * (1 - s/100)`, so that raw scores compare across graders.
    """
    share = percent / 100
    positive = rubric.positive_weight
    return Score(_clamp(share), share * positive if positive else -rubric.negative_weight * (1 - share))


def validate_abstention_policy(cannot_assess: str, partial_credit: float) -> None:
    """Refuse an abstention policy that does not exist, or a credit outside [0, 1], before anything is paid for."""
    if cannot_assess not in get_args(CannotAssess):
        known = ", ".join(map(repr, get_args(CannotAssess)))
        raise ValueError(f"`cannot_assess` must be one of {known}, got {cannot_assess!r}")
    if not 0.0 <= partial_credit <= 1.0:
        raise ValueError(f"`partial_credit` must be in [0, 1], got {partial_credit!r}: scores would leave [0, 1]")


def validate_failure_policy(on_failure: object) -> None:
    """Refuse a failure policy that does not exist, before anything is paid for."""
    if isinstance(on_failure, Mapping):
        given = cast("Mapping[object, object]", on_failure)
        if set(given) <= {"positive", "negative"} and all(verdict in ("MET", "UNMET") for verdict in given.values()):
            return
    elif on_failure in ("raise", "abstain", "worst_case"):
        return
    raise ValueError(
        "`on_failure` must be 'raise', 'abstain', 'worst_case' or "
        f"{{'positive': 'UNMET', 'negative': 'MET'}}, got {on_failure!r}"
    )


def score_verdicts(
    rubric: Rubric, verdicts: Sequence[str | float], normalize: bool, cannot_assess: CannotAssess, partial_credit: float
) -> float | None:
    """Score one known verdict a criterion; `Rubric.compute_score` is its public form."""
    validate_abstention_policy(cannot_assess, partial_credit)
    if len(verdicts) != len(rubric):
        raise ValueError(f"`verdicts` has {len(verdicts)} entries for {len(rubric)} criteria: give one for each")
    parts: list[WeightedValue] = []
    for key, criterion, text in zip(rubric.keys, rubric.criteria, verdicts, strict=True):
        try:
            value = to_judgment(criterion, text).value
        except ValueError as error:
            raise ValueError(f"`{key}`: {error}") from None
        parts.append(WeightedValue(criterion.weight, value, criterion.worst_value))
    score = score_parts(parts, cannot_assess, partial_credit)
    return score.normalized if normalize else score.raw
