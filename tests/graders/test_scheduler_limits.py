"""The limits of calls: retries, waits, timeouts, concurrency, and faults of a server."""

from __future__ import annotations

import asyncio
import random

import pytest

from rubric_integrations import JudgeError, PerCriterionGrader
from rubric_integrations.graders import CallLimits, scheduler
from rubric_integrations.judges import LMJudge, ModelSettings, Question
from rubric_integrations.judges.spend import SpendLimit
from rubric_integrations.scoring import JudgeFailure, Spend
from tests.fakes import FakeJudge
from tests.graders.rubrics import THREE, rubric_of
from tests.openai_server import Call, OpenAIServer, Reply

ONE = rubric_of(1)


def grader_for(server: OpenAIServer, **settings: object) -> PerCriterionGrader:
    return PerCriterionGrader(LMJudge("openai/mock", api_base=server.url), **settings)  # pyright: ignore[reportArgumentType]


# -- retries


@pytest.mark.parametrize(
    ("max_retries", "replies", "calls"), [(0, 1, 1), (1, 1, 2), (2, 2, 3), (2, 4, 5), (2, 5, 5), (1, 4, 4)]
)
async def test_unreadable_replies_are_retried_a_number_of_times(max_retries: int, replies: int, calls: int) -> None:
    failure = JudgeFailure("parse", "again", retryable=True, spend=Spend(calls=1, cost=0.25))
    unreadable, complete = [failure] * replies, calls > replies
    judge = FakeJudge({"r0": [*unreadable, "MET"]}, spend=Spend(calls=1, cost=0.5))
    grader = PerCriterionGrader(judge, max_retries=max_retries, on_failure="abstain")
    report = await ONE.grade("text", grader=grader)
    assert report.complete is complete
    assert report.spend.calls == len(judge.questions) == calls
    assert report.cost == 0.25 * min(replies, calls) + 0.5 * complete


@pytest.mark.parametrize(("max_retries", "max_outage", "calls"), [(2, 300.0, 9), (2, 0.0, 5), (0, 300.0, 1)])
async def test_lost_replies_are_retried_for_a_time_unless_there_are_no_retries(
    monkeypatch: pytest.MonkeyPatch, max_retries: int, max_outage: float, calls: int
) -> None:
    monkeypatch.setattr(scheduler, "_backoff", lambda _state: 0.0)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    lost = [JudgeFailure("transport", "down", retryable=True, spend=Spend(calls=1)) for _ in range(8)]
    judge = FakeJudge({"r0": [*lost, "MET"]})
    settings = CallLimits(max_outage=max_outage)
    grader = PerCriterionGrader(judge, max_retries=max_retries, limits=settings, on_failure="abstain")
    report = await ONE.grade("text", grader=grader)
    assert (report.complete, report.spend.calls, len(judge.questions)) == (calls == 9, calls, calls)


async def test_outage_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_backoff", lambda _state: 0.0)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    judge = FakeJudge(JudgeFailure("transport", "down", retryable=True))
    with pytest.raises(JudgeError, match="down"):
        await ONE.grade("text", grader=PerCriterionGrader(judge, max_retries=1, limits=CallLimits(max_outage=0.2)))
    assert len(judge.questions) >= 2


async def test_wait_is_what_the_server_requests_up_to_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []
    failures = [JudgeFailure("transport", "busy", retryable=True, retry_after=seconds) for seconds in (0.05, 1e9)]

    def answer(_question: Question) -> str | Exception:
        times.append(asyncio.get_running_loop().time())
        return failures[len(times) - 1] if len(times) < 3 else "MET"

    def no_backoff(_state: object) -> float:
        raise AssertionError("the server had requested a wait")

    monkeypatch.setattr(scheduler, "_backoff", no_backoff)
    monkeypatch.setattr(scheduler, "LONGEST_WAIT", 0.1)
    await ONE.grade("text", grader=PerCriterionGrader(FakeJudge(answer)))
    assert times[1] - times[0] >= 0.05
    assert 0.1 <= times[2] - times[1] < 5


async def test_failure_that_a_retry_cannot_help_is_not_retried() -> None:
    judge = FakeJudge(JudgeFailure("config", "no such model"))
    with pytest.raises(JudgeError, match="no such model"):
        await ONE.grade("text", grader=PerCriterionGrader(judge))
    assert judge.requirements == ["r0"]


async def test_call_that_hangs_ends_at_the_timeout() -> None:
    async def answer(_question: Question) -> str:
        await asyncio.sleep(60)
        return "MET"

    judge = FakeJudge(answer)
    grader = PerCriterionGrader(
        judge, limits=CallLimits(timeout=0.01, max_outage=0), max_retries=1, on_failure="worst_case"
    )
    report = await ONE.grade("text", grader=grader)
    assert report.criteria[0].error == "transport: no reply within 0.01 s"
    assert (judge.requirements, report.score, report.spend.calls) == (["r0"] * 4, 0.0, 4)


async def test_exception_of_a_users_judge_fails_one_criterion_only() -> None:
    judge = FakeJudge({"a": "MET", "b": ZeroDivisionError("bug"), "c": "MET"})
    report = await THREE.grade("text", grader=PerCriterionGrader(judge, on_failure="abstain"))
    assert [row.error for row in report.criteria] == [None, "config: ZeroDivisionError: bug", None]


# -- concurrency


async def test_concurrency_is_limited_over_all_grades_of_a_grader() -> None:
    async def answer(_question: Question) -> str:
        await asyncio.sleep(0.002)
        return "MET"

    judge = FakeJudge(answer)
    grader = PerCriterionGrader(judge, limits=CallLimits(max_concurrency=4))
    await asyncio.gather(*(rubric_of(10).grade("text", grader=grader) for _ in range(5)))
    assert (judge.peak, len(judge.questions)) == (4, 50)


