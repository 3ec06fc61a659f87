"""The scoring formula: scores computed by hand, abstentions under every policy, and properties of every rubric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Option, Rubric
from rubric_integrations.scoring import Score, WeightedValue, blend_scores, score_parts
from rubric_integrations.scoring.formula import coverage, criterion_holds, reaches_mark, score_overall
from rubric_integrations.scoring.judgment import VERDICT_VALUES, Verdict
from tests.scoring.rubrics import report_of, rubric_of


@pytest.mark.parametrize(
    ("weights", "verdicts", "score", "raw"),
    [
        ([10, 8, -15], "MMM", 3 / 18, 3.0),
        ([10, 8, -15], "MMU", 1.0, 18.0),
        ([10, 8, -15], "UUM", 0.0, -15.0),
        ([-5, -3, -2], "UUU", 1.0, 0.0),
        ([-5, -3, -2], "MUM", 0.3, -7.0),
        ([0, -4], "MM", 0.0, -4.0),
        ([10, -5], "CU", None, 0.0),
        ([10, 8, -15], "MCU", 1.0, 10.0),
        ([10, -5], "CC", None, None),
        ([-5, -5], "CM", 0.0, -5.0),
    ],
)
def test_score_of_known_verdicts_equals_the_hand_calculation(
    weights: list[float], verdicts: str, score: float | None, raw: float | None
) -> None:
    words = [{"M": "MET", "U": "UNMET", "C": "CANNOT_ASSESS"}[v] for v in verdicts]
    rubric = rubric_of(*weights)
    assert rubric.compute_score(words) == (None if score is None else pytest.approx(score))
    # An undefined score is None in both modes; S alone is the `raw_score` of the report.
    assert rubric.compute_score(words, normalize=False) == (None if score is None else raw)
    report = report_of(rubric, *words, normalize=False)
    assert (report.score, report.raw_score) == (None if score is None else raw, raw)


@pytest.mark.parametrize(
    ("policy", "score", "raw"),
    [("skip", 5 / 5 - 3 / 5, 2.0), ("zero", 2 / 15, 2.0), ("partial", 7 / 15, 7.0), ("fail", 2 / 15, 2.0)],
)
def test_abstention_on_a_positive_weight_is_scored_by_the_policy(policy: Any, score: float, raw: float) -> None:
    rubric, verdicts = rubric_of(10, 5, -3), ["CANNOT_ASSESS", "MET", "MET"]
    assert rubric.compute_score(verdicts, cannot_assess=policy) == pytest.approx(score)
    assert rubric.compute_score(verdicts, False, policy) == raw


def test_abstention_on_a_penalty_is_scored_by_the_policy() -> None:
    rubric, verdicts = rubric_of(10, -4), ["MET", "CANNOT_ASSESS"]
    scores = [rubric.compute_score(verdicts, cannot_assess=policy) for policy in ("skip", "zero", "partial", "fail")]
    assert scores == [1.0, 1.0, 1.0, 0.6]


def test_abstention_under_a_number_earns_this_share_of_a_positive_weight() -> None:
    assert rubric_of(10, 5).compute_score(["CANNOT_ASSESS", "MET"], cannot_assess=0.25) == pytest.approx(7.5 / 15)
    assert rubric_of(10, -5).compute_score(["MET", "CANNOT_ASSESS"], cannot_assess=1) == 1.0


def test_abstention_under_fail_counts_the_worst_option_that_is_not_na() -> None:
    options = (Option(label="a", value=0.2), Option(label="b", value=1.0), Option(label="?", na=True))
    rubric = Rubric([Criterion(requirement="r", weight=1, options=options)])
    assert rubric.compute_score(["?"], cannot_assess="fail") == 0.2
    assert rubric.compute_score(["?"]) is None


def test_abstention_under_an_unknown_policy_is_an_error() -> None:
    with pytest.raises(AssertionError):
        score_parts([WeightedValue(1, None, 0.0)], "ignore")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["MET"],), "1 entries for 2"),
        ((["MET", "PARTIAL"],), "'PARTIAL'"),
        ((["MET", "MET"], True, "ignore"), "'ignore'"),
        ((["MET", "MET"], True, 1.5), "1.5"),
        ((["MET", "MET"], True, math.nan), "nan"),
    ],
)
def test_compute_score_with_invalid_arguments_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rubric_of(1, 1).compute_score(*arguments)


def test_criterion_with_min_score_holds_from_that_value() -> None:
    reward = Criterion(requirement="a", weight=1, min_score=0.6)
    penalty = Criterion(requirement="a", weight=-1, min_score=0.6)
    assert [criterion_holds(reward, v) for v in (0.0, 0.5, 0.6, 1.0, None)] == [False, False, True, True, False]
    assert [criterion_holds(penalty, v) for v in (1.0, 0.5, 0.4, 0.0, None)] == [False, False, True, True, False]


def test_pass_mark_is_reached_despite_a_rounding_error() -> None:
    assert reaches_mark(0.1 + 0.2 + 0.5 - 1e-12, 0.8)
    assert not reaches_mark(0.799999, 0.8)
    assert not reaches_mark(None, 0.0)


def test_overall_score_has_a_raw_score_on_the_scale_of_the_sum() -> None:
    assert score_overall(rubric_of(6, 2, -5), 25) == Score(0.25, 2.0)
    assert score_overall(rubric_of(-6, -2), 25) == Score(0.25, -6.0)
    counted = [Criterion(requirement=name, weight=w, per="occurrence", cap=5) for name, w in (("a", 1), ("b", -2))]
    assert score_overall(Rubric(counted), 100) == Score(1.0, 5.0)
    assert score_overall(Rubric(counted[1:]), 25) == Score(0.25, -7.5)


def test_coverage_is_the_share_of_the_absolute_weights() -> None:
    assert coverage(rubric_of(6, -3, 1), [True, True, False]) == 0.9


@pytest.mark.parametrize(
    ("blend", "score"), [("weighted_average", 0.7), ("multiplicative", 0.5), ("max", 1.0), ("min", 0.5)]
)
def test_blend_of_a_score_and_a_metric_follows_its_rule(blend: Any, score: float) -> None:
    assert blend_scores(0.5, [(0.4, 1.0)], blend) == score
    assert blend_scores(0.5, [], blend) == 0.5


def test_blend_with_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(AssertionError):
        blend_scores(0.5, [(0.4, 1.0)], "sum")  # pyright: ignore[reportArgumentType]


# Properties of every rubric.

VERDICTS = st.sampled_from(["MET", "UNMET", "CANNOT_ASSESS"])
WEIGHTS = st.floats(-1e6, 1e6).map(lambda weight: round(weight, 3))
WEIGHTED_VERDICTS = st.lists(st.tuples(WEIGHTS, VERDICTS), min_size=1, max_size=12).filter(
    lambda rows: any(weight for weight, _ in rows)
)
POLICIES: st.SearchStrategy[Any] = st.sampled_from(["skip", "zero", "partial", "fail", 0.0, 0.3, 1.0])


def parts_of(rows: Sequence[tuple[float, Verdict]]) -> list[WeightedValue]:
    return [WeightedValue(weight, VERDICT_VALUES[verdict], float(weight < 0)) for weight, verdict in rows]


@given(WEIGHTED_VERDICTS, POLICIES)
def test_score_is_in_its_bounds(rows: list[tuple[float, Verdict]], policy: Any) -> None:
    score = score_parts(parts_of(rows), policy)
    assert score.normalized is None or 0.0 <= score.normalized <= 1.0
    if score.raw is not None:
        low, high = sum(min(w, 0) for w, _ in rows), sum(max(w, 0) for w, _ in rows)
        assert low - 1e-6 <= score.raw <= high + 1e-6


@given(WEIGHTED_VERDICTS, POLICIES, st.randoms())
def test_score_does_not_depend_on_the_order(rows: list[tuple[float, Verdict]], policy: Any, random: Any) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert score_parts(parts_of(rows), policy) == score_parts(parts_of(shuffled), policy)


@given(WEIGHTED_VERDICTS, POLICIES, st.floats(0.001, 1000))
def test_score_does_not_change_if_all_weights_are_scaled(
    rows: list[tuple[float, Verdict]], policy: Any, scale: float
) -> None:
    score = score_parts(parts_of(rows), policy).normalized
    scaled = score_parts(parts_of([(w * scale, v) for w, v in rows]), policy).normalized
    assert (score is None) == (scaled is None)
    if score is not None:
        assert scaled == pytest.approx(score, abs=1e-9)


@given(WEIGHTED_VERDICTS, st.data())
def test_score_of_a_better_answer_is_never_lower(rows: list[tuple[float, Verdict]], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    weight = rows[index][0]
    worse: Verdict = "MET" if weight < 0 else "UNMET"
    better: Verdict = "UNMET" if weight < 0 else "MET"
    before, after = rows[:index], rows[index + 1 :]
    low = score_parts(parts_of([*before, (weight, worse), *after]))
    high = score_parts(parts_of([*before, (weight, better), *after]))
    assert (low.normalized is None) == (high.normalized is None)
    if low.normalized is not None and high.normalized is not None:
        assert low.normalized <= high.normalized
    assert low.raw is not None
    assert high.raw is not None
    assert low.raw <= high.raw


@given(WEIGHTED_VERDICTS)
def test_score_under_skip_is_that_of_the_assessed_criteria_alone(rows: list[tuple[float, Verdict]]) -> None:
    assessed: list[tuple[float, Verdict]] = [(w, v) for w, v in rows if v != "CANNOT_ASSESS"]
    assume(any(w > 0 for w, _ in rows) == any(w > 0 for w, _ in assessed))
    assume(any(w for w, _ in assessed))
    assert score_parts(parts_of(rows)) == score_parts(parts_of(assessed))


@given(WEIGHTED_VERDICTS)
def test_score_is_undefined_if_every_positive_weight_abstains(rows: list[tuple[float, Verdict]]) -> None:
    assume(any(w > 0 for w, _ in rows))
    abstained: list[tuple[float, Verdict]] = [(w, "CANNOT_ASSESS" if w > 0 else v) for w, v in rows]
    assert score_parts(parts_of(abstained)).normalized is None
