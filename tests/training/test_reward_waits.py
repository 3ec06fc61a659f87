"""What the reward of each trainer does while its judge fails: it waits no longer than stated, and gives no number.

The clock is virtual: it jumps to the next timer when nothing else can run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import Question
from rubric_integrations.scoring import JudgeFailure, Judgment, to_judgment
from rubric_integrations.training import (
    JudgeOutage,
    RubricReward,
    ms_swift,
    ms_swift_rewards,
    openrlhf,
    openrlhf_reward,
    slime_reward,
    verl_reward,
)
from rubric_integrations.training.sample_grader import SampleGrader
from tests.simulation import virtual_loop
from tests.simulation.operating_system import OperatingSystem
from tests.simulation.virtual_loop import VirtualLoop

RUBRIC = Rubric([Criterion(name=name, requirement=name) for name in ("first", "second")])
SAMPLE: dict[str, Any] = {"label": None, "metadata": {}, "remove_sample": False}
Behaviour = Callable[[], Awaitable[None]]


class FailingJudge:
    """A judge whose calls fail in the ways of a list, from the first one again after the last."""

    def __init__(self, behaviours: list[Behaviour]):
        self.behaviours, self.calls = behaviours, 0

    async def judge(self, question: Question) -> Judgment:
        self.calls += 1
        await self.behaviours[(self.calls - 1) % len(self.behaviours)]()
        return to_judgment(question.criterion, "MET")


def behaviours(timeout: float) -> Mapping[str, Behaviour]:
    async def no_reply() -> None:
        await asyncio.sleep(1e6)

    async def prose() -> None:
        await asyncio.sleep(0.99 * timeout)
        raise JudgeFailure("parse", "the reply is prose", retryable=True)

    async def refusal() -> None:
        raise JudgeFailure("parse", "refused by a content filter", about_text=True)

    async def server_error() -> None:
        await asyncio.sleep(0.1 * timeout)
        raise JudgeFailure("transport", "500", retryable=True, retry_after=90.0)

    async def nowhere() -> None:
        raise JudgeFailure("transport", "no such host", retryable=True, unreachable=True)

    async def answer() -> None:
        await asyncio.sleep(0.99 * timeout)

    return {f.__name__: f for f in (no_reply, prose, refusal, server_error, nowhere, answer)}


def step_of(adapter: str, grader: PerCriterionGrader, loop: VirtualLoop) -> Callable[[list[str]], list[Any]]:
    """Return a function that calls an adapter as its trainer does, and returns the rewards and errors."""
    reward = RubricReward(RUBRIC, grader=grader, stop_after=1)
    samples = SampleGrader(RUBRIC, grader=grader)
    compute_score = verl_reward(RUBRIC, grader=grader)
    reward_func = openrlhf_reward(RUBRIC, grader=grader, failed="nan", max_failures=1_000)
    rm = slime_reward(RUBRIC, grader=grader, max_failures=1_000)
    function = ms_swift_rewards(reward)["rubric"](args=SimpleNamespace(scale_rewards="gdpo"))

    async def trl(texts: list[str]) -> list[Any]:
        return list(await reward(["p"] * len(texts), texts))

    async def parts(texts: list[str]) -> list[Any]:
        scores = await asyncio.gather(*(part(["p"] * len(texts), texts) for part in reward.parts()))
        return [score for part in scores for score in part]

    async def verl(texts: list[str]) -> list[Any]:
        samples = (compute_score(data_source="d", solution_str=text, ground_truth="") for text in texts)
        return list(await asyncio.gather(*samples, return_exceptions=True))

    async def slime(texts: list[str]) -> list[Any]:
        return await rm(None, [SimpleNamespace(prompt="p", response=text, **SAMPLE) for text in texts])

    # The plugin of verifiers calls a `SampleGrader`.
    async def verifiers(texts: list[str]) -> list[Any]:
        return list(await asyncio.gather(*map(samples.grade, texts), return_exceptions=True))

    def run(texts: list[str]) -> list[Any]:
        if adapter == "openrlhf":
            rewards = reward_func([f"Q: {text}" for text in texts], ["Q: "] * len(texts), [""] * len(texts))["rewards"]
            return rewards if isinstance(rewards, list) else [rewards]
        if adapter == "ms-swift":
            return function(texts, messages=[[{"role": "assistant", "content": text}] for text in texts])
        steps = {"trl": trl, "parts": parts, "verl": verl, "slime": slime, "verifiers": verifiers}
        return loop.run_until_complete(steps[adapter](texts))

    return run


def wait_of(adapter: str, names: list[str], limits: CallLimits, count: int, steps: int = 2) -> tuple[float, list[Any]]:
    """Return the longest virtual time of a step whose judge behaves in these ways, and all rewards and errors."""
    loop, longest, results = VirtualLoop(Random(0)), 0.0, list[Any]()
    known = behaviours(limits.timeout)
    judge = FailingJudge([known[name] for name in names])
    with pytest.MonkeyPatch.context() as patch, OperatingSystem(loop).installed(0):
        patch.setattr(virtual_loop, "LONGEST_SIMULATION", 1e5)
        for module in (openrlhf, ms_swift):
            patch.setattr(module, "run_sync", loop.run_until_complete)
        step = step_of(adapter, PerCriterionGrader(judge, limits=limits), loop)
        for number in range(steps):
            started_at = loop.time()
            try:
                results += step([f"text {number} {index}" for index in range(count)])
            except JudgeOutage as error:
                results.append(error)
            longest = max(longest, loop.time() - started_at)
    return longest, results


ADAPTERS = ("trl", "parts", "verl", "ms-swift", "slime", "openrlhf", "verifiers")
FAILURES = ("no_reply", "prose", "refusal", "server_error", "nowhere")
LIMITS = CallLimits(timeout=10, max_retries=1, max_outage=30, max_concurrency=4)


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("failure", [*FAILURES, "no_reply prose"])
def test_failing_judge_gives_no_number_within_the_stated_time(adapter: str, failure: str) -> None:
    waited, results = wait_of(adapter, failure.split(), LIMITS, 6)
    assert waited <= LIMITS.longest_wait(6 * len(RUBRIC))
    assert [result for result in results if not is_no_number(result)] == []


def is_no_number(result: object) -> bool:
    return result is None or isinstance(result, BaseException) or (isinstance(result, float) and math.isnan(result))


@settings(max_examples=25, deadline=None)
@given(
    adapter=st.sampled_from(ADAPTERS),
    names=st.lists(st.sampled_from((*FAILURES, "answer")), min_size=1, max_size=5),
    limits=st.builds(
        CallLimits,
        timeout=st.sampled_from([1.0, 30.0]),
        max_retries=st.integers(0, 3),
        max_outage=st.sampled_from([0.0, 5.0, 60.0, None]),
        max_concurrency=st.sampled_from([1, 3, 64]),
    ),
    count=st.sampled_from([1, 5]),
)
def test_step_waits_no_longer_than_stated_whatever_its_judge_does(
    adapter: str, names: list[str], limits: CallLimits, count: int
) -> None:
    waited, _ = wait_of(adapter, names, limits, count)
    assert waited <= limits.longest_wait(count * len(RUBRIC))


def test_stated_time_is_not_far_from_a_wait_that_happens() -> None:
    waited, _ = wait_of("verl", ["prose"], LIMITS, 6, steps=1)
    assert waited > 0.1 * LIMITS.longest_wait(6 * len(RUBRIC))
