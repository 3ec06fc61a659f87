"""`max_cost` with default settings: judges without a price, prices that are passed, and the first calls of a model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import PerCriterionOneShotGrader
from rubric_integrations.judges import BatchResult, LMJudge, OfflineJudge, Question
from rubric_integrations.judges.spend import SpendLimit
from rubric_integrations.scoring import Judgment, Spend, TokenUsage, to_judgment
from rubric_integrations.scoring.judgment import UNKNOWN_CALL
from tests.openai_server import Call, OpenAIServer, Reply

RUBRIC = Rubric([Criterion(name="right", weight=1, requirement="Says 42")])
TEXTS = [f"It is 42, number {number}." for number in range(20)]


class OwnJudge:
    """A judge of a user's own, which does not say what its calls cost."""

    def __init__(self) -> None:
        self.calls = 0

    async def judge(self, question: Question) -> Judgment:
        self.calls += 1
        return to_judgment(question.criterion, "MET")


class CountingJudge(OwnJudge):
    """A judge of a user's own, which says how many tokens its calls had."""

    async def judge(self, question: Question) -> Judgment:
        judgment = await super().judge(question)
        usage = TokenUsage(prompt_tokens=1_000, completion_tokens=500)
        return judgment.model_copy(update={"spend": Spend(calls=1, usage=usage, cost=None)})

    async def judge_batch(self, questions: Any) -> BatchResult:
        spend = (await self.judge(next(iter(questions.values())))).spend
        return BatchResult({n: to_judgment(question.criterion, "MET") for n, question in questions.items()}, {}, spend)


async def generate(system_prompt: str, user_prompt: str) -> str:
    return '{"explanation": "as always", "verdict": "MET"}'


def test_judgment_without_spend_has_an_unknown_cost() -> None:
    (graded,) = grade_many(TEXTS[:1], RUBRIC, PerCriterionGrader(OwnJudge()))
    assert graded.report is not None
    assert graded.report.cost is None
    assert graded.report.spend == UNKNOWN_CALL


def test_offline_judge_costs_nothing_under_max_cost() -> None:
    run = grade_many(TEXTS, RUBRIC, PerCriterionGrader(OfflineJudge()), max_cost=0.01)
    assert (len(list(run)), run.summary.spend) == (20, Spend())


@pytest.mark.parametrize(
    ("judge", "name"), [(generate, "generate_fn/generate"), (LMJudge("openai/mine"), "openai/mine")]
)
def test_max_cost_that_cannot_be_enforced_ends_the_run_before_the_first_call(judge: Any, name: str) -> None:
    run = grade_many(TEXTS, RUBRIC, PerCriterionGrader(judge), max_cost=0.000001)
    assert list(run) == []
    assert f"pass `prices={{'{name}': (input, output)}}`" in str(run.summary.stopped)
    assert "--price" in str(run.summary.stopped)
    assert run.summary.has_wrong_setting
    assert run.summary.spend.calls == 0


def test_max_cost_ends_the_run_after_the_first_judgment_that_does_not_have_a_cost() -> None:
    judge = OwnJudge()
    run = grade_many(TEXTS, RUBRIC, PerCriterionGrader(judge), max_cost=0.000001)
    assert len(list(run)) == judge.calls == 1
    assert "pass `prices={'OwnJudge': (input, output)}`" in str(run.summary.stopped)
    assert run.summary.has_wrong_setting


@pytest.mark.parametrize("make_grader", [PerCriterionGrader, PerCriterionOneShotGrader])
def test_prices_give_the_tokens_of_a_judge_a_cost_and_a_limit(make_grader: Any) -> None:
    judge = CountingJudge()
    prices = {"CountingJudge": (2.0, 4.0)}  # each call costs (1,000 * 2 + 500 * 4) / 1,000,000 dollars
    run = grade_many(TEXTS, RUBRIC, make_grader(judge), max_cost=0.1, prices=prices)
    reports = [graded.report for graded in run]
    assert {report.cost for report in reports if report} == {0.004}
    assert 1 <= judge.calls < 20
    assert run.summary.spend.cost == pytest.approx(0.004 * judge.calls)
    assert "`max_cost` of $0.1 is reached" in str(run.summary.stopped)


