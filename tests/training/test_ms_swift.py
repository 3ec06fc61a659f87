"""`ms_swift_rewards`, called as ms-swift 4.6.0 calls reward functions: `rl_core/grpo_algorithm.py`, lines 43 to 78.

`test_ms_swift_dispatch.py` calls it through the real package.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from rubric_integrations.graders import CallLimits
from rubric_integrations.graders.endpoint import JudgeOutage
from rubric_integrations.judges import LMJudge
from rubric_integrations.training import RubricReward, ms_swift_rewards
from tests.fakes import FakeJudge
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader
from tests.openai_server import OpenAIServer, Reply

PARTS = ["rubric.right", "rubric.sourced", "rubric.rude"]


def functions_of(orms: dict[str, Any], scale_rewards: str = "group") -> list[Any]:
    """Return the functions of all entries, made as `_prepare_rewards` does."""
    args = SimpleNamespace(scale_rewards=scale_rewards)
    return [make(args=args) for make in orms.values()]


def call(function: Any, completions: list[str], **columns: Any) -> list[float | None]:
    """Call a function with the completions and the columns of a step, as ms-swift does for one that is not async."""
    assert not inspect.iscoroutinefunction(function)
    assert not inspect.iscoroutinefunction(function.__call__)
    question = {"role": "user", "content": QUERY}
    messages = [[question, {"role": "assistant", "content": completion}] for completion in completions]
    rows = {"messages": messages, "prompt_id": ["a"] * len(completions), "is_truncated": [False] * len(completions)}
    return function(completions, trainer_state=SimpleNamespace(global_step=1), **rows, **columns)


def test_five_responses_have_scores_and_the_function_has_the_name_of_the_reward() -> None:
    [function] = functions_of(ms_swift_rewards(RubricReward(RUBRIC, grader=make_grader(), name="quality")))
    # ms-swift names only a function by its own name.
    assert (inspect.isfunction(function), function.__name__) == (True, "quality")
    rewards = call(function, [row.response for row in ROWS[:-1]])
    assert rewards == [pytest.approx(row.score) for row in ROWS[:-1]]


def test_parts_are_judged_once_and_have_names_of_their_own() -> None:
    judge = FakeJudge()
    orms = ms_swift_rewards(RubricReward(RUBRIC, judge).parts(aggregation="normalize_then_sum"))
    functions = functions_of(orms, "gdpo")
    assert [function.__name__ for function in functions] == list(orms) == PARTS
    for step in (1, 2):  # the second step has the same completions
        assert [call(function, ["a", "b"]) for function in functions] == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
        assert len(judge.questions) == step * 2 * 3


def test_judge_sees_the_prompt_the_answer_and_the_columns_of_the_row() -> None:
    judge = FakeJudge()
    [function] = functions_of(ms_swift_rewards(RubricReward(RUBRIC, judge)))
    call(function, ["<think>plan</think>8.4%"], reference=["9%"], prompts=["a column of this name"])
    submission = judge.questions[0].submission
    assert (submission.response, submission.reference) == ("8.4%", "9%")
    assert QUERY in str(submission.query)


def test_completion_without_an_answer_gets_the_least_reward_and_costs_no_call() -> None:
    judge = FakeJudge()
    [function] = functions_of(ms_swift_rewards(RubricReward(RUBRIC, judge, normalize=False)))
    assert call(function, ["", "<think>8.4%", " "]) == [-1.0] * 3
    assert judge.questions == []


@pytest.mark.parametrize(
    ("scale_rewards", "columns"),
    [("group", {}), ("batch", {}), ("none", {}), (None, {}), ("gdpo", {"trajectory_inputs": {}})],
)
def test_failure_ends_the_training_where_ms_swift_would_count_it_as_zero(
    scale_rewards: Any, columns: dict[str, Any]
) -> None:
    [function] = functions_of(ms_swift_rewards(RubricReward(RUBRIC, grader=make_grader())), scale_rewards)
    with pytest.raises(JudgeOutage, match=r"1 of 6 completions .* would count as 0"), suppress(Exception):
        call(function, [row.response for row in ROWS], **columns)


def test_failure_is_none_in_all_parts_with_gdpo_and_an_abstention_in_its_own() -> None:
    parts = RubricReward(RUBRIC, grader=make_grader()).parts(aggregation="normalize_then_sum")
    rewards = [
        call(function, [row.response for row in ROWS]) for function in functions_of(ms_swift_rewards(parts), "gdpo")
    ]
    assert [values[-1] for values in rewards] == [None, None, None]
    assert [values[4] for values in rewards] == [None, 1.0, 1.0]
    assert [values[0] for values in rewards] == [1.0, 1.0, 1.0]


def test_outage_ends_the_training_with_gdpo_too() -> None:
    [function] = functions_of(ms_swift_rewards(RubricReward(RUBRIC, FakeJudge(ValueError("down")))), "gdpo")
    with pytest.raises(JudgeOutage, match="down"):
        call(function, ["a", "b", "c", "d"])


@pytest.mark.parametrize(
    "fault",
    [
        Reply(text="I'm sorry, I can't help with that."),
        Reply(text=""),
        Reply(drop=True),
        Reply(status=503),
        Reply(status=400, text="content_filter"),
    ],
)
def test_lost_reply_refusal_and_outage_give_no_number_and_the_next_step_is_graded(
    server: OpenAIServer, fault: Reply
) -> None:
    limits = CallLimits(max_retries=0, max_outage=0.05)
    reward = RubricReward(RUBRIC, LMJudge("openai/mock", api_base=server.url), limits=limits, stop_after=0.9)
    [function] = functions_of(pickle.loads(pickle.dumps(ms_swift_rewards(reward))), "gdpo")
    score = pytest.approx(2 / 3)
    for step in range(3):
        server.script = lambda call, step=step: fault if step == 1 and "the lost one" in call.prompt else Reply()
        # Another text in each step, because a refused text is not sent again.
        rewards = call(function, ["a", f"the lost one of step {step}", "c", "d"])
        assert rewards == [score, None if step == 1 else score, score, score]


def test_steps_of_ms_swift_share_one_event_loop_and_its_connections(server: OpenAIServer) -> None:
    [function] = functions_of(ms_swift_rewards(RubricReward(RUBRIC, LMJudge("openai/mock", api_base=server.url))))

    async def another_reward(_completions: list[str]) -> list[float]:
        return [0.0]

    for number in range(3):
        assert call(function, [f"text {number}"]) == [pytest.approx(2 / 3)]
        asyncio.run(another_reward([]))  # an asynchronous reward of the user's, as in each step of ms-swift
    # The three criteria of the first text open at most three connections, and later steps open no more.
    assert len({call.client for call in server.calls}) <= 3


async def test_function_runs_inside_an_event_loop() -> None:
    [function] = functions_of(ms_swift_rewards(RubricReward(RUBRIC, FakeJudge())))
    assert call(function, ["a"]) == [pytest.approx(2 / 3)]


def test_rewards_of_one_name_are_refused() -> None:
    reward = RubricReward(RUBRIC, "offline")
    with pytest.raises(ValueError, match="have the same name: set `name`"):
        ms_swift_rewards([reward, reward])
