"""Gates pass what is surely above the threshold, and say how much more is needed otherwise."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.runs.files import IncompleteRunWarning, run_line
from rubric_integrations.scoring import JudgeFailure
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import (
    RunComparison,
    SequentialGate,
    choose_for_labels,
    compare_runs,
    fewest_to_pass,
    gate,
    gate_comparison,
    gate_rows,
    plan_labels,
)
from rubric_integrations.trust.corrections import Stratum, corrected_rate, labelled_mean
from rubric_integrations.trust.gates import decide_mean
from rubric_integrations.trust.means import FOR_GATE, estimate_mean
from tests.fakes import FakeJudge
from tests.trust.runs import binary_rubric, labels_of, run_of, scores_run

RUBRIC = binary_rubric(2)


@pytest.mark.statistics
@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.9])
def test_program_at_the_threshold_passes_rarely(threshold: float) -> None:
    rng = random.Random(4)
    runs = [[float(rng.random() < threshold) for _ in range(100)] for _ in range(200)]
    passes = sum(decide_mean(scores, threshold).decision == "pass" for scores in runs)
    assert passes <= 0.1 * len(runs)
    sequential = [SequentialGate(threshold) for _ in runs]
    passed = sum(
        any(one.add(score) == "pass" for score in scores) for one, scores in zip(sequential, runs, strict=True)
    )
    assert passed <= 0.05 * len(runs)


GATE_SIZES = (
    10, 12, 15, 18, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90, 100, 120, 150, 180, 200, 250, 300, 350, 400, 500, 600,
    800, 1000,
)  # fmt: skip
THRESHOLDS = (
    0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.82, 0.84, 0.85, 0.86, 0.88, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95,
    0.96, 0.97, 0.975, 0.98, 0.99,
)  # fmt: skip


@pytest.mark.parametrize(
    "count", [count if count in (20, 60) else pytest.param(count, marks=pytest.mark.statistics) for count in GATE_SIZES]
)
def test_program_of_zeros_and_ones_at_the_threshold_fails_in_at_most_alpha_and_passes_by_wilsons_limit(
    count: int,
) -> None:
    """By the binomial distribution; it failed in .182 of runs of 20 submissions at .99, and in .121 of 60."""
    scores = [[1.0] * met + [0.0] * (count - met) for met in range(count + 1)]
    lows = [estimate_mean(values, 0.9, imaginary=FOR_GATE).low or 0.0 for values in scores]
    for threshold in THRESHOLDS:
        fails = int((binom.cdf(np.arange(count), count, threshold) < 0.05).sum())
        passes = sum(low <= threshold for low in lows)
        for met, decision in ((fails - 1, "fail"), (fails, None), (passes - 1, None), (passes, "pass")):
            if 0 <= met <= count:
                decided = decide_mean(scores[met], threshold).decision
                assert decided == (decision or "inconclusive"), (threshold, met)


def test_gate_passes_fails_or_says_how_many_more() -> None:
    good = run_of(RUBRIC, [["MET", "MET"]] * 30)
    bad = run_of(RUBRIC, [["UNMET", "MET"]] * 30)
    near = run_of(RUBRIC, [["MET", "MET"]] * 9 + [["UNMET", "MET"]])
    assert gate(good, 0.8).decision == "pass"
    assert gate(bad, 0.8).decision == "fail"
    result = gate(near, 0.9)
    assert result.decision == "inconclusive"
    assert result.more is not None
    assert 20 < result.more < 400
    assert "more submissions would decide" in str(result)


def test_rows_without_a_score_count_as_zero_for_a_pass_and_as_one_for_a_failure() -> None:
    answers: list[list[str | None]] = [["MET", "MET"]] * 95
    failed: list[list[str | None]] = [[None, None]] * 5
    assert gate(run_of(RUBRIC, answers), 0.93).decision == "pass"
    result = gate(run_of(RUBRIC, answers + failed), 0.93)
    assert (result.decision, result.missing) == ("inconclusive", 5)


def test_rows_with_too_little_assessed_do_not_pass_a_gate() -> None:
    abstained = run_of(binary_rubric(3), [["MET", "CANNOT_ASSESS", "CANNOT_ASSESS"]] * 95)
    assert {row.report.score for row in abstained if row.report} == {1.0}
    result = gate(abstained, 0.8)
    assert (result.decision, result.missing) == ("inconclusive", 95)
    assert (
        gate(
            run_of(
                Rubric(binary_rubric(3).criteria, min_coverage=0.3), [["MET", "CANNOT_ASSESS", "CANNOT_ASSESS"]] * 95
            ),
            0.8,
        ).decision
        == "pass"
    )


def test_gate_with_labels_decides_on_the_corrected_score() -> None:
    rng = random.Random(5)
    people: list[list[str | None]] = [["MET" if rng.random() < 0.6 else "UNMET" for _ in range(2)] for _ in range(300)]
    judge: list[list[str | None]] = [["MET"] * 2 for _ in people]
    run = run_of(RUBRIC, judge)
    assert gate(run, 0.8).decision == "pass"
    assert gate(run, 0.8, labels=labels_of(RUBRIC, people[:100])).decision == "fail"
    with pytest.raises(ValueError, match="a gate needs 50"):
        gate(run, 0.8, labels=labels_of(RUBRIC, people[:20]))


def test_gate_with_a_baseline_fails_a_run_that_is_worse() -> None:
    baseline = run_of(RUBRIC, [["MET", "MET"]] * 100)
    worse = run_of(RUBRIC, [["MET", "MET"]] * 80 + [["UNMET", "MET"]] * 20)
    assert gate(worse, 0.8).decision == "pass"
    result = gate(worse, 0.8, baseline=baseline, margin=0.02)
    assert result.decision == "fail"
    assert "worse: the change from the baseline is " in str(result)
    assert gate(worse, 0.8, baseline=baseline, margin=0.2).decision == "pass"


@pytest.mark.parametrize("max_calls", [20, 200])
def test_gate_refuses_a_run_that_ended_before_all_rows_were_graded(max_calls: int) -> None:
    run = grade_many(
        [f"text {number}" for number in range(100)], RUBRIC, PerCriterionGrader(FakeJudge()), max_calls=max_calls
    )
    if max_calls == 200:
        assert gate(run, 0.8).decision == "pass"
        return
    with pytest.raises(ValueError, match=r"ended before all rows were graded \(`max_calls` of 20 is reached"):
        gate(run, 0.8)


@pytest.mark.parametrize(
    ("kept", "anyway", "decision", "change"),
    [
        (100, False, "inconclusive", "unclear"),
        (100, True, "pass", "not worse"),
        (190, False, "pass", "unchanged"),
    ],
)
def test_gate_with_a_baseline_does_not_pass_a_run_that_has_lost_rows(
    kept: int, anyway: bool, decision: str, change: str
) -> None:
    answers = [["MET", "MET"]] * 200
    result = gate(run_of(RUBRIC, answers[:kept]), 0.8, baseline=run_of(RUBRIC, answers), margin=0.05, anyway=anyway)
    assert (result.decision, result.change) == (decision, change)
    is_named = "100 of 200 scored rows of the first run have no score in the second" in result.warnings
    assert is_named == (kept == 100)


@pytest.mark.parametrize(("min_score", "alpha"), [(0.0, 0.05), (1.0, 0.05), (0.8, 0.0), (0.8, 0.5)])
def test_settings_out_of_range_are_refused(min_score: float, alpha: float) -> None:
    with pytest.raises(ValueError, match="got"):
        gate(run_of(RUBRIC, [["MET", "MET"]]), min_score, alpha=alpha)
    with pytest.raises(ValueError, match="got"):
        SequentialGate(min_score, alpha)
    with pytest.raises(ValueError, match="got"):
        fewest_to_pass(min_score, alpha)


def test_sequential_gate_keeps_its_decision_and_refuses_scores_out_of_range() -> None:
    sequential = SequentialGate(0.7)
    for _ in range(fewest_to_pass(0.7, sequential=True)):
        sequential.add(1.0)
    assert [sequential.add(0.0) for _ in range(50)] == ["pass"] * 50
    with pytest.raises(ValueError, match="`score` must be in"):
        sequential.add(1.5)


def test_plan_is_none_where_no_number_of_labels_is_enough() -> None:
    assert plan_labels(0.001, judged=100, rate=0.5) is None
    assert plan_labels(0.2, judged=1000, sd=0.1) == 50
    with pytest.raises(ValueError, match="exactly one"):
        plan_labels(0.05, judged=100)


@pytest.mark.statistics
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("shape", "half_width"), [("beta", 0.03), ("beta", 0.02), ("eight criteria", 0.02)])
def test_mean_by_the_planned_labels_is_as_wide_as_planned(shape: str, half_width: float, correlation: float) -> None:
    """It was 1.06 to 2 times as wide, because rare scores that the labels may lack were not planned for."""
    rng = np.random.default_rng(0)

    def draw(count: int) -> np.ndarray:
        return rng.beta(4, 1, count) if shape == "beta" else rng.binomial(8, 0.8, count) / 8

    needed = plan_labels(half_width, judged=1000, sd=float(draw(100_000).std()), correlation=correlation)
    assert needed is not None
    widths: list[float] = []
    for _ in range(40):
        people = draw(1000)
        judge = np.where(rng.random(1000) < correlation, people, draw(1000))
        places = rng.permutation(1000)[:needed].tolist()
        estimate = labelled_mean(people[places].tolist(), places, judge).estimate
        widths.append((estimate.high or 1.0) - (estimate.low or 0.0))
    assert np.mean(widths) == pytest.approx(2 * half_width, rel=0.08)


@pytest.mark.statistics
@pytest.mark.parametrize("accuracy", [0.7, 0.9, 0.97])
def test_rate_by_the_planned_labels_is_as_wide_as_planned(accuracy: float) -> None:
    rng = np.random.default_rng(0)
    met = 0.8 * accuracy + 0.2 * (1 - accuracy)
    correlation = (0.8 * accuracy - 0.8 * met) / (0.16 * met * (1 - met)) ** 0.5
    needed = plan_labels(0.05, judged=1000, rate=0.8, correlation=correlation)
    widths: list[float] = []
    for _ in range(100):
        people = rng.random(1000) < 0.8
        judge, is_labelled = people == (rng.random(1000) < accuracy), rng.permutation(1000) < (needed or 0)
        strata = [
            Stratum(int(of.sum()), int((of & is_labelled).sum()), int((of & is_labelled & people).sum()))
            for of in (judge, ~judge)
        ]
        estimate = corrected_rate(strata)
        widths.append((estimate.high or 1.0) - (estimate.low or 0.0))
    assert np.mean(widths) == pytest.approx(0.1, rel=0.05)


def test_judgments_to_label_are_drawn_by_submission_or_by_verdict() -> None:
    rng = random.Random(1)
    answers: list[list[str | None]] = [["MET" if rng.random() < 0.9 else "UNMET", "MET"] for _ in range(100)]
    run = run_of(RUBRIC, answers)
    drawn = choose_for_labels(run, 10)
    assert drawn == choose_for_labels(run, 10) != choose_for_labels(run, 10, seed=1)
    assert len({to_label.id for to_label in drawn}) == 10
    assert {(to_label.sampled, to_label.criterion) for to_label in drawn} == {("random", "c0"), ("random", "c1")}
    rare = choose_for_labels(run, 3, by_verdict=True)
    assert sorted((to_label.criterion, to_label.judged) for to_label in rare) == (
        [("c0", "MET")] * 3 + [("c0", "UNMET")] * 3 + [("c1", "MET")] * 3
    )
    assert {to_label.sampled for to_label in rare} == {"by_verdict"}


def failing_program(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw the scores of a program that gets about .86, and 0 for 7 % of its inputs."""
    return np.where(rng.random(count) < 0.07, 0.0, np.clip(rng.normal(0.86, 0.04, count), 0, 1))


