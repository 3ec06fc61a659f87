"""Human labels of raters who abstain, who disagree, and who label a part of the criteria."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from rubric_integrations import Criterion, Rubric, Scale
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.trust import Calibration, agreement, calibrate, gate, panel_report
from rubric_integrations.trust.corrections import RatedRow, estimate_share, labelled_mean
from rubric_integrations.trust.means import FOR_GATE
from tests.trust.panels import panel_run
from tests.trust.runs import binary_rubric, labels_of, run_of

ONE, TWO = binary_rubric(), binary_rubric(2)
VERDICTS = ("UNMET", "MET")
Answers = Sequence[Sequence[str]]


def two_raters(count: int = 300) -> tuple[Answers, Sequence[Answers]]:
    """Return the judge's answers, and those of two raters who are equally lenient and often disagree."""
    rng = random.Random(8)
    hard = [rng.random() < 0.4 for _ in range(count)]
    truth = [rng.random() < 0.8 for _ in range(count)]
    raters = [[[VERDICTS[t if not h else rng.random() < 0.75]] for t, h in zip(truth, hard, strict=True)] for _ in "ab"]
    judge = [[VERDICTS[t if rng.random() < 0.9 else not t]] for t in truth]
    return judge, raters


@pytest.mark.statistics
def test_two_raters_estimate_the_mean_of_what_each_of_them_estimates() -> None:
    judge, answers = two_raters()
    run = run_of(ONE, judge)
    raters = [labels_of(ONE, of_rater, rater=name) for of_rater, name in zip(answers, "ab", strict=True)]
    both = [label for of_rater in raters for label in of_rater]

    def figures(labels: list[LabelledJudgment]) -> list[float]:
        measured, corrected = agreement(run, labels), calibrate(run, labels)
        row, rate = measured.criteria["c0"], corrected.criteria["c0"].rate
        assert rate is not None
        estimates = (row.accuracy, row.bias, measured.accuracy, measured.scores.bias, rate, corrected.score)
        return [math.nan if estimate.value is None else estimate.value for estimate in estimates]

    expected = np.mean([figures(labels) for labels in raters], axis=0)
    assert figures(both) == pytest.approx(expected)
    assert figures([*both, *labels_of(ONE, answers[0], rater="c")]) == pytest.approx(
        np.average([figures(labels) for labels in raters], axis=0, weights=[2, 1])
    )
    row, alone = (agreement(run, labels).criteria["c0"] for labels in (both, raters[0]))
    assert row.undecided > 40
    assert (row.n, row.coverage) == (300, 1.0)
    assert row.accuracy.low is not None
    assert alone.accuracy.low is not None
    assert row.accuracy.low > alone.accuracy.low - 0.02  # a second rater tells more, and never less
    assert sum(map(sum, row.confusion)) == 600


def test_share_of_two_raters_is_contained_as_often_as_promised() -> None:
    inside = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        hard = rng.random(400) < 0.4
        rates = np.where(hard, 0.6, (rng.random(400) < 0.8).astype(float))
        judge = np.where(rng.random(400) < 0.85, rates > 0.5, rates <= 0.5)
        judged = {row: VERDICTS[int(answer)] for row, answer in enumerate(judge)}
        shares = rng.binomial(2, rates[:60]) / 2
        estimate = estimate_share(judged, [RatedRow(i, judged[i], s, raters=2) for i, s in enumerate(shares.tolist())])
        assert None not in estimate[:3]
        inside += estimate[1] <= 0.72 <= estimate[2]  # type: ignore[operator]
    assert inside / 200 >= 0.92


def test_values_on_a_scale_of_several_raters_are_their_mean_median_or_mode() -> None:
    rubric = Rubric([Criterion(requirement="How clear?", name="clarity", scale=Scale(min=0, max=10, integer=True))])
    answers = [["0", "8"], ["0", "10"], ["9", "9"]]
    labels = [label for number, of_rater in enumerate(answers) for label in
              labels_of(rubric, [[answer] for answer in of_rater], rater=str(number))]  # fmt: skip
    run = run_of(rubric, [["3"], ["9"]])
    biases = {name: agreement(run, labels, consensus=name).criteria["clarity"].bias.value
              for name in ("mean", "median", "mode")}  # fmt: skip
    assert biases == pytest.approx({"mean": 0.0, "median": 0.15, "mode": 0.15})
    row = agreement(run, labels).criteria["clarity"]
    assert (row.accuracy.value, row.undecided) == (pytest.approx(1 / 6), 1)


