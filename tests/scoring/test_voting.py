"""Combining votes: failures, abstentions, agreement, and when the rest of a panel cannot change the verdict."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Option
from rubric_integrations.rubric.criterion import VOTE_STRATEGIES
from rubric_integrations.scoring import Vote, VoteResult, count_votes
from rubric_integrations.scoring.voting import vote_is_decided

BINARY = Criterion(requirement="r")
FAILED = Vote(judge="j", verdict=None, value=None, error="transport: lost")
VOTES_OF_A_PANEL = st.lists(st.sampled_from([1.0, 0.0, None]), min_size=1, max_size=5)


def vote(value: float | None) -> Vote:
    return Vote(judge="j", verdict={1.0: "MET", 0.0: "UNMET", None: "CANNOT_ASSESS"}[value], value=value)


def test_failures_are_not_votes_and_abstentions_lower_the_agreement() -> None:
    votes = [vote(1.0), vote(1.0), vote(None), FAILED, vote(0.0)]
    assert count_votes(BINARY, votes, "majority") == VoteResult("MET", 1.0, 0.5)


def test_votes_that_all_abstain_are_an_abstention() -> None:
    assert count_votes(BINARY, [vote(None), vote(None), FAILED], "any") == VoteResult("CANNOT_ASSESS", None, 1.0)
    options = (Option(label="a", value=0), Option(label="b", value=1), Option(label="N/A", na=True))
    abstentions = [Vote(judge="j", verdict=verdict, value=None) for verdict in ("N/A", "CANNOT_ASSESS")]
    result = count_votes(Criterion(requirement="r", options=options), abstentions, "mean")
    assert result == VoteResult("N/A", None, 1.0)


def test_single_vote_keeps_a_value_between_those_of_met_and_unmet() -> None:
    metric = Vote(judge="checks", verdict="UNMET", value=0.4)
    assert count_votes(BINARY, [metric], "majority") == VoteResult("UNMET", 0.4, 1.0)


def test_unknown_strategy_is_refused() -> None:
    for votes in ([vote(1.0)], [vote(1.0), vote(0.0)], [vote(None), vote(None)]):
        with pytest.raises(ValueError, match=r"'majority', .* got 'median'"):
            count_votes(BINARY, votes, "median")


def test_vote_is_decided_if_the_waiting_judges_cannot_change_it() -> None:
    votes = [vote(1.0), vote(1.0)]
    assert vote_is_decided(BINARY, votes, [1.0], "majority")
    assert not vote_is_decided(BINARY, votes, [1.0, 1.0], "majority")
    assert not vote_is_decided(BINARY, votes, [3.0], "weighted")
    assert vote_is_decided(BINARY, votes, [3.0], "any")
    assert not vote_is_decided(BINARY, [vote(None)], [], "majority")


@given(VOTES_OF_A_PANEL, VOTES_OF_A_PANEL, st.sampled_from(VOTE_STRATEGIES["binary"]), st.sampled_from([1.0, -1.0]))
def test_decided_vote_is_not_changed_by_any_further_votes(
    first: list[float | None], rest: list[float | None], strategy: str, sign: float
) -> None:
    criterion = Criterion(requirement="r", weight=sign)
    votes, further = [vote(value) for value in first], [vote(value) for value in rest]
    assume(vote_is_decided(criterion, votes, [1.0] * len(rest), strategy))
    verdict = count_votes(criterion, votes, strategy).verdict
    assert count_votes(criterion, [*votes, *further], strategy).verdict == verdict