@pytest.mark.statistics
def test_gate_at_the_threshold_of_a_program_that_rarely_fails_passes_in_at_most_five_percent() -> None:
    truth = float(failing_program(np.random.default_rng(0), 400_000).mean())
    for count in (20, 50):
        runs = [scores_run(failing_program(np.random.default_rng(seed), count)) for seed in range(60)]
        assert sum(gate(run, truth).decision == "pass" for run in runs) <= 6


def test_inconclusive_gate_says_how_many_rows_would_do_and_that_a_floor_needs_fewer() -> None:
    rng = np.random.default_rng(1)
    scores = np.clip(rng.normal(0.86, 0.04, 40), 0.7, 1)
    result = gate(scores_run(scores), 0.82)
    assert result.decision == "inconclusive"
    assert result.more is not None
    assert f"about {result.more} more submissions would decide (fewer with `floor=`" in str(result)
    more = np.resize(scores, 40 + result.more)
    assert [gate(scores_run(run), 0.82).decision for run in (more, more[:-1])] == ["pass", "inconclusive"]
    assert gate(scores_run(scores), 0.82, floor=0.6).decision == "pass"


@pytest.mark.parametrize("floor", [-0.1, 0.8, 0.9])
def test_floor_out_of_range_is_refused(floor: float) -> None:
    with pytest.raises(ValueError, match=r"`floor` must be at least 0 and below `min_score` 0\.8, got"):
        gate(scores_run([0.9] * 20), 0.8, floor=floor)


