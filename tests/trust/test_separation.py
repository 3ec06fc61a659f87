"""Tests of candidates on other pairs, and the figures of a rubric: what is dropped, and what gets no verdict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.drafting import KINDS, simulate
from rubric_integrations.trust.separation import (
    PairCounts,
    count_pairs,
    measure_separation,
    prune_candidates,
    sign_test,
)
from rubric_integrations.trust.statistics import estimate_rate

ROWS = 60


def columns(*pairs: tuple[Any, Any], rows: int = ROWS) -> Any:
    """Return the values of one criterion for each argument: those of the better and of the worse answers."""
    values = np.empty((rows, 2, len(pairs)))
    for column, (better, worse) in enumerate(pairs):
        values[:, 0, column], values[:, 1, column] = better, worse
    return values


def reasons(values: Any, signs: list[int] | None = None, groups: Any = None, **further: Any) -> list[str | None]:
    groups = np.arange(len(values)) if groups is None else groups
    return [test.reason for test in prune_candidates(values, signs or [1] * values.shape[2], groups, **further)]


ALTERNATING = np.arange(ROWS) % 2


def test_useless_candidates_are_dropped_with_their_reason() -> None:
    mostly = (np.arange(ROWS) % 10 > 0).astype(float)
    values = columns((1, 0), (1, 1), (0, 0), (0, 1), (mostly, 0.0), (ALTERNATING, 1 - ALTERNATING))
    assert reasons(values) == [
        None,
        "always met",
        "never met",
        "orders other pairs wrongly",
        "redundant",
        "orders other pairs wrongly",
    ]


def test_penalty_that_is_met_by_the_worse_answers_is_kept() -> None:
    assert reasons(columns((0, 1)), [-1]) == [None]
    assert reasons(columns((1, 0)), [-1]) == ["orders other pairs wrongly"]


def test_complement_of_a_criterion_is_redundant() -> None:
    assert reasons(columns((1, 0), (0, 1)), [1, -1]) == [None, "redundant"]


def test_candidate_that_repeats_a_criterion_of_the_base_is_redundant() -> None:
    present = columns((1, 0))
    assert reasons(columns((1, 0)), present=present) == ["redundant"]


def test_weak_candidate_is_not_shown_to_separate_among_many() -> None:
    better = np.zeros(ROWS)
    better[:9] = 1.0
    worse = np.zeros(ROWS)
    worse[9:11] = 1.0
    alone = prune_candidates(columns((better, worse)), [1], np.arange(ROWS))[0]
    assert alone.reason is None
    noise = [((np.arange(ROWS) % 4 == n) * 1.0, (np.arange(ROWS) % 4 == n + 1) * 1.0) for n in range(2)]
    among = prune_candidates(columns((better, worse), *noise), [1] * 3, np.arange(ROWS))[0]
    assert among.reason == "not shown to separate"
    assert among.p_value == pytest.approx((alone.p_value or 0) * 3)


def test_few_groups_give_no_verdict_and_drop_only_what_is_refuted() -> None:
    better = np.zeros(ROWS)
    better[:3] = 1.0
    values = columns((better, 0), (0, better))
    tests = prune_candidates(values, [1, 1], np.arange(ROWS) % 29)
    assert [(test.reason, test.is_tested) for test in tests] == [(None, False), ("orders other pairs wrongly", False)]
    assert reasons(values) == ["not shown to separate", "orders other pairs wrongly"]


def test_pairs_of_one_group_count_once() -> None:
    better = np.zeros(ROWS)
    better[:20] = 1.0
    groups = np.concatenate([np.zeros(20, int), np.arange(1, 41)])
    assert reasons(columns((better, 0)), groups=groups) == ["not shown to separate"]
    assert reasons(columns((better, 0))) == [None]


def test_failed_judge_is_no_verdict() -> None:
    values = columns((1.0, 0.0))
    values[:20, 1] = math.nan
    failed = np.isnan(values)
    (test,) = prune_candidates(values, [1], np.arange(ROWS), failed=failed)
    assert (test.counts, test.reason) == (PairCounts(40, 0, 0, 20), None)
    assert test.met_share == 0.6
    values[:30] = math.nan
    assert reasons(values, failed=np.isnan(values)) == ["the judge failed"]


def test_candidate_that_is_rarely_assessed_is_dropped() -> None:
    values = columns((1.0, 0.0))
    values[:40] = math.nan
    assert reasons(values) == ["rarely assessed"]


def test_no_pairs_and_no_candidates_are_accepted() -> None:
    assert prune_candidates(np.empty((ROWS, 2, 0)), [], np.arange(ROWS)) == []
    assert reasons(np.empty((0, 2, 1))) == ["orders other pairs wrongly"]


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, math.nan]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=40))
def test_exchanged_answers_exchange_right_and_wrong(pairs: list[tuple[float, float]]) -> None:
    values = np.array(pairs)[:, :, None]
    (one,), (other,) = count_pairs(values, [1]), count_pairs(values[:, ::-1], [1])
    assert (one.right, one.wrong, one.tied, one.missing) == (other.wrong, other.right, other.tied, other.missing)
    assert count_pairs(values, [-1]) == [other]
    assert sum(one) == len(pairs)


def test_sign_test_is_exact() -> None:
    differences = np.array([[1.0]] * 8 + [[-1.0]] * 2 + [[0.0]] * 5)
    assert sign_test(differences, np.arange(15))[0] == pytest.approx((45 + 10 + 1) / 1024)
    assert sign_test(np.zeros((3, 1)), np.arange(3))[0] == 1.0


def separation(right: int, wrong: int, tied: int = 0, **further: Any) -> Any:
    scores = [(1.0, 0.0)] * right + [(0.0, 1.0)] * wrong + [(0.5, 0.5)] * tied
    scores += further.pop("more", [])
    count = len(scores)
    settings: dict[str, Any] = {"lengths": [(1, 1)] * count, "groups": np.arange(count), "longer_is_better": True}
    return measure_separation(scores, **{**settings, **further})


def test_rubric_that_orders_most_pairs_rightly_separates() -> None:
    result = separation(30, 6, 4)
    assert result.decision == "separates"
    assert (result.rubric.value, result.rubric.n) == (0.8, 40)
    assert result.rubric.low > 0.5
    assert result.length.value == 0.5
    assert result.over_length.low > 0
    assert "more than length alone" in result.headline


def test_rubric_that_ties_all_pairs_is_the_constant_judge() -> None:
    result = separation(0, 0, 40)
    assert (result.decision, result.rubric.value) == ("not shown to separate", 0.5)


def test_rubric_that_prefers_the_worse_answers_is_named_in_the_headline() -> None:
    result = separation(2, 38, 0, lengths=[(2, 1)] * 40)
    assert result.decision == "not shown to separate"
    assert "The rubric prefers the worse answers: it orders 0.05" in result.headline
    assert "of 40 pairs rightly, less than length alone (1.00" in result.headline


def test_length_that_orders_as_well_is_reported() -> None:
    result = separation(30, 6, 4, lengths=[(2, 1)] * 30 + [(1, 2)] * 6 + [(1, 1)] * 4)
    assert result.decision == "separates"
    assert result.over_length.value == 0
    assert "not shown to be more than length alone" in result.headline
    shorter = separation(30, 6, 4, lengths=[(2, 1)] * 40, longer_is_better=False)
    assert shorter.length.value == 0.0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"right": 29, "wrong": 0}, "29 independent groups of pairs, below 30"),
        ({"right": 40, "wrong": 0, "groups": np.arange(40) % 10}, "10 independent groups of pairs, below 30"),
        ({"right": 40, "wrong": 0, "more": [(None, 1.0)] * 11}, "11 of 51 pairs have no score"),
        ({"right": 0, "wrong": 0}, "0 independent groups"),
    ],
)
def test_too_few_pairs_give_counts_and_no_interval(arguments: dict[str, Any], reason: str) -> None:
    result = separation(**arguments)
    assert result.decision == "no verdict"
    assert reason in result.reason
    assert result.rubric.low is None
    assert result.over_length.high is None
    assert result.headline.startswith("No verdict")


def test_pairs_in_groups_have_a_wider_interval() -> None:
    alone, grouped = separation(60, 20), separation(60, 20, groups=np.repeat(np.arange(40), 2))
    assert alone.rubric.low > grouped.rubric.low


def test_base_is_compared_on_the_same_pairs() -> None:
    result = separation(36, 4, base=[(1.0, 0.0)] * 20 + [(0.0, 1.0)] * 19 + [(None, 1.0)])
    assert (result.counts.missing, result.base.n, result.rubric.n) == (1, 39, 39)
    assert result.over_base.low > 0
    assert "the base alone 0.51" in result.headline


@pytest.mark.statistics
@pytest.mark.parametrize("name", [name for name, planted in KINDS.items() if not planted.signals])
def test_planted_pairs_without_a_signal_rarely_separate(name: str) -> None:
    outcomes = [simulate(KINDS[name], seed, name) for seed in range(300)]
    for false in ([each.separates for each in outcomes], [each.always for each in outcomes]):
        assert (estimate_rate(sum(false), len(false)).low or 0.0) <= 0.05
    assert (estimate_rate(sum(each.kept_noise for each in outcomes), len(outcomes)).low or 0.0) <= 0.05


@pytest.mark.statistics
def test_planted_signal_is_found_and_figures_in_sample_are_too_high() -> None:
    clear = [simulate(KINDS["3 of 12 with .40"], seed, "clear") for seed in range(50)]
    assert sum(each.detected for each in clear) >= 0.95 * 3 * 50
    assert all(each.separates for each in clear)
    noise = [simulate(KINDS["no signal"], seed, "noise") for seed in range(100)]
    assert sum(each.in_sample for each in noise) > 5
