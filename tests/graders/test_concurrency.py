"""A cap that gives way to rate limits, and an allowance that is never overdrawn."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits
from rubric_integrations.graders.concurrency import AdaptiveConcurrency
from rubric_integrations.judges import LMJudge, Question
from rubric_integrations.judges.spend_limit import SpendLimit, SpendLimitedJudge, SpendLimitReached
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend
from tests.openai_server import Call, OpenAIServer, Reply


def test_refused_calls_halve_the_slots_once_and_answers_bring_them_back() -> None:
    concurrency, sent = AdaptiveConcurrency(16), time.monotonic()
    for _ in range(10):
        concurrency.on_rate_limit(sent_at=sent)  # all were sent before the first refusal came
    assert concurrency.slots == 8
    concurrency.on_rate_limit(sent_at=time.monotonic())
    assert concurrency.slots == 4
    for _ in range(4):
        concurrency.on_success()
    assert concurrency.slots == 5
    for _ in range(1000):
        concurrency.on_success()
    assert concurrency.slots == 16


@given(st.lists(st.sampled_from(["limited", "answered"]), max_size=60), st.integers(1, 9))
def test_whatever_happens_the_cap_holds_and_one_slot_is_left(events: list[str], cap: int) -> None:
    async def run() -> None:
        concurrency, under_way = AdaptiveConcurrency(cap), 0

        async def call(event: str) -> None:
            nonlocal under_way
            async with concurrency:
                under_way += 1
                assert under_way <= cap
                await asyncio.sleep(0)
                under_way -= 1
            if event == "limited":
                concurrency.on_rate_limit(sent_at=time.monotonic())
            else:
                concurrency.on_success()
            assert 1 <= concurrency.slots <= cap

        await asyncio.wait_for(asyncio.gather(*map(call, events)), 5)

    asyncio.run(run())


async def test_a_cancelled_wait_gives_its_slot_back() -> None:
    concurrency = AdaptiveConcurrency(1)
    concurrency.on_rate_limit(sent_at=time.monotonic(), wait=30)
    waiting = asyncio.create_task(concurrency.__aenter__())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    concurrency._not_before = 0.0  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(1), concurrency:
        assert concurrency.slots == 1


def test_a_server_that_allows_only_four_at_once_is_not_run_against(server: OpenAIServer) -> None:
    def script(_call: Call) -> Reply:
        return Reply(status=429, delay=0.01) if server.in_flight > 4 else Reply(delay=0.01)

    server.script = script
    rubric = Rubric([Criterion(requirement=f"r{i}") for i in range(200)])
    grader = PerCriterionGrader(
        LMJudge("openai/m", api_base=server.url), limits=CallLimits(max_concurrency=32), max_retries=12
    )
    assert rubric.grade_sync("text", grader=grader).score == 1.0
    refused = len(server.calls) - 200
    assert refused < 100  # of 32 at once, 28 would be refused each time


class Priced:
    """A judge whose every call costs a dime, and sometimes two."""

    def __init__(self, *costs: float | None):
        self.costs, self.calls, self.under_way, self.peak = costs, 0, 0, 0

    async def judge(self, question: Question) -> Judgment:
        cost = self.costs[self.calls % len(self.costs)]
        self.calls += 1
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return Judgment(verdict="MET", value=1.0, spend=Spend(calls=1, cost=cost))


QUESTION: Any = Question(None, Criterion(requirement="r"))  # pyright: ignore[reportArgumentType]


async def bought(judge: Any, meter: SpendLimit, count: int) -> list[str]:
    metered = SpendLimitedJudge(judge, meter)
    results = await asyncio.gather(*(metered.judge(QUESTION) for _ in range(count)), return_exceptions=True)
    assert all(isinstance(result, Judgment | SpendLimitReached) for result in results)
    return [str(result) for result in results if isinstance(result, SpendLimitReached)]


@pytest.mark.parametrize("limit", [0, 1, 7, 50])
async def test_no_call_is_made_beyond_the_allowance(limit: int) -> None:
    judge, meter = Priced(0.1), SpendLimit(max_calls=limit)
    stopped = await bought(judge, meter, 20)
    assert (judge.calls, len(stopped)) == (min(limit, 20), max(0, 20 - limit))
    assert meter.spend.calls == judge.calls


@pytest.mark.parametrize(("costs", "limit", "calls"), [((0.1,), 0.55, 5), ((0.1,), 0.1, 1), ((0.2, 0.1), 1.0, 6)])
async def test_no_dollar_is_spent_beyond_the_allowance(costs: tuple[float], limit: float, calls: int) -> None:
    judge, meter = Priced(*costs), SpendLimit(max_cost=limit)
    stopped = await bought(judge, meter, 20)
    assert meter.spend.cost is not None
    assert meter.spend.cost <= limit
    assert judge.calls == calls
    assert "`max_cost` of" in stopped[0]
    assert judge.peak > 1 or calls == 1  # side by side, as long as it cannot be overdrawn


async def test_an_unknown_price_cannot_be_kept_to() -> None:
    judge = Priced(None)
    stopped = await bought(judge, SpendLimit(max_cost=1.0), 5)
    assert (judge.calls, len(stopped)) == (1, 4)
    assert "use `max_calls`" in stopped[0]
    with pytest.raises(ValueError, match="`max_calls` must be at least 0"):
        SpendLimit(max_calls=-1)
    with pytest.raises(ValueError, match="`max_cost` must be at least 0"):
        SpendLimit(max_cost=-0.1)


async def test_failed_calls_are_counted_too() -> None:
    class Failing:
        async def judge(self, question: Question) -> Judgment:
            raise JudgeFailure("parse", "no", spend=Spend(calls=1, cost=0.3))

    meter = SpendLimit()
    with pytest.raises(JudgeFailure):
        await SpendLimitedJudge(Failing(), meter).judge(QUESTION)
    assert meter.spend == Spend(calls=1, cost=0.3)


def test_dspy_judges_report_rate_limits(server: OpenAIServer) -> None:
    from rubric_integrations.judges.lm_judge import LMJudge
    from rubric_integrations.submission.submission import Submission

    server.script = lambda _call: Reply(status=429, retry_after=3)
    judge = LMJudge(dspy.LM("openai/m", api_base=server.url, api_key="none", cache=False))
    with pytest.raises(JudgeFailure) as failed:
        asyncio.run(judge.judge(Question(Submission(response="a"), QUESTION.criterion)))
    assert (failed.value.rate_limited, failed.value.retry_after) == (True, 3.0)
