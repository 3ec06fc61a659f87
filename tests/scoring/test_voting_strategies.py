"""The strategies that combine votes, by hand-computed votes and by properties of every vote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Option, Scale
from rubric_integrations.rubric.criterion import VOTE_STRATEGIES
from rubric_integrations.scoring import Vote, count_votes
from rubric_integrations.scoring.voting import STRATEGIES

CLARITY = (Option(label="muddled", value=0.0), Option(label="passable", value=0.4), Option(label="clear", value=1.0))
LABELS = {option.value: option.label for option in CLARITY}


def test_every_strategy_that_rubrics_and_graders_accept_has_a_function() -> None:
    assert {kind: tuple(functions) for kind, functions in STRATEGIES.items()} == VOTE_STRATEGIES


def binary_votes(values: list[float], weights: list[float] | None = None) -> list[Vote]:
    return [
        Vote(judge="j", weight=weight, verdict="MET" if value else "UNMET", value=value)
        for value, weight in zip(values, weights or [1.0] * len(values), strict=True)
    ]


@pytest.mark.parametrize(
    ("strategy", "reward", "penalty"),
    [
        # Two of three vote MET; the weights are 1, 1 and 3.
        ("majority", "MET", "MET"),
        ("weighted", "UNMET", "UNMET"),
        ("unanimous", "UNMET", "UNMET"),
        ("any", "MET", "MET"),
        ("worst_case", "UNMET", "MET"),
        ("best_case", "MET", "UNMET"),
    ],
)
def test_binary_strategy_combines_three_votes(strategy: str, reward: str, penalty: str) -> None:
    votes = binary_votes([1.0, 1.0, 0.0], [1.0, 1.0, 3.0])
    assert count_votes(Criterion(requirement="r", weight=1), votes, strategy).verdict == reward
    assert count_votes(Criterion(requirement="r", weight=-1), votes, strategy).verdict == penalty


@pytest.mark.parametrize("strategy", ["majority", "weighted"])
def test_binary_tie_goes_to_the_lower_score(strategy: str) -> None:
    votes = binary_votes([1.0, 0.0, 1.0], [0.1, 0.3, 0.2] if strategy == "weighted" else None)
    votes = votes if strategy == "weighted" else votes[:2]
    assert count_votes(Criterion(requirement="r", weight=1), votes, strategy).verdict == "UNMET"
    assert count_votes(Criterion(requirement="r", weight=-1), votes, strategy).verdict == "MET"


@pytest.mark.parametrize(
    ("strategy", "reward", "penalty"),
    [
        # The values are 0.4, 1, 1 and 0; the weights 1, 1, 1 and 9.
        ("mean", "passable", "passable"),
        ("median", "passable", "clear"),
        ("weighted_mean", "muddled", "passable"),  # 0.2, a tie
        ("mode", "clear", "clear"),
        ("min", "muddled", "muddled"),
        ("max", "clear", "clear"),
        ("worst_case", "muddled", "clear"),
        ("best_case", "clear", "muddled"),
    ],
)
def test_ordinal_strategy_combines_four_votes(strategy: str, reward: str, penalty: str) -> None:
    values = [(0.4, 1.0), (1.0, 1.0), (1.0, 1.0), (0.0, 9.0)]
    votes = [Vote(judge="j", weight=weight, verdict=LABELS[value], value=value) for value, weight in values]
    for weight, verdict in ((1, reward), (-1, penalty)):
        criterion = Criterion(requirement="r", weight=weight, options=CLARITY)
        assert count_votes(criterion, votes, strategy).verdict == verdict


def test_scaled_strategy_gives_a_number_that_no_judge_gave() -> None:
    votes = [Vote(judge="j", verdict=verdict, value=value) for verdict, value in (("1", 0.0), ("2", 0.25))]
    result = count_votes(Criterion(requirement="r", scale=Scale(min=1, max=5)), votes, "mean")
    assert result == ("1.5", 0.125, 0.0)


@pytest.mark.parametrize(
    ("strategy", "verdict"), [("mode", "muddled"), ("weighted_mode", "clear"), ("unanimous", "CANNOT_ASSESS")]
)
def test_nominal_strategy_combines_three_votes(strategy: str, verdict: str) -> None:
    criterion = Criterion(requirement="r", options=CLARITY, scale_type="nominal")
    values = [(0.0, 1.0), (0.0, 1.0), (1.0, 3.0)]
    votes = [Vote(judge="j", weight=weight, verdict=LABELS[value], value=value) for value, weight in values]
    assert count_votes(criterion, votes, strategy).verdict == verdict
    assert count_votes(criterion, votes[:2], strategy).verdict == "muddled"


def test_nominal_unanimous_without_a_way_to_abstain_uses_the_mode() -> None:
    votes = [Vote(judge="j", verdict=LABELS[value], value=value) for value in (1.0, 1.0, 0.0)]
    criterion = Criterion(requirement="r", options=CLARITY, scale_type="nominal")
    assert count_votes(criterion, votes, "unanimous", may_abstain=False).verdict == "clear"
    with_na = criterion.model_copy(update={"options": (*CLARITY, Option(label="N/A", na=True))})
    assert count_votes(with_na, votes, "unanimous", may_abstain=False).verdict == "N/A"


@given(
    st.lists(st.sampled_from([option.value for option in CLARITY]), min_size=1, max_size=5),
    st.sampled_from(VOTE_STRATEGIES["ordinal"]),
    st.sampled_from([1.0, -1.0]),
)
def test_ordinal_result_is_an_option_between_the_extremes_of_the_votes(
    values: list[float], strategy: str, sign: float
) -> None:
    criterion = Criterion(requirement="r", weight=sign, options=CLARITY)
    votes = [Vote(judge="j", verdict=LABELS[value], value=value) for value in values]
    result = count_votes(criterion, votes, strategy)
    assert result.value is not None
    assert min(values) <= result.value <= max(values)
    assert criterion.find_option(result.verdict) is not None
    assert count_votes(criterion, list(reversed(votes)), strategy)[:2] == result[:2]
