"""Success rates and their intervals."""

from __future__ import annotations

import pytest

from rubric_integrations.redteam.trials import Rate, wilson_interval

# Computed by hand from (p + z2/2n -+ z sqrt(p(1-p)/n + z2/4n2)) / (1 + z2/n) with z2 = 3.8414588.
INTERVALS = [
    (0, 10, 0.0, 3.8414588 / 13.8414588),
    (10, 10, 10 / 13.8414588, 1.0),
    (5, 10, 0.2365931, 0.7634069),
    (0, 0, 0.0, 1.0),
]


@pytest.mark.parametrize(("successes", "trials", "low", "high"), INTERVALS)
def test_wilson_interval_of_known_counts_is_exact(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=1e-6)


def test_rate_with_more_successes_than_trials_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`successes` must be from 0 to 2, got 3"):
        Rate.of(3, 2)


def test_rate_without_a_trial_is_printed_as_a_dash() -> None:
    assert str(Rate.of(0, 0)) == "-"