def test_floor_above_a_score_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`floor` is 0.5, and a submission has the score 0.4"):
        gate(scores_run([0.9] * 20 + [0.4]), 0.8, floor=0.5)


def test_far_decision_is_estimated_and_a_mean_at_the_threshold_is_too_close() -> None:
    near = gate(scores_run([0.9, 0.7] * 50), 0.799)
    assert near.more is not None
    assert 20_000 < near.more < 60_000
    assert gate(scores_run([0.9, 0.7] * 50), 0.8).more is None


def topic_scores(seed: int, groups: int = 10, rate: float = 0.7) -> np.ndarray:
    """Draw ten rows of each topic with an intraclass correlation of .3."""
    rng = np.random.default_rng(seed)
    rates = rng.beta(rate * 7 / 3, (1 - rate) * 7 / 3, groups)
    return (rng.random((groups, 10)) < rates[:, None]).astype(float).ravel()


def by_topic(row_id: str) -> str:
    return row_id.split("/", maxsplit=1)[0]


@pytest.mark.statistics
def test_gate_of_rows_in_groups_at_the_threshold_passes_in_at_most_five_percent() -> None:
    ids = [f"{topic}/{place}" for topic in range(20) for place in range(10)]
    runs = [scores_run(topic_scores(seed, 20), ids) for seed in range(50)]
    alone = sum(gate(run, 0.7).decision == "pass" for run in runs)
    grouped = sum(gate(run, 0.7, cluster=by_topic).decision == "pass" for run in runs)
    assert alone >= 7
    assert grouped <= 5


