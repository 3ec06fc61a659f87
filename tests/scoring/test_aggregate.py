"""Reports of known answers: gates, the pass mark, and failures under every policy."""

from __future__ import annotations

import ast
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import rubric_integrations
from rubric_integrations import Criterion, Option, PerCriterionGrader, Rubric, Scale, Submission
from rubric_integrations.rubric import HybridMetric
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from rubric_integrations.scoring.aggregate import (
    MetricResults,
    OverallAnswer,
    aggregate_answers,
    aggregate_overall,
    blend_metrics,
    subtract_penalty,
)
from rubric_integrations.scoring.judgment import JudgeAnswers, Outcome, Verdict
from rubric_integrations.scoring.report import EvaluationReport, summary_of
from tests.scoring.rubrics import report_of, rubric_of
from tests.scoring.test_formula import WEIGHTED_VERDICTS

PACKAGE = Path(rubric_integrations.__file__).parent
CLARITY = (Option(label="muddled", value=0.0), Option(label="passable", value=0.4), Option(label="clear", value=1.0))
MET = Judgment(verdict="MET", value=1.0)
UNMET = Judgment(verdict="UNMET", value=0.0)
NO_CHECKS = JudgeAnswers({}, "check")
POLICIES = PerCriterionGrader("offline").policies


def test_required_criterion_changes_passed_but_not_the_score() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=1, required=True), Criterion(requirement="b", weight=99)])
    for answer, passed in [("MET", True), ("UNMET", False), ("CANNOT_ASSESS", False)]:
        report = report_of(rubric, answer, "MET")
        assert report.score is not None
        assert report.score >= 0.99
        assert report.passed is passed
    failed = report_of(rubric, "ERROR", "MET", on_failure={"positive": "MET"})
    assert (failed.score, failed.passed) == (1.0, False)


def test_required_penalty_passes_if_it_is_unmet() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=99), Criterion(requirement="b", weight=-1, required=True)])
    assert report_of(rubric, "MET", "UNMET").passed
    assert not report_of(rubric, "MET", "MET").passed


def test_pass_mark_applies_to_the_normalized_score() -> None:
    assert report_of(rubric_of(8, 2), "MET", "UNMET").passed
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
def test_failures_are_scored_by_the_policy_and_reported(
    on_failure: object, verdicts: list[str | None], score: float
) -> None:
    report = report_of(rubric_of(10, 5, -15), "ERROR", "MET", "ERROR", on_failure=on_failure)
    assert [row.verdict for row in report.criteria] == verdicts
    assert report.score == pytest.approx(score)
    assert (report.complete, report.failed_count, report.cannot_assess_count) == (False, 2, 0)
    assert report.coverage == pytest.approx(5 / 30)
    assert report.error == "`c1` was not judged: transport: lost (and 1 more)"
    assert [row.error for row in report.criteria] == ["transport: lost", None, "transport: lost"]


