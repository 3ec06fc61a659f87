"""`slime_reward` and `normalize_rewards`, called as `rollout/rm_hub/__init__.py` of slime and miles calls them.

`test_slime_dispatch.py` calls them through the real packages.
"""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Fields, PerCriterionGrader
from rubric_integrations.graders import CallLimits, endpoint
from rubric_integrations.graders.endpoint import JudgeOutage
from rubric_integrations.judges import LMJudge
from rubric_integrations.training import slime_reward
from rubric_integrations.training.slime import normalize_rewards
from tests.fakes import FakeJudge
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader
from tests.openai_server import OpenAIServer, Reply

MESSAGES = [{"role": "user", "content": QUERY}]
MESSAGE = f'{{"role": "user", "content": "{QUERY}"}}'
NAMES = ["score", "rubric/coverage", "rubric.right", "rubric.sourced", "rubric.rude"]


@dataclass
class Sample:
    """The fields of `Sample` in `utils/types.py` of slime and miles that matter here."""

    response: str
    prompt: Any = QUERY
    group_index: int | None = 0
    label: Any = None
    reward: Any = None
    remove_sample: bool = False
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def get_reward_value(self, args: Any) -> float:
        return self.reward[args.reward_key] if args.reward_key else self.reward


def arguments(**changes: Any) -> Any:
    """Return the arguments of a GRPO run with groups of four."""
    settings = {
        "reward_key": None,
        "custom_reward_post_process_path": "rubric_integrations.training.slime.normalize_rewards",
        "advantage_estimator": "grpo",
        "rewards_normalization": True,
        "grpo_std_normalization": True,
        "n_samples_per_prompt": 4,
    }
    return SimpleNamespace(**settings | changes)


def with_rewards(*rewards: float, group_index: int | None = 0) -> list[Sample]:
    return [Sample("a", reward=reward, group_index=group_index) for reward in rewards]


async def test_six_responses_have_scores_and_the_failed_one_is_removed() -> None:
    rm = slime_reward(RUBRIC, grader=make_grader())
    samples = [Sample(f"{row.response}<|im_end|>") for row in ROWS]
    rewards = [await rm(arguments(), sample) for sample in samples]
    assert rewards[:-1] == [pytest.approx(row.score) for row in ROWS[:-1]]
    assert math.isnan(rewards[-1])
    assert [sample.remove_sample for sample in samples] == [False] * 5 + [True]


async def test_group_gets_the_same_rewards_as_its_samples_and_one_failure_ends_nothing() -> None:
    rm = slime_reward(RUBRIC, grader=make_grader())
    samples = [Sample(row.response) for row in ROWS]
    rewards = await rm(arguments(reward_key="score"), samples)
    assert [list(values) for values in rewards] == [NAMES] * 6
    assert [values["score"] for values in rewards[:-1]] == [pytest.approx(row.score) for row in ROWS[:-1]]
    assert math.isnan(rewards[4]["rubric.right"])
    assert all(map(math.isnan, rewards[-1].values()))
    assert await rm(arguments(), []) == []


async def test_abstention_removes_a_sample_only_if_its_criterion_is_the_reward() -> None:
    rm = slime_reward(RUBRIC, grader=make_grader())
    for key, is_removed in (("rubric.right", True), ("rubric.sourced", False), ("score", False)):
        sample = Sample(ROWS[4].response)
        reward = await rm(arguments(reward_key=key), sample)
        assert (math.isnan(reward[key]), sample.remove_sample) == (is_removed, is_removed)


async def test_undefined_score_removes_the_sample() -> None:
    sample = Sample("a")
    assert math.isnan(await slime_reward(RUBRIC, FakeJudge("CANNOT_ASSESS"))(arguments(), sample))
    assert sample.remove_sample


async def test_sample_that_another_hook_removed_stays_removed() -> None:
    sample = Sample("a", remove_sample=True)
    assert await slime_reward(RUBRIC, FakeJudge())(arguments(), sample) == pytest.approx(2 / 3)
    assert sample.remove_sample


