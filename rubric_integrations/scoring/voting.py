"""Many judges' answers to one criterion become one. Pure functions, no model.

Abstentions are left out first; if nobody is left, the vote is an abstention. Failures are not votes. Ties go to the
side that scores least by the weight's sign: a tie must not be a way to a better score.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rubric_integrations.results.interpret import extreme_judgment, to_judgment
from rubric_integrations.results.judgment import Judgment, Vote
from rubric_integrations.rubric.criterion import VOTE_STRATEGIES, Criterion, Kind

# Two options are equally near, and two weights equal, within the rounding of their sums.
ROUNDING = 1e-9

DEFAULT_STRATEGIES: Mapping[Kind, str] = {"binary": "majority", "ordinal": "mean", "scaled": "mean", "nominal": "mode"}


class VoteResult(NamedTuple):
    """What the votes come to.

    Attributes:
        verdict: The answer.
        value: Its value in [0, 1]; None for an abstention.
        agreement: The share of all votes, abstentions included, that equal the answer.
    """

    verdict: str
    value: float | None
    agreement: float


def validate_strategies(strategies: Mapping[Kind, str]) -> None:
    """Refuse a strategy that does not exist, before anything is paid for."""
    for kind, name in strategies.items():
        if name not in VOTE_STRATEGIES[kind]:
            known = ", ".join(map(repr, VOTE_STRATEGIES[kind]))
            raise ValueError(f"`aggregation` for {kind} criteria must be one of {known}, got {name!r}")


def count_votes(criterion: Criterion, votes: Sequence[Vote], strategy: str, may_abstain: bool = True) -> VoteResult:
    """Join the votes on one criterion; those that failed are not votes.

    Args:
        criterion: What was asked.
        votes: The judges' answers, at least one of which did not fail.
        strategy: One of `VOTE_STRATEGIES` for the criterion's kind.
        may_abstain: Whether a disagreement may end in an abstention where no option is marked `na`.

    Example:
        >>> votes = [Vote(judge=j, verdict=v, value=x) for j, v, x in [("a", "MET", 1.0), ("b", "UNMET", 0.0)]]
        >>> count_votes(Criterion(requirement="r"), votes, "majority")
        VoteResult(verdict='UNMET', value=0.0, agreement=0.5)
    """
    cast = [vote for vote in votes if vote.error is None]
    heard = [vote for vote in cast if vote.value is not None]
    if len(cast) == 1:
        # Also a metric's own value, which is between MET and UNMET.
        return VoteResult(cast[0].verdict or "", cast[0].value, 1.0)
    if not heard:
        found = to_judgment(criterion, "CANNOT_ASSESS")
    elif criterion.kind == "binary":
        found = _binary(criterion, heard, strategy)
    elif criterion.kind == "nominal":
        found = _nominal(criterion, heard, strategy, may_abstain)
    else:
        found = _graded(criterion, heard, strategy)
    equal = sum(_same(vote, found) for vote in cast)
    return VoteResult(found.verdict, found.value, equal / len(cast))


def _same(vote: Vote, found: Judgment) -> bool:
    if vote.value is None or found.value is None:
        return vote.value is None and found.value is None
    return vote.verdict == found.verdict or (found.verdict == "" and vote.value == found.value)


def _binary(criterion: Criterion, votes: Sequence[Vote], strategy: str) -> Judgment:
    met, unmet = _weights(votes, strategy == "weighted", lambda v: v.value == 1.0)
    match strategy:
        case "unanimous":
            return extreme_judgment(criterion, "low" if unmet else "high")
        case "any":
            return extreme_judgment(criterion, "high" if met else "low")
        case "worst_case":
            return extreme_judgment(criterion, "high" if (met if criterion.is_penalty else not unmet) else "low")
        case "best_case":
            return extreme_judgment(criterion, "high" if (not unmet if criterion.is_penalty else met) else "low")
        case _:
            if abs(met - unmet) <= ROUNDING:
                return extreme_judgment(criterion, "worst")
            return extreme_judgment(criterion, "high" if met > unmet else "low")


def _weights(votes: Sequence[Vote], weighted: bool, is_for: Callable[[Vote], bool]) -> tuple[float, float]:
    weight = {True: 0.0, False: 0.0}
    for vote in votes:
        weight[is_for(vote)] += vote.weight if weighted else 1.0
    return weight[True], weight[False]


def _graded(criterion: Criterion, votes: Sequence[Vote], strategy: str) -> Judgment:
    """Ordered options and scales: a number, snapped to the nearest option where there are options."""
    values = [vote.value for vote in votes if vote.value is not None]
    high = criterion.is_penalty
    match strategy:
        case "mode":
            return _most(criterion, votes, weighted=False)
        case "median":
            value = statistics.median(values)
        case "weighted_mean":
            value = sum(v * vote.weight for v, vote in zip(values, votes, strict=True)) / sum(v.weight for v in votes)
        case "min":
            value = min(values)
        case "max":
            value = max(values)
        case "worst_case":
            value = max(values) if high else min(values)
        case "best_case":
            value = min(values) if high else max(values)
        case _:
            value = statistics.fmean(values)
    if criterion.scale is not None:
        return Judgment(verdict=f"{criterion.scale.number_at(value):g}", value=min(1.0, max(0.0, value)))
    nearest = min(abs(option.value - value) for option in criterion.choices)
    near = [option for option in criterion.choices if abs(option.value - value) - nearest <= ROUNDING]
    option = max(near, key=lambda o: o.value) if high else min(near, key=lambda o: o.value)
    return Judgment(verdict=option.label, value=option.value)


def _nominal(criterion: Criterion, votes: Sequence[Vote], strategy: str, may_abstain: bool) -> Judgment:
    if strategy == "unanimous" and len({vote.verdict for vote in votes}) > 1 and (may_abstain or criterion.na_option):
        return to_judgment(criterion, "CANNOT_ASSESS")
    return _most(criterion, votes, weighted=strategy == "weighted_mode")


def _most(criterion: Criterion, votes: Sequence[Vote], *, weighted: bool) -> Judgment:
    """The answer given most; of equals the one that scores least."""
    counts: dict[str, float] = {}
    for vote in votes:
        counts[vote.verdict or ""] = counts.get(vote.verdict or "", 0.0) + (vote.weight if weighted else 1.0)
    most = max(counts.values())
    first = [to_judgment(criterion, verdict) for verdict, count in counts.items() if most - count <= ROUNDING]
    sign = -1.0 if criterion.is_penalty else 1.0
    return min(first, key=lambda judgment: sign * (judgment.value or 0.0))


def vote_is_decided(criterion: Criterion, votes: Sequence[Vote], waiting: Sequence[float], strategy: str) -> bool:
    """Whether judges not asked yet, of these weights, could no longer change a binary criterion's answer.

    Every binary strategy is monotone in the votes, so that it is enough to look at all of them saying MET, all saying
    UNMET, and all abstaining.
    """
    if criterion.kind != "binary" or not any(vote.value is not None for vote in votes):
        return False
    outcomes = {count_votes(criterion, votes, strategy).verdict}
    for verdict, value in (("MET", 1.0), ("UNMET", 0.0)):
        more = [Vote(judge="", weight=weight, verdict=verdict, value=value) for weight in waiting]
        outcomes.add(count_votes(criterion, [*votes, *more], strategy).verdict)
    return len(outcomes) == 1
