"""Estimates of judgments that depend on each other within a submission."""

from __future__ import annotations

import numpy as np
import pytest

from rubric_integrations.trust.statistics import (
    Count,
    effective_size,
    estimate_clustered_difference,
    estimate_clustered_rate,
    estimate_rate,
    estimate_rate_difference,
)


def test_one_judgment_of_each_submission_gives_jeffreys_limits() -> None:
    counts = [Count(int(number < 27), 1) for number in range(30)]
    assert estimate_clustered_rate(counts) == pytest.approx(estimate_rate(27, 30))


def test_judgments_that_are_always_alike_count_once() -> None:
    alike = [Count(4, 4)] * 15 + [Count(0, 4)] * 5
    assert effective_size(alike) < 20
    assert effective_size([Count(4, 4)] * 20) == 20
    assert effective_size([Count(3, 4), Count(2, 4), Count(4, 4)] * 20) > 200


def test_rates_of_nothing_and_of_one_submission_have_values_but_no_false_certainty() -> None:
    assert estimate_clustered_rate([]).value is None
    assert estimate_clustered_rate([Count(0, 0)]).value is None
    one = estimate_clustered_rate([Count(50, 50)])
    assert (one.value, one.n) == (1.0, 50)
    assert one.low is not None
    assert one.low < 0.5


def test_difference_of_single_judgments_is_that_of_bonnett_and_price_at_the_effective_number() -> None:
    rose, fell = [1.0] * 9 + [0.0] * 51, [0.0] * 57 + [1.0] * 3
    clustered, pairs = estimate_clustered_difference(rose, fell), estimate_rate_difference(rose=9, fell=3, pairs=60)
    assert clustered == pytest.approx(pairs, abs=0.01)


def test_difference_of_equal_panels_has_an_interval_and_no_enormous_effect() -> None:
    same = estimate_clustered_difference([0.0] * 20, [0.0] * 20)
    assert (same.value, same.low) == (0.0, pytest.approx(-same.high))  # type: ignore[operator]
    always = estimate_clustered_difference([0.1] * 50, [0.0] * 50)
    assert always.value == pytest.approx(0.1)
    assert always.low is not None
    assert always.high is not None
    assert -0.1 < always.low < 0.1 < always.high < 0.3
    assert estimate_clustered_difference([], []).value is None
    assert estimate_clustered_difference([1.0], [0.0])[1:3] == (None, None)


@pytest.mark.parametrize(("rate", "alike"), [(0.7, 0.0), (0.7, 0.5), (0.9, 0.5)])
def test_intervals_contain_the_truth_as_often_as_they_promise(rate: float, alike: float) -> None:
    rng = np.random.default_rng(11)
    inside = 0
    for _ in range(300):
        shared, own = rng.random((40, 1)), rng.random((40, 4))
        right = np.where(rng.random((40, 4)) < alike**0.5, shared, own) < rate
        estimate = estimate_clustered_rate([Count(int(row.sum()), 4) for row in right])
        assert estimate.low is not None
        assert estimate.high is not None
        inside += estimate.low <= rate <= estimate.high
    assert 0.91 <= inside / 300 <= 0.99