@pytest.mark.parametrize("judge", [OwnJudge(), generate])
def test_calls_of_unknown_tokens_count_with_what_was_reserved(judge: Any) -> None:
    # 2,000 tokens of a reply are reserved, at $1,000 per million: $2 for each call.
    name = "OwnJudge" if isinstance(judge, OwnJudge) else "generate_fn/generate"
    run = grade_many(TEXTS, RUBRIC, PerCriterionGrader(judge), max_cost=7.0, prices={name: (0.0, 1000.0)})
    assert len(list(run)) == 3
    assert run.summary.spend == Spend(calls=3, usage=None, cost=None)


def test_prices_of_a_model_at_a_gateway(server: OpenAIServer) -> None:
    judge = LMJudge("openai/mock", api_base=server.url)
    run = grade_many(TEXTS, RUBRIC, PerCriterionGrader(judge), max_cost=5.0, prices={"openai/mock": (0.25, 2.0)})
    usage = run.summary.spend.usage if list(run) and run.summary.spend.usage else TokenUsage()
    cost = (usage.prompt_tokens * 0.25 + usage.completion_tokens * 2.0) / 1_000_000
    assert usage.prompt_tokens > 0
    assert run.summary.spend.cost == pytest.approx(cost)


def test_first_call_of_a_reasoning_model_fits_under_a_small_limit(server: OpenAIServer) -> None:
    grader = PerCriterionGrader(LMJudge("openai/gpt-5-mini", api_base=server.url))
    run = grade_many(TEXTS, RUBRIC, grader, max_cost=0.05)
    assert len(list(run)) == 20
    assert run.summary.stopped is None


def test_reply_that_is_longer_than_expected_exceeds_the_limit_by_no_more_than_the_calls_in_flight(
    server: OpenAIServer,
) -> None:
    def reply(call: Call) -> Reply:
        usage = {"prompt_tokens": 100, "completion_tokens": 10_000, "total_tokens": 10_100}
        message = {"role": "assistant", "content": '{"explanation": "long", "verdict": "MET"}'}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "model": "mock", "choices": [choice], "usage": usage}
        return Reply(raw=json.dumps(body).encode(), delay=0.05)

    server.script = reply
    prices = {"openai/mock": (0.0, 1.0)}  # $0.01 for each call, of which $0.002 are reserved at first
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url))
    run = grade_many(TEXTS, RUBRIC, grader, max_cost=0.05, max_concurrency=4, prices=prices)
    list(run)
    assert run.summary.spend.cost is not None
    assert 0.05 - 0.02 <= run.summary.spend.cost <= 0.05 + 4 * 0.008
    assert len(server.calls) < 9


async def test_reservation_is_twice_the_longest_reply_and_2000_tokens_before_the_first() -> None:
    limit = SpendLimit(max_cost=1.0)
    expected = [2_000, 200, 1_000, 1_000]
    for tokens, reserved in zip([100, 500, 300, 0], expected, strict=True):
        assert limit.reply_tokens == reserved
        limit.end(Spend(calls=1, usage=TokenUsage(completion_tokens=tokens), cost=0.0), await limit.start(0.0), True)


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({"openai/other": (1.0, 2.0)}, "`prices` names 'openai/other', and the judges are 'openai/mock'"),
        ({"openai/mock": (-1.0, 2.0)}, "`prices` of 'openai/mock' must be two numbers of at least 0"),
        ({"openai/mock": (1.0,)}, "`prices` of 'openai/mock' must be two numbers of at least 0"),
        ({"openai/mock": (1.0, float("nan"))}, "`prices` of 'openai/mock' must be two numbers of at least 0"),
    ],
)
def test_wrong_prices_are_refused(prices: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grade_many(TEXTS, RUBRIC, PerCriterionGrader("openai/mock"), max_cost=1.0, prices=prices)
