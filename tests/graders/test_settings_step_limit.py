"""`TextLimits(step_limit=...)`: judges see shorter tool results and how much is missing, checks see everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.checks import registry
from rubric_integrations.graders import Grader, PerCriterionOneShotGrader, RubricAsJudgeGrader, TextLimits
from rubric_integrations.judges import LMJudge, Question
from rubric_integrations.rubric import Check
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.scoring import JudgeFailure, LabelledJudgment
from rubric_integrations.submission import Step, ToolCall, Trajectory
from tests.fakes import FakeBatchJudge, FakeJudge, FakeModel, FakeOverallJudge, batch_of
from tests.graders.rubrics import ONE

LONG = "head" + "x" * 9_992 + "tail"
OMITTED = 10_000 - 100
TRAJECTORY = Trajectory(steps=(Step(role="assistant", calls=(ToolCall(name="open", result=LONG),)),))
LIMITS = TextLimits(step_limit=100)


def submission_shown(show: str) -> Submission:
    response = TRAJECTORY.text() if show == "as_response" else "It was 8.4%."
    return Submission.model_validate({"response": response, "trajectory": TRAJECTORY, "show_trajectory": show})


class SeenBatch(FakeBatchJudge):
    async def judge_batch(self, questions: Any) -> Any:
        self.questions += questions.values()
        return await super().judge_batch(questions)


class SeenOverall(FakeOverallJudge):
    async def judge_overall(self, submission: Submission, rubric: Rubric) -> Any:
        self.questions.append(Question(submission, rubric.criteria[0]))
        return await super().judge_overall(submission, rubric)


GRADERS: Sequence[tuple[type[Grader], Any]] = [
    (PerCriterionGrader, FakeJudge),
    (PerCriterionOneShotGrader, lambda: SeenBatch(batch_of({1: "MET"}))),
    (RubricAsJudgeGrader, lambda: SeenOverall(90)),
]


@pytest.mark.parametrize(("grader_type", "make_judge"), GRADERS)
@pytest.mark.parametrize("show", ["always", "as_response"])
async def test_judge_sees_the_cut_and_the_report_counts_it(
    grader_type: type[Grader], make_judge: Any, show: str
) -> None:
    whole, judge = submission_shown(show), make_judge()
    report = await ONE.grade(whole, grader=grader_type(judge, text_limits=LIMITS))
    (question,) = judge.questions
    assert question.submission == whole.shortened(100) != whole
    assert report.omitted_characters == OMITTED
    assert report.model_dump()["omitted_characters"] == OMITTED
    assert f"{OMITTED:,} characters omitted" in report._repr_html_()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("grader_type", "make_judge"), GRADERS)
async def test_nothing_is_cut_without_the_setting(grader_type: type[Grader], make_judge: Any) -> None:
    whole, judge = submission_shown("always"), make_judge()
    grader = grader_type(judge)
    report = await ONE.grade(whole, grader=grader)
    (question,) = judge.questions
    assert question.submission == whole
    assert question.whole_response is None
    assert "omitted_characters" not in report.model_dump()
    assert "text_limits" not in grader.settings()


@pytest.mark.parametrize("stop_when_decided", [False, True])
async def test_checks_see_the_whole_trajectory(monkeypatch: pytest.MonkeyPatch, stop_when_decided: bool) -> None:
    seen: list[Submission] = []

    def note(check: Check, submission: Submission) -> str:
        seen.append(submission)
        return ""

    monkeypatch.setitem(registry.CHECKS, "contains", note)
    judged = Criterion.model_validate({"requirement": "r", "applies_when": {"contains": "8.4%"}})
    rubric = Rubric([judged, Criterion.model_validate({"requirement": "c", "check": {"contains": "8.4%"}})])
    whole = submission_shown("as_response")
    grader = PerCriterionGrader(FakeJudge(), text_limits=LIMITS, stop_when_decided=stop_when_decided)
    assert (await rubric.grade(whole, grader=grader)).omitted_characters == OMITTED
    assert len(seen) > 1
    assert all(submission == whole for submission in seen)


async def test_report_counts_nothing_if_no_judge_reads_the_trajectory() -> None:
    checked = Rubric([Criterion.model_validate({"requirement": "c", "check": {"contains": "8.4%"}})])
    report = await checked.grade(submission_shown("always"), grader=PerCriterionGrader(FakeJudge(), text_limits=LIMITS))
    assert report.omitted_characters == 0
    grader = PerCriterionGrader(FakeJudge(), text_limits=LIMITS)
    assert (await ONE.grade(submission_shown("if_needed"), grader=grader)).omitted_characters == 0


async def test_report_counts_what_was_cut_before_and_in_an_incomplete_grade() -> None:
    cut_before = submission_shown("as_response").shortened(100)
    assert (await ONE.grade(cut_before, grader=PerCriterionGrader(FakeJudge()))).omitted_characters == OMITTED
    grader = PerCriterionGrader(FakeJudge(JudgeFailure("config", "no")), text_limits=LIMITS)
    with pytest.raises(JudgeError) as caught:
        await ONE.grade(submission_shown("always"), grader=grader)
    assert caught.value.report.omitted_characters == OMITTED


def test_rescored_report_equals_that_of_the_run_and_the_key_follows_the_cut(tmp_path: Path) -> None:
    def run(ledger: Ledger, text_limits: TextLimits) -> tuple[Any, int]:
        judge = FakeJudge(fingerprint="f")
        grader = PerCriterionGrader(judge, text_limits=text_limits)
        (graded,) = grade_many([submission_shown("as_response")], ONE, grader, ledger=ledger)
        return graded.report, len(judge.questions)

    with Ledger(tmp_path / "run.sqlite") as ledger:
        assert [run(ledger, text_limits)[1] for text_limits in (TextLimits(), LIMITS, LIMITS)] == [1, 1, 0]
        report, _ = run(ledger, LIMITS)
        (rescored,) = rescore(ledger, ONE)
    assert rescored.missing == 0
    unpaid = {"spend": rescored.report.spend, "report": rescored.report.report}
    assert rescored.report == report.model_copy(update=unpaid)
    assert rescored.report.omitted_characters == OMITTED


def test_run_summary_and_data_frame_have_the_sum_only_if_anything_was_cut() -> None:
    pytest.importorskip("pandas")
    texts = [submission_shown("always"), "short"]
    run = grade_many(texts, ONE, PerCriterionGrader(FakeJudge(), text_limits=LIMITS))
    assert list(run.to_dataframe()["omitted_characters"].fillna(-1)) == [OMITTED, 0]
    assert run.summary.omitted_characters == OMITTED
    assert "omitted_characters" not in grade_many(["short"], ONE, PerCriterionGrader(FakeJudge())).to_dataframe()


async def test_label_of_the_same_text_is_no_example_after_a_cut() -> None:
    whole = submission_shown("as_response")
    label = LabelledJudgment(submission=whole, criterion=ONE.criteria[0], verdict="MET", reason="LABELLED")
    model = FakeModel('{"explanation": "", "verdict": "MET"}')
    await ONE.grade(whole, grader=PerCriterionGrader(LMJudge(model, examples=[label]), text_limits=LIMITS))
    ((_, prompt),) = model.prompts
    assert "LABELLED" not in prompt
    assert f'"omitted_characters": {OMITTED}' in prompt


@pytest.mark.parametrize("show", ["always", "as_response"])
async def test_steps_beyond_the_limit_of_a_text_are_judged_only_after_a_cut(show: str) -> None:
    call = ToolCall(name="open", result="x" * 1_100_000)
    trajectory = Trajectory(steps=(Step(role="assistant", calls=(call,)),))
    response = trajectory.text() if show == "as_response" else "It was 8.4%."
    fields = {"response": response, "trajectory": trajectory, "show_trajectory": show}
    submission = Submission.model_validate(fields)
    model = FakeModel('{"explanation": "", "verdict": "MET", "evidence": []}')
    with pytest.raises(JudgeError, match=r"the steps have 1,100,\d{3} characters, more than 1,000,000"):
        await ONE.grade(submission, grader=PerCriterionGrader(LMJudge(model)))
    assert not model.prompts
    report = await ONE.grade(submission, grader=PerCriterionGrader(LMJudge(model), text_limits=LIMITS))
    assert (report.score, report.omitted_characters) == (1.0, 1_100_000 - 100)
    with pytest.raises(ValueError, match="`response` has 1,000,001 characters"):
        Submission(response="x" * 1_000_001, show_trajectory="as_response")