@pytest.mark.parametrize("response", ["", " <|im_end|>\n", "<think>8.4%", "<think>8.4%</think><|im_end|>"])
async def test_response_without_an_answer_gets_the_least_reward_and_costs_no_call(response: str) -> None:
    judge = FakeJudge()
    rm = slime_reward(RUBRIC, judge, normalize=False)
    sample = Sample(response)
    assert await rm(arguments(), sample) == -1.0
    assert await rm(arguments(reward_key="rubric.right"), sample) == dict.fromkeys(NAMES, 0.0) | {"score": -1.0}
    assert (judge.questions, sample.remove_sample) == ([], False)


@pytest.mark.parametrize(
    ("sample", "settings", "expected"),
    [
        (Sample("8.4%<|im_end|>"), {}, (QUERY, "8.4%", None)),
        (Sample("8.4%", metadata={"query": "How high?"}), {}, ("How high?", "8.4%", None)),
        (Sample("8.4%", metadata={"task": "How?"}), {"fields": Fields(query="task")}, ("How?", "8.4%", None)),
        (Sample("plan</think>8.4%", f"{QUERY}<think>\n", label="9%"), {}, (f"{QUERY}<think>\n", "8.4%", "9%")),
        (Sample("8.4%", MESSAGES, label=8.4), {}, (MESSAGE, "8.4%", "8.4")),
        (Sample("plan</think>8.4%", MESSAGES), {"starts_in_thinking": True}, (MESSAGE, "8.4%", None)),
        (Sample("8.4%", metadata=None), {}, (QUERY, "8.4%", None)),  # pyright: ignore[reportArgumentType]
    ],
)
async def test_judge_sees_the_task_the_answer_and_the_label(
    sample: Sample, settings: dict[str, Any], expected: tuple[str, str, str | None]
) -> None:
    judge = FakeJudge()
    await slime_reward(RUBRIC, judge, **settings)(arguments(), sample)
    submission = judge.questions[0].submission
    assert (submission.query, submission.response, submission.reference) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"custom_reward_post_process_path": None}, "set `--custom-reward-post-process-path`"),
        ({"reward_key": "rubric.rigth"}, "`--reward-key` is 'rubric.rigth'"),
    ],
)
async def test_arguments_with_which_a_failure_would_do_harm_end_the_run_past_a_handler_of_exceptions(
    changes: dict[str, Any], message: str
) -> None:
    # As the asynchronous rollouts of both trainers do, which log an exception and go on.
    with pytest.raises(JudgeOutage, match=message), suppress(Exception):
        await slime_reward(RUBRIC, FakeJudge())(arguments(**changes), Sample("a"))


async def test_replay_of_miles_which_has_no_arguments_prints_the_rewards() -> None:
    rm = slime_reward(RUBRIC, grader=make_grader())
    # `_main_async` in `utils/debug_utils/replay_reward_fn.py` of miles.
    rewards = await asyncio.gather(*(rm(None, Sample(row.response)) for row in ROWS))
    assert rewards[:-1] == [pytest.approx(row.score) for row in ROWS[:-1]]
    assert math.isnan(rewards[-1])


async def test_many_failures_in_a_row_end_the_run() -> None:
    rm = slime_reward(RUBRIC, grader=make_grader(), max_failures=3)
    failing, right = Sample(ROWS[-1].response), Sample(ROWS[0].response)
    for sample in (failing, failing, right, failing, failing):
        await rm(arguments(), sample)
    with pytest.raises(JudgeOutage, match=r"3 samples in a row failed, the last one because .*`right`"):
        await rm(arguments(), failing)
    with pytest.raises(ValueError, match="`max_failures` must be at least 1, got 0"):
        slime_reward(RUBRIC, "offline", max_failures=0)


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
def test_lost_reply_refusal_and_outage_give_no_number_and_the_next_run_of_a_loop_works(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, fault: Reply
) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PROBE", 0.0)
    limits = CallLimits(max_retries=1, max_outage=0.05)
    rm = slime_reward(RUBRIC, LMJudge("openai/mock", api_base=server.url), limits=limits)
    rm = pickle.loads(pickle.dumps(rm))
    for script, is_graded in ((Reply(), True), (fault, False), (Reply(), True)):
        server.script = lambda _call, script=script: script
        sample = Sample(f"text {len(server.calls)}")
        # `debug_utils/replay_reward_fn.py` of miles runs each batch in an event loop of its own.
        [reward] = asyncio.run(rm(arguments(), [sample]))
        assert (reward == pytest.approx(2 / 3), sample.remove_sample) == (is_graded, not is_graded)
        assert is_graded or math.isnan(reward)


