"""Cases in which a figure of agreement would silently be wrong: what the page on methods and other tools warn of."""

from __future__ import annotations

import math

import pytest

from rubric_integrations import Criterion, Rubric, Submission
from rubric_integrations.runs import GradedRow
from rubric_integrations.trust import agreement, calibrate, calibrate_rate, compare_runs, gate
from rubric_integrations.trust.corrections import corrected_mean, labelled_mean, rogan_gladen_rate
from rubric_integrations.trust.means import estimate_mean
from rubric_integrations.trust.statistics import estimate_rate, estimate_rate_difference
from tests.trust.runs import binary_rubric, labels_of, run_of

ONE = binary_rubric()
TWO = binary_rubric(2)


def test_criterion_with_an_operator_is_matched_by_its_full_words() -> None:
    rubric = Rubric([Criterion(requirement="names a source", name="source", operator="contradicts")])
    total = agreement(run_of(rubric, [["MET"]]), labels_of(rubric, [["MET"]]))
    assert (total.labels, total.unmatched) == (1, 0)


def test_labels_by_verdict_of_an_abstaining_judge_do_not_exaggerate_its_abstentions() -> None:
    judge = [["MET"]] * 5 + [["CANNOT_ASSESS"]] * 5 + [["MET"]] * 90
    labels = labels_of(ONE, [["MET"]] * 10, "by_verdict")
    row = agreement(run_of(ONE, judge), labels).criteria["c0"]
    assert row.coverage == pytest.approx(0.95)
    assert row.accuracy.value == 1.0


def test_bias_by_labels_by_verdict_is_weighted_by_the_judges_verdicts() -> None:
    # Of 100 judgments, 90 are MET and all right; 10 are UNMET and half of them wrong: people say MET to 95.
    judge = [["MET"]] * 10 + [["UNMET"]] * 10 + [["MET"]] * 80
    people = [["MET"]] * 10 + [["MET"], ["UNMET"]] * 5
    total = agreement(run_of(ONE, judge), labels_of(ONE, people, "by_verdict"))
    bias = total.criteria["c0"].bias
    assert bias.value == pytest.approx(-0.05)
    assert bias.low is not None
    assert bias.high is not None
    assert bias.low < -0.05 < bias.high
    assert (total.micro_accuracy, total.accuracy.value) == (pytest.approx(0.95), pytest.approx(0.95))
    assert (total.accuracy.low, total.scores.n) == (None, 0)


def test_verdict_without_a_label_is_not_left_out_of_the_accuracy() -> None:
    judge = [["MET"]] * 80 + [["UNMET"]] * 20
    row = agreement(run_of(ONE, judge), labels_of(ONE, [["MET"]] * 40, "by_verdict")).criteria["c0"]
    assert row.accuracy.value == pytest.approx(0.8 + 0.2 * 0.5)
    assert row.accuracy.low is not None
    assert row.accuracy.low < 0.81
    assert (row.kappa.value, row.ac1, row.per_verdict["MET"].recall) == (None, None, None)
    assert row.per_verdict["MET"].precision == 1.0


def test_criteria_of_the_same_words_are_counted_apart() -> None:
    twice = Rubric([Criterion(requirement="Is polite", name=name, weight=1.0) for name in ("start", "end")])
    run = run_of(twice, [["MET", "UNMET"]] * 20)
    result = calibrate(run, labels_of(twice, [["MET", "UNMET"]] * 10))
    assert [result.criteria[name].judge_rates for name in ("start", "end")] == [{"MET": 1.0}, {"UNMET": 1.0}]


def test_more_occurrences_than_count_are_the_highest_level() -> None:
    rubric = Rubric([Criterion(requirement="Has an error", name="errors", weight=-1, per="occurrence", cap=3)])
    row = agreement(run_of(rubric, [["7"], ["1"]]), labels_of(rubric, [["3"], ["5"]])).criteria["errors"]
    assert row.levels == ("0", "1", "2", "3")
    assert (row.accuracy.value, row.confusion[3][3], row.confusion[3][1]) == (0.5, 1, 1)


