"""A cascade in each grader: limits, ledger, panels, failures and what the report says."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import PerCriterionOneShotGrader, RubricAsJudgeGrader, TextLimits
from rubric_integrations.judges import Cascade, Question
from rubric_integrations.langchain import RubricRunnable
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.scoring import EvaluationReport, JudgeError, JudgeFailure, Judgment, Spend, to_judgment
from tests.fakes import FakeBatchJudge, FakeJudge, FakeOverallJudge, batch_of
from tests.graders.rubrics import rubric_of

CHEAP, STRONG = Spend(calls=1, cost=0.01), Spend(calls=1, cost=0.5)
RUBRIC = rubric_of(4)
# The confidence of the cheap judge by requirement: two of four questions are escalated at 0.8.
CONFIDENCE = {"r0": 0.95, "r1": 0.8, "r2": 0.79, "r3": 0.1}


def stating(confidence: dict[str, float | None] | dict[str, float]) -> Callable[[Question], Judgment]:
    def answer(question: Question) -> Judgment:
        judgment = to_judgment(question.criterion, "MET")
        return judgment.model_copy(
            update={"confidence": confidence[question.criterion.requirement], "spend": CHEAP, "reason": "cheap"}
        )

    return answer


def make_judges() -> tuple[FakeJudge, FakeJudge]:
    return FakeJudge(stating(CONFIDENCE), fingerprint="cheap"), FakeJudge("UNMET", spend=STRONG, fingerprint="strong")


def grade(grader: Any, rubric: Rubric = RUBRIC) -> EvaluationReport:
    return rubric.grade_sync("It is the Rhine.", grader=grader)


def test_report_says_which_answers_are_escalated_and_what_was_saved() -> None:
    cheap, strong = make_judges()
    report = grade(PerCriterionGrader(Cascade(cheap, strong, 0.8)))
    assert [row.escalated for row in report.criteria] == [False, False, True, True]
    assert [row.verdict for row in report.criteria] == ["MET", "MET", "UNMET", "UNMET"]
    assert report.spend.calls == 6
    assert report.cost == pytest.approx(4 * 0.01 + 2 * 0.5)
    escalations = report.escalations
    assert (escalations.judgments, escalations.escalated, escalations.share) == (4, 2, 0.5)
    # The expensive judge alone would have cost four times 0.5.
    assert escalations.saved == pytest.approx(4 * 0.5 - 1.04)
    assert list(report.to_dataframe()["escalated"]) == [False, False, True, True]


def test_report_without_a_cascade_has_no_field_and_no_column_of_it() -> None:
    report = grade(PerCriterionGrader(FakeJudge("MET")))
    assert "escal" not in report.model_dump_json()
    assert "escalated" not in report.to_dataframe().columns
    assert (report.escalations.share, report.escalations.saved) == (None, None)


def test_report_with_a_cascade_survives_json() -> None:
    report = grade(PerCriterionGrader(Cascade(*make_judges(), 0.8)))
    assert EvaluationReport.model_validate_json(report.model_dump_json()) == report
    assert "escalation_cost" in report.model_dump_json()


def test_saving_is_unknown_without_an_escalation_or_a_price() -> None:
    cheap, strong = make_judges()
    assert grade(PerCriterionGrader(Cascade(cheap, strong, 0.05))).escalations.saved is None
    unpriced = FakeJudge("UNMET", spend=Spend(calls=1, cost=None))
    escalations = grade(PerCriterionGrader(Cascade(cheap, unpriced, 0.8))).escalations
    assert (escalations.share, escalations.saved) == (0.5, None)


def test_each_judge_has_retries_of_its_own() -> None:
    garbage = JudgeFailure("parse", "garbage", retryable=True, spend=CHEAP)
    cheap = FakeJudge({"r0": [garbage, stating({"r0": 0.9})(Question(None, RUBRIC.criteria[0]))]})  # type: ignore[arg-type]
    strong = FakeJudge("UNMET", spend=STRONG)
    [row] = grade(PerCriterionGrader(Cascade(cheap, strong, 0.8), max_retries=1), rubric_of(1)).criteria
    assert (row.escalated, row.spend.calls, strong.questions) == (False, 2, [])
    broken = FakeJudge(JudgeFailure("parse", "garbage", retryable=True, spend=STRONG))
    with pytest.raises(JudgeError, match="garbage") as error:
        grade(PerCriterionGrader(Cascade(FakeJudge(garbage), broken, 0.8), max_retries=1), rubric_of(1))
    # Two attempts of each judge, and one in each later round; the cascade itself has no retries.
    assert (len(broken.questions), error.value.report.spend.calls) == (4, 8)


def test_invalid_cheap_answer_is_escalated_and_an_exception_too() -> None:
    for wrong in (Judgment(verdict="PERHAPS", value=0.5, confidence=1.0), ValueError("bug"), "no judgment"):
        cheap = FakeJudge(lambda _, wrong=wrong: wrong) if not isinstance(wrong, Exception) else FakeJudge(wrong)
        report = grade(PerCriterionGrader(Cascade(cheap, FakeJudge("UNMET"), 0.8), max_retries=0), rubric_of(1))
        assert (report.criteria[0].escalated, report.criteria[0].verdict) == (True, "UNMET")


def test_ledger_keeps_both_answers_and_another_threshold_requests_nothing_that_is_stored(tmp_path: Path) -> None:
    (cheap, strong), path = make_judges(), tmp_path / "run.sqlite"

    def run(judge: Any) -> tuple[list[str | None], int]:
        cheap.questions.clear()
        strong.questions.clear()
        [graded] = grade_many(["It is the Rhine."], RUBRIC, PerCriterionGrader(judge), ledger=path)
        assert graded.report is not None
        return [row.verdict for row in graded.report.criteria], len(cheap.questions) + len(strong.questions)

    mixed = ["MET", "MET", "UNMET", "UNMET"]
    assert run(Cascade(cheap, strong, 0.8)) == (mixed, 6)
    assert run(Cascade(cheap, strong, 0.8)) == (mixed, 0)
    assert run(Cascade(cheap, strong, 0.5)) == (["MET", "MET", "MET", "UNMET"], 0)
    assert run(Cascade(cheap, strong, 0.9)) == (["MET", "UNMET", "UNMET", "UNMET"], 1)
    # What certification needs: the cheap judge alone costs nothing.
    assert run(cheap) == (["MET"] * 4, 0)


def test_rescore_replays_a_cascade_without_calls(tmp_path: Path) -> None:
    heavier = Rubric([criterion.model_copy(update={"weight": 9.0}) for criterion in RUBRIC.criteria])
    longer = Rubric([*RUBRIC.criteria, Criterion(requirement="new")])
    with Ledger(tmp_path / "run.sqlite") as ledger:
        grader = PerCriterionGrader(Cascade(*make_judges(), 0.8))
        [before] = grade_many(["It is the Rhine."], RUBRIC, grader, ledger=ledger)
        [after], [more] = list(rescore(ledger, heavier)), list(rescore(ledger, longer))
    assert before.report is not None
    assert [row.escalated for row in after.report.criteria] == [row.escalated for row in before.report.criteria]
    assert (after.missing, after.score, after.report.spend.calls) == (0, before.score, 0)
    assert more.missing == 1


def test_equal_cheap_judges_give_independent_answers_in_a_ledger(tmp_path: Path) -> None:
    sampled, strong = FakeJudge({"r0": ["MET", "UNMET"]}, fingerprint="cheap"), FakeJudge("MET", fingerprint="strong")
    grader = PerCriterionGrader(Cascade([sampled, sampled], strong, 0))
    for _ in range(2):
        [graded] = grade_many(["x"], rubric_of(1), grader, ledger=tmp_path / "run.sqlite")
        assert graded.report is not None
        assert graded.report.criteria[0].escalated
    assert (len(sampled.questions), len(strong.questions)) == (2, 1)


def test_run_counts_escalations_and_limits_count_the_calls_of_both() -> None:
    run = grade_many(["a", "b"], RUBRIC, PerCriterionGrader(Cascade(*make_judges(), 0.8)))
    list(run)
    assert (run.summary.escalations.share, run.summary.spend.calls) == (0.5, 12)
    assert run.summary.escalations.saved == pytest.approx(8 * 0.5 - 2.08)
    table = grade_many(["a"], RUBRIC, PerCriterionGrader(Cascade(*make_judges(), 0.8))).to_dataframe()
    assert list(table["escalated"]) == [0.5]
    assert "escalated" not in grade_many(["a"], RUBRIC, PerCriterionGrader(FakeJudge())).to_dataframe().columns
    limited = grade_many(["a", "b"], RUBRIC, PerCriterionGrader(Cascade(*make_judges(), 0.8)), max_calls=7)
    list(limited)
    assert limited.summary.stopped == "`max_calls` of 7 is reached"
    assert limited.summary.spend.calls <= 7
    priced = grade_many(["a", "b"], RUBRIC, PerCriterionGrader(Cascade(*make_judges(), 0.8)), max_cost=1.2)
    list(priced)
    assert priced.summary.stopped is not None
    assert priced.summary.spend.cost is not None
    assert priced.summary.spend.cost <= 1.2


def test_cheap_judge_that_a_run_cannot_use_ends_it_before_everything_is_escalated() -> None:
    strong = FakeJudge("MET")
    wrong_key = FakeJudge(JudgeFailure("config", "wrong key"))
    run = grade_many(["a", "b", "c"], RUBRIC, PerCriterionGrader(Cascade(wrong_key, strong, 0.8)), max_concurrency=1)
    list(run)
    assert run.summary.judge_is_unusable
    assert len(strong.questions) <= 2


def test_panel_may_contain_a_cascade() -> None:
    cascade = Cascade(*make_judges(), 0.8)
    report = grade(PerCriterionGrader(judges=[cascade, FakeJudge("UNMET"), FakeJudge("UNMET")]))
    assert [row.verdict for row in report.criteria] == ["UNMET"] * 4
    assert [row.escalated for row in report.criteria] == [False, False, True, True]
    assert (report.escalations.share, report.escalations.saved) == (0.5, None)
    assert "FakeJudge then FakeJudge" in report.judge_scores


def test_early_stopping_and_chunks_work_with_a_cascade() -> None:
    cheap, strong = make_judges()
    required = Rubric([Criterion(requirement="r3", required=True, weight=9), *RUBRIC.criteria[:3]])
    report = grade(PerCriterionGrader(Cascade(cheap, strong, 0.8), stop_when_decided=True), required)
    assert (report.passed, len(cheap.questions), len(strong.questions)) == (False, 1, 1)
    grader = PerCriterionGrader(Cascade(*make_judges(), 0.8), text_limits=TextLimits(chunk_size=1_000))
    # Three parts, of which each is escalated.
    row = rubric_of(4).grade_sync("word " * 300 + "\n\n" + "more " * 100, grader=grader).criteria[2]
    assert (row.escalated, row.escalation_cost, row.spend.calls) == (True, 1.5, 6)


def test_one_shot_grader_asks_each_judge_once() -> None:
    cheap = FakeBatchJudge(batch_of({1: "MET", 2: "CANNOT_ASSESS", 3: "MET", 4: "UNMET"}))
    strong = FakeBatchJudge(batch_of({2: "MET"}))
    report = grade(PerCriterionOneShotGrader(Cascade(cheap, strong, 0)))
    assert [row.escalated for row in report.criteria] == [False, True, False, False]
    assert (strong.requests, report.spend.calls, report.escalations.requested) == ([[2]], 2, 4)


def test_graders_that_know_no_confidence_refuse_a_cascade() -> None:
    with pytest.raises(TypeError, match="a Cascade cannot score a submission as a whole"):
        RubricAsJudgeGrader(Cascade(FakeOverallJudge(80), FakeOverallJudge(80), 0))
    with pytest.raises(ValueError, match="an LMJudge states no confidence where it answers several criteria"):
        PerCriterionOneShotGrader(Cascade("openai/gpt-4.1-nano", "openai/gpt-4.1", 0.8))
    with pytest.raises(TypeError, match="the judge FakeJudge answers one criterion at a time"):
        PerCriterionOneShotGrader(Cascade(FakeBatchJudge(), FakeJudge(), 0))
    assert PerCriterionOneShotGrader(Cascade("openai/gpt-4.1-nano", "openai/gpt-4.1", 0)).judges


def test_user_keeps_the_cascade_that_a_grader_was_made_with() -> None:
    cheap, strong = make_judges()
    cascade = Cascade(cheap, strong, 0.8)
    grade(PerCriterionGrader(cascade))
    assert cascade.members == (cheap, strong)


async def test_cascade_works_where_the_adapters_wrap_or_copy_a_grader(tmp_path: Path) -> None:
    cascade = Cascade(*make_judges(), 0.8)
    runnable = RubricRunnable(RUBRIC, judge=cascade)
    report = await runnable.ainvoke({"output": "It is the Rhine."})
    assert report.escalations.escalated == 2
    with Ledger(tmp_path / "metric.sqlite") as ledger:
        metric = RubricMetric(RUBRIC, judge=cascade, ledger=ledger)
        assert metric(dspy.Example(), dspy.Prediction(output="It is the Rhine.")).score == 0.5
        assert len(ledger) == 6
    twin = pickle.loads(pickle.dumps(PerCriterionGrader(Cascade("openai/a", "openai/b", 0.8))))
    assert twin.fingerprints() == PerCriterionGrader(Cascade("openai/a", "openai/b", 0.8)).fingerprints()
