"""The decision whether an aligned judge is kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from rubric_integrations.scoring.labels import Estimate
from rubric_integrations.trust.alignment.keeping import (
    alpha_of_attempt,
    corrected_gain,
    estimate_gain,
    is_kept,
    smallest_gain,
)


def test_lower_limit_is_that_of_the_one_sided_t_test() -> None:
    differences = [0.5, 0.0, 0.25, -0.25, 0.5, 0.0, 0.75, 0.0]
    gain = estimate_gain(differences, alpha=0.05, attempt=2)
    reference = stats.ttest_1samp(differences, 0.0, alternative="greater").confidence_interval(1 - 0.05 / 6)
    assert gain.low == pytest.approx(reference.low)
    assert (gain.value, gain.high, gain.n) == (pytest.approx(float(np.mean(differences))), None, 8)


@pytest.mark.parametrize(
    ("differences", "kept"),
    [([], False), ([1.0], False), ([0.0] * 30, False), ([1.0] * 30, True), ([-1.0] * 30, False)],
)
def test_gain_without_spread_is_kept_only_if_it_is_positive(differences: list[float], kept: bool) -> None:
    assert is_kept(estimate_gain(differences, alpha=0.05)) is kept


def test_levels_of_all_attempts_sum_up_to_alpha_at_most() -> None:
    assert math.fsum(alpha_of_attempt(0.05, attempt) for attempt in range(1, 10_000)) <= 0.05


def test_equally_good_judge_is_kept_in_at_most_alpha_of_cases_over_ten_attempts() -> None:
    rng = np.random.default_rng(3)
    at_first, at_all, repeats = 0, 0, 400
    for _ in range(repeats):
        before = rng.random(60) < 0.8
        is_kept_by_attempt: list[bool] = []
        for attempt in range(1, 11):
            draw = rng.random(60)
            after = np.where(before, draw >= 0.125, draw < 0.5)  # a fifth of the answers, as many better as worse
            gain = estimate_gain((after.astype(float) - before).tolist(), 0.05, attempt)
            is_kept_by_attempt.append(is_kept(gain))
        at_first += is_kept_by_attempt[0]
        at_all += any(is_kept_by_attempt)
    # With three standard errors of the simulation.
    assert at_first / repeats <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / repeats)
    assert 0 < at_all / repeats <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)


@pytest.mark.parametrize(("measured", "corrected"), [(0.10, 0.058979196), (0.12, 0.107890615), (0.20, 0.199935408)])
def test_corrected_gain_of_a_kept_judge_is_the_recorded_one(measured: float, corrected: float) -> None:
    # The quantile 1.984216952 of 99 degrees of freedom, and a standard error of .04.
    gain = Estimate(measured, measured - 1.984216952 * 0.04, None, 100)
    assert corrected_gain(gain, alpha=0.05) == pytest.approx(corrected, abs=1e-8)


def test_corrected_gain_without_spread_or_without_a_limit_is_the_measured_one_or_none() -> None:
    assert corrected_gain(estimate_gain([1.0] * 30, alpha=0.05), alpha=0.05) == 1.0
    assert corrected_gain(estimate_gain([], alpha=0.05), alpha=0.05) is None


@pytest.mark.parametrize("attempt", [1, 4])
def test_half_of_the_kept_judges_with_a_small_gain_have_a_larger_corrected_one(attempt: int) -> None:
    rng, measured, corrected = np.random.default_rng(5), list[float](), list[float]()
    for _ in range(4000):
        # One answer in five changes, and the true gain is .04.
        gain = estimate_gain(rng.choice([1.0, -1.0, 0.0], 100, p=[0.12, 0.08, 0.8]).tolist(), 0.05, attempt)
        if is_kept(gain):
            measured.append(gain.value or 0.0)
            corrected.append(corrected_gain(gain, 0.05, attempt) or 0.0)
    assert np.mean(measured) > 0.1
    assert 0.35 <= np.mean(np.array(corrected) > 0.04) <= 0.65


def test_smallest_gain_shrinks_with_the_labels_and_grows_with_the_attempts() -> None:
    # By hand, from n = 7.849 times the share 0.2 less the squared gain, divided by the squared gain.
    assert smallest_gain(150) == pytest.approx(0.0997, abs=1e-3)
    assert smallest_gain(600) < smallest_gain(150) < smallest_gain(150, attempt=4)
