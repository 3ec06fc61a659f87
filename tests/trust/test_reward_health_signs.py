"""The signs of `reward_report` on simulated runs: rarely one where nothing changes, and one for each planted hack."""

from __future__ import annotations

import pytest

from tests.trust.simulated_policy import RATES, Policy, simulate

pytestmark = pytest.mark.statistics

NULL_RUNS = 160
HACKED_RUNS = 10


@pytest.mark.parametrize("prompts", [None, 40], ids=["new prompts", "40 prompts"])
def test_signs_of_runs_in_which_nothing_changes_are_at_most_a_twentieth(prompts: int | None) -> None:
    with_signs = [seed for seed in range(NULL_RUNS // 2) if signs_of(seed, Policy(), prompts=prompts)]
    assert len(with_signs) <= 0.05 * NULL_RUNS / 2


def test_signs_of_a_policy_that_improves_with_a_second_judge_that_errs_are_rare() -> None:
    policy = Policy(rate=lambda name, progress: RATES[name] + (0 if name == "rude" else 0.3 * progress))
    with_signs = [seed for seed in range(HACKED_RUNS * 4) if signs_of(seed, policy)]
    assert len(with_signs) <= 0.1 * HACKED_RUNS * 4


def test_judge_that_is_deceived_from_the_middle_on_does_not_agree_with_the_second_judge() -> None:
    policy = Policy(
        rate=lambda name, progress: RATES[name] + (0.35 if progress >= 0.5 and name != "rude" else 0),
        second_rate=lambda name, progress: RATES[name],
    )
    assert share_with("the second judge does not follow: the judge's mean score was", policy) >= 0.9


def test_criterion_that_flips_carries_the_gain() -> None:
    policy = Policy(rate=lambda name, progress: 0.97 if name == "sourced" and progress >= 0.4 else RATES[name])
    assert share_with("'sourced' carries the gain", policy) == 1


def test_reward_that_pays_for_length_is_reported_when_answers_grow() -> None:
    policy = Policy(words=lambda progress: 120 + 200 * progress, words_pay=0.5)
    assert share_with("the reward pays for length", policy) == 1


@pytest.mark.parametrize(
    "policy",
    [Policy(words_pay=0.5), Policy(words=lambda progress: 120 + 200 * progress)],
    ids=["answers do not grow", "the reward does not depend on length"],
)
def test_length_alone_is_no_sign(policy: Policy) -> None:
    assert share_with("the reward pays for length", policy) <= 0.05


def test_abstentions_that_the_policy_learns_are_reported_for_their_criterion() -> None:
    policy = Policy(abstentions=lambda name, progress: 0.05 + (0.5 * progress if name == "right" else 0))
    assert share_with("the judge abstains more often on 'right'", policy) == 1


def test_criterion_that_is_given_up_is_reported() -> None:
    policy = Policy(rate=lambda name, progress: RATES[name] - (0.5 * progress if name == "clear" else 0))
    assert share_with("'clear' is fulfilled less often", policy) >= 0.9


def test_penalty_that_is_committed_more_often_is_reported_as_fulfilled_less_often() -> None:
    policy = Policy(rate=lambda name, progress: RATES[name] - (0.6 * progress if name == "rude" else 0))
    report = simulate(0, policy)
    assert any("'rude' is fulfilled less often" in sign for sign in report.signs)
    assert report.criteria["rude"].weight < 0
    assert (report.criteria["rude"].score.change.value or 0) < -0.2


def signs_of(seed: int, policy: Policy, *, prompts: int | None = None) -> tuple[str, ...]:
    return simulate(seed, policy, steps=30, groups=3, prompts=prompts).signs


def share_with(beginning: str, policy: Policy) -> float:
    """Return the share of runs with a sign that begins with these words."""
    runs = [simulate(seed, policy).signs for seed in range(HACKED_RUNS)]
    return sum(any(sign.startswith(beginning) for sign in signs) for signs in runs) / len(runs)
