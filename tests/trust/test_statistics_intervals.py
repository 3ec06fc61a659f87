"""Closed-form intervals, compared with recorded figures and with how often they cover a known mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rubric_integrations.trust.means import estimate_scores
from rubric_integrations.trust.statistics import difference_p_value, estimate_difference


def test_interval_of_thirty_full_scores_is_wilsons() -> None:
    mean, low, high, _ = estimate_scores([1.0] * 30)
    assert (mean, high) == (1.0, 1.0)
    assert low == pytest.approx(0.878, abs=5e-4)


def test_interval_of_scores_is_within_the_bounds_and_covers_a_known_mean() -> None:
    generator = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        mean, low, high, _ = estimate_scores([float(x) for x in generator.beta(8, 2, 20)])
        assert low is not None
        assert mean is not None
        assert high is not None
        assert 0 <= low < mean < high <= 1
        hits += low <= 0.8 <= high
    assert 180 <= hits <= 200


def test_interval_of_scores_without_bounds_is_students() -> None:
    mean, low, high, _ = estimate_scores([-1.0, 0.0, 4.0])
    half = 4.302652729911275 * math.sqrt(7) / math.sqrt(3)
    assert (mean, low, high) == (pytest.approx(1), pytest.approx(1 - half), pytest.approx(1 + half))


def test_interval_of_one_value_or_of_equal_unbounded_values_is_unknown() -> None:
    assert estimate_scores([0.4]) == (0.4, None, None, 1)
    assert estimate_scores([-0.4, -0.4]) == (pytest.approx(-0.4), None, None, 2)


def test_interval_of_equal_values_between_the_bounds_is_known() -> None:
    _, low, high, _ = estimate_scores([0.4, 0.4, 0.4])
    assert low is not None
    assert high is not None
    assert low < 0.4 < high


def test_difference_is_the_paired_t_test_of_scipy() -> None:
    from scipy import stats

    differences = [0.1, 0.3, -0.1, 0.2]
    mean, low, high, _ = estimate_difference(differences)
    p_value = difference_p_value(differences)
    expected: Any = stats.ttest_1samp(differences, 0)
    assert (mean, p_value) == (pytest.approx(0.125), pytest.approx(expected.pvalue))
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval()))


@pytest.mark.parametrize("differences", [[0.1], [0.1] * 6, [0.1 + 0.2, 0.3, 0.3]])
def test_differences_without_spread_have_no_p_value(differences: list[float]) -> None:
    assert estimate_difference(differences)[1:3] == (None, None)
    assert difference_p_value(differences) is None