def test_panel_is_measured_by_the_mean_rater() -> None:
    run = panel_run(ONE, [[["MET"], ["UNMET"], ["UNMET"]]] * 10)
    labels = [*labels_of(ONE, [["MET"]] * 10, rater="a"), *labels_of(ONE, [["UNMET"]] * 10, rater="b")]
    report = panel_report(run, labels)
    assert [judge.accuracy.value for judge in report.judges.values()] == [0.5, 0.5, 0.5]
    assert report.judges["a"].panel_gain.value == 0.0


def abstaining() -> tuple[Answers, Answers]:
    """Return the answers of a judge and of people, who cannot assess most of the UNMET; .141 of the rest are MET."""
    people = [["MET"]] * 14 + [["UNMET"]] * 85 + [["CANNOT_ASSESS"]] * 201
    judge = [["MET"]] * 10 + [["UNMET"]] * 4 + [["MET"]] * 5 + [["UNMET"]] * 80 + [["MET"]] * 150 + [["UNMET"]] * 51
    return judge, people


def test_figures_of_a_run_that_is_labelled_throughout_are_peoples_own() -> None:
    judge, people = abstaining()
    result = calibrate(run_of(ONE, judge), labels_of(ONE, people))
    row = result.criteria["c0"]
    assert row.rate is not None
    assert (row.rate.value, row.rate.n) == (pytest.approx(14 / 99), 99)
    assert (result.score.value, result.score.n) == (pytest.approx(14 / 99), 99)
    assert row.assessable.value == result.assessable.value == pytest.approx(0.33)
    assert "c0: annotators can assess 0.330 [" in result.summary()
    assert "Annotators can assess 0.330 [" in result.summary()
    assert gate(run_of(ONE, judge), 0.4, labels=labels_of(ONE, people)).decision == "fail"
    all_assessed = calibrate(run_of(ONE, judge), labels_of(ONE, [["MET"]] * 300))
    assert "can assess" not in all_assessed.summary()
    assert all_assessed.criteria["c0"].assessable.value == 1.0


def test_means_and_rates_among_the_assessable_are_contained_as_often_as_promised() -> None:
    inside = np.zeros(2)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        people = rng.random(500) < 0.7
        assessed = rng.random(500) < np.where(people, 1.0, 0.2)
        judge = np.where(rng.random(500) < 0.9, people, ~people)
        judged = {row: VERDICTS[int(answer)] for row, answer in enumerate(judge)}
        rated = [RatedRow(i, judged[i], float(people[i]), float(assessed[i]), int(assessed[i])) for i in range(50)]
        mean = labelled_mean(people[:50].tolist(), range(50), judge.astype(float), assessed=assessed[:50].tolist())
        for number, estimate in enumerate((estimate_share(judged, rated), mean.estimate)):
            assert None not in estimate[:3]
            inside[number] += estimate[1] <= 0.7 / 0.76 <= estimate[2]  # type: ignore[operator]
    assert (inside / 200 >= 0.92).all()


def test_score_counts_the_raters_who_labelled_every_criterion_and_fills_in_for_the_others() -> None:
    run = run_of(TWO, [["MET", "MET"]] * 6)
    labels = [*labels_of(TWO, [["MET", "UNMET"]] * 4 + [["MET", None]] * 2, rater="a"),
              *labels_of(TWO, [["UNMET", None]] * 2, rater="b")]  # fmt: skip
    result = calibrate(run, labels)
    # `b` gave no answer to the second criterion, and `a` says UNMET: 0 for `b`, and .5 for `a`.
    assert (result.score.value, result.score.n) == (pytest.approx((0.25 * 2 + 0.5 * 2) / 4), 4)
    expected = "2 labelled submissions lack a label on some criterion"
    assert [sum(expected in text for text in each.warnings) for each in (result, agreement(run, labels))] == [1, 1]


