"""Combines the votes of several judges on one criterion into one verdict, with a voting strategy.

Failures are not votes. Abstentions are removed first. If no vote is left, the result is an abstention. In a tie, the
answer with the lower score (for a penalty, the higher value) wins. Therefore, a tie never improves a score.

To add a strategy, write a function from `CastVotes` to `Judgment`, register it in `STRATEGIES`, and add its name to the
type of its kind of criterion, such as `BinaryStrategy`, in `rubric/criterion.py`. Rubrics and graders accept the names
of that type.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rubric_integrations.rubric.criterion import Criterion, Kind
from rubric_integrations.scoring.judgment import Judgment, Vote, extreme_judgment, to_judgment

# Sums of vote weights, or distances to options, count as equal if they differ by less than this.
ROUNDING = 1e-9


class CastVotes(NamedTuple):
    """The votes on one criterion that have an answer, without failures and abstentions.

    Attributes:
        criterion: The criterion.
        votes: At least one vote.
        may_abstain: Whether a disagreement may end in an abstention (CANNOT_ASSESS) even if the criterion has no `na`
            option. With an `na` option, it may always do so.
    """

    criterion: Criterion
    votes: Sequence[Vote]
    may_abstain: bool

    @property
    def values(self) -> list[float]:
        """The values of the votes in [0, 1], in the order of the votes."""
        return [vote.value for vote in self.votes if vote.value is not None]

    @property
    def has_met(self) -> bool:
        """Whether any vote on a binary criterion is MET."""
        return any(vote.value == 1.0 for vote in self.votes)

    @property
    def has_unmet(self) -> bool:
        """Whether any vote on a binary criterion is not MET."""
        return any(vote.value != 1.0 for vote in self.votes)


Strategy = Callable[[CastVotes], Judgment]


# Binary criteria: MET or UNMET.


def _majority(cast: CastVotes) -> Judgment:
    return _heavier_side(cast, weighted=False)


def _weighted_majority(cast: CastVotes) -> Judgment:
    return _heavier_side(cast, weighted=True)


def _heavier_side(cast: CastVotes, *, weighted: bool) -> Judgment:
    met = unmet = 0.0
    for vote in cast.votes:
        weight = vote.weight if weighted else 1.0
        if vote.value == 1.0:
            met += weight
        else:
            unmet += weight
    if abs(met - unmet) <= ROUNDING:
        return extreme_judgment(cast.criterion, "worst")
    return extreme_judgment(cast.criterion, "high" if met > unmet else "low")


def _all_met(cast: CastVotes) -> Judgment:
    return extreme_judgment(cast.criterion, "low" if cast.has_unmet else "high")


def _any_met(cast: CastVotes) -> Judgment:
    return extreme_judgment(cast.criterion, "high" if cast.has_met else "low")


def _worst_verdict(cast: CastVotes) -> Judgment:
    return _any_met(cast) if cast.criterion.is_penalty else _all_met(cast)


def _best_verdict(cast: CastVotes) -> Judgment:
    return _all_met(cast) if cast.criterion.is_penalty else _any_met(cast)


# Ordered options and scales: a number, which is then rounded to the nearest option.


def _mean(cast: CastVotes) -> Judgment:
    return _answer_near(cast.criterion, statistics.fmean(cast.values))


def _median(cast: CastVotes) -> Judgment:
    return _answer_near(cast.criterion, statistics.median(cast.values))


def _weighted_mean(cast: CastVotes) -> Judgment:
    total = sum(value * vote.weight for value, vote in zip(cast.values, cast.votes, strict=True))
    return _answer_near(cast.criterion, total / sum(vote.weight for vote in cast.votes))


def _lowest(cast: CastVotes) -> Judgment:
    return _answer_near(cast.criterion, min(cast.values))


def _highest(cast: CastVotes) -> Judgment:
    return _answer_near(cast.criterion, max(cast.values))


def _worst_value(cast: CastVotes) -> Judgment:
    return _highest(cast) if cast.criterion.is_penalty else _lowest(cast)


def _best_value(cast: CastVotes) -> Judgment:
    return _lowest(cast) if cast.criterion.is_penalty else _highest(cast)


def _answer_near(criterion: Criterion, value: float) -> Judgment:
    """Return the number on the criterion's scale for a value in [0, 1], or the option nearest to the value."""
    if criterion.scale is not None:
        return Judgment(verdict=f"{criterion.scale.number_at(value):g}", value=min(1.0, max(0.0, value)))
    distance = min(abs(option.value - value) for option in criterion.choices)
    nearest = [option for option in criterion.choices if abs(option.value - value) - distance <= ROUNDING]
    pick_worst = max if criterion.is_penalty else min
    option = pick_worst(nearest, key=lambda option: option.value)
    return Judgment(verdict=option.label, value=option.value)


# Unordered options; `mode` also serves ordered options and scales.


def _mode(cast: CastVotes) -> Judgment:
    return _most_frequent(cast, weighted=False)


def _weighted_mode(cast: CastVotes) -> Judgment:
    return _most_frequent(cast, weighted=True)


def _same_option(cast: CastVotes) -> Judgment:
    """Return the option that all votes name. If votes differ: an abstention or, if it is impossible, the mode."""
    disagree = len({vote.verdict for vote in cast.votes}) > 1
    if disagree and (cast.may_abstain or cast.criterion.na_option):
        return to_judgment(cast.criterion, "CANNOT_ASSESS")
    return _mode(cast)