def test_row_that_lost_a_vote_counts_and_one_with_a_fallback_counts_as_the_mean_of_the_others() -> None:
    rows = run_of(TWO, [["MET", "UNMET"], ["MET", None], ["MET", "MET"]])
    assert rows[0].report is not None
    lost = rows[0]._replace(report=rows[0].report.model_copy(update={"error": "a vote was lost", "complete": False}))
    result = calibrate([lost, *rows[1:]], labels_of(TWO, [["MET", "UNMET"], ["MET", "MET"], ["MET", "MET"]]))
    assert result.judge_score == pytest.approx(0.75)
    assert (result.score.value, result.score.n) == (pytest.approx(2.5 / 3), 3)  # people's own, as all is labelled
    assert any(warning.startswith("1 submissions have no score by the judge") for warning in result.warnings)


def test_judge_failures_are_neither_gains_nor_losses() -> None:
    before = run_of(TWO, [["MET", "UNMET"]] * 10)
    after = run_of(TWO, [["MET", "UNMET"]] * 9 + [["MET", None]])
    failed = after[-1].report
    assert failed is not None
    entry = failed.criteria[1].model_copy(update={"verdict": "MET", "value": 1.0})
    after[-1] = after[-1]._replace(report=failed.model_copy(update={"report": (failed.criteria[0], entry)}))
    comparison = compare_runs(before, after)
    assert comparison.inputs == 9
    assert comparison.criteria["c1"].difference[:1] == (0.0,)
    assert comparison.passed is not None
    assert comparison.passed.n == 9
    assert any("1 input" in warning for warning in comparison.warnings)


def test_criteria_of_one_name_and_other_words_are_compared_apart() -> None:
    def run(answers: list[list[str | None]]) -> list[GradedRow]:
        reworded = Rubric([Criterion(requirement="Does another thing", name="c0", weight=1.0)])
        return [*run_of(ONE, answers), *(row._replace(id=f"x{row.id}") for row in run_of(reworded, answers))]

    criteria = compare_runs(run([["MET"]] * 5), run([["UNMET"]] * 5)).criteria
    assert {name: change.difference.n for name, change in criteria.items()} == {"Does 0": 5, "Does another thing": 5}


def test_comparison_by_labels_drawn_by_verdict_is_refused() -> None:
    runs = [run_of(ONE, [["MET"], ["UNMET"]] * 5, text) for text in ("one", "other")]
    labels = [label for text in ("one", "other") for label in labels_of(ONE, [["MET"]] * 5, "by_verdict", text=text)]
    with pytest.raises(ValueError, match="drawn by the judge's verdict"):
        compare_runs(*runs, labels=labels)


def test_labels_that_fit_both_runs_without_submissions_are_refused() -> None:
    runs = [[row.report for row in run_of(ONE, [["MET"], ["UNMET"]])] for _ in range(2)]
    with pytest.raises(ValueError, match="have no submissions"):
        compare_runs(*runs, labels=labels_of(ONE, [["MET"], ["MET"]]))


def test_labels_of_rows_with_an_equal_id_are_paired_like_the_rows() -> None:
    def run(answers: list[str], text: str) -> list[GradedRow]:
        return [row._replace(id="same") for row in run_of(ONE, [[answer] for answer in answers], text)]

    before, after = run(["MET", "UNMET", "MET", "MET"], "one"), run(["MET", "MET", "MET", "MET"], "other")
    people = [["MET"], ["UNMET"], ["MET"], ["UNMET"]]
    labels = [*labels_of(ONE, people, text="one"), *labels_of(ONE, people, text="other")]
    labels = [label.model_copy(update={"id": "same"}) for label in labels]
    corrected = compare_runs(before, after, labels=labels).corrected
    assert corrected is not None
    assert corrected.n == 4


def test_runs_without_any_difference_detect_nothing() -> None:
    run = run_of(TWO, [["MET", "UNMET"]] * 60)
    assert compare_runs(run, run).detectable is None


def test_gate_refuses_scores_out_of_range() -> None:
    rows = run_of(ONE, [["MET"]] * 30)
    raw = [row._replace(report=row.report.model_copy(update={"score": 7.0})) for row in rows if row.report]
    with pytest.raises(ValueError, match="normalize"):
        gate(raw, 0.8)


def test_raw_scores_are_corrected_with_students_interval() -> None:
    people = [["MET", "UNMET"], ["MET", "MET"], ["UNMET", "UNMET"], ["UNMET", "MET"]] * 5
    judge = [["MET", "MET"], ["MET", "MET"], ["MET", "UNMET"], ["UNMET", "MET"]] * 10
    rows = run_of(TWO, judge)
    raw = [
        row._replace(report=row.report.model_copy(update={"score": row.report.raw_score})) for row in rows if row.report
    ]
    result = calibrate(raw, labels_of(TWO, people))
    assert result.judge_score == 1.5
    assert result.score.value == pytest.approx(1.0)
    assert any("50" in warning for warning in result.warnings)