def test_two_spellings_of_a_name_are_one_rater_with_a_warning() -> None:
    run = run_of(ONE, [["MET"]] * 10)
    labels = [label for name in ("Ann", "ann ", "Bo") for label in labels_of(ONE, [["MET"]] * 8, rater=name)]
    measured, corrected = agreement(run, labels), calibrate(run, labels)
    assert measured.raters == ("Ann", "Bo")
    assert measured.labels == 16
    for warnings in (measured.warnings, corrected.warnings):
        assert "the raters 'Ann' and 'ann ' are counted as one rater" in warnings


@pytest.mark.parametrize(
    ("rater", "wrong", "words"),
    [
        ("Ana", 0, "40 of 40 labels of 'Ana' equal the judge's answers"),
        (None, 0, "40 of 40 labels without a rater equal the judge's answers"),
        ("Ana", 1, None),
        ("gpt-5-mini", 5, "the rater 'gpt-5-mini' is the run's judge"),
        ("OpenAI/GPT-5-mini ", 5, "the rater 'OpenAI/GPT-5-mini ' is the run's judge"),
    ],
)
def test_labels_that_seem_to_be_the_judges_own_answers_are_a_warning(
    rater: str | None, wrong: int, words: str | None
) -> None:
    recorded = {"grader": {"names": ["openai/gpt-5-mini"]}}
    run = [row._replace(scoring=recorded) for row in run_of(ONE, [["MET"]] * 30 + [["UNMET"]] * 30)]
    people = [["UNMET"]] * wrong + [["MET"]] * (30 - wrong) + [["UNMET"]] * 10
    labels = labels_of(ONE, people, rater=rater)
    for warnings in (agreement(run, labels).warnings, calibrate(run, labels).warnings):
        about = [text for text in warnings if "equal the judge's answers" in text or "is the run's judge" in text]
        assert [text.startswith(words or "") for text in about] == ([True] if words else [])
    assert not [text for text in agreement(run, labels[:29]).warnings if "equal the judge" in text]


def test_verdict_of_the_judge_without_a_label_is_a_warning() -> None:
    run = run_of(ONE, [["MET"]] * 90 + [["UNMET"]] * 10)
    warnings = calibrate(run, labels_of(ONE, [["MET"]] * 20)).warnings
    expected = (
        "c0: no label is of a judgment with the judge's UNMET, on 10 of 100 submissions: the rate of human labels "
        "there is unknown and counts as 0.5"
    )
    assert any(text.startswith(expected) and "by_verdict=True" in text for text in warnings)
    assert not any("no label is of" in text for text in calibrate(run, labels_of(ONE, [["MET"]] * 91)).warnings)


def test_mean_for_a_gate_allows_for_one_more_label_of_the_worst_score() -> None:
    judge, (people, _) = two_raters()
    run, labels = run_of(ONE, judge), labels_of(ONE, people[:60])
    usual, of_gate = calibrate(run, labels).score, calibrate(run, labels, imaginary=FOR_GATE).score
    assert (usual.value, usual.n) == (of_gate.value, of_gate.n)
    assert usual.low is not None
    assert of_gate.low is not None
    assert 0 < usual.low - of_gate.low < 0.01


def test_row_without_a_score_by_the_judge_counts_by_its_labels() -> None:
    judge: Answers = [["MET"]] * 20 + [["CANNOT_ASSESS"]] * 10
    result = calibrate(run_of(ONE, judge), labels_of(ONE, [["MET"]] * 20 + [["UNMET"]] * 10))
    assert isinstance(result, Calibration)
    assert (result.judge_score, result.score.value) == (1.0, pytest.approx(2 / 3))
    assert any("10 submissions have no score by the judge" in text for text in result.warnings)


def test_labels_that_are_read_twice_are_not_a_second_rater() -> None:
    judge, (people, other) = two_raters(60)
    run, labels = run_of(ONE, judge), labels_of(ONE, people)
    once, twice = agreement(run, labels), agreement(run, [*labels, *labels[:30]])
    assert (twice.criteria, twice.labels) == (once.criteria, 60)
    assert any(text.startswith("30 labels without a rater repeat earlier labels") for text in twice.warnings)
    # Two people who do not give their names agree on most judgments, and both count.
    assert agreement(run, [*labels, *labels_of(ONE, other)]).labels == 120