@given(WEIGHTED_VERDICTS, st.data())
def test_failure_under_worst_case_never_raises_the_score(
    rows: list[tuple[float, Verdict]], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    assume(rows[index][1] != "CANNOT_ASSESS")
    rubric = rubric_of(*(weight for weight, _ in rows))
    verdicts = [verdict for _, verdict in rows]
    complete = report_of(rubric, *verdicts, on_failure="worst_case")
    failed = report_of(rubric, *verdicts[:index], "ERROR", *verdicts[index + 1 :], on_failure="worst_case")
    assert not failed.complete
    if complete.score is not None and failed.score is not None:
        assert failed.score <= complete.score


KINDS = st.sampled_from(
    [
        Criterion(requirement="r"),
        Criterion(requirement="r", options=CLARITY),
        Criterion(requirement="r", scale=Scale(min=0, max=4)),
    ]
)


@given(st.lists(st.tuples(KINDS, st.floats(-10, 10), st.floats(0, 1)), min_size=1, max_size=5), st.data())
def test_failure_under_worst_case_never_raises_the_score_of_any_kind_of_criterion(
    rows: list[tuple[Criterion, float, float]], data: st.DataObject
) -> None:
    assume(any(weight for _, weight, _ in rows))
    rubric = Rubric([criterion.model_copy(update={"weight": weight}) for criterion, weight, _ in rows])
    grader = PerCriterionGrader("offline", on_failure="worst_case")

    def answer(criterion: Criterion, share: float) -> Outcome:
        if criterion.options:
            option = criterion.choices[round(share * 2)]
            return Judgment(verdict=option.label, value=option.value)
        return Judgment(verdict="x", value=float(round(share)) if criterion.kind == "binary" else share)

    answers = {i: answer(c, share) for i, (c, (_, _, share)) in enumerate(zip(rubric.criteria, rows, strict=True))}
    lost = {**answers, data.draw(st.integers(0, len(rows) - 1)): JudgeFailure("transport", "lost")}
    complete = grader.aggregate(rubric, Submission(response="t"), [JudgeAnswers(answers)])
    failed = grader.aggregate(rubric, Submission(response="t"), [JudgeAnswers(lost)])
    if complete.score is not None and failed.score is not None:
        assert failed.score <= complete.score + 1e-9


@pytest.mark.parametrize("normalize", [True, False])
def test_report_of_a_grade_that_raises_has_no_score_and_does_not_pass(normalize: bool) -> None:
    report = report_of(rubric_of(6, 1), "MET", "ERROR", on_failure="raise", normalize=normalize)
    assert [row.verdict for row in report.criteria] == ["MET", None]
    assert (report.score, report.raw_score, report.passed, report.complete) == (None, None, False, False)
    assert (report.coverage, report.failed_count) == (6 / 7, 1)


# -- a missing answer never passes


@pytest.mark.parametrize("on_failure", ["abstain", {"positive": "MET", "negative": "UNMET"}])
@pytest.mark.parametrize("normalize", [True, False])
def test_rubric_whose_judge_is_down_does_not_pass_by_its_free_check(on_failure: Any, normalize: bool) -> None:
    rubric = Rubric([Criterion(requirement="free", weight=2), *rubric_of(*[1] * 13).criteria], min_coverage=0.0)
    report = report_of(rubric, "MET", *["ERROR"] * 13, on_failure=on_failure, normalize=normalize)
    assert report.score in ((1.0,) if normalize else (2.0, 15.0))
    assert (report.passed, report.complete) == (False, False)


def test_failure_that_cannot_change_passed_leaves_it() -> None:
    report = report_of(rubric_of(9, 1), "MET", "ERROR", on_failure="abstain")
    assert (report.score, report.passed, report.complete) == (1.0, True, False)
    assert not report_of(rubric_of(7, 3), "MET", "ERROR", on_failure="abstain").passed
    assert not report_of(rubric_of(9, -3), "MET", "ERROR", on_failure="abstain").passed


def test_failed_criterion_alone_does_not_pass_even_at_the_pass_mark_of_zero() -> None:
    rubric = Rubric(rubric_of(1).criteria, pass_mark=0.0, min_coverage=0.0)
    assert not report_of(rubric, "ERROR", on_failure="abstain").passed


@given(WEIGHTED_VERDICTS, st.data())
def test_report_with_failures_passes_only_if_their_worst_answers_do(
    rows: list[tuple[float, Verdict]], data: st.DataObject
) -> None:
    failed = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    rubric = Rubric(
        rubric_of(*(weight for weight, _ in rows)).criteria,
        pass_mark=data.draw(st.sampled_from([0.0, 0.3, 0.8])),
        min_coverage=0.0,
    )
    on_failure = data.draw(st.sampled_from(["abstain", "worst_case", {"positive": "MET"}, {"negative": "MET"}]))
    policy = data.draw(st.sampled_from(["skip", "zero", 0.5, "fail"]))
    verdicts = [verdict for _, verdict in rows]
    worst = ["MET" if weight < 0 else "UNMET" for weight, _ in rows]
    lost = ["ERROR" if i in failed else verdict for i, verdict in enumerate(verdicts)]
    replaced = [worst[i] if i in failed else verdict for i, verdict in enumerate(verdicts)]
    report = report_of(rubric, *lost, on_failure=on_failure, cannot_assess=policy)
    assert report.passed == (report.score is not None and report_of(rubric, *replaced, cannot_assess=policy).passed)


@pytest.mark.parametrize(("min_coverage", "passed"), [(None, False), (0.4, True), (0.41, False), (0.0, True)])
def test_abstentions_leave_too_little_assessed_for_a_pass(min_coverage: float | None, passed: bool) -> None:
    rubric = Rubric(rubric_of(4, 6).criteria, min_coverage=min_coverage)
    report = report_of(rubric, "MET", "CANNOT_ASSESS")
    assert (report.score, report.coverage, report.passed, report.low_coverage) == (1.0, 0.4, passed, not passed)
    assert report.gate_score == (1.0 if passed else None)
    assert f"coverage 40%{'' if passed else ' too low'}" in summary_of(report)


def test_criteria_that_do_not_apply_do_not_lower_the_coverage() -> None:
    conditional = Criterion(requirement="b", weight=9, applies_when="There is a table")
    rubric = Rubric([Criterion(requirement="a"), conditional])
    answers = JudgeAnswers({0: MET, 2: UNMET})
    assert aggregate_answers(rubric, [answers], NO_CHECKS, POLICIES).passed


@pytest.mark.parametrize("condition", ["UNMET", "CANNOT_ASSESS"])
def test_report_of_a_criterion_that_its_condition_decides_has_the_possible_answers(condition: Verdict) -> None:
    options = [Option(label="all", value=1.0), Option(label="none", value=0.2)]
    rubric = Rubric(
        [
            Criterion(requirement="a", options=options, applies_when="w"),
            Criterion(requirement="b", per="occurrence", cap=3, applies_when="w"),
        ]
    )
    outcomes: dict[int, Outcome] = {2: Judgment(verdict=condition, value=0.0 if condition == "UNMET" else None)}
    rows = aggregate_answers(rubric, [JudgeAnswers(outcomes)], JudgeAnswers({}), PerCriterionGrader("offline").policies)
    assert [(row.options, row.cap) for row in rows.criteria] == [(tuple(options), None), ((), 3)]


def test_rubric_that_leaves_out_a_part_of_its_file_is_partial_and_never_passes() -> None:
    whole = rubric_of(1)
    partial = Rubric(whole.criteria, left_out=["`tests[0]`: `javascript`"])
    report = report_of(partial, "MET")
    assert (report.score, report.passed, report.partial) == (1.0, False, True)
    assert summary_of(report).startswith("not passed; partial: a part of the rubric is left out; coverage 100%")
    assert json.loads(report.model_dump_json())["partial"] is True
    assert EvaluationReport.model_validate_json(report.model_dump_json()) == report
    report = report_of(whole, "MET")
    assert (report.passed, report.partial) == (True, False)
    assert "partial" not in report.model_dump_json()


def test_joined_rubric_leaves_out_what_either_part_does() -> None:
    one, other = (Rubric(rubric_of(1).criteria, left_out=[text]) for text in "ab")
    assert (one + other).left_out == ("a", "b")
    assert (one + rubric_of(1)).left_out == (rubric_of(1) + one).left_out == ("a",)
    assert Rubric.from_json(one.to_json()) == one


def test_rubric_that_is_joined_with_another_has_its_min_coverage() -> None:
    strict = Rubric(rubric_of(1).criteria, min_coverage=0.9)
    assert (strict + rubric_of(1)).min_coverage == 0.9
    assert Rubric.from_dict(strict.to_dict()) == strict
    with pytest.raises(ValueError, match="min_coverage"):
        Rubric(rubric_of(1).criteria, min_coverage=50)


# -- cancelled criteria


def test_cancelled_criteria_are_failures_but_not_the_error_of_the_report() -> None:
    cancelled = JudgeFailure("cancelled", "another criterion had failed")
    answers = JudgeAnswers({0: cancelled, 1: MET, 2: JudgeFailure("config", "wrong key"), 3: cancelled})
    report = aggregate_answers(rubric_of(1, 1, 1, 1), [answers], NO_CHECKS, POLICIES)
    assert report.error == "`c3` was not judged: config: wrong key"
    assert (report.failed_count, report.complete) == (3, False)
    assert [row.error for row in report.criteria] == [
        "cancelled: another criterion had failed", None, "config: wrong key", "cancelled: another criterion had failed",
    ]  # fmt: skip


def test_failure_with_the_word_cancelled_in_its_message_is_the_error_of_the_report() -> None:
    failure = JudgeFailure("transport", "cancelled: another criterion had failed")
    report = aggregate_answers(rubric_of(1), [JudgeAnswers({0: failure})], NO_CHECKS, POLICIES)
    assert report.error == "`c1` was not judged: transport: cancelled: another criterion had failed"


# -- holistic grades, metrics, length penalties


def overall(*percents: float | None) -> list[OverallAnswer]:
    return [
        OverallAnswer(f"judge {position}", percent, "why" if percent is not None else "down", Spend(calls=1))
        for position, percent in enumerate(percents)
    ]


def test_overall_scores_are_joined_and_lost_judges_reported() -> None:
    report = aggregate_overall(rubric_of(10, -5), overall(90, None, 50), statistics.fmean, POLICIES)
    assert (report.score, report.raw_score, report.llm_raw_score) == (0.7, 7.0, 70.0)
    assert (report.complete, report.failed_count, report.coverage, report.spend.calls) == (False, 0, 1.0, 3)
    assert report.error == "1 of 3 judges gave no score: down"
    assert report.judge_scores == {"judge 0": 0.9, "judge 1": None, "judge 2": 0.5}


def test_overall_score_that_is_a_fallback_never_passes() -> None:
    policies = PerCriterionGrader("offline", on_failure={"positive": "MET"}).policies
    report = aggregate_overall(rubric_of(10), overall(None), statistics.fmean, policies)
    assert (report.score, report.passed, report.failed_count, report.complete) == (1.0, False, 1, False)


def test_metrics_and_penalties_decide_passed_again() -> None:
    rubric = Rubric(
        rubric_of(1).criteria, pass_mark=0.6, hybrid_metrics=[HybridMetric(name="m", type="accuracy", weight=1)]
    )
    report = aggregate_answers(rubric, [JudgeAnswers({0: MET})], NO_CHECKS, POLICIES)
    assert report.passed
    blended = blend_metrics(rubric, report, MetricResults({"m": 0.0}, {}), POLICIES)
    assert (blended.score is not None and blended.score < 0.6, blended.passed) == (True, False)
    assert not subtract_penalty(rubric, report, 0.5, POLICIES).passed
    assert subtract_penalty(rubric, report, 0.3, POLICIES).passed


def test_metric_that_was_not_computed_counts_0_for_passed() -> None:
    policies = PerCriterionGrader("offline", on_failure="abstain").policies
    metrics = [HybridMetric(name="m", type="accuracy", weight=0.5)]
    rubric = Rubric(rubric_of(1).criteria, hybrid_metrics=metrics)
    holistic = aggregate_overall(rubric, overall(100), statistics.fmean, policies)
    for report in (aggregate_answers(rubric, [JudgeAnswers({0: MET})], NO_CHECKS, policies), holistic):
        blended = blend_metrics(rubric, report, MetricResults({"m": None}, {"m": "check: no reference"}), policies)
        assert (report.passed, blended.score, blended.passed) == (True, 1.0, False)


def test_penalty_is_subtracted_from_the_worst_score_of_a_failed_grade() -> None:
    policies = PerCriterionGrader("offline", on_failure="abstain").policies
    answers = JudgeAnswers({0: MET, 1: JudgeFailure("transport", "lost")})
    rubric = rubric_of(9, 1)
    report = aggregate_answers(rubric, [answers], NO_CHECKS, policies)
    passed = [subtract_penalty(rubric, report, penalty, policies).passed for penalty in (0.1, 0.15)]
    assert passed == [True, False]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("on_failure", "answer", "score"), [("abstain", UNMET, 0.0), ("raise", MET, None)])
