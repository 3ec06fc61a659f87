"""`TextLimits(chunk_size=...)`: a binary criterion is judged on each part of a long response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import CallLimits, Grader, PerCriterionOneShotGrader, RubricAsJudgeGrader, TextLimits
from rubric_integrations.judges import LMJudge, Question
from rubric_integrations.runs import Ledger, rescore
from rubric_integrations.scoring import JudgeFailure, LabelledJudgment
from rubric_integrations.submission import Step, ToolCall, Trajectory
from tests.fakes import FakeBatchJudge, FakeJudge, FakeModel, FakeOverallJudge
from tests.graders.rubrics import ONE
from tests.openai_server import Call, OpenAIServer, Reply

LIMITS = TextLimits(chunk_size=1_000)
# Three parts: the second has the error, and the third cannot be judged.
TEXT = "a" * 990 + "\n\n" + "error" + "b" * 990 + "\n\n" + "unclear"


def judge_part(question: Question) -> object:
    text = question.submission.response
    return "MET" if "error" in text else "CANNOT_ASSESS" if "unclear" in text else "UNMET"


@pytest.mark.parametrize("weight", [10, -10])
async def test_requirement_and_penalty_are_met_if_one_part_meets_them(weight: float) -> None:
    judge = FakeJudge(judge_part)
    report = await Rubric([Criterion(requirement="r", weight=weight)]).grade(
        TEXT, grader=PerCriterionGrader(judge, text_limits=LIMITS)
    )
    (row,) = report.criteria
    assert (row.verdict, row.reason, report.spend.calls) == ("MET", "part 2 of 3", 3)
    assert [question.submission.response[:5] for question in judge.questions] == ["aaaaa", "error", "uncle"]


@pytest.mark.parametrize(
    ("text", "verdict"), [(TEXT.replace("error", "eeeee"), "CANNOT_ASSESS"), ("a" * 3_000, "UNMET"), ("error", "MET")]
)
async def test_whole_is_unmet_only_if_every_part_is(text: str, verdict: str) -> None:
    report = await ONE.grade(text, grader=PerCriterionGrader(FakeJudge(judge_part), text_limits=LIMITS))
    assert report.criteria[0].verdict == verdict


async def test_failure_about_a_part_is_one_of_the_criterion_unless_another_part_decides() -> None:
    def fails(question: Question) -> object:
        return JudgeFailure("config", "no") if question.submission.response.startswith("a") else judge_part(question)

    grader = PerCriterionGrader(FakeJudge(fails), text_limits=LIMITS)
    assert (await ONE.grade(TEXT, grader=grader)).criteria[0].verdict == "MET"
    with pytest.raises(JudgeError, match="config: part 1 of 3: no") as caught:
        await ONE.grade(TEXT.replace("error", "eeeee"), grader=grader)
    assert caught.value.report.spend.calls == 2


async def test_unreadable_reply_about_a_part_repeats_that_part_alone(server: OpenAIServer) -> None:
    def script(call: Call) -> Reply:
        return Reply(text="nonsense") if call.number == 1 else Reply(verdict="UNMET")

    server.script = script
    judge = LMJudge("openai/m", api_base=server.url)
    grader = PerCriterionGrader(judge, limits=CallLimits(max_concurrency=1), text_limits=LIMITS)
    report = await ONE.grade(TEXT, grader=grader)
    assert (report.criteria[0].verdict, report.spend.calls, len(server.calls)) == ("UNMET", 4, 4)
    assert sorted({call.prompt.count("of 3 of a longer text") for call in server.calls}) == [1]


def test_prompt_of_a_short_response_is_the_same_with_the_setting(server: OpenAIServer) -> None:
    for text_limits in (TextLimits(), LIMITS):
        ONE.grade_sync(
            "short", grader=PerCriterionGrader(LMJudge("openai/m", api_base=server.url), text_limits=text_limits)
        )
    one, other = ([message["content"].split("<data")[0] for message in call.body["messages"]] for call in server.calls)
    assert one == other
    judges = [FakeJudge(), FakeJudge()]
    for judge, text_limits in zip(judges, (TextLimits(), LIMITS), strict=True):
        ONE.grade_sync("short", grader=PerCriterionGrader(judge, text_limits=text_limits))
    assert judges[0].questions == judges[1].questions


async def test_cut_comes_before_the_split_and_step_numbers_stay() -> None:
    calls = [(ToolCall(name="open", result=f"{number} " + "x" * 900),) for number in range(4)]
    trajectory = Trajectory(steps=tuple(Step(role="assistant", calls=call) for call in calls))
    whole = Submission(response=trajectory.text(), trajectory=trajectory, show_trajectory="as_response")

    async def questions(text_limits: TextLimits) -> list[Question]:
        judge = FakeJudge("UNMET")
        await ONE.grade(whole, grader=PerCriterionGrader(judge, text_limits=text_limits))
        return judge.questions

    steps = [question.submission.response[:10] for question in await questions(LIMITS)]
    assert steps == [f'{{"step": {number}' for number in (1, 2, 3, 4)]
    (only,) = await questions(TextLimits(chunk_size=1_000, step_limit=50))
    assert only.submission == whole.shortened(50)


def test_each_part_is_stored_and_a_rescored_report_has_the_same_answers(tmp_path: Path) -> None:
    judges = [FakeJudge(judge_part, fingerprint="f") for _ in range(2)]
    with Ledger(tmp_path / "run.sqlite") as ledger:
        graders = [PerCriterionGrader(judge, text_limits=LIMITS) for judge in judges]
        reports = [graded.report for grader in graders for graded in grade_many([TEXT], ONE, grader, ledger=ledger)]
        (rescored,) = rescore(ledger, ONE)
    assert [len(judge.questions) for judge in judges] == [3, 0]
    assert rescored.missing == 0
    rows = [report.criteria[0] for report in (*reports, rescored.report) if report]
    assert [(row.verdict, row.reason) for row in rows] == [("MET", "part 2 of 3")] * 3


async def test_label_of_the_whole_response_is_no_example_for_its_parts() -> None:
    label = LabelledJudgment(
        submission=Submission(response=TEXT), criterion=ONE.criteria[0], verdict="MET", reason="LABEL"
    )
    model = FakeModel('{"explanation": "", "verdict": "UNMET"}')
    await ONE.grade(TEXT, grader=PerCriterionGrader(LMJudge(model, examples=[label]), text_limits=LIMITS))
    assert len(model.prompts) == 3
    assert not any("LABEL" in prompt for _, prompt in model.prompts)


@pytest.mark.parametrize(
    ("grader_type", "judge"),
    [(PerCriterionOneShotGrader, FakeBatchJudge()), (RubricAsJudgeGrader, FakeOverallJudge(90))],
)
def test_graders_that_judge_all_criteria_at_once_refuse_it(grader_type: type[Grader], judge: Any) -> None:
    with pytest.raises(ValueError, match=f"`TextLimits.chunk_size` has no effect on {grader_type.__name__}"):
        grader_type(judge, text_limits=LIMITS)
