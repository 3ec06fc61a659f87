"""PerCriterionGrader: concurrency, retries, cancellation, policies, and every way of being called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rubric_integrations import Criterion, JudgeError, PerCriterionGrader, Rubric, Submission
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.graders import CallLimits, limits
from rubric_integrations.judges import Question
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend, TokenUsage

Outcome = Callable[[Question, int], Awaitable[str]]


class FakeJudge:
    """Answers by a function of the question and the number of times it was asked."""

    def __init__(self, answer: Outcome | None = None):
        self.answer = answer
        self.asked: dict[str, int] = {}
        self.in_flight = self.peak = 0

    async def judge(self, question: Question) -> Judgment:
        requirement = question.criterion.requirement
        self.asked[requirement] = self.asked.get(requirement, 0) + 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            verdict = await self.answer(question, self.asked[requirement]) if self.answer else "MET"
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        spend = Spend(calls=1, usage=TokenUsage(prompt_tokens=10, completion_tokens=2), cost=0.5)
        return Judgment(verdict=verdict, value=1.0 if verdict == "MET" else 0.0, spend=spend)


RUBRIC = Rubric([Criterion(requirement=r, weight=w) for r, w in [("a", 10), ("b", 5), ("c", -5)]])


def many(count: int) -> Rubric:
    return Rubric([Criterion(requirement=f"r{i}") for i in range(count)])


async def test_the_report_has_everything() -> None:
    async def answer(question: Question, _: int) -> str:
        return "MET" if question.criterion.requirement == "a" else "UNMET"

    report = await RUBRIC.grade("text", grader=PerCriterionGrader(FakeJudge(answer)))
    assert (report.score, report.raw_score, report.llm_raw_score) == (pytest.approx(10 / 15), 10.0, 10.0)
    assert [(row.name, row.verdict, row.value) for row in report.criteria] == [
        ("c1", "MET", 1.0), ("c2", "UNMET", 0.0), ("c3", "UNMET", 0.0),
    ]  # fmt: skip
    assert (report.complete, report.coverage, report.error, report.passed) == (True, 1.0, None, False)
    assert (report.spend.calls, report.spend.total_tokens, report.cost) == (3, 36, 1.5)


async def test_checks_cost_no_call_and_mix_with_judged_criteria() -> None:
    judge = FakeJudge()
    rubric = Rubric([Criterion(requirement="a"), {"requirement": "short", "check": {"max_words": 2}}])
    report = await rubric.grade("one two three", grader=PerCriterionGrader(judge))
    assert [row.verdict for row in report.criteria] == ["MET", "UNMET"]
    assert (judge.asked, report.spend.calls) == ({"a": 1}, 1)


async def test_a_check_that_cannot_be_computed_is_a_failure() -> None:
    rubric = Rubric([{"requirement": "x", "check": {"json_schema": {"$ref": "#/nowhere"}}}, {"requirement": "b"}])
    report = await rubric.grade("{}", grader=PerCriterionGrader(FakeJudge(), on_failure="abstain"))
    assert report.criteria[0].error is not None
    assert report.criteria[0].error.startswith("check: ")
    assert (report.score, report.complete) == (1.0, False)


async def test_guidelines_query_and_reference_reach_the_judge() -> None:
    seen: list[Question] = []

    async def answer(question: Question, _: int) -> str:
        seen.append(question)
        return "MET"

    rubric = Rubric([Criterion(requirement="a")], guidelines="Be fair.")
    await rubric.grade({"thinking": "hm", "output": "text"}, PerCriterionGrader(FakeJudge(answer)), "q", "r")
    assert seen[0].guidelines == "Be fair."
    assert seen[0].submission == Submission(response="text", thinking="hm", query="q", reference="r")


async def test_concurrency_is_capped_over_all_grades_of_a_grader() -> None:
    async def answer(_question: Question, _: int) -> str:
        await asyncio.sleep(0.002)
        return "MET"

    judge = FakeJudge(answer)
    grader = PerCriterionGrader(judge, limits=CallLimits(max_concurrency=4))
    await asyncio.gather(*(many(10).grade("text", grader=grader) for _ in range(5)))
    assert judge.peak == 4
    assert sum(judge.asked.values()) == 50


@pytest.mark.parametrize(("max_retries", "complete"), [(2, True), (1, False)])
async def test_lost_and_unreadable_replies_share_one_budget(max_retries: int, complete: bool) -> None:
    async def answer(_question: Question, attempt: int) -> str:
        if attempt < 3:
            kind = "parse" if attempt == 1 else "transport"
            raise JudgeFailure(kind, "again", retryable=True, spend=Spend(calls=1, cost=0.25))
        return "MET"

    judge = FakeJudge(answer)
    grader = PerCriterionGrader(judge, max_retries=max_retries, on_failure="abstain")
    report = await many(1).grade("text", grader=grader)
    assert report.complete is complete
    assert report.spend.calls == judge.asked["r0"] == max_retries + 1
    assert report.cost == (1.0 if complete else 0.5)


async def test_the_wait_is_what_the_server_asks_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def answer(_question: Question, attempt: int) -> str:
        waits.append(asyncio.get_running_loop().time())
        if attempt < 3:
            raise JudgeFailure("transport", "busy", retryable=True, retry_after=[0.05, 1e9][attempt - 1])
        return "MET"

    def no_backoff(_state: object) -> float:
        raise AssertionError("the server had said how long to wait")

    monkeypatch.setattr(limits, "_backoff", no_backoff)
    monkeypatch.setattr(limits, "MAX_WAIT", 0.1)
    await many(1).grade("text", grader=PerCriterionGrader(FakeJudge(answer)))
    assert waits[1] - waits[0] >= 0.05
    assert waits[2] - waits[1] >= 0.1


async def test_what_cannot_be_helped_is_not_retried() -> None:
    async def answer(_question: Question, _: int) -> str:
        raise JudgeFailure("config", "no such model")

    judge = FakeJudge(answer)
    with pytest.raises(JudgeError, match="no such model"):
        await many(1).grade("text", grader=PerCriterionGrader(judge))
    assert judge.asked == {"r0": 1}


async def test_a_hanging_judge_is_stopped() -> None:
    async def answer(_question: Question, _: int) -> str:
        await asyncio.sleep(60)
        return "MET"

    judge = FakeJudge(answer)
    grader = PerCriterionGrader(judge, limits=CallLimits(timeout=0.01), max_retries=1, on_failure="worst_case")
    report = await many(1).grade("text", grader=grader)
    assert report.criteria[0].error == "transport: no reply within 0.01 s"
    assert (judge.asked, report.score, report.spend.calls) == ({"r0": 2}, 0.0, 2)


async def test_a_grade_that_failed_for_good_cancels_its_siblings_and_keeps_what_it_has() -> None:
    finished: list[str] = []

    async def answer(question: Question, _: int) -> str:
        requirement = question.criterion.requirement
        if requirement == "b":
            await asyncio.sleep(0.01)
            raise JudgeFailure("config", "wrong key")
        if requirement == "c":
            await asyncio.sleep(60)
        finished.append(requirement)
        return "MET"

    judge = FakeJudge(answer)
    with pytest.raises(JudgeError) as error:
        await RUBRIC.grade("text", grader=PerCriterionGrader(judge))
    assert finished == ["a"]
    assert judge.in_flight == 0
    report = error.value.report
    assert [row.verdict for row in report.criteria] == ["MET", None, None]
    assert "wrong key" in str(error.value)
    assert isinstance(error.value, ValueError)
    assert (report.complete, report.failed_count) == (False, 2)


async def test_a_failure_before_the_siblings_have_started_is_told_all_the_same() -> None:
    async def answer(_question: Question, _: int) -> str:
        raise JudgeFailure("config", "at once")

    with pytest.raises(JudgeError, match="at once"):
        await many(5).grade("text", grader=PerCriterionGrader(FakeJudge(answer)))


async def test_without_raise_the_other_criteria_are_finished() -> None:
    async def answer(question: Question, _: int) -> str:
        if question.criterion.requirement == "a":
            raise JudgeFailure("config", "wrong key")
        await asyncio.sleep(0.01)
        return "MET"

    report = await RUBRIC.grade("text", grader=PerCriterionGrader(FakeJudge(answer), on_failure="worst_case"))
    assert [row.verdict for row in report.criteria] == ["UNMET", "MET", "MET"]
    assert report.score == 0.0


async def test_cancelling_a_grade_cancels_its_calls() -> None:
    async def answer(_question: Question, _: int) -> str:
        await asyncio.sleep(60)
        return "MET"

    judge = FakeJudge(answer)
    grading = asyncio.create_task(RUBRIC.grade("text", grader=PerCriterionGrader(judge)))
    await asyncio.sleep(0.01)
    assert judge.in_flight == 3
    grading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await grading
    await asyncio.sleep(0.01)
    assert judge.in_flight == 0


async def test_an_exception_of_a_users_own_judge_fails_one_criterion_only() -> None:
    async def answer(question: Question, _: int) -> str:
        if question.criterion.requirement == "b":
            raise ZeroDivisionError("bug")
        return "MET"

    report = await RUBRIC.grade("text", grader=PerCriterionGrader(FakeJudge(answer), on_failure="abstain"))
    assert [row.error for row in report.criteria] == [None, "config: ZeroDivisionError: bug", None]


@pytest.mark.parametrize(
    ("verdict", "value", "words"),
    [("MAYBE", 1.0, "no verdict"), ("MET", 0.5, "worth 1.0"), ("UNMET", None, "worth 0.0")],
)
async def test_a_judges_answer_must_be_one_to_the_question(verdict: str, value: float | None, words: str) -> None:
    class Careless:
        async def judge(self, question: Question) -> Judgment:
            return Judgment(verdict=verdict, value=value)

    with pytest.raises(JudgeError, match=words):
        await many(1).grade("text", grader=PerCriterionGrader(Careless()))


def test_grade_sync_from_a_thread_and_from_a_running_loop() -> None:
    grader = PerCriterionGrader(FakeJudge())
    scores: list[float | None] = []

    def grade() -> None:
        scores.append(many(3).grade_sync("text", grader=grader).score)

    threads = [threading.Thread(target=grade) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def inside_a_loop() -> float | None:
        return many(3).grade_sync("text", grader=grader).score

    scores.append(asyncio.run(inside_a_loop()))
    assert scores == [1.0] * 9


def test_one_grader_serves_several_loops() -> None:
    grader = PerCriterionGrader(FakeJudge(), limits=CallLimits(max_concurrency=1))
    for _ in range(3):
        assert asyncio.run(many(5).grade("text", grader=grader)).score == 1.0


def test_a_synchronous_grade_on_the_librarys_own_loop_is_refused() -> None:
    async def nested() -> None:
        many(1).grade_sync("text", grader=PerCriterionGrader(FakeJudge()))

    with pytest.raises(RuntimeError, match="await"):
        run_sync(nested())


@pytest.mark.parametrize(
    ("to_grade", "error", "words"),
    [
        ("", ValueError, "empty"),
        (" \n", ValueError, "empty"),
        ({"thinking": "only"}, ValueError, "empty"),
        ({"outptu": "x"}, ValueError, "outptu"),
        ("x" * 5_000_000, ValueError, "5,000,000 characters"),
        (None, TypeError, "NoneType"),
        (3, TypeError, "int"),
    ],
)
async def test_what_cannot_be_graded_is_refused_before_a_call(
    to_grade: Any, error: type[Exception], words: str
) -> None:
    judge = FakeJudge()
    with pytest.raises(error, match=words):
        await RUBRIC.grade(to_grade, grader=PerCriterionGrader(judge))
    assert judge.asked == {}


async def test_a_grader_must_be_named() -> None:
    with pytest.raises(ValueError, match="`grader` is missing"):
        await RUBRIC.grade("text")
    report = await RUBRIC.grade(to_grade="text", query="q", autograder=PerCriterionGrader(FakeJudge()))
    assert report.complete


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "exactly one of `judge`"),
        ({"judge": "offline", "generate_fn": FakeJudge().judge}, "exactly one of"),
        ({"judge": "offline", "cannot_assess": "ignore"}, "'ignore'"),
        ({"judge": "offline", "partial_credit": 2}, "partial_credit"),
        ({"judge": "offline", "on_failure": "pass"}, "'pass'"),
        ({"judge": "offline", "default_fallback_verdicts": {"positive": "MAYBE"}}, "MAYBE"),
        ({"judge": "offline", "default_fallback_verdicts": {}, "on_failure": "abstain"}, "two names"),
        ({"judge": "offline", "max_retries": -1}, "max_retries"),
    ],
)
def test_settings_are_checked_when_the_grader_is_made(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PerCriterionGrader(**settings)


@pytest.mark.parametrize("limits", [{"max_concurrency": 0}, {"timeout": 0}, {"max_concurrency": True}])
def test_call_limits_out_of_range_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        CallLimits(**limits)


@pytest.mark.parametrize("nothing", ["  ", {"output": ""}, {"thinking": "hm", "output": " "}])
def test_nothing_to_grade_is_said_in_one_line(nothing: Any) -> None:
    with pytest.raises(ValueError, match=r"^`response` is empty: there is nothing to grade$"):
        Rubric([Criterion(requirement="r")]).grade_sync(nothing, grader=PerCriterionGrader("offline"))
