"""The strategies that combine several judges' votes on one criterion, and the registry of their names.

Ties go to the answer with the lower score (for a penalty, the higher value), so that a tie never improves a score.

To add a strategy, write a function from `CastVotes` to `Judgment`, register it in `STRATEGIES`, and add its name to
`VOTE_STRATEGIES` in `rubric_integrations.rubric.criterion`, which validates rubrics. A test compares the two.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rubric_integrations.results.interpret import extreme_judgment, to_judgment
from rubric_integrations.results.judgment import Judgment, Vote
from rubric_integrations.rubric.criterion import Criterion, Kind

# Sums of vote weights and distances to options that differ by less than this are equal: the rest is rounding.
ROUNDING = 1e-9


class CastVotes(NamedTuple):
    """The votes on one criterion that name an answer: neither failures nor abstentions.

    Attributes:
        criterion: The criterion.
        votes: At least one vote.
        may_abstain: Whether a disagreement may end in an abstention if no option is marked `na`.
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
        """Whether a vote on a binary criterion is MET."""
        return any(vote.value == 1.0 for vote in self.votes)

    @property
    def has_unmet(self) -> bool:
        """Whether a vote on a binary criterion is not MET."""
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
    """Return the number on the criterion's scale at a value in [0, 1], or the option nearest to the value."""
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
    """Return the option that all votes name, or else an abstention; without a way to abstain, the mode."""
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
"""The function of every strategy, by the kind of the criterion and the name of the strategy."""
