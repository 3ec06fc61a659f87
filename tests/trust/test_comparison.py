"""`compare_runs` pairs inputs, corrects for their number, and sees through a judge that is lenient to one run."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from rubric_integrations import Criterion, Option, Rubric
from rubric_integrations.runs import GradedRow
from rubric_integrations.trust import compare_runs
from rubric_integrations.trust.statistics import difference_p_value, mcnemar_p_value
from tests.trust.runs import binary_rubric, labels_of, run_of, scores_run

RUBRIC = binary_rubric(4)


def random_answers(count: int, rate: float, seed: int) -> list[list[str | None]]:
    """Draw answers to the four criteria."""
    rng = random.Random(seed)
    return [["MET" if rng.random() < rate else "UNMET" for _ in range(4)] for _ in range(count)]


def test_better_run_is_better_and_the_reverse_is_worse() -> None:
    before, after = run_of(RUBRIC, random_answers(60, 0.4, 1)), run_of(RUBRIC, random_answers(60, 0.8, 2))
    comparison = compare_runs(before, after)
    assert (comparison.decision, comparison.inputs, comparison.unmatched) == ("better", 60, 0)
    assert compare_runs(after, before).decision == "worse"
    assert comparison.detectable is not None
    assert 0.05 < comparison.detectable < 0.2


def test_p_values_equal_other_implementations() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    contingency = pytest.importorskip("statsmodels.stats.contingency_tables", reason="statsmodels is not installed")
    differences = [0.1, 0.0, -0.2, 0.3, 0.1, 0.2]
    assert difference_p_value(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    exact = contingency.mcnemar([[0, 9], [3, 0]], exact=True).pvalue
    of_table = stats.binom.pmf(3, 12, 0.5)
    assert mcnemar_p_value(9, 3) == pytest.approx(exact - of_table)
    assert mcnemar_p_value(9, 3, exact=True) == pytest.approx(exact)
    assert mcnemar_p_value(3, 3, exact=True) == 1.0


def test_one_changed_criterion_of_four_is_found_after_correction_for_their_number() -> None:
    before = random_answers(100, 0.5, 3)
    after = [[row[0], "MET", *row[2:]] for row in before]
    criteria = compare_runs(run_of(RUBRIC, before), run_of(RUBRIC, after)).criteria
    assert criteria["c1"].adjusted is not None
    assert criteria["c1"].p_value is not None
    assert criteria["c1"].p_value <= criteria["c1"].adjusted < 0.001
    assert criteria["c0"].p_value is None
    assert criteria["c0"].difference.value == 0


def test_criteria_that_only_one_row_has_are_no_part_of_the_correction_for_their_number() -> None:
    def run_with_own_criteria(rate: float, seed: int) -> list[GradedRow]:
        rows = run_of(RUBRIC, random_answers(40, rate, seed))
        for index, row in enumerate(rows):
            assert row.report is not None
            shared, own, *_ = row.report.criteria
            own = own.model_copy(update={"requirement": f"Does {index}"})
            rows[index] = row._replace(report=row.report.model_copy(update={"report": (shared, own)}))
        return rows

    criteria = compare_runs(run_with_own_criteria(0.3, 1), run_with_own_criteria(0.8, 2)).criteria
    assert list(criteria) == ["c0"]
    assert criteria["c0"].adjusted == criteria["c0"].p_value
    assert criteria["c0"].decision == "better"


def test_interval_of_a_few_inputs_ends_at_the_largest_possible_change() -> None:
    before, after = [["MET", *["UNMET"] * 3], ["UNMET"] * 4], [["UNMET"] * 4, ["MET"] * 4]
    score = compare_runs(run_of(RUBRIC, before), run_of(RUBRIC, after)).score
    assert (score.value, score.low, score.high) == (0.375, -1.0, 1.0)


def test_samples_of_one_input_are_not_several_inputs() -> None:
    def samples(answers: Sequence[Sequence[str | None]]) -> list[GradedRow]:
        rows = run_of(RUBRIC, [row for row in answers for _ in range(10)])
        return [row._replace(id=f"{index // 10}/{index % 10}") for index, row in enumerate(rows)]

    changes = [1, 1, 0, 1, 0, -1]
    before = samples([["MET", "MET", "UNMET", "UNMET"]] * 6)
    after = samples([["MET"] * (2 + change) + ["UNMET"] * (2 - change) for change in changes])
    naive = compare_runs(before, after)
    honest = compare_runs(before, after, cluster=lambda row_id: row_id.partition("/")[0])
    assert (naive.inputs, honest.inputs) == (60, 6)
    assert naive.p_value is not None
    assert honest.p_value is not None
    assert naive.p_value < 0.05 < honest.p_value
    assert honest.passed is None


def test_labels_show_that_a_gain_is_the_judges_taste() -> None:
    rng = random.Random(6)
    people_before, people_after = random_answers(400, 0.5, 7), random_answers(400, 0.5, 8)

    def judge(answers: list[list[str | None]], leniency: float) -> list[list[str | None]]:
        return [[a if a == "MET" or rng.random() > leniency else "MET" for a in row] for row in answers]

    before, after = run_of(RUBRIC, judge(people_before, 0.05)), run_of(RUBRIC, judge(people_after, 0.35), "other")
    assert compare_runs(before, after).decision == "better"
    labels = labels_of(RUBRIC, people_before[:100]) + labels_of(RUBRIC, people_after[:100], text="other")
    with_labels = compare_runs(before, after, labels=labels)
    assert with_labels.corrected is not None
    assert with_labels.corrected.n == 100
    assert with_labels.decision == "unclear"


def test_labels_that_all_show_the_same_change_have_the_interval_of_bounded_scores() -> None:
    answers = random_answers(80, 0.7, 12)
    before, after = run_of(RUBRIC, answers), run_of(RUBRIC, random_answers(80, 0.7, 13))
    comparison = compare_runs(before, after, labels=labels_of(RUBRIC, answers[:60]), margin=0.02)
    assert comparison.corrected is not None
    assert (comparison.corrected.value, comparison.corrected.n) == (0.0, 60)
    assert -0.06 < (comparison.corrected.low or -1) < 0 < (comparison.corrected.high or 1) < 0.06
    assert (comparison.decision, comparison.is_not_worse) == ("unclear", False)


def test_few_rows_that_hardly_changed_do_not_exclude_rare_large_losses() -> None:
    changed = [0.7] * 39 + [0.71]
    comparison = compare_runs(scores_run([0.7] * 40), scores_run(changed), margin=0.02)
    assert (comparison.score.low or 0) > -0.02
    assert (comparison.decision, comparison.is_not_worse) == ("unclear", False)
    assert comparison.verdict == "unclear, as rare large losses may not have been seen"
    assert compare_runs(scores_run([0.7] * 400), scores_run([0.7] * 399 + [0.71]), margin=0.02).is_not_worse


def test_run_within_the_margin_is_not_worse() -> None:
    before = random_answers(200, 0.8, 9)
    after = [[*row[:3], "UNMET" if index % 40 == 0 else row[3]] for index, row in enumerate(before)]
    runs = run_of(RUBRIC, before), run_of(RUBRIC, after)
    assert not compare_runs(*runs).is_not_worse
    assert compare_runs(*runs, margin=0.03).is_not_worse


def test_runs_without_a_common_row_are_refused() -> None:
    first = run_of(RUBRIC, random_answers(3, 0.5, 10))
    with pytest.raises(ValueError, match="no scored row in common"):
        compare_runs(first, [row._replace(id="x" + row.id) for row in first])
    with pytest.raises(ValueError, match="`margin` must be at least 0"):
        compare_runs(first, first, margin=-1)


def test_fewer_than_fifty_inputs_are_a_warning() -> None:
    comparison = compare_runs(run_of(RUBRIC, random_answers(9, 0.5, 1)), run_of(RUBRIC, random_answers(9, 0.5, 2)))
    assert "fewer than 50 inputs" in comparison.summary()


@pytest.mark.parametrize(
    ("before", "after", "decision", "low", "high"),
    [
        ([1.0] * 200, [0.0] * 200, "worse", -1, -0.968893945),
        ([0.9] * 50, [0.9] * 50, "unchanged", -0.060622475, 0.060622475),
    ],
)
def test_equal_changes_have_the_recorded_interval(
    before: list[float], after: list[float], decision: str, low: float, high: float
) -> None:
    comparison = compare_runs(scores_run(before), scores_run(after))
    assert comparison.decision == decision
    assert comparison.score[1:3] == pytest.approx((low, high), abs=1e-9)


def test_option_that_falls_on_every_row_makes_its_criterion_worse() -> None:
    options = [Option(label=name, value=value) for name, value in (("no", 0), ("partly", 0.5), ("yes", 1))]
    rubric = Rubric([Criterion(requirement="How?", name="how", options=options), *binary_rubric().criteria])
    comparison = compare_runs(run_of(rubric, [["yes", "MET"]] * 100), run_of(rubric, [["partly", "MET"]] * 100))
    change = comparison.criteria["how"]
    assert (change.decision, change.difference.value, comparison.decision) == ("worse", -0.5, "worse")
    assert change.adjusted is not None
    assert change.adjusted < 1e-6


def test_equal_changes_of_raw_scores_have_no_interval_and_show_nothing() -> None:
    comparison = compare_runs(scores_run([5.0] * 20), scores_run([3.0] * 20))
    assert (comparison.score.low, comparison.decision, comparison.has_interval) == (None, "unclear", False)
    assert not comparison.is_not_worse


def rare_losses(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw 50 inputs of a program that gains a little and loses .9 on 3 %: the true change is 0."""
    rng = np.random.default_rng(seed)
    before = np.clip(rng.normal(0.92, 0.02, 50), 0.9, 0.95)
    gain = np.where(rng.random(50) < 0.03, -0.9, 0.9 * 0.03 / 0.97 + rng.normal(0, 0.005, 50))
    return before, before + gain


