"""Bootstrap intervals and the permutation test."""

from __future__ import annotations

import numpy as np
import pytest

from rubric_integrations.reporting.page.statistics import mean_with_interval, sign_flip_p_value


def test_interval_of_samples_with_a_known_mean_covers_it_about_as_often_as_it_should() -> None:
    generator = np.random.default_rng(5)
    hits = 0
    for _ in range(60):
        interval = mean_with_interval([float(x) for x in generator.uniform(0, 1, 40)])
        assert interval.low is not None
        assert interval.high is not None
        hits += interval.low <= 0.5 <= interval.high
    assert 51 <= hits <= 60


def test_interval_of_one_value_or_of_equal_values_is_unknown() -> None:
    assert mean_with_interval([0.4]) == (0.4, None, None)
    assert mean_with_interval([0.4, 0.4, 0.4]) == (pytest.approx(0.4), None, None)


def test_p_value_of_six_equal_differences_is_exact() -> None:
    assert sign_flip_p_value([0.1] * 6) == pytest.approx(2 / 64)
    assert sign_flip_p_value([0.1]) is None