def test_metric_that_was_not_computed_makes_the_report_incomplete(
    on_failure: Any, answer: Judgment, score: float | None, normalize: bool
) -> None:
    policies = PerCriterionGrader("offline", on_failure=on_failure, normalize=normalize).policies
    rubric = Rubric(rubric_of(1).criteria, hybrid_metrics=[HybridMetric(name="m", type="accuracy", weight=1)])
    report = aggregate_answers(rubric, [JudgeAnswers({0: answer})], NO_CHECKS, policies)
    blended = blend_metrics(rubric, report, MetricResults({"m": None}, {"m": "check: no reference"}), policies)
    assert (blended.score, blended.passed, blended.complete, blended.failed_count) == (score, False, False, 1)
    assert blended.raw_score == answer.value
    assert blended.error == "`m` was not computed: check: no reference"


# -- `passed` is decided in one module


def decides_passed(module: Path) -> bool:
    """Whether a module compares a score with a rubric's pass mark, or sets `passed` of an `EvaluationReport`."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        keywords: dict[str | None, Any] = {keyword.arg: keyword.value for keyword in node.keywords}
        is_false = isinstance(value := keywords.get("passed"), ast.Constant) and value.value is False
        if name == "EvaluationReport" and "passed" in keywords and not is_false:
            return True
        update = keywords.get("update")
        keys = update.keys if name == "model_copy" and isinstance(update, ast.Dict) else []
        # `RunSummary` counts the grades that passed; it has `submissions`, which no report has.
        names = {key.value for key in keys if isinstance(key, ast.Constant)}
        if "passed" in names and "submissions" not in names:
            return True
    return False


def test_passed_of_a_report_is_decided_in_one_module() -> None:
    deciding = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if decides_passed(path)]
    # `read_experiment` restores what LangSmith stores.
    assert sorted(deciding) == ["langchain/annotation.py", "scoring/aggregate.py"]
