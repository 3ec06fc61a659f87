"""Combines the votes of several judges on one criterion into one verdict.

Failures are not votes. Abstentions are removed first; if nothing is left, the result is an abstention. The strategies
themselves are in `vote_strategies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.judgment import Judgment, Vote
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.vote_strategies import STRATEGIES, CastVotes


class VoteResult(NamedTuple):
    """The combined verdict of several judges on one criterion.

    Attributes:
        verdict: MET, UNMET, an option's label, a number on the scale, or CANNOT_ASSESS.
        value: The value of the verdict in [0, 1]; None for an abstention.
        agreement: The share in [0, 1] of the votes, including abstentions, that equal the verdict.
    """

    verdict: str
    value: float | None
    agreement: float


def count_votes(criterion: Criterion, votes: Sequence[Vote], strategy: str, may_abstain: bool = True) -> VoteResult:
    """Combine the votes on one criterion.

    Args:
        criterion: The criterion.
        votes: The judges' votes; at least one must not be a failure.
        strategy: One of `VOTE_STRATEGIES` for the criterion's kind.
        may_abstain: Whether a disagreement may end in an abstention if no option is marked `na`.

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
        # A single vote is not converted to a verdict: the value of a metric may lie between those of MET and UNMET.
        return VoteResult(cast[0].verdict or "", cast[0].value, 1.0)
    assessed = [vote for vote in cast if vote.value is not None]
    if assessed:
        judgment = strategies[strategy](CastVotes(criterion, assessed, may_abstain))
    else:
        judgment = to_judgment(criterion, "CANNOT_ASSESS")
    equal = sum(_agrees(vote, judgment) for vote in cast)
    return VoteResult(judgment.verdict, judgment.value, equal / len(cast))


def _agrees(vote: Vote, judgment: Judgment) -> bool:
    """Return whether a vote equals the combined judgment; all abstentions are equal, whatever their label."""
    if vote.value is None or judgment.value is None:
        return vote.value is None and judgment.value is None
    return vote.verdict == judgment.verdict


def vote_is_decided(criterion: Criterion, votes: Sequence[Vote], waiting: Sequence[float], strategy: str) -> bool:
    """Return whether the judges that have not voted yet can no longer change the verdict of a binary criterion.

    Every binary strategy is monotone in the votes. Hence it is enough to try three cases: all remaining judges vote
    MET, all vote UNMET, all abstain.

    Args:
        criterion: The criterion; if it is not binary, its vote is never decided early.
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
