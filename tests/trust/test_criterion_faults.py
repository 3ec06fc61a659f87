"""Faults of criteria by flips: the exact tests by hand, their correction, and planted faults over many seeds."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.criterion_faults import FAULTS, JUDGES, simulate
from rubric_integrations.trust.certification import lower_bound
from rubric_integrations.trust.criterion_faults import (
    CaseFlips,
    CriterionFlips,
    FaultKind,
    FlipRate,
    excess_test,
    find_faults,
    is_blind,
    tarone_level,
)
from rubric_integrations.trust.mutations import AdditionKind, ChangeKind

Additions = dict[tuple[AdditionKind, bool], list[CaseFlips]]


def faults_of(flips: CriterionFlips) -> tuple[FaultKind, ...]:
    return find_faults({"margin": flips})["margin"].faults


@pytest.mark.parametrize(("flips", "repeat_flips"), [(3, 0), (4, 1), (0, 2), (5, 4)])
def test_excess_of_one_case_is_fishers_exact_test(flips: int, repeat_flips: int) -> None:
    table = [[flips, 5 - flips], [repeat_flips, 4 - repeat_flips]]
    _, expected = stats.fisher_exact(table, alternative="greater")
    assert excess_test([CaseFlips(flips, 5, repeat_flips, 4)]).p_value == pytest.approx(expected)


def test_excess_of_two_cases_is_their_joint_probability() -> None:
    p_value, smallest = excess_test([CaseFlips(2, 2, 0, 2), CaseFlips(1, 2, 0, 2)])
    assert p_value == pytest.approx(1 / comb(4, 2) * 2 / 4)
    assert smallest == p_value
    # A case whose answers all flip, or none, tells nothing.
    assert excess_test([CaseFlips(5, 5, 4, 4), CaseFlips(0, 5, 0, 4)]).p_value == 1.0


def test_excess_without_repetitions_is_over_the_assumed_noise() -> None:
    assert excess_test([CaseFlips(3, 3), CaseFlips(2, 7)]).p_value == pytest.approx(stats.binom.sf(4, 10, 0.2))
    assert excess_test([CaseFlips(0, 5)]).p_value == 1.0


@given(
    st.lists(st.builds(CaseFlips, st.integers(0, 4), st.just(4), st.integers(0, 3), st.just(3)), min_size=1, max_size=4)
)
def test_excess_is_a_probability_that_is_not_below_the_smallest_one(cases: list[CaseFlips]) -> None:
    p_value, smallest = excess_test(cases)
    assert 0 < smallest <= p_value + 1e-12
    assert p_value <= 1


def test_level_does_not_count_tests_that_could_not_be_significant() -> None:
    assert tarone_level([0.001] + [0.3] * 50, 0.05) == 0.05
    assert tarone_level([0.001] * 5, 0.05) == pytest.approx(0.01)
    assert tarone_level([], 0.05) == 0.05


def test_blindness_takes_five_mutants_and_a_limit_below_one_half() -> None:
    assert not is_blind({"removed": (0, 4)})
    assert is_blind({"removed": (0, 5)})
    assert is_blind({"removed": (0, 4), "number": (1, 6)})
    assert not is_blind({"removed": (1, 4), "number": (1, 6)})
    assert not is_blind({})


def test_criterion_that_reacts_to_missing_evidence_is_not_blind() -> None:
    assert not is_blind({"removed": (2, 3), "number": (0, 9), "negation": (0, 9)})


def test_each_planted_fault_is_named() -> None:
    sees: dict[ChangeKind, tuple[int, int]] = {"removed": (10, 10)}
    steady, all_flip = [CaseFlips(0, 5, 0, 4)] * 2, [CaseFlips(5, 5, 0, 4)] * 2
    additions: Additions = {("length", False): steady, ("claim", True): steady}
    assert faults_of(CriterionFlips(sees, additions, 0, 20)) == ()
    assert faults_of(CriterionFlips({"removed": (0, 10)}, additions, 0, 20)) == ("blind",)
    assert faults_of(CriterionFlips(sees, {**additions, ("claim", True): all_flip}, 0, 20)) == ("claim",)
    assert faults_of(CriterionFlips(sees, additions, 8, 20)) == ("flaky",)
    both: Additions = {("tone", False): all_flip, ("tone", True): all_flip}
    assert faults_of(CriterionFlips(sees, both, 0, 20)) == ("tone",)


def test_flips_of_a_flaky_judge_are_not_called_a_dependence() -> None:
    flaky = [CaseFlips(3, 5, 2, 4), CaseFlips(2, 5, 2, 4)]
    assert faults_of(CriterionFlips({"removed": (10, 10)}, {("length", False): flaky}, 8, 20)) == ("flaky",)


def test_nothing_tested_has_no_fault_and_no_limit() -> None:
    result = find_faults({"margin": CriterionFlips({}, {})})["margin"]
    assert (result.faults, result.additions, result.evidence_kinds) == ((), (), {})
    assert (result.evidence.low, result.evidence.high, result.noise.count) == (0.0, 1.0, 0)
    assert find_faults({}) == {}


@pytest.mark.parametrize("alpha", [0.0, 1.0, float("nan")])
def test_alpha_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="`alpha`"):
        find_faults({}, alpha)


def test_limits_are_exact_and_one_sided() -> None:
    rate = FlipRate.of(2, 10)
    assert rate.high == pytest.approx(stats.beta.ppf(0.95, 3, 8))
    assert rate.low == pytest.approx(stats.beta.ppf(0.05, 2, 9))


@pytest.mark.statistics
@pytest.mark.parametrize("judge", JUDGES)
def test_good_rubric_is_rarely_accused(judge: str) -> None:
    accused = simulate(JUDGES[judge], None, criteria=5, seeds=150).accused
    assert lower_bound(accused, 150, 0.025) <= 0.05


@pytest.mark.statistics
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("judge", ["noise 0", "noise .02", "noise .05", "touchy"])
def test_planted_fault_is_found_in_four_of_five_rubrics(judge: str, fault: FaultKind) -> None:
    assert simulate(JUDGES[judge], fault, criteria=5, seeds=150).hits >= 0.8 * 150
