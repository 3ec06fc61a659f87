"""One call for each criterion: the report, the first failure, and what it cancels."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.graders import CallLimits
from rubric_integrations.graders.panel import PanelMember
from rubric_integrations.judges import LMJudge, Question
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend, TokenUsage
from tests.fakes import FakeJudge
from tests.graders.rubrics import THREE, rubric_of
from tests.openai_server import OpenAIServer, Reply

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quarterly_margin"
EXAMPLE_VERDICTS = {
    "Compares it with 9.1% in the second quarter": "MET",
    'Names the "price-volume-mix" method as the way the change was split': "UNMET",
    "Closes with advice that follows from the figures": "CANNOT_ASSESS",
}
WRONG_KEY = JudgeFailure("config", "wrong key")


async def test_report_has_verdicts_scores_and_spend() -> None:
    spend = Spend(calls=1, usage=TokenUsage(prompt_tokens=10, completion_tokens=2), cost=0.5)
    judge = FakeJudge({"a": "MET", "b": "UNMET", "c": "UNMET"}, spend=spend)
    report = await THREE.grade("text", grader=PerCriterionGrader(judge))
    assert (report.score, report.raw_score, report.llm_raw_score) == (pytest.approx(10 / 15), 10.0, 10.0)
    assert [(row.name, row.verdict, row.value) for row in report.criteria] == [
        ("c1", "MET", 1.0), ("c2", "UNMET", 0.0), ("c3", "UNMET", 0.0),
    ]  # fmt: skip
    assert (report.complete, report.coverage, report.error, report.passed) == (True, 1.0, None, False)
    assert (report.spend.calls, report.spend.total_tokens, report.cost) == (3, 36, 1.5)


async def test_rubric_of_the_example_is_graded_over_http(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(EXAMPLE_VERDICTS[call.criterion])
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url))
    report = await Rubric.from_file(EXAMPLE / "rubric.yaml").grade("Margin 8.4%, after 9.1%.", grader, query="Why?")
    assert [(row.name, row.verdict) for row in report.criteria] == [
        ("margin", "MET"), ("previous", "MET"), ("method", "UNMET"), ("drivers", "UNMET"),
        ("gross-for-net", "UNMET"), ("brief", "MET"), ("advice", "CANNOT_ASSESS"),
    ]  # fmt: skip
    # By hand: (10 + 4 + 2) of the 27 that were assessed, of 30 - 3; with the penalty 39 of 42.
    assert (report.score, report.raw_score, report.cannot_assess_count) == (pytest.approx(16 / 27), 16.0, 1)
    assert report.coverage == pytest.approx(39 / 42)
    assert report.spend.calls == len(server.calls) == 3
    assert report.token_usage is not None
    assert report.token_usage.prompt_tokens == sum(len(call.prompt) // 4 for call in server.calls)
    assert report.token_usage.completion_tokens > 0
    assert report.cost is None  # `mock` has no price: it is unknown, and not zero


async def answer_b_with_a_failure(question: Question) -> str | Exception:
    """Answer `a` at once, fail at `b` after 10 ms, and answer `c` never."""
    requirement = question.criterion.requirement
    if requirement == "b":
        await asyncio.sleep(0.01)
        return WRONG_KEY
    if requirement == "c":
        await asyncio.sleep(60)
    return "MET"


async def test_first_failure_cancels_the_calls_under_way_and_keeps_the_answers() -> None:
    judge = FakeJudge(answer_b_with_a_failure)
    with pytest.raises(JudgeError) as error:
        await THREE.grade("text", grader=PerCriterionGrader(judge))
    assert judge.in_flight == 0
    report = error.value.report
    assert [row.verdict for row in report.criteria] == ["MET", None, None]
    assert "wrong key" in str(error.value)
    assert isinstance(error.value, ValueError)
    assert (report.complete, report.failed_count) == (False, 2)


async def test_first_failure_ends_the_grade_before_the_next_call_is_made() -> None:
    """One call at a time: the slot of the failed call is free only after its grade has ended."""
    judge = FakeJudge({"a": "MET", "b": WRONG_KEY, "c": "MET"})
    with pytest.raises(JudgeError):
        await THREE.grade("text", PerCriterionGrader(judge, limits=CallLimits(max_concurrency=1)))
    assert judge.requirements == ["a", "b"]


async def test_cancelled_criterion_has_its_own_kind_and_is_not_the_error_of_the_report() -> None:
    grader = PerCriterionGrader(FakeJudge(answer_b_with_a_failure))
    submission = Submission(response="text")
    (answers,) = await grader.judge(THREE, submission)
    kinds = {i: o.kind for i, o in answers.outcomes.items() if isinstance(o, JudgeFailure)}
    assert kinds == {1: "config", 2: "cancelled"}
    assert isinstance(answers.outcomes[0], Judgment)
    report = grader.aggregate(THREE, submission, [answers])
    assert report.error == "`c2` was not judged: config: wrong key"
    assert report.criteria[2].error == "cancelled: another criterion had failed"


@pytest.mark.parametrize("in_run", [False, True])
@pytest.mark.parametrize("order", ["abcd", "dcba", "bdac", None])
async def test_first_failure_keeps_its_kind_and_the_others_are_cancelled_in_every_order(
    order: str | None, in_run: bool
) -> None:
    async def judge(system: str, user: str) -> str:
        if order is not None:  # otherwise, all replies arrive in the same step of the event loop
            await asyncio.sleep(0.01 * order.index(next(name for name in order if f"Has {name}" in user)))
        return "I would rather not answer."

    rubric = Rubric([Criterion(requirement=f"Has {name}") for name in "abcd"])
    grader = PerCriterionGrader(judge, max_retries=0)
    if in_run:
        [graded] = [graded async for graded in grade_many(["text"], rubric, grader)]
        assert graded.report is not None
        report = graded.report
    else:
        with pytest.raises(JudgeError) as caught:
            await rubric.grade("text", grader)
        report = caught.value.report
    kinds = [(row.error or "").partition(":")[0] for row in report.criteria]
    assert sorted(kinds) == ["cancelled", "cancelled", "cancelled", "parse"]
    assert report.spend.calls >= 1


async def test_failure_after_cancelled_criteria_is_the_error_of_the_report() -> None:
    """The first criterion is cancelled and the last one fails: the report names the last one."""

    async def answer(question: Question) -> str | Exception:
        if question.criterion.requirement == "c":
            return WRONG_KEY
        await asyncio.sleep(60)
        return "MET"

    with pytest.raises(JudgeError, match=r"`c3` was not judged: config: wrong key$"):
        await THREE.grade("text", grader=PerCriterionGrader(FakeJudge(answer)))


async def test_failure_whose_message_says_cancelled_is_not_treated_as_cancelled() -> None:
    """Only the kind counts: a provider may call an error "cancelled"."""
    cancelled = JudgeFailure("transport", "cancelled: another criterion had failed")
    judge = FakeJudge({"a": cancelled, "b": "MET", "c": "MET"})
    with pytest.raises(JudgeError, match="`c1` was not judged: transport: cancelled"):
        await THREE.grade("text", grader=PerCriterionGrader(judge))


async def test_failure_before_the_other_calls_have_started_is_reported() -> None:
    with pytest.raises(JudgeError, match="at once"):
        await rubric_of(5).grade("text", grader=PerCriterionGrader(FakeJudge(JudgeFailure("config", "at once"))))


async def test_other_criteria_are_finished_unless_the_policy_is_raise() -> None:
    async def answer(question: Question) -> str | Exception:
        if question.criterion.requirement == "a":
            return WRONG_KEY
        await asyncio.sleep(0.01)
        return "MET"

    report = await THREE.grade("text", grader=PerCriterionGrader(FakeJudge(answer), on_failure="worst_case"))
    assert [row.verdict for row in report.criteria] == ["UNMET", "MET", "MET"]
    assert report.score == 0.0


async def test_cancelling_a_grade_cancels_its_calls() -> None:
    all_asked = asyncio.Event()

    async def answer(_question: Question) -> str:
        if judge.in_flight == 3:
            all_asked.set()
        await asyncio.sleep(60)
        return "MET"

    judge = FakeJudge(answer)
    grading = asyncio.create_task(THREE.grade("text", grader=PerCriterionGrader(judge)))
    await all_asked.wait()
    grading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await grading
    await asyncio.sleep(0.01)
    assert judge.in_flight == 0


async def test_no_criteria_are_asked_without_a_call() -> None:
    judge = FakeJudge()
    grader = PerCriterionGrader(judge)
    member: PanelMember = grader.panel[0]
    answers = await grader.ask(member, THREE, Submission(response="text"), {}, grader.round_in_progress())
    assert (answers.outcomes, judge.questions) == ({}, [])
