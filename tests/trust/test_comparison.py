"""`compare_runs` pairs inputs, corrects for their number, and sees through a judge that is lenient to one run."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rubric_integrations.runs import GradedRow
from rubric_integrations.trust import compare_runs
from rubric_integrations.trust.statistics import difference_p_value, mcnemar_p_value
from tests.trust.runs import binary_rubric, labels_of, run_of

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


def test_labels_that_all_show_the_same_change_give_no_interval() -> None:
    answers = random_answers(80, 0.7, 12)
    before, after = run_of(RUBRIC, answers), run_of(RUBRIC, random_answers(80, 0.7, 13))
    comparison = compare_runs(before, after, labels=labels_of(RUBRIC, answers[:60]), margin=0.02)
    assert comparison.corrected == (0.0, None, None, 60)
    assert (comparison.decision, comparison.is_not_worse) == ("unclear", False)


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
