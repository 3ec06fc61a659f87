"""The figures of the report page: summaries, points lost per criterion, and two runs compared."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import LengthPenalty, PerCriterionGrader, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import Judgment, Spend
from rubric_integrations.trust import compare_runs
from tests.reporting.page.runs import (
    FIRST,
    RUBRIC,
    SECOND,
    EchoJudge,
    column_figures,
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


def test_cost_is_the_rise_of_the_mean_if_every_submission_did_as_wanted() -> None:
    figures = {criterion.name: criterion for criterion in criterion_figures(FIRST)}
    # The third row has no score. The second loses 3 + 2 + 1 of 4 points, and its score ends at 0.
    assert {name: of.cost for name, of in figures.items()} == {
        "right": pytest.approx(0.75 / 3), "error": pytest.approx(0.5 / 3), "tone": pytest.approx(0.25 / 3)
    }  # fmt: skip
    assert column_figures(FIRST).forgiven == pytest.approx(0.5 / 3)


ANSWERS = st.tuples(*[st.sampled_from(["MET", "UNMET", "CANNOT_ASSESS"])] * 2, st.sampled_from("px"))


@given(st.lists(ANSWERS, min_size=1, max_size=8))
@settings(max_examples=10)
def test_costs_add_up_to_what_the_mean_is_below_one(answers: list[tuple[str, str, str]]) -> None:
    tones = {"p": "plain", "x": "x"}
    run = run_of("run", *[f"right={right} error={error} tone={tones[tone]}" for right, error, tone in answers])
    summary, columns = summarize(run), column_figures(run)
    assert summary.score
    assert summary.score.value is not None
    lost = sum(criterion.cost or 0 for criterion in criterion_figures(run))
    assert lost - columns.forgiven == pytest.approx(1 - summary.score.value)


def test_cost_is_unknown_where_scores_are_not_the_sums_of_answers() -> None:
    texts = ["right=UNMET error=MET tone=x"]
    weighted = PerCriterionGrader(EchoJudge(), normalize=False)
    penalized = PerCriterionGrader(
        EchoJudge(), length_penalty=LengthPenalty(free_budget=1, max_cap=2, penalty_at_cap=0.5)
    )
    for rubric, grader in ((RUBRIC, weighted), (RUBRIC, penalized)):
        run = RunFile.of("run", grade_many([*texts, "right=MET tone=plain"], rubric, grader))
        figures = criterion_figures(run)
        assert [criterion.cost for criterion in figures] == [None] * 3
        assert [criterion.loss for criterion in figures] == [criterion.lost for criterion in figures]


def test_answers_are_in_words_with_the_filter_that_shows_their_rows() -> None:
    figures = {criterion.name: criterion.answers for criterion in criterion_figures(FIRST)}
    assert figures == {
        "right": [("1 of 4 not met", "missed")],
        "error": [("1 of 3 deducted", "missed"), ("judge failed at 1", "failed")],
        "tone": [("2 of 3 not met", "missed"), ("1 could not be judged", "abstained")],
    }
    never = criterion_figures(run_of("never", "error=UNMET tone=plain"))
    assert {criterion.name: criterion.answers for criterion in never} == {
        "right": [("1 could not be judged", "abstained")], "error": [("0 of 1 deducted", "")],
        "tone": [("0 of 1 not met", "")],
    }  # fmt: skip


def test_summary_counts_the_scores_at_the_pass_mark_and_where_answers_come_from() -> None:
    summary = summarize(FIRST)
    assert (FIRST.pass_mark, summary.pass_mark, summary.reached, sum(summary.histogram)) == (0.8, 0.8, 2, 3)
    assert (summary.judged, summary.computed, summary.failed_answers, summary.outside) == (11, 0, 1, 0)
    weighted = PerCriterionGrader(EchoJudge(), normalize=False)
    raw = RunFile.of("raw", grade_many(["right=MET error=UNMET tone=plain"], RUBRIC, weighted))
    assert (summarize(raw).pass_mark, summarize(raw).outside) == (None, 1)
    check = {"requirement": "Says 42", "check": {"contains": "42"}}
    checked = RunFile.of("checked", grade_many(["42"], [check], PerCriterionGrader("offline")))
    assert (summarize(checked).judged, summarize(checked).computed) == (0, 1)


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
        ("right", "better"), ("error", "better"), ("tone", "unchanged")
    ]  # fmt: skip
    reverse = compare(second, first)
    assert reverse
    assert [criterion.change.decision for criterion in reverse.criteria] == ["worse", "worse", "unchanged"]


def test_compare_of_equal_differences_has_the_interval_of_bounded_scores() -> None:
    shifted = [
        run_of(name, *[f"right=MET error={error} tone=x"] * 12) for name, error in (("a", "MET"), ("b", "UNMET"))
    ]
    comparison = compare(*shifted)
    assert comparison
    score = comparison.figures.score
    assert None not in (score.low, score.high)
    assert 0 < (score.low or 0) < (score.value or 0) < (score.high or 0)
    assert 0 < (comparison.figures.p_value or 0) < 0.05
    assert comparison.figures.passed == (0, pytest.approx(-0.1980, abs=1e-4), pytest.approx(0.1980, abs=1e-4), 12)


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