async def test_server_sees_as_many_requests_at_once_as_the_limit(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(delay=0.02)
    await rubric_of(24).grade("text", grader=grader_for(server, limits=CallLimits(max_concurrency=6)))
    assert (server.peak, len(server.calls)) == (6, 24)


def test_server_with_a_rate_limit_refuses_few_requests(server: OpenAIServer) -> None:
    def script(_call: Call) -> Reply:
        return Reply(status=429, delay=0.01) if server.in_flight > 4 else Reply(delay=0.01)

    server.script = script
    grader = grader_for(server, limits=CallLimits(max_concurrency=32), max_retries=12)
    assert rubric_of(200).grade_sync("text", grader=grader).score == 1.0
    refused = len(server.calls) - 200
    assert refused < 100  # of 32 at once, 28 would be refused each time


# -- faults of a server

FAULTS = {
    "429": Reply(status=429, retry_after=0.01),
    "500": Reply(status=500),
    "503": Reply(status=503),
    "prose": Reply(text="I would say it is met."),
    "truncated": Reply(text='{"explanation": "cut'),
    "wrong enum": Reply(text='{"explanation": "x", "verdict": "PARTIAL"}'),
    "empty": Reply(text=""),
    "null": Reply(text="null"),
    "two answers": Reply(text='{"verdict": "MET"} {"verdict": "UNMET"}'),
    "dropped": Reply(drop=True),
    "hang": Reply(delay=5),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_single_fault_is_retried_and_its_cost_is_counted(server: OpenAIServer, fault: str) -> None:
    server.script = lambda call: FAULTS[fault] if call.number == 0 else Reply("MET")
    call_limits = CallLimits(timeout=0.75 if fault == "hang" else 60)
    report = await ONE.grade("text", grader=grader_for(server, limits=call_limits))
    assert (report.criteria[0].verdict, report.complete) == ("MET", True)
    assert report.spend.calls == len(server.calls) == 2


@pytest.mark.parametrize("fault", FAULTS)
async def test_lasting_fault_is_reported_in_one_line_and_is_never_a_verdict(server: OpenAIServer, fault: str) -> None:
    server.script = lambda _call: FAULTS[fault]
    grader = grader_for(server, limits=CallLimits(timeout=0.1, max_outage=0), max_retries=1, on_failure="abstain")
    report = await ONE.grade("text", grader=grader)
    row = report.criteria[0]
    assert (row.verdict, row.value, report.score, report.complete) == (None, None, None, False)
    assert row.error is not None
    assert len(row.error.splitlines()) == 1


@pytest.mark.simulation
async def test_random_faults_lose_no_judgment(server: OpenAIServer) -> None:
    chance = random.Random(7)
    # None is dropped: a call that the client sends on a connection that was closed counts, and never arrives.
    faults = [FAULTS[name] for name in ("429", "500", "prose", "truncated", "wrong enum")]
    server.script = lambda _call: chance.choice(faults) if chance.random() < 0.25 else Reply("MET")
    report = await rubric_of(120).grade("text", grader=grader_for(server, max_retries=6))
    assert [row.verdict for row in report.criteria] == ["MET"] * 120
    assert report.spend.calls == len(server.calls)


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_status_that_a_retry_cannot_help_is_requested_once(server: OpenAIServer, status: int) -> None:
    server.script = lambda _call: Reply(status=status)
    with pytest.raises(JudgeError, match=str(status)) as error:
        await ONE.grade("text", grader=grader_for(server))
    assert len(server.calls) == 1
    assert len(str(error.value).splitlines()) == 1


async def test_failure_that_a_judge_raises_again_and_again_is_not_changed() -> None:
    failure = JudgeFailure("parse", "prose", retryable=True, spend=Spend(calls=1))
    for _ in range(2):
        with pytest.raises(JudgeError) as error:
            await ONE.grade("text", grader=PerCriterionGrader(FakeJudge(failure)))
        assert error.value.report.spend.calls == 5
    assert failure.spend.calls == 1


async def test_call_that_is_held_while_the_first_is_refused_waits_as_long_as_the_server_requests() -> None:
    refusal = JudgeFailure(
        "transport", "slow down", retryable=True, rate_limited=True, retry_after=30.0, spend=Spend(calls=1)
    )
    judge = FakeJudge({"r0": refusal})
    # The first call of a run is made alone: the second one has a slot already when the first is refused.
    spend_limit = SpendLimit()
    grader = PerCriterionGrader(judge).for_run(2, spend_limit)
    grades = [asyncio.create_task(grader.grade(ONE, text)) for text in ("first", "second")]
    await asyncio.wait(grades, timeout=0.3)
    assert [question.submission.response for question in judge.questions] == ["first"]
    for grade in grades:
        grade.cancel()
    await asyncio.wait(grades)
    assert spend_limit.spend.calls == 1, "a call that was cancelled during the wait was not sent"


def test_timeout_of_a_flex_call_says_which_one_to_set(server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(delay=1)
    judge = LMJudge("openai/mock", api_base=server.url, settings=ModelSettings(service_tier="flex"))
    grader = PerCriterionGrader(judge, max_retries=0, on_failure="abstain", limits=CallLimits(timeout=0.05))
    report = ONE.grade_sync("text", grader=grader)
    assert report.criteria[0].error == (
        "transport: no reply within 0.05 s: the tier `flex` is slow, so set `timeout` to 900"
    )