def test_scores_that_do_not_follow_from_the_criteria_leave_the_criteria_measured() -> None:
    row = run_of(TWO, [["MET", "UNMET"]])[0]
    assert row.report is not None
    run = [row._replace(report=row.report.model_copy(update={"score": 0.2, "length_penalty": 0.3}))]
    total = agreement(run, labels_of(TWO, [["MET", "UNMET"]]))
    assert (total.criteria["c0"].accuracy.value, total.scores.n) == (1.0, 0)
    assert "pass the run's `rubric`" in total.warnings[0]


def test_judge_no_better_than_chance_after_smoothing_is_refused() -> None:
    assert rogan_gladen_rate(met=500, judged=1000, sensitivity=(1, 1), specificity=(1, 10)) is None


def test_rate_by_labels_from_elsewhere_refuses_other_verdicts_and_warns_of_a_weak_judge() -> None:
    with pytest.raises(ValueError, match="CANNOT_ASSESS"):
        calibrate_rate({"MET": 62, "UNMET": 38, "CANNOT_ASSESS": 9}, [[40, 10], [5, 45]])
    with pytest.warns(UserWarning, match="hardly better than chance"):
        calibrate_rate({"MET": 62, "UNMET": 38}, [[30, 20], [20, 30]])


@pytest.mark.parametrize("level", [0.0, 1.0, 95, math.nan])
def test_level_out_of_range_is_refused(level: float) -> None:
    for estimate in (
        lambda: estimate_rate(3, 9, level),
        lambda: estimate_mean([0.2, 0.4], level),
        lambda: estimate_rate_difference(rose=1, fell=2, pairs=9, level=level),
    ):
        with pytest.raises(ValueError, match="`level`"):
            estimate()


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_mean_of_few_labels_is_never_nan(n: int, level: float, bounded: bool) -> None:
    for people, judge in (([0.5] * n, [0.5] * n), ([0.0, 1.0, 0.5][:n], [1.0] * n), ([1.0] * n, [0.1, 0.2, 0.9][:n])):
        for others in (0, 100 - n):
            run = [*judge, *[0.6] * others]
            if bounded:
                estimate = labelled_mean(people, range(n), run, level=level).estimate
            else:
                estimate = corrected_mean(people, judge, sum(run) / len(run), len(run), level=level).estimate
            assert estimate.value is not None
            assert all(figure is None or math.isfinite(figure) for figure in estimate[:3])
            # Equal labels of scores without bounds do not tell how much others would vary.
            assert (estimate.low is None) == (n < 3 or (not bounded and len(set(people)) == 1))


def test_more_labels_than_judged_submissions_are_refused() -> None:
    with pytest.raises(ValueError, match="labelled 3 submissions of 2"):
        corrected_mean([0.0, 1.0, 0.5], [0.0, 1.0, 1.0], 0.5, 2)


def test_people_who_cannot_tell_leave_the_judgment_out() -> None:
    judge = [["MET"], ["MET"], ["UNMET"], ["UNMET"]]
    labels = labels_of(ONE, [["MET"], ["CANNOT_ASSESS"], ["UNMET"], ["MET"]])
    row = agreement(run_of(ONE, judge), labels).criteria["c0"]
    assert (row.n, row.people_abstained, row.judge_abstained, row.coverage) == (3, 1, 0, 0.75)
    rate = calibrate(run_of(ONE, judge), labels).criteria["c0"].rate
    assert rate is not None
    assert (rate.value, rate.n) == (pytest.approx(2 / 3), 3)  # people's own, as all is labelled


def test_met_on_a_penalty_is_the_error_and_lowers_the_corrected_score() -> None:
    rubric = Rubric([Criterion(requirement="Helps", weight=2), Criterion(requirement="Invents a fact", weight=-1)])
    judge = [["MET", "UNMET"]] * 20
    people = [["MET", "MET"], ["MET", "UNMET"]] * 10
    run, labels = run_of(rubric, judge), labels_of(rubric, people)
    assert agreement(run, labels).criteria["c2"].bias.value == -0.5
    assert calibrate(run, labels).score.value == pytest.approx(0.75)