def test_better_says_that_rare_large_losses_may_not_have_been_seen() -> None:
    compared = [compare_runs(*map(scores_run, rare_losses(seed))) for seed in range(20)]
    better = [comparison for comparison in compared if comparison.decision == "better"]
    assert len(better) > 2
    for comparison in better:
        assert comparison.cautious is not None
        assert comparison.caveat == "unless rare large losses were not seen"
        assert (comparison.cautious.low or 0) < 0 < (comparison.score.low or 0)
    assert better[0].summary().startswith("better, unless rare large losses were not seen: the mean score changed by ")
    assert "with the interval that allows for them: " in better[0].summary()


def test_worse_says_that_rare_large_gains_may_not_have_been_seen() -> None:
    compared = [compare_runs(*(scores_run(1 - scores) for scores in rare_losses(seed))) for seed in range(20)]
    worse = [comparison.caveat for comparison in compared if comparison.decision == "worse"]
    assert set(worse) == {"unless rare large gains were not seen"}


def test_large_change_has_no_caveat() -> None:
    before, after = run_of(RUBRIC, random_answers(200, 0.4, 1)), run_of(RUBRIC, random_answers(200, 0.8, 2))
    assert (compare_runs(before, after).caveat, compare_runs(after, before).caveat) == ("", "")


