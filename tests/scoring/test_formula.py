"""The aggregator: hand calculations, policies, gates, and the laws that hold for every rubric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission
from rubric_integrations.results.judgment import (
    VERDICT_VALUES,
    JudgeAnswers,
    JudgeFailure,
    Judgment,
    Verdict,
    parse_verdict,
)
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.scoring.formula import (
    WeightedValue,
    criterion_holds,
    reaches_mark,
    score_parts,
    validate_failure_policy,
)


def rubric_of(*weights: float, **fields: object) -> Rubric:
    return Rubric([Criterion(weight=w, requirement=f"r{i}") for i, w in enumerate(weights)], **fields)


def report_of(rubric: Rubric, *answers: str, **settings: object) -> EvaluationReport:
    """Aggregate known answers; `ERROR` stands for a failure."""
    grader = PerCriterionGrader("offline", **settings)  # pyright: ignore[reportArgumentType]
    known: dict[str, float | None] = {**VERDICT_VALUES}
    given = [
        JudgeFailure("transport", "lost") if a == "ERROR" else Judgment(verdict=a, value=known[a], reason="r")
        for a in answers
    ]
    return grader.aggregate(rubric, Submission(response="text"), [JudgeAnswers(dict(enumerate(given)))])


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
def test_hand_calculations(weights: list[float], verdicts: str, score: float | None, raw: float | None) -> None:
    words = [{"M": "MET", "U": "UNMET", "C": "CANNOT_ASSESS"}[v] for v in verdicts]
    rubric = rubric_of(*weights)
    assert rubric.compute_score(words) == (None if score is None else pytest.approx(score))
    assert rubric.compute_score(words, normalize=False) == raw


@pytest.mark.parametrize(
    ("policy", "score", "raw"),
    [("skip", 5 / 5 - 3 / 5, 2.0), ("zero", 2 / 15, 2.0), ("partial", 7 / 15, 7.0), ("fail", 2 / 15, 2.0)],
)
def test_policies_on_an_abstained_reward(policy: str, score: float, raw: float) -> None:
    rubric, verdicts = rubric_of(10, 5, -3), ["CANNOT_ASSESS", "MET", "MET"]
    assert rubric.compute_score(verdicts, cannot_assess=policy) == pytest.approx(score)  # pyright: ignore[reportArgumentType]
    assert rubric.compute_score(verdicts, False, policy) == raw  # pyright: ignore[reportArgumentType]


def test_policies_on_an_abstained_penalty() -> None:
    rubric, verdicts = rubric_of(10, -4), ["MET", "CANNOT_ASSESS"]
    scores = [rubric.compute_score(verdicts, cannot_assess=policy) for policy in ("skip", "zero", "partial", "fail")]
    assert scores == [1.0, 1.0, 1.0, 0.6]


def test_partial_credit_is_the_share_given() -> None:
    assert rubric_of(10, 5).compute_score(["CANNOT_ASSESS", "MET"], True, "partial", 0.25) == pytest.approx(7.5 / 15)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["MET"],), "1 entries for 2"),
        ((["MET", "PARTIAL"],), "'PARTIAL'"),
        ((["MET", "MET"], True, "ignore"), "'ignore'"),
        ((["MET", "MET"], True, "partial", 1.5), "1.5"),
        ((["MET", "MET"], True, "partial", math.nan), "nan"),
    ],
)
def test_bad_arguments_are_named(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rubric_of(1, 1).compute_score(*arguments)


@pytest.mark.parametrize("text", ["MET", "met", " Met. ", "**MET**", '"MET"', "`met`"])
def test_form_is_forgiven(text: str) -> None:
    assert parse_verdict(text) == "MET"


@pytest.mark.parametrize("text", ["NOT MET", "PARTIAL", "", "MET or UNMET", "yes", "1"])
def test_meaning_is_not_guessed(text: str) -> None:
    assert parse_verdict(text) is None


def test_a_required_criterion_changes_passed_and_never_the_score() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=1, required=True), Criterion(requirement="b", weight=99)])
    for answer, passed in [("MET", True), ("UNMET", False), ("CANNOT_ASSESS", False)]:
        report = report_of(rubric, answer, "MET")
        assert report.score is not None
        assert report.score >= 0.99
        assert report.passed is passed
    failed = report_of(rubric, "ERROR", "MET", on_failure={"positive": "MET"})
    assert (failed.score, failed.passed) == (1.0, False)


def test_a_required_penalty_holds_when_it_is_unmet() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=99), Criterion(requirement="b", weight=-1, required=True)])
    assert report_of(rubric, "MET", "UNMET").passed
    assert not report_of(rubric, "MET", "MET").passed


def test_min_score_raises_the_bar() -> None:
    reward = Criterion(requirement="a", weight=1, min_score=0.6)
    penalty = Criterion(requirement="a", weight=-1, min_score=0.6)
    assert [criterion_holds(reward, v) for v in (0.0, 0.5, 0.6, 1.0, None)] == [False, False, True, True, False]
    assert [criterion_holds(penalty, v) for v in (1.0, 0.5, 0.4, 0.0, None)] == [False, False, True, True, False]


def test_the_pass_mark_is_met_by_a_rounded_score() -> None:
    assert reaches_mark(0.1 + 0.2 + 0.5 - 1e-12, 0.8)
    assert not reaches_mark(0.799999, 0.8)
    assert not reaches_mark(None, 0.0)
    assert report_of(rubric_of(8, 2), "MET", "UNMET").passed


def test_raw_scores_pass_by_their_normalized_value() -> None:
    report = report_of(rubric_of(8, 2, -5), "MET", "MET", "MET", normalize=False)
    assert (report.score, report.raw_score, report.passed) == (5.0, 5.0, False)


@pytest.mark.parametrize(
    ("on_failure", "verdicts", "score"),
    [
        ("abstain", [None, "MET", None], 1.0),
        ("worst_case", ["UNMET", "MET", "MET"], 0.0),
        ({"positive": "MET", "negative": "UNMET"}, ["MET", "MET", "UNMET"], 1.0),
        ({"positive": "UNMET", "negative": "MET"}, ["UNMET", "MET", "MET"], 0.0),
        ({}, ["UNMET", "MET", "UNMET"], 1 / 3),
    ],
)
def test_failures_follow_the_policy_and_are_told(on_failure: object, verdicts: list[str | None], score: float) -> None:
    report = report_of(rubric_of(10, 5, -15), "ERROR", "MET", "ERROR", on_failure=on_failure)
    assert [row.verdict for row in report.criteria] == verdicts
    assert report.score == pytest.approx(score)
    assert (report.complete, report.failed_count, report.cannot_assess_count) == (False, 2, 0)
    assert report.coverage == pytest.approx(5 / 30)
    assert report.error == "`c1` was not judged: transport: lost (and 1 more)"
    assert [row.error for row in report.criteria] == ["transport: lost", None, "transport: lost"]


@pytest.mark.parametrize("policy", ["ignore", None, {"positve": "MET"}, {"positive": "CANNOT_ASSESS"}, 3])
def test_unknown_failure_policies_are_refused(policy: object) -> None:
    with pytest.raises(ValueError, match="on_failure"):
        validate_failure_policy(policy)


weights = st.floats(-1e6, 1e6).map(lambda w: round(w, 3))
answers = st.sampled_from(["MET", "UNMET", "CANNOT_ASSESS"])
cases = st.lists(st.tuples(weights, answers), min_size=1, max_size=12).filter(lambda rows: any(w for w, _ in rows))
policies = st.sampled_from(["skip", "zero", "partial", "fail"])


def parts_of(rows: Sequence[tuple[float, Verdict]]) -> list[WeightedValue]:
    return [WeightedValue(w, VERDICT_VALUES[v], 1.0 if w < 0 else 0.0) for w, v in rows]


@given(cases, policies, st.floats(0, 1))
def test_law_scores_are_in_bounds(rows: list[tuple[float, Verdict]], policy: object, credit: float) -> None:
    score = score_parts(parts_of(rows), policy, credit)  # pyright: ignore[reportArgumentType]
    assert score.normalized is None or 0.0 <= score.normalized <= 1.0
    if score.raw is not None:
        low, high = sum(min(w, 0) for w, _ in rows), sum(max(w, 0) for w, _ in rows)
        assert low - 1e-6 <= score.raw <= high + 1e-6


@given(cases, policies, st.randoms())
def test_law_order_does_not_matter(rows: list[tuple[float, Verdict]], policy: object, random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert score_parts(parts_of(rows), policy) == score_parts(parts_of(shuffled), policy)  # pyright: ignore[reportArgumentType]


@given(cases, policies, st.floats(0.001, 1000))
def test_law_scaling_all_weights_changes_nothing(
    rows: list[tuple[float, Verdict]], policy: object, scale: float
) -> None:
    one = score_parts(parts_of(rows), policy).normalized  # pyright: ignore[reportArgumentType]
    other = score_parts(parts_of([(w * scale, v) for w, v in rows]), policy).normalized  # pyright: ignore[reportArgumentType]
    assert (one is None) == (other is None)
    if one is not None:
        assert other == pytest.approx(one, abs=1e-9)


@given(cases, st.data())
def test_law_a_better_answer_never_scores_less(rows: list[tuple[float, Verdict]], data: st.DataObject) -> None:
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


@given(cases)
def test_law_skip_scores_what_is_left_on_the_branch_of_the_whole(rows: list[tuple[float, Verdict]]) -> None:
    left: list[tuple[float, Verdict]] = [(w, v) for w, v in rows if v != "CANNOT_ASSESS"]
    positive = any(w > 0 for w, _ in rows)
    assume(positive == any(w > 0 for w, _ in left))
    assume(any(w for w, _ in left))
    assert score_parts(parts_of(rows)) == score_parts(parts_of(left))


@given(cases)
def test_law_an_abstention_never_moves_a_rubric_to_the_other_branch(rows: list[tuple[float, Verdict]]) -> None:
    assume(any(w > 0 for w, _ in rows))
    abstained: list[tuple[float, Verdict]] = [(w, "CANNOT_ASSESS" if w > 0 else v) for w, v in rows]
    assert score_parts(parts_of(abstained)).normalized is None


@given(cases, st.data())
def test_law_a_failure_under_worst_case_never_raises_the_score(
    rows: list[tuple[float, Verdict]], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    assume(rows[index][1] != "CANNOT_ASSESS")
    rubric = rubric_of(*(w for w, _ in rows))
    verdicts = [v for _, v in rows]
    whole = report_of(rubric, *verdicts, on_failure="worst_case")
    broken = report_of(rubric, *verdicts[:index], "ERROR", *verdicts[index + 1 :], on_failure="worst_case")
    assert not broken.complete
    if whole.score is not None and broken.score is not None:
        assert broken.score <= whole.score