def test_second_label_of_a_rater_replaces_the_first_and_is_no_second_rater() -> None:
    labels = [*labels_of(ONE, [["UNMET"], ["MET"]], rater="ana"), *labels_of(ONE, [["MET"]], rater="ana")]
    total = agreement(run_of(ONE, [["MET"], ["MET"]]), labels)
    row = total.criteria["c0"]
    assert (row.undecided, row.accuracy.value, row.people_alpha, total.labels) == (0, 1.0, None, 2)


def test_gate_passes_a_run_that_equals_its_baseline_as_unchanged() -> None:
    run = run_of(TWO, [["MET", "MET"]] * 15 + [["UNMET", "MET"]] * 5)
    result = gate(run, 0.6, baseline=run)
    assert (result.decision, result.change) == ("pass", "unchanged")
    assert (compare_runs(run, run).decision, compare_runs(run, run).p_value) == ("unchanged", None)
    # A judge that failed is a change.
    failed = run_of(TWO, [["MET", "MET"]] * 15 + [["UNMET", "MET"]] * 4 + [[None, None]])
    assert gate(failed, 0.6, baseline=run).change == "unclear"
    assert compare_runs(run, failed).decision == "unclear"


# A reader of the report page overruled nine answers beside a sample that was drawn: the judge was wrong on all nine.
DRAWN_AND_CHOSEN = [
    *labels_of(ONE, [["MET"]] * 50 + [["UNMET"]] * 10),
    *labels_of(ONE, [[None]] * 60 + [["UNMET"]] * 9, "chosen"),
]


def test_chosen_labels_beside_drawn_ones_are_left_out_of_every_figure_and_counted() -> None:
    run = run_of(ONE, [["MET"]] * 200)
    drawn = labels_of(ONE, [["MET"]] * 50 + [["UNMET"]] * 10)
    both, alone = agreement(run, DRAWN_AND_CHOSEN), agreement(run, drawn)
    assert (both.criteria, both.labels) == (alone.criteria, 60)
    corrected = calibrate(run, DRAWN_AND_CHOSEN)
    assert corrected.criteria == calibrate(run, drawn).criteria
    decided = gate(run, 0.5, labels=DRAWN_AND_CHOSEN)
    assert decided.score == gate(run, 0.5, labels=drawn).score
    later = [row._replace(submission=Submission(response=f"later {row.id}")) for row in run]
    labels = [*DRAWN_AND_CHOSEN, *labels_of(ONE, [["MET"]] * 60, text="later")]
    compared = compare_runs(run, later, labels=labels)
    assert compared.corrected is not None
    assert compared.corrected.n == 60
    for result in (both, corrected, decided, compared):
        assert any("`chosen` labels are left out (9)" in warning for warning in result.warnings)
    assert not any("`chosen`" in warning for warning in alone.warnings)


def test_drawn_judgment_that_its_rater_overrules_later_stays_in_the_sample() -> None:
    # Left out, exactly the judgments on which people and the judge differ would be missing.
    run = run_of(ONE, [["MET"]] * 4)
    drawn = labels_of(ONE, [["MET"]] * 4, rater="ana")
    overruled = labels_of(ONE, [["UNMET"]], "chosen", rater="ana")
    row = agreement(run, [*drawn, *overruled]).criteria["c0"]
    assert (row.n, row.accuracy.value) == (4, 0.75)


def test_labels_of_which_only_chosen_ones_belong_to_the_run_correct_nothing() -> None:
    labels = [*labels_of(ONE, [["MET"]], "chosen"), *labels_of(ONE, [["MET"]], text="other")]
    with pytest.raises(ValueError, match=r"none of the 1 labels .*`chosen` labels are left out \(1\)"):
        calibrate(run_of(ONE, [["MET"]]), labels)


@pytest.mark.parametrize(("blind", "warns"), [(0, True), (3, True), (4, False)])
def test_labels_that_may_not_be_blind_are_counted(blind: int, warns: bool) -> None:
    labels = labels_of(ONE, [["MET"]] * 4)
    labels = [label.model_copy(update={"blind": place < blind}) for place, label in enumerate(labels)]
    measured = agreement(run_of(ONE, [["MET"]] * 4), labels)
    assert measured.blind == blind
    assert any(f"{4 - blind} of 4 labels are not marked as blind" in text for text in measured.warnings) is warns