def topics(sizes: Sequence[int]) -> list[str]:
    return [f"{topic}/{place}" for topic, size in enumerate(sizes) for place in range(size)]


def by_topic(row_id: str) -> str:
    return row_id.split("/", maxsplit=1)[0]


def test_groups_do_not_change_the_mean_of_the_rows() -> None:
    ids = topics([60, 2, 2, 2, 2, 2, 2])
    changes = [0.5 if number % 4 == 0 else 0.0 for number in range(60)] + [-0.5, 0.0] * 4 + [0.0] * 4
    runs = scores_run([0.5] * 72, ids), scores_run([0.5 + change for change in changes], ids)
    comparison = compare_runs(*runs, cluster=by_topic)
    assert comparison.score.value == pytest.approx(sum(changes) / 72)
    assert (comparison.inputs, comparison.score.n, comparison.in_groups) == (7, 72, True)
    # Its formula is that of Student's interval, which rows in groups do not have.
    assert comparison.detectable is None
    assert "the mean of the rows, with the interval of 7 groups" in comparison.summary()
    assert "few groups (7)" in comparison.warnings[-1]


def test_fewer_than_five_groups_have_no_interval() -> None:
    ids = topics([20] * 4)
    runs = scores_run([0.9] * 80, ids), scores_run([0.1] * 40 + [0.2] * 40, ids)
    comparison = compare_runs(*runs, cluster=by_topic)
    assert (comparison.decision, comparison.score.low, comparison.p_value) == ("unclear", None, None)
    assert "too few groups (4)" in comparison.summary()