def test_gate_of_few_groups_is_inconclusive_or_warns() -> None:
    run = scores_run([1.0] * 180, [f"{topic}/{place}" for topic in range(9) for place in range(20)])
    few = gate(run[:80], 0.5, cluster=by_topic)
    assert (few.decision, few.score.low) == ("inconclusive", None)
    assert "too few groups (4)" in str(few)
    nine = gate(run, 0.5, cluster=by_topic)
    assert nine.decision == "pass"
    assert "few groups (9)" in str(nine)


def test_rows_that_would_decide_are_of_further_groups() -> None:
    groups = np.repeat(np.arange(12), 5)
    scores = np.repeat([1.0, 0.8, 0.9, 1.0, 0.7, 0.9] * 2, 5).tolist()
    result = decide_mean(scores, 0.8, groups=groups)
    assert result.decision == "inconclusive"
    assert result.more is not None
    assert result.more > (decide_mean(scores, 0.8).more or 0)
    assert f"about {result.more} more submissions of further groups would decide" in str(result)
    # The order of the rows does not matter: further groups are whole.
    order = np.random.default_rng(0).permutation(60)
    assert decide_mean(np.asarray(scores)[order].tolist(), 0.8, groups=groups[order]).more == result.more
    times = -(-(60 + result.more) // 60)
    repeated = np.concatenate([groups + 12 * number for number in range(times)])
    assert decide_mean(scores * times, 0.8, groups=repeated).decision == "pass"


def test_rows_without_a_score_count_in_their_group() -> None:
    groups = np.repeat(np.arange(10), 10)
    assert decide_mean([1.0] * 100, 0.6, groups=groups).decision == "pass"
    result = decide_mean([*[1.0] * 60, *[None] * 40], 0.6, groups=groups)
    assert (result.decision, result.missing, result.score.n) == ("inconclusive", 40, 60)


BEFORE = [0.8, 0.6, 1, 0.4, 0.9] * 12
AFTER = [*[0.8, 0.8, 1, 0.4, 0.8] * 11, 0.8, 0.8, 0.2, 0.6, 0.8]


def test_baseline_gate_prints_the_recorded_margin() -> None:
    result = gate(scores_run(AFTER), 0.5, baseline=scores_run(BEFORE))
    assert (result.decision, result.change, result.least_margin) == ("inconclusive", "unclear", 0.08)
    assert result.baseline is not None
    assert (result.baseline.value or 0) - (result.baseline.low or 0) == pytest.approx(0.061595900, abs=1e-9)
    assert "`margin=` 0.08 is the smallest that so many rows could show" in str(result)
    allowed = gate(scores_run(AFTER), 0.5, baseline=scores_run(BEFORE), margin=0.08)
    assert (allowed.decision, allowed.change, allowed.least_margin) == ("pass", "not worse", None)


def test_baseline_gate_fails_a_total_collapse_of_equal_changes() -> None:
    result = gate(scores_run([0.7] * 100), 0.5, baseline=scores_run([0.9] * 100), margin=0.05)
    assert (result.decision, result.change) == ("fail", "worse")


@pytest.mark.statistics
def test_baseline_gate_on_equal_programs_passes_with_the_margin_that_it_prints() -> None:
    def answers(seed: int) -> list[list[str | None]]:
        rng = random.Random(seed)
        return [["MET" if rng.random() < 0.95 else "UNMET" for _ in range(2)] for _ in range(100)]

    runs = [(run_of(RUBRIC, answers(2 * seed)), run_of(RUBRIC, answers(2 * seed + 1))) for seed in range(20)]
    results = [gate(after, 0.5, baseline=before) for before, after in runs]
    margin = max(result.least_margin or 0 for result in results)
    allowed = [gate(after, 0.5, baseline=before, margin=margin).decision for before, after in runs]
    assert allowed.count("pass") >= 15


def test_gate_counts_rows_that_only_one_run_has_and_passes_on_what_differs() -> None:
    run = scores_run([0.9] * 40)
    result = gate(run, 0.5, baseline=run[:30])
    assert (result.decision, result.change, result.unmatched) == ("pass", "unchanged", 10)
    assert "10 rows are in only one of the runs" in str(result)
    assert "cannot be checked" in str(result)
    assert gate(run, 0.5, baseline=run[:10]).change == "unclear"


def test_gate_and_comparison_of_runs_with_few_rows_in_common_warn() -> None:
    run = scores_run([0.9, 0.8] * 50)
    words = "the runs have only 40 of 100 rows in common: the comparison says nothing about the others"
    assert words in gate(run, 0.5, baseline=run[:40], margin=0.3).warnings
    assert words in compare_runs(run[:40], run).warnings
    assert not [text for text in gate(run, 0.5, baseline=run[:60], margin=0.3).warnings if "in common" in text]


def test_gate_with_labels_refuses_a_floor() -> None:
    labels = labels_of(RUBRIC, [["MET", "MET"]] * 60)
    with pytest.raises(ValueError, match="`floor` has no effect on a gate with `labels`"):
        gate(run_of(RUBRIC, [["MET", "MET"]] * 60), 0.8, labels=labels, floor=0.5)


def test_gate_with_labels_of_rows_in_groups_is_less_sure() -> None:
    rng = random.Random(5)
    people: list[list[str | None]] = [["MET" if rng.random() < 0.93 else "UNMET" for _ in range(2)] for _ in range(300)]
    run, labels = run_of(RUBRIC, people), labels_of(RUBRIC, people[:100])
    assert gate(run, 0.85, labels=labels).decision == "pass"
    grouped = gate(run, 0.85, labels=labels, cluster=lambda row_id: int(row_id) % 6)
    assert grouped.score.low is not None
    assert grouped.score.low < (gate(run, 0.85, labels=labels).score.low or 0)


def test_gate_of_a_comparison_needs_proof_for_a_pass() -> None:
    before, near, worse = scores_run([0.7, 0.8] * 100), scores_run([0.8, 0.7] * 100), scores_run([0.5, 0.6] * 100)
    decisions = {
        "fail": gate_comparison(compare_runs(before, worse, margin=0.02)),
        "not shown to be worse": gate_comparison(compare_runs(before, near)),
        "inconclusive": gate_comparison(compare_runs(before, near, margin=0.005)),
        "pass": gate_comparison(compare_runs(before, near, margin=0.1)),
    }
    assert {name: result.decision for name, result in decisions.items()} == {name: name for name in decisions}
    assert [result.is_accepted for result in decisions.values()] == [False, True, False, True]
    assert decisions["pass"].threshold == -0.1
    assert gate_comparison(compare_runs(before, before, margin=0.02)).decision == "pass"
    assert str(decisions["not shown to be worse"]).startswith(
        "not shown to be worse: unclear: the second run may still be worse than the first run; `margin=` demands proof"
    )


def test_gate_of_a_comparison_read_from_json_is_the_same() -> None:
    comparison = compare_runs(scores_run([0.7, 0.8] * 20), scores_run([0.8, 0.7] * 20), margin=0.01)
    again = RunComparison.model_validate_json(comparison.model_dump_json())
    assert gate_comparison(again) == gate_comparison(comparison)


def test_gates_of_rows_name_the_figure_and_the_rows_that_fail() -> None:
    answers: list[list[str | None]] = [["MET", "MET"], ["UNMET", "MET"], [None, "MET"]]
    results = gate_rows(
        run_of(RUBRIC, answers), every_row=True, min_score=0.6, min_pass_rate=0.3, min_coverage=0.9, max_failed=0
    )
    assert {result.settings: (result.decision, result.observed.value, result.threshold) for result in results} == {
        "`max_failed=0`": ("pass", 0, 0),
        "`every_row=True`": ("fail", 1 / 3, 1),
        "`min_score=0.6`": ("fail", 0.5, 0.6),
        "`min_pass_rate=0.3`": ("pass", 1 / 3, 0.3),
        "`min_coverage=0.9`": ("fail", 2.5 / 3, 0.9),
    }
    assert results[1].rows[0] == "2: score 0.500; not met: c0"
    assert "criteria: c0 in" in results[1].rows[-1]
    assert "where 1 row counts as 0, because" in str(results[2])
    assert results[3].rows == ()
    assert results[4].rows == ("3: coverage 0.500; not assessed: c0",)
    assert gate(run_of(RUBRIC, answers), 0.9).rows[0] == results[2].rows[0]


def test_gates_of_rows_of_a_file_count_failures_of_the_judge(tmp_path: Path) -> None:
    rubric = Rubric([Criterion(requirement="Is kind", name="kind")])
    lost = JudgeFailure("transport", "no reply")
    judge = ScriptedJudge(lambda question: lost if question.submission.response == "bad" else "MET")
    rows = [{"response": "good"}, {"response": "bad"}, {"response": "good"}, {"id": "empty"}]
    graded = list(grade_many(rows, rubric, PerCriterionGrader(judge), max_concurrency=1))
    (tmp_path / "run.jsonl").write_text("".join(map(run_line, graded)))
    for run in (graded, tmp_path / "run.jsonl"):
        results = gate_rows(run, max_failed=0, min_pass_rate=0.5, min_score=1)
        assert [result.decision for result in results] == ["fail", "pass", "pass"]
        assert results[0].finding == "the judge failed on 1 of 4 rows"
        assert results[0].rows[0].startswith("2: ")


def test_gates_of_rows_of_a_stopped_run_are_inconclusive(tmp_path: Path) -> None:
    graded = list(grade_many(["42"] * 4, RUBRIC, PerCriterionGrader("offline"), max_concurrency=1))
    (tmp_path / "run.jsonl").write_text("".join(map(run_line, graded[:3])))
    with pytest.warns(IncompleteRunWarning):
        results = gate_rows(tmp_path / "run.jsonl", max_failed=0, min_pass_rate=0.5)
    assert [result.decision for result in results] == ["inconclusive", "inconclusive"]
    assert "3 of 4 rows: the run was stopped" in str(results[0])


@pytest.mark.parametrize(
    ("settings", "words"),
    [({}, "no threshold is set"), ({"min_pass_rate": 80}, r"`min_pass_rate` must be in \[0, 1\], got 80")],
)
def test_gates_of_rows_without_a_possible_threshold_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        gate_rows(run_of(RUBRIC, [["MET", "MET"]]), **settings)


def test_sequential_gate_has_a_result_with_its_figures() -> None:
    sequential = SequentialGate(0.8)
    for _ in range(30):
        sequential.add(1.0)
    assert str(sequential.result) == "pass: `min_score=0.8` `alpha=0.05`: after 30 submissions"


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.3])
def test_gate_of_a_large_alpha_passes_scores_of_0_and_1_wrongly_at_most_so_often(alpha: float) -> None:
    for count, threshold in ((4, 0.8), (15, 0.95), (28, 0.99), (29, 0.3), (33, 0.95), (60, 0.9)):
        passes = (decide_mean([1.0] * met + [0.0] * (count - met), threshold, alpha) for met in range(count + 1))
        wrong = sum(
            math.comb(count, met) * threshold**met * (1 - threshold) ** (count - met)
            for met, result in enumerate(passes)
            if result.decision == "pass"
        )
        assert wrong <= alpha + 1e-9


NEEDS = "a pass needs at least 13 submissions with a score"


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        # Without the row, the gate would be decided: the mean is not close to the threshold.
        ([1.0] * 13 + [None], "; the other rows alone would pass: the row without a score decides"),
        ([0.0] * 3 + [None] * 2, "; the other rows alone would fail: the rows without a score decide"),
        ([None], f"no row has a score; 1 row without a score may be anything from 0 to 1; {NEEDS}"),
        ([None] * 20, f"no row has a score; 20 rows without a score may be anything from 0 to 1; {NEEDS}"),
        ([], f"no row has a score; {NEEDS}"),
        ([1.0], f"the mean score is 1.000 (no interval, n = 1); {NEEDS}"),
        ([1.0, None], f"n = 1); 1 row without a score may be anything from 0 to 1; {NEEDS}"),
    ],
)
def test_reason_of_an_undecided_gate_names_few_and_missing_rows(scores: list[float | None], words: str) -> None:
    result = decide_mean(scores, 0.8)
    assert (result.decision, result.more) == ("inconclusive", None)
    assert words in result.message()
