"""Closed-form intervals, compared with recorded figures and with how often they cover a known mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rubric_integrations.reporting.page.statistics import (
    compare_means,
    compare_rates,
    mean_with_interval,
)


def test_interval_of_thirty_full_scores_is_wilsons() -> None:
    mean, low, high = mean_with_interval([1.0] * 30)
    assert (mean, high) == (1.0, 1.0)
    assert low == pytest.approx(0.878, abs=5e-4)


def test_interval_of_scores_is_within_the_bounds_and_covers_a_known_mean() -> None:
    generator = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        mean, low, high = mean_with_interval([float(x) for x in generator.beta(8, 2, 20)])
        assert low is not None
        assert high is not None
        assert 0 <= low < mean < high <= 1
        hits += low <= 0.8 <= high
    assert 180 <= hits <= 200


def test_interval_of_scores_without_bounds_is_students() -> None:
    mean, low, high = mean_with_interval([-1.0, 0.0, 4.0])
    half = 4.302652729911275 * math.sqrt(7) / math.sqrt(3)
    assert (mean, low, high) == (pytest.approx(1), pytest.approx(1 - half), pytest.approx(1 + half))


def test_interval_of_one_value_or_of_equal_unbounded_values_is_unknown() -> None:
    assert mean_with_interval([0.4]) == (0.4, None, None)
    assert mean_with_interval([-0.4, -0.4]) == (pytest.approx(-0.4), None, None)


def test_interval_of_equal_values_between_the_bounds_is_known() -> None:
    _, low, high = mean_with_interval([0.4, 0.4, 0.4])
    assert low is not None
    assert high is not None
    assert low < 0.4 < high


def test_compare_means_is_the_paired_t_test_of_scipy() -> None:
    from scipy import stats

    differences = [0.1, 0.3, -0.1, 0.2]
    (mean, low, high), p_value = compare_means(differences)
    expected: Any = stats.ttest_1samp(differences, 0)
    assert (mean, p_value) == (pytest.approx(0.125), pytest.approx(expected.pvalue))
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval()))


@pytest.mark.parametrize("differences", [[0.1], [0.1] * 6, [0.1 + 0.2, 0.3, 0.3]])
def test_compare_means_of_differences_without_spread_has_no_p_value(differences: list[float]) -> None:
    (_, low, high), p_value = compare_means(differences)
    assert (low, high, p_value) == (None, None, None)


def test_compare_rates_is_the_interval_of_bonnett_and_price() -> None:
    mean, low, high = compare_rates(rose=9, fell=3, pairs=60)
    assert mean == pytest.approx(0.1)
    assert (low, high) == (pytest.approx(-0.019029449, abs=1e-8), pytest.approx(0.212577836, abs=1e-8))
