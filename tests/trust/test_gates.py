"""Gates pass what is surely above the threshold, and say how much more is needed otherwise."""

from __future__ import annotations

import random

import pytest

from rubric_integrations import Rubric
from rubric_integrations.trust import SequentialGate, choose_for_labels, fewest_to_pass, gate, plan_labels
from rubric_integrations.trust.gates import decide_mean
from tests.trust.runs import binary_rubric, labels_of, run_of

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
    assert "against the baseline" in str(result)
    assert gate(worse, 0.8, baseline=baseline, margin=0.2).decision == "pass"


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