async def test_samples_share_one_grader_and_its_concurrency_limit() -> None:
    judge = FakeJudge()
    rm = slime_reward(RUBRIC, judge, limits=CallLimits(max_concurrency=2))
    await asyncio.gather(*(rm(arguments(), Sample(f"text {number}")) for number in range(12)))
    assert judge.peak == 2


def test_failed_sample_does_not_change_the_advantages_of_its_group() -> None:
    samples = [*with_rewards(1.0, 1.0, 0.0, math.nan), *with_rewards(math.nan, math.nan, group_index=1)]
    rewards, normalized = normalize_rewards(arguments(), samples)
    assert [math.isnan(reward) for reward in rewards] == [False] * 3 + [True] * 3
    assert normalized[:3] == normalize_rewards(arguments(), samples[:3])[1]
    assert normalized[:3] == [pytest.approx(0.57735, abs=1e-4)] * 2 + [pytest.approx(-1.1547, abs=1e-4)]
    assert normalized[3:] == [0.0] * 3


def test_groups_without_an_index_are_blocks_of_the_batch() -> None:
    samples = with_rewards(1.0, 0.0, math.nan, 0.0, 0.5, 0.5, 1.0, 1.0, group_index=None)
    _, normalized = normalize_rewards(arguments(grpo_std_normalization=False), samples)
    third = pytest.approx(1 / 3)
    assert normalized == [pytest.approx(2 / 3), -third.expected, 0.0, -third.expected, -0.25, -0.25, 0.25, 0.25]


@given(
    st.lists(st.lists(st.floats(-10, 10), min_size=2, max_size=5), min_size=1, max_size=4),
    st.sampled_from(["grpo", "gspo", "cispo", "reinforce_plus_plus_baseline"]),
    st.booleans(),
)
def test_normalized_rewards_without_failures_are_deviations_from_the_mean_of_the_group(
    groups: list[list[float]], estimator: str, has_std: bool
) -> None:
    samples = [sample for index, group in enumerate(groups) for sample in with_rewards(*group, group_index=index)]
    args = arguments(advantage_estimator=estimator, grpo_std_normalization=has_std)
    rewards, normalized = normalize_rewards(args, samples)
    is_scaled = has_std and estimator != "reinforce_plus_plus_baseline"
    expected = [
        (reward - fmean(group)) / (stdev(group) + 1e-6 if is_scaled else 1.0) for group in groups for reward in group
    ]
    assert rewards == [reward for group in groups for reward in group]
    assert normalized == pytest.approx(expected)


@pytest.mark.parametrize("changes", [{"advantage_estimator": "ppo"}, {"rewards_normalization": False}])
def test_other_estimators_get_the_rewards_and_refuse_a_failed_sample(changes: dict[str, Any]) -> None:
    assert normalize_rewards(arguments(**changes), with_rewards(1.0, 0.0)) == ([1.0, 0.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="a sample has no reward, which"):
        normalize_rewards(arguments(**changes), with_rewards(1.0, math.nan))


@pytest.mark.parametrize(
    "make",
    [lambda: slime_reward(RUBRIC, "offline"), lambda: slime_reward(RUBRIC, grader=PerCriterionGrader("offline"))],
)
def test_function_is_pickled_without_its_grader(make: Callable[[], Any]) -> None:
    rm = pickle.loads(pickle.dumps(make()))
    assert asyncio.run(rm(arguments(), Sample(""))) == 0.0
