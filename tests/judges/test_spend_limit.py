"""The spend limit: no call and no dollar beyond it, and failed calls count."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations.graders import CallLimits, scheduler
from rubric_integrations.graders.scheduler import CallLimiter, limit_judge
from rubric_integrations.judges import Question
from rubric_integrations.judges.spend import SpendLimit, SpendLimitReached
from rubric_integrations.judges.store import StoreError
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from tests.fakes import FakeJudge
from tests.judges.questions import BINARY, question_about

QUESTION = question_about()


def priced_judge(*costs: float | None) -> FakeJudge:
    """Make a judge whose calls cost these amounts in turn."""
    series = cycle(costs)
    return FakeJudge(lambda _question: Judgment(verdict="MET", value=1.0, spend=Spend(calls=1, cost=next(series))))


async def refusals(judge: FakeJudge, limit: SpendLimit, count: int) -> list[str]:
    """Ask as many questions at the same time, and return the messages of those that the limit refused."""
    request = partial(judge.judge, QUESTION)
    results = await asyncio.gather(*(limit.call(request) for _ in range(count)), return_exceptions=True)
    assert all(isinstance(result, Judgment | SpendLimitReached) for result in results)
    return [str(result) for result in results if isinstance(result, SpendLimitReached)]


@pytest.mark.parametrize("max_calls", [0, 1, 7, 50])
async def test_no_call_is_made_beyond_max_calls(max_calls: int) -> None:
    judge, limit = priced_judge(0.1), SpendLimit(max_calls=max_calls)
    messages = await refusals(judge, limit, 20)
    assert (len(judge.questions), len(messages)) == (min(max_calls, 20), max(0, 20 - max_calls))
    assert limit.spend.calls == len(judge.questions)


@pytest.mark.parametrize(("costs", "max_cost", "calls"), [((0.1,), 0.55, 5), ((0.1,), 0.1, 1), ((0.2, 0.1), 1.0, 6)])
async def test_no_dollar_is_spent_beyond_max_cost(costs: tuple[float, ...], max_cost: float, calls: int) -> None:
    judge, limit = priced_judge(*costs), SpendLimit(max_cost=max_cost)
    messages = await refusals(judge, limit, 20)
    assert limit.spend.cost is not None
    assert limit.spend.cost <= max_cost
    assert len(judge.questions) == calls
    assert "`max_cost` of" in messages[0]
    # Calls are made at the same time as long as the limit cannot be exceeded.
    assert judge.peak > 1 or calls == 1


async def test_max_cost_with_an_unknown_price_allows_one_call() -> None:
    judge = priced_judge(None)
    messages = await refusals(judge, SpendLimit(max_cost=1.0), 5)
    assert (len(judge.questions), len(messages)) == (1, 4)
    assert "use `max_calls`" in messages[0]


def test_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="`max_calls` must be at least 0"):
        SpendLimit(max_calls=-1)
    with pytest.raises(ValueError, match="`max_cost` must be at least 0"):
        SpendLimit(max_cost=-0.1)


async def test_failed_call_is_counted() -> None:
    limit = SpendLimit()
    failure = JudgeFailure("parse", "no", spend=Spend(calls=1, cost=0.3))
    with pytest.raises(JudgeFailure):
        await limit.call(partial(FakeJudge(failure).judge, QUESTION))
    assert limit.spend == Spend(calls=1, cost=0.3)


async def test_call_that_is_cancelled_is_counted_without_its_cost() -> None:
    limit = SpendLimit()

    async def hang(_question: Question) -> str:
        await asyncio.sleep(60)
        return "MET"

    task = asyncio.create_task(limit.call(partial(FakeJudge(hang).judge, QUESTION)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert limit.spend == Spend(calls=1, is_lower_bound=True)


async def test_call_that_was_cancelled_before_it_was_sent_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, limit = FakeJudge(), SpendLimit(max_calls=1, max_cost=1.0)
    limited = limit_judge(judge, CallLimiter(CallLimits(max_retries=0), spend_limit=limit))

    def lose_lease() -> None:
        raise StoreError("the lease has expired")

    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "check_lease", lose_lease)
        with pytest.raises(StoreError):
            await limited.judge(QUESTION)
    assert (judge.questions, limit.spend) == ([], Spend())
    assert (await limited.judge(QUESTION)).verdict == "MET"


async def test_call_without_an_answer_counts_as_the_most_expensive_call() -> None:
    lost = JudgeFailure("transport", "no reply", spend=Spend(calls=1, usage=None, cost=None))
    paid = Judgment(verdict="MET", value=1.0, spend=Spend(calls=1, cost=0.25))
    limit = SpendLimit(max_cost=1.0)
    judge = FakeJudge({BINARY.requirement: [paid, lost, paid]})
    for expected in (Judgment, JudgeFailure, Judgment, Judgment, SpendLimitReached):
        request = partial(judge.judge, QUESTION)
        (result,) = await asyncio.gather(limit.call(request), return_exceptions=True)
        assert isinstance(result, expected)
    assert len(judge.questions) == 4
    assert limit.spend.cost is None


def test_room_for_rows_is_what_the_most_expensive_row_leaves() -> None:
    row = Spend(calls=3, cost=0.3)
    assert SpendLimit().has_room_for(1000, None)
    assert [SpendLimit(max_calls=7).has_room_for(rows, None) for rows in (1, 2)] == [True, False]
    assert [SpendLimit(max_calls=7).has_room_for(rows, row) for rows in (1, 2, 3)] == [True, True, False]
    assert [SpendLimit(max_cost=0.7).has_room_for(rows, row) for rows in (1, 2, 3)] == [True, True, False]


@settings(max_examples=50)
@given(costs=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), max_cost=st.floats(0.0, 10.0))
async def test_max_cost_is_never_exceeded_where_the_highest_cost_of_a_call_is_known(
    costs: list[float], max_cost: float
) -> None:
    limit = SpendLimit(max_cost=max_cost)

    async def request(cost: float) -> Judgment:
        await asyncio.sleep(0)
        return Judgment(verdict="MET", value=1.0, spend=Spend(calls=1, cost=cost))

    # Cheap calls first, as in a run whose texts grow.
    calls = (limit.call(partial(request, cost), highest_cost=1.0) for cost in sorted(costs))
    await asyncio.gather(*calls, return_exceptions=True)
    assert limit.spend.cost is not None
    assert limit.spend.cost <= max_cost + 1e-9


async def test_calls_are_made_at_the_same_time_as_far_as_their_highest_costs_allow() -> None:
    limit, judge = SpendLimit(max_cost=1.0), priced_judge(0.001)
    request = partial(judge.judge, QUESTION)
    results = await asyncio.gather(*(limit.call(request, highest_cost=0.2) for _ in range(40)), return_exceptions=True)
    assert all(isinstance(result, Judgment) for result in results)
    assert 2 <= judge.peak <= 5