@pytest.mark.statistics
def test_interval_of_rows_in_groups_contains_no_change() -> None:
    ids = topics([10] * 10)

    def covers(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        shift = np.repeat(rng.normal(0, 0.1, 10), 10)
        before = rng.uniform(0.4, 0.6, 100)
        after = before + np.clip(shift + rng.normal(0, 0.1, 100), -0.4, 0.4)
        _, low, high, _ = compare_runs(
            scores_run(before.tolist(), ids), scores_run(after.tolist(), ids), cluster=by_topic
        ).score
        return low is not None and high is not None and low <= 0 <= high

    assert sum(map(covers, range(40))) >= 36


def test_p_value_of_rows_in_groups_belongs_to_their_interval() -> None:
    ids = topics([5] * 12)
    rng = np.random.default_rng(3)
    after = np.clip(0.5 + np.repeat(rng.normal(0.3, 0.1, 12), 5), 0, 1)
    runs = scores_run([0.5] * 60, ids), scores_run(after.tolist(), ids)
    p_value = compare_runs(*runs, cluster=by_topic).p_value
    assert p_value is not None
    assert 0 < p_value < 0.05
    assert compare_runs(*runs, cluster=by_topic, level=1 - p_value).score.low == pytest.approx(0, abs=1e-6)


def test_labels_of_rows_in_groups_have_a_wider_interval() -> None:
    answers = random_answers(60, 0.7, 12), random_answers(60, 0.5, 13)
    judged = [[["MET" if index % 7 == 0 else a for a in row] for index, row in enumerate(run)] for run in answers]
    runs = run_of(RUBRIC, judged[0]), run_of(RUBRIC, judged[1], "other")
    labels = labels_of(RUBRIC, answers[0][:40]) + labels_of(RUBRIC, answers[1][:40], text="other")
    alone = compare_runs(*runs, labels=labels).corrected
    grouped = compare_runs(*runs, labels=labels, cluster=lambda row_id: int(row_id) // 6).corrected
    assert alone is not None
    assert grouped is not None
    assert grouped.value == alone.value
    assert (grouped.high or 0) - (grouped.low or 0) > (alone.high or 0) - (alone.low or 0)


def test_rows_with_one_query_are_named_without_a_cluster() -> None:
    rows = [
        row._replace(submission=row.submission.model_copy(update={"query": f"Q{int(row.id) % 6}"}))
        for row in scores_run([0.5] * 60)
        if row.submission
    ]
    assert "pass cluster='query' (in the shell --cluster query)" in compare_runs(rows, rows).warnings[-1]
    assert not any("cluster" in warning for warning in compare_runs(rows, rows, cluster="query").warnings)


def flipped(answers: Sequence[Sequence[str | None]], places: Sequence[int]) -> list[list[str | None]]:
    """Return answers with the opposite answer to the first criterion in some rows."""
    other = {"MET": "UNMET", "UNMET": "MET"}
    return [
        [other[str(of_row[0])] if place in places else of_row[0], *of_row[1:]] for place, of_row in enumerate(answers)
    ]


def test_answers_that_changed_in_both_directions_are_counted_with_the_kappa_between_the_runs() -> None:
    before: list[list[str | None]] = [["MET" if row % 2 else "UNMET"] for row in range(100)]
    after = flipped(before, range(30))
    comparison = compare_runs(run_of(binary_rubric(), before), run_of(binary_rubric(), after))
    row = comparison.criteria["c0"]
    assert (comparison.decision, row.difference.value) == ("unclear", 0.0)
    assert (row.changed, row.answers) == (30, 100)
    assert row.kappa.value == pytest.approx(0.4)
    assert row.kappa.low is not None
    assert "30 of 100 answers to equal responses changed, which does not mean" in comparison.summary()


def test_changed_answers_are_unknown_if_the_responses_differ_or_are_missing() -> None:
    before: list[list[str | None]] = [["MET" if row % 2 else "UNMET"] for row in range(20)]
    one, other = run_of(binary_rubric(), before), run_of(binary_rubric(), before, text="another")
    for rows in (other, [row._replace(submission=None) for row in one]):
        comparison = compare_runs(one, rows)
        assert (comparison.criteria["c0"].changed, comparison.criteria["c0"].kappa.value) == (None, None)
        assert comparison.changed_text == ""
    # Only the rows with the same response are counted.
    comparison = compare_runs(one, [*one[:5], *other[5:]])
    assert (comparison.criteria["c0"].changed, comparison.criteria["c0"].answers) == (0, 5)


def test_changed_abstention_is_a_changed_answer_and_a_failure_is_none() -> None:
    before: list[list[str | None]] = [["MET" if row % 2 else "UNMET"] for row in range(20)]
    after = [["CANNOT_ASSESS"], [None], *before[2:]]
    row = compare_runs(run_of(binary_rubric(), before), run_of(binary_rubric(), after)).criteria["c0"]
    assert (row.changed, row.answers, row.kappa.n) == (1, 19, 18)


def test_kappa_between_runs_is_undefined_for_one_answer_weighted_for_levels_and_wider_in_groups() -> None:
    same: list[list[str | None]] = [["MET"]] * 20
    row = compare_runs(run_of(binary_rubric(), same), run_of(binary_rubric(), same)).criteria["c0"]
    assert (row.changed, row.kappa.value) == (0, None)
    levels = [Option(label=label, value=value) for label, value in (("no", 0.0), ("partly", 0.5), ("yes", 1.0))]
    rubric = Rubric([Criterion(requirement="Is clear", options=levels)])
    before: list[list[str | None]] = [[("no", "partly", "yes")[row % 3]] for row in range(60)]
    after = [["partly"] if row < 30 and answers == ["yes"] else answers for row, answers in enumerate(before)]
    one, other = run_of(rubric, before), run_of(rubric, after)
    kappa = compare_runs(one, other).criteria["c1"].kappa
    assert kappa.value == pytest.approx(1 - (10 * 0.25) / _expected(before, after))
    grouped = compare_runs(one, other, cluster=lambda row: str((int(row) - 1) // 10)).criteria["c1"].kappa
    assert grouped.value == kappa.value
    assert None not in (kappa.low, kappa.high, grouped.low, grouped.high)
    assert grouped.high - grouped.low > kappa.high - kappa.low  # type: ignore[operator]
    few = compare_runs(one, other, cluster=lambda row: str(int(row) % 2)).criteria["c1"].kappa
    assert (few.value, few.low) == (kappa.value, None)


def _expected(before: Sequence[Sequence[str | None]], after: Sequence[Sequence[str | None]]) -> float:
    values = {"no": 0.0, "partly": 0.5, "yes": 1.0}
    one, other = ([values[str(answer)] for (answer,) in answers] for answers in (before, after))
    return sum((a - b) ** 2 for a in one for b in other) / len(one)


def test_criterion_is_unchanged_only_if_no_answer_to_it_changed_with_abstentions() -> None:
    rubric = binary_rubric(3)
    before: list[list[str | None]] = [["MET" if row % 2 else "UNMET"] * 3 for row in range(60)]
    abstained = [[*of_row[:2], "CANNOT_ASSESS" if row < 5 else of_row[2]] for row, of_row in enumerate(before)]
    after = flipped(abstained, [0, 1])
    for second in (run_of(rubric, after), run_of(rubric, after, "another response")):
        criteria = compare_runs(run_of(rubric, before), second).criteria
        assert [criteria[name].flips for name in ("c0", "c1", "c2")] == [2, 0, 5]
        assert [criteria[name].difference.value for name in ("c0", "c1", "c2")] == [0.0, 0.0, 0.0]
        assert [criteria[name].decision for name in ("c0", "c1", "c2")] == ["unclear", "unchanged", "unclear"]