def _most_frequent(cast: CastVotes, *, weighted: bool) -> Judgment:
    counts: dict[str, float] = {}
    for vote in cast.votes:
        counts[vote.verdict or ""] = counts.get(vote.verdict or "", 0.0) + (vote.weight if weighted else 1.0)
    highest = max(counts.values())
    tied = [to_judgment(cast.criterion, verdict) for verdict, count in counts.items() if highest - count <= ROUNDING]
    sign = -1.0 if cast.criterion.is_penalty else 1.0
    return min(tied, key=lambda judgment: sign * (judgment.value or 0.0))


_ORDERED: Mapping[str, Strategy] = {
    "mean": _mean,
    "median": _median,
    "weighted_mean": _weighted_mean,
    "mode": _mode,
    "min": _lowest,
    "max": _highest,
    "worst_case": _worst_value,
    "best_case": _best_value,
}

STRATEGIES: Mapping[Kind, Mapping[str, Strategy]] = {
    "binary": {
        "majority": _majority,
        "weighted": _weighted_majority,
        "unanimous": _all_met,
        "any": _any_met,
        "worst_case": _worst_verdict,
        "best_case": _best_verdict,
    },
    "ordinal": _ORDERED,
    "scaled": _ORDERED,
    "nominal": {"mode": _mode, "weighted_mode": _weighted_mode, "unanimous": _same_option},
}
"""The function of each strategy, by the kind of the criterion and the name of the strategy."""


class VoteResult(NamedTuple):
    """The combined verdict of several judges on one criterion.

    Attributes:
        verdict: MET, UNMET, an option's label, a number on the scale, or CANNOT_ASSESS.
        value: The value of the verdict in [0, 1]. None for an abstention.
        agreement: The share in [0, 1] of the votes, including abstentions, that equal the verdict.
    """

    verdict: str
    value: float | None
    agreement: float


def count_votes(criterion: Criterion, votes: Sequence[Vote], strategy: str, may_abstain: bool = True) -> VoteResult:
    """Combine the votes on one criterion into one verdict.

    Args:
        criterion: The criterion.
        votes: The votes of the judges. At least one must not be a failure.
        strategy: The name of a voting strategy for the criterion's kind, such as `majority` (see `Voting`).
        may_abstain: Whether a disagreement may end in an abstention (CANNOT_ASSESS) even if the criterion has no `na`
            option. With an `na` option, it may always do so.

    Raises:
        ValueError: The strategy does not exist for this kind of criterion.

    Example:
        >>> votes = [Vote(judge=j, verdict=v, value=x) for j, v, x in [("a", "MET", 1.0), ("b", "UNMET", 0.0)]]
        >>> count_votes(Criterion(requirement="r"), votes, "majority")
        VoteResult(verdict='UNMET', value=0.0, agreement=0.5)
    """
    strategies = STRATEGIES[criterion.kind]
    if strategy not in strategies:
        names = ", ".join(map(repr, strategies))
        raise ValueError(f"`strategy` for {criterion.kind} criteria must be one of {names}, got {strategy!r}")
    cast = [vote for vote in votes if vote.error is None]
    if len(cast) == 1:
        # A single vote is not converted to a verdict, because the value of a metric may lie between the values of UNMET
        # and MET.
        return VoteResult(cast[0].verdict or "", cast[0].value, 1.0)
    assessed = [vote for vote in cast if vote.value is not None]
    if assessed:
        judgment = strategies[strategy](CastVotes(criterion, assessed, may_abstain))
    else:
        judgment = to_judgment(criterion, "CANNOT_ASSESS")
    equal = sum(_agrees(vote, judgment) for vote in cast)
    return VoteResult(judgment.verdict, judgment.value, equal / len(cast))


def _agrees(vote: Vote, judgment: Judgment) -> bool:
    """Return whether a vote equals the combined judgment. All abstentions are equal, whatever their label."""
    if vote.value is None or judgment.value is None:
        return vote.value is None and judgment.value is None
    return vote.verdict == judgment.verdict


def vote_is_decided(criterion: Criterion, votes: Sequence[Vote], waiting: Sequence[float], strategy: str) -> bool:
    """Return whether the judges that have not voted yet can no longer change the verdict of a binary criterion.

    With every binary strategy, one more vote for an answer never changes the verdict away from this answer. Therefore,
    it is enough to try three cases: all remaining judges vote MET, all of them vote UNMET, or all of them abstain.

    Args:
        criterion: The criterion. If it is not binary, its vote is never decided early.
        votes: The votes so far.
        waiting: The weights of the judges that have not voted yet.
        strategy: One of `VOTE_STRATEGIES` for binary criteria.
    """
    if criterion.kind != "binary" or not any(vote.value is not None for vote in votes):
        return False
    verdicts = {count_votes(criterion, votes, strategy).verdict}
    for verdict, value in (("MET", 1.0), ("UNMET", 0.0)):
        remaining = [Vote(judge="", weight=weight, verdict=verdict, value=value) for weight in waiting]
        verdicts.add(count_votes(criterion, [*votes, *remaining], strategy).verdict)
    return len(verdicts) == 1
