"""The figures of the report page: summaries, points lost per criterion, and two runs compared."""

from __future__ import annotations

import pytest

from rubric_integrations import PerCriterionGrader, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import Judgment, Spend
from rubric_integrations.trust import compare_runs
from tests.reporting.page.runs import (
    FIRST,
    RUBRIC,
    SECOND,
    EchoJudge,
    compare,
    criterion_figures,
    own_rubrics,
    run_of,
    summarize,
)


def test_summary_counts_grades_failures_and_abstentions() -> None:
    summary = summarize(FIRST)
    assert (summary.submissions, summary.graded, summary.passed, summary.failed, summary.abstained) == (4, 3, 2, 1, 1)
    assert summary.score
    assert summary.score.value == pytest.approx((1 + 0 + 1) / 3)
    assert summary.cost == pytest.approx(0.5 * summary.calls - 0.5)


def test_summary_with_a_call_of_unknown_tokens_has_unknown_tokens() -> None:
    class Silent(EchoJudge):
        async def judge(self, question: Question) -> Judgment:
            judgment = await super().judge(question)
            return judgment.model_copy(update={"spend": Spend(calls=1, usage=None, cost=None)})

    run = RunFile.of("silent", grade_many(["right=MET error=UNMET tone=x"], RUBRIC, PerCriterionGrader(Silent())))
    summary = summarize(run)
    assert (summary.calls, summary.tokens, summary.cost) == (3, None, None)


def test_failure_that_a_policy_replaced_leaves_the_grade_valid() -> None:
    tolerant = PerCriterionGrader(EchoJudge(), on_failure="abstain", max_retries=0)
    run = RunFile.of("tolerant", grade_many(["right=MET error=fails tone=plain"], RUBRIC, tolerant))
    summary = summarize(run)
    assert (summary.graded, summary.failed) == (1, 0)
    assert summary.score
    assert summary.score.value == 1.0
    assert [figures.failed for figures in criterion_figures(run) if figures.name == "error"] == [1]


def test_criterion_figures_of_a_penalty_count_an_avoided_error_as_met() -> None:
    figures = {criterion.name: criterion for criterion in criterion_figures(FIRST)}
    assert criterion_figures(FIRST)[0].name == "right"
    right, error, tone = figures["right"], figures["error"], figures["tone"]
    assert (right.lost, right.worst, right.met, right.unmet) == (0.75, 3, 3, 1)
    assert (error.met, error.unmet, error.failed) == (2, 1, 1)
    assert error.lost == pytest.approx(2 / 3)
    assert (tone.met, tone.unmet, tone.abstained, tone.failed) == (1, 2, 1, 0)


def test_compare_two_runs_counts_pairs_and_changed_answers() -> None:
    comparison = compare(FIRST, SECOND)
    assert comparison
    # The judge failed at a criterion of the third submission in the first run.
    assert (comparison.better, comparison.worse, comparison.same) == (1, 1, 1)
    assert comparison.figures == compare_runs(FIRST, SECOND)
    assert comparison.flips == 3
    assert compare(FIRST, run_of("none")) is None


def test_compare_lists_the_criterion_that_changed_most_surely_first() -> None:
    rise = [f"right={'MET' if n < 30 else 'UNMET'} error={'UNMET' if n < 15 else 'MET'} tone=x" for n in range(40)]
    first, second = run_of("first", *["right=UNMET error=MET tone=x"] * 40), run_of("second", *rise)
    comparison = compare(first, second)
    assert comparison
    assert [(criterion.name, criterion.change.decision) for criterion in comparison.criteria] == [
        ("right", "better"), ("error", "better"), ("tone", "unclear")
    ]  # fmt: skip
    reverse = compare(second, first)
    assert reverse
    assert [criterion.change.decision for criterion in reverse.criteria] == ["worse", "worse", "unclear"]


def test_compare_of_equal_differences_has_the_interval_of_bounded_scores() -> None:
    shifted = [run_of(name, *[f"right=MET error={error} tone=x"] * 6) for name, error in (("a", "MET"), ("b", "UNMET"))]
    comparison = compare(*shifted)
    assert comparison
    score = comparison.figures.score
    assert None not in (score.low, score.high)
    assert 0 < (score.low or 0) < (score.value or 0) < (score.high or 0)
    assert 0 < (comparison.figures.p_value or 0) < 0.05
    assert comparison.figures.passed == (0, pytest.approx(-0.3465, abs=1e-4), pytest.approx(0.3465, abs=1e-4), 6)


def test_compare_of_rows_with_their_own_criteria_has_no_change_of_a_criterion() -> None:
    first, second = own_rubrics("first", 3, "MET", "UNMET"), own_rubrics("second", 3, "UNMET", "UNMET")
    comparison = compare(first, second)
    assert comparison
    assert (comparison.flips, comparison.criteria, comparison.figures.inputs) == (3, [], 3)


def test_compare_counts_no_changed_answer_between_requirements_that_only_share_a_name() -> None:
    first, second = own_rubrics("first", 2, "MET"), own_rubrics("second", 2, "UNMET", words="Another: ")
    comparison = compare(first, second)
    assert comparison
    assert comparison.flips == 0


def test_criterion_figures_of_rows_with_their_own_criteria_are_those_of_their_tags() -> None:
    figures = criterion_figures(own_rubrics("own", 3, "MET", "UNMET"))
    assert [(criterion.name, criterion.lost, criterion.met, criterion.unmet) for criterion in figures] == [
        ("facts", 2, 1, 2), ("style", 1, 2, 1)
    ]  # fmt: skip
