"""The state of a judge's endpoint: calls held during an outage, single probes, and runs that are ended."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Awaitable, Callable
from functools import cache, partial

import pytest

from rubric_integrations import PerCriterionGrader, grade_many
from rubric_integrations.graders import CallLimits, endpoint
from rubric_integrations.graders.endpoint import (
    LOST_CALLS,
    MAX_FAILED_SUBMISSIONS,
    Endpoint,
    FailureStreak,
    JudgeUnusable,
)
from rubric_integrations.judges import BatchResult, LMJudge, Question
from rubric_integrations.judges.protocol import RunStopped
from rubric_integrations.judges.store import LeaseExpired
from rubric_integrations.scoring import JudgeFailure, Spend
from rubric_integrations.submission import Submission
from tests.fakes import FakeJudge
from tests.graders.rubrics import rubric_of
from tests.openai_server import Call, OpenAIServer, Reply

LOST = JudgeFailure("transport", "status 503", retryable=True)
REFUSED = JudgeFailure("config", "wrong key")
UNREADABLE = JudgeFailure("parse", "prose", retryable=True)


@cache
def submission_of(text: str) -> Submission:
    return Submission(response=text)


async def call(state: Endpoint, request: Callable[[], Awaitable[object]], text: str = "text") -> object:
    """Make a call about a text as `LimitedJudge` does."""
    submission = submission_of(text)
    is_single = await state.admit()
    try:
        try:
            outcome = await request()
        except JudgeFailure as failure:
            state.record(failure, submission)
            raise
        state.record(outcome, submission)
        return outcome
    finally:
        if is_single:
            state.leave()


async def send(
    state: Endpoint,
    outcome: object,
    timeout: float = 1.0,  # noqa: ASYNC109
    text: str = "text",
) -> object:
    """Make one call with this outcome, and return what comes of it; a `TimeoutError` if it is held."""

    async def request() -> object:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    try:
        return await asyncio.wait_for(call(state, request, text), timeout)
    except (JudgeFailure, JudgeUnusable, TimeoutError) as error:
        return error


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# -- outages


async def test_calls_whose_lease_expired_while_they_waited_are_no_outage() -> None:
    state = Endpoint(60.0, streak=FailureStreak())
    assert await send(state, "answer") == "answer"
    expired = LeaseExpired("transport", "the process was suspended", retryable=True)
    for _ in range(2 * LOST_CALLS):
        assert await send(state, expired) is expired
    assert state.down_since is None


async def test_outage_holds_calls_and_probes_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PROBE", 10.0)
    clock = Clock()
    state, sent, is_sent = Endpoint(300.0, clock=clock), list[int](), asyncio.Event()
    for _ in range(LOST_CALLS):
        assert await send(state, LOST) is LOST
    assert state.down_since == 100.0

    async def request(number: int, answer: asyncio.Future[str]) -> str:
        sent.append(number)
        is_sent.set()
        return await answer

    answer = asyncio.get_running_loop().create_future()
    tasks = [asyncio.create_task(call(state, partial(request, number, answer))) for number in range(5)]
    await asyncio.sleep(0.05)
    assert sent == []
    clock.now += 11.0
    await asyncio.wait_for(is_sent.wait(), 5)
    await asyncio.sleep(0.05)
    assert len(sent) == 1
    answer.set_result("MET")
    assert await asyncio.gather(*tasks) == ["MET"] * 5
    assert state.down_since is None


async def test_probe_that_is_lost_is_followed_by_another_after_a_longer_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PROBE", 1.0)
    monkeypatch.setattr(endpoint, "LONGEST_PROBE", 5.0)
    clock = Clock()
    state, probes = Endpoint(1000.0, clock=clock), list[float]()
    for _ in range(LOST_CALLS):
        await send(state, LOST)
    while clock.now < 120:
        outcome = await asyncio.gather(
            asyncio.wait_for(call(state, partial(send_lost, probes, clock)), 0.005), return_exceptions=True
        )
        assert isinstance(outcome[0], JudgeFailure | TimeoutError)
        clock.now += 0.5
    waits = [later - earlier for earlier, later in zip([100.0, *probes], probes, strict=False)]
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


async def send_lost(probes: list[float], clock: Clock) -> object:
    probes.append(clock())
    raise LOST


async def test_lost_calls_about_one_text_are_no_outage_and_may_be_repeated_a_few_times() -> None:
    state = Endpoint(300.0)
    assert await send(state, LOST, text="a") is LOST
    assert await send(state, "MET", text="b") == "MET"
    for _ in range(2 * LOST_CALLS):
        lost = await send(state, LOST, text="a")
        assert isinstance(lost, JudgeFailure)
        assert lost.repeats == LOST_CALLS - 1
    assert (state.down_since, LOST.repeats) == (None, None)
    assert await send(state, "MET", text="a") == "MET"
    assert await send(state, LOST, text="a") is LOST


async def test_text_that_was_lost_before_an_outage_is_waited_for_like_all_others() -> None:
    clock = Clock()
    state = Endpoint(300.0, clock=clock)
    await send(state, LOST, text="a")
    await send(state, "MET", text="b")
    for number in range(LOST_CALLS):
        await send(state, LOST, text=f"c{number}")
    clock.now += 1.0
    assert await send(state, LOST, text="a") is LOST
    assert state.down_since is not None


async def test_server_says_when_to_probe() -> None:
    clock = Clock()
    state = Endpoint(1000.0, clock=clock)
    for _ in range(LOST_CALLS):
        await send(state, JudgeFailure("transport", "busy", retryable=True, retry_after=30.0))
    clock.now += 29.0
    assert isinstance(await send(state, "MET", timeout=0.1), TimeoutError)
    clock.now += 1.0
    assert await send(state, "MET") == "MET"


@pytest.mark.parametrize("reply", ["MET", REFUSED, UNREADABLE, BatchResult({}, {1: "no answer"}, Spend())])
async def test_any_reply_ends_a_series_of_lost_calls(reply: object) -> None:
    state = Endpoint(300.0)
    for outcome in [*[LOST] * (LOST_CALLS - 1), reply, *[LOST] * (LOST_CALLS - 1)]:
        await send(state, outcome)
    assert state.down_since is None


async def test_outage_that_lasts_too_long_fails_calls_at_once_until_a_probe_succeeds() -> None:
    clock = Clock()
    state = Endpoint(60.0, clock=clock)
    for _ in range(LOST_CALLS):
        await send(state, LOST)
    clock.now += 61.0
    assert await send(state, LOST) is LOST  # the probe
    refused = await send(state, "MET")
    assert isinstance(refused, JudgeFailure)
    assert (refused.kind, refused.retryable, refused.spend) == ("transport", False, Spend())
    assert refused.message == "the judge has not replied for 61 s: status 503"
    clock.now += 5.0
    assert await send(state, "MET") == "MET"
    assert await send(state, "UNMET") == "UNMET"


async def test_cancelled_probe_is_followed_by_another() -> None:
    clock = Clock()
    state = Endpoint(300.0, clock=clock)
    for _ in range(LOST_CALLS):
        await send(state, LOST)
    clock.now += 10.0
    probe = asyncio.create_task(call(state, partial(asyncio.sleep, 60)))
    await asyncio.sleep(0)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    assert await send(state, "MET") == "MET"


async def test_outage_is_announced_every_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    state = Endpoint(300.0, clock=clock)
    for _ in range(LOST_CALLS):
        await send(state, LOST)
    for _ in range(8):
        clock.now += 10.0
        await send(state, LOST)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f"waiting for the judge, {seconds} s so far, up to 300 s (status 503)" for seconds in (10, 40, 70)
    ]


def through_pickle(state: Endpoint) -> Endpoint:
    return pickle.loads(pickle.dumps(state))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, through_pickle])
async def test_copy_of_an_endpoint_knows_of_no_outage(duplicate: Callable[[Endpoint], Endpoint]) -> None:
    state = Endpoint(300.0)
    for _ in range(LOST_CALLS):
        await send(state, LOST)
    assert duplicate(state).down_since is None
    state.reset()
    assert state.down_since is None


# -- the end of a run


async def test_first_call_of_a_run_is_made_alone() -> None:
    state, under_way, peak = Endpoint(300.0, streak=FailureStreak()), 0, 0

    async def request(number: int) -> int:
        nonlocal under_way, peak
        under_way += 1
        peak = max(peak, under_way)
        assert number == 0 or 0 in answered
        await asyncio.sleep(0.01)
        under_way -= 1
        answered.append(number)
        return number

    answered: list[int] = []
    await asyncio.gather(*(call(state, partial(request, number)) for number in range(20)))
    assert (len(answered), peak) == (20, 19)


async def test_model_that_refuses_two_first_submissions_ends_the_run() -> None:
    state = Endpoint(300.0, streak=FailureStreak())
    assert await send(state, REFUSED, text="a") is REFUSED
    assert await send(state, REFUSED, text="a") is REFUSED
    for outcome in (REFUSED, "MET"):
        ended = await send(state, outcome, text="b")
        assert (type(ended), str(ended)) == (JudgeUnusable, "the judge cannot be used: wrong key")


async def test_model_that_has_replied_may_refuse_submissions() -> None:
    state = Endpoint(300.0, streak=FailureStreak())
    for number, outcome in enumerate(["MET", *[REFUSED] * (MAX_FAILED_SUBMISSIONS - 1), "MET"]):
        assert await send(state, outcome, text=f"text {number}") is outcome


@pytest.mark.parametrize("failure", [REFUSED, UNREADABLE])
async def test_run_ends_after_submissions_that_failed_in_a_row(failure: JudgeFailure) -> None:
    streak = FailureStreak()
    state = Endpoint(300.0, streak=streak)
    for failures in [*[[failure]] * (MAX_FAILED_SUBMISSIONS - 1), [], *[[failure]] * (MAX_FAILED_SUBMISSIONS - 1)]:
        streak.record(failures, is_graded=not failures)
        assert await send(state, "MET") == "MET"
    # Another criterion of a submission that fails begins no new count.
    assert await send(state, "MET") == "MET"
    streak.record([failure], is_graded=False)
    ended = await send(state, "MET")
    assert (type(ended), str(ended)) == (JudgeUnusable, f"the last 20 submissions failed: {failure.message}")
    streak.reset()
    assert await send(state, "MET") == "MET"


@pytest.mark.parametrize("failure", [LOST, JudgeFailure("config", "the prompt is too long", about_text=True)])
async def test_failures_by_an_outage_or_one_text_do_not_count_as_failed_submissions(failure: JudgeFailure) -> None:
    streak = FailureStreak()
    for _ in range(2 * MAX_FAILED_SUBMISSIONS):
        streak.record([failure], is_graded=False)
    streak.check()
    assert streak.count == 0


async def test_failure_because_of_one_text_is_not_counted() -> None:
    state = Endpoint(300.0, streak=FailureStreak())
    too_long = JudgeFailure("config", "the prompt is too long", about_text=True)
    for outcome in [*[too_long] * 30, "MET"]:
        assert await send(state, outcome) is outcome


async def test_run_ends_when_an_outage_lasts_too_long() -> None:
    clock = Clock()
    state = Endpoint(60.0, streak=FailureStreak(), clock=clock)
    for _ in range(LOST_CALLS):
        await send(state, LOST)
    clock.now += 60.0
    ended = await send(state, "MET")
    assert (type(ended), str(ended)) == (JudgeUnusable, "the judge has not replied for 60 s: status 503")


# -- with a server


def test_outage_of_a_second_costs_few_calls_and_no_judgment(server: OpenAIServer) -> None:
    server.script = lambda call: Reply(status=503) if 100 <= call.number < 180 else Reply()
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url))
    run = grade_many([f"text {number}" for number in range(60)], rubric_of(4), grader)
    assert [graded.score for graded in run] == [1.0] * 60
    assert len(server.calls) == run.summary.spend.calls == 60 * 4 + 80


# Twenty submissions are in progress when the twentieth fails. A reply without a verdict is requested once more, and
# another one that cannot be read five times, for each of four criteria.
@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (Reply(status=401), range(2, 3)),
        (Reply(text="I would rather not."), range(40, 81)),
        (Reply(text="It is met, I would say."), range(100, 40 * 4 * 5 + 1)),
    ],
)
def test_run_with_an_unusable_judge_makes_few_calls(server: OpenAIServer, reply: Reply, calls: range) -> None:
    server.script = lambda _call: reply
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url))
    run = grade_many([f"text {number}" for number in range(200)], rubric_of(4), grader)
    results = list(run)
    assert len(server.calls) == run.summary.spend.calls
    assert len(server.calls) in calls
    assert all(graded.judge_error for graded in results)
    assert len(results) <= 40
    assert run.summary.judge_is_unusable


def test_run_ends_when_the_server_stays_down(server: OpenAIServer) -> None:
    server.script = lambda call: Reply() if call.number < 20 else Reply(status=503)
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url), limits=CallLimits(max_outage=0.3))
    run = grade_many([f"text {number}" for number in range(100)], rubric_of(4), grader)
    assert {graded.score for graded in run} <= {1.0, None}
    assert "has not replied for" in str(run.summary.stopped)
    assert run.summary.judge_is_unusable


def test_dead_judge_of_a_panel_ends_a_run() -> None:
    async def refuse(_question: Question) -> str:
        raise REFUSED

    judges = [FakeJudge(), FakeJudge(refuse)]
    run = grade_many([f"text {number}" for number in range(100)], rubric_of(1), PerCriterionGrader(judges=judges))
    list(run)
    assert len(judges[1].questions) == 2
    assert "wrong key" in str(run.summary.stopped)


NO_PACKAGE = JudgeFailure("config", "No module named 'boto3'", unreachable=True)


@pytest.mark.parametrize(("answer", "calls"), [(NO_PACKAGE, 1), (RunStopped("`max_calls` is reached"), 2 * 200)])
async def test_run_ends_although_more_rows_wait_than_the_first_calls_ended(answer: Exception, calls: int) -> None:
    judge = FakeJudge(answer)
    run = grade_many([f"text {number}" for number in range(200)], rubric_of(2), PerCriterionGrader(judge))
    async with asyncio.timeout(20):
        assert [graded async for graded in run] == []
    assert run.summary.stopped
    assert len(judge.questions) <= calls


@pytest.mark.sizes
async def test_thousand_calls_without_an_outage_go_through_at_once(server: OpenAIServer) -> None:
    chance = iter([True, False, False] * 400)

    def script(_call: Call) -> Reply:
        return Reply(status=503) if next(chance) else Reply()

    server.script = script
    grader = PerCriterionGrader(LMJudge("openai/m", api_base=server.url))
    report = await rubric_of(200).grade("text", grader=grader)
    assert report.score == 1.0
    assert grader.call_limiter.down_since is None
