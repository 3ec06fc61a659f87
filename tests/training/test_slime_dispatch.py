"""`slime_reward` and `normalize_rewards` through the dispatch of the real slime and miles, without a GPU.

Neither package can be installed without one. To run these tests, put the folders of both sources on `PYTHONPATH`, in an
environment with PyTorch and Ray.
"""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rubric_integrations.graders.endpoint import JudgeOutage
from tests.hosts.model_server import reply
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC
from tests.openai_server import OpenAIServer

REWARD_FILE = """
from rubric_integrations.judges import LMJudge
from rubric_integrations.training import slime_reward
rm = slime_reward({path!r}, LMJudge("openai/judge", api_base={url!r}))
"""
POST_PROCESS = "rubric_integrations.training.slime.normalize_rewards"


@pytest.fixture(params=["slime", "miles"])
def trainer(request: pytest.FixtureRequest) -> str:
    reason = f"the source of {request.param} is not on the path"
    pytest.importorskip(f"{request.param}.rollout.rm_hub", reason=reason, exc_type=ImportError)
    return request.param


@pytest.fixture
def args(trainer: str, tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The arguments of a run, with the reward file of a user."""
    server.script = reply
    path = tmp_path / "rubric.yaml"
    path.write_text(RUBRIC.to_yaml(), encoding="utf-8")
    name = f"reward_of_{trainer}_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(REWARD_FILE.format(path=str(path), url=server.url), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return SimpleNamespace(
        custom_rm_path=f"{name}.rm",
        custom_reward_post_process_path=POST_PROCESS,
        reward_key=None,
        rm_type=None,
        advantage_estimator="grpo",
        rewards_normalization=True,
        grpo_std_normalization=True,
        n_samples_per_prompt=6,
        rollout_batch_size=1,
        multi_lora_n_adapters=0,
    )


def samples_of(trainer: str) -> list[Any]:
    sample_type: Any = import_module(f"{trainer}.utils.types").Sample
    return [
        sample_type(group_index=0, index=index, prompt=QUERY, response=f"{row.response}<|im_end|>", response_length=3)
        for index, row in enumerate(ROWS)
    ]


def check(args: Any, trainer: str, samples: list[Any]) -> None:
    """Check the rewards, and the normalized rewards that the trainer's own loader of functions returns."""
    rewards = [sample.get_reward_value(args) for sample in samples]
    assert rewards[:-1] == [pytest.approx(row.score) for row in ROWS[:-1]]
    assert math.isnan(rewards[-1])
    assert [sample.remove_sample for sample in samples] == [False] * 5 + [True]
    load_function: Any = import_module(f"{trainer}.utils.misc").load_function
    _, normalized = load_function(args.custom_reward_post_process_path)(args, samples)
    assert normalized == pytest.approx([0.92, 0.15, -0.61, -1.38, 0.92, 0.0], abs=0.01)


async def test_single_samples_are_rewarded_and_the_failed_one_is_removed(args: Any, trainer: str) -> None:
    hub, samples = import_module(f"{trainer}.rollout.rm_hub"), samples_of(trainer)
    for sample in samples:
        sample.reward = await hub.async_rm(args, sample)
    check(args, trainer, samples)


async def test_group_is_rewarded_and_the_failed_sample_is_removed(args: Any, trainer: str) -> None:
    hub, samples = import_module(f"{trainer}.rollout.rm_hub"), samples_of(trainer)
    args.reward_key = "score"
    for sample, reward in zip(samples, await hub.batched_async_rm(args, samples), strict=True):
        sample.reward = reward
    check(args, trainer, samples)
    assert samples[1].reward["rubric.rude"] == 0.0


async def test_run_without_the_function_that_leaves_failures_out_ends(args: Any, trainer: str) -> None:
    hub, samples = import_module(f"{trainer}.rollout.rm_hub"), samples_of(trainer)
    args.custom_reward_post_process_path = None
    with pytest.raises(JudgeOutage, match="custom-reward-post-process-path"):
        await hub.async_rm(args, samples[0])


async def test_normalized_rewards_without_failures_are_those_of_miles(args: Any, trainer: str) -> None:
    conversion = pytest.importorskip("miles.ray.rollout.train_data_conversion", exc_type=ImportError)
    normalize_rewards: Any = import_module("rubric_integrations.training.slime").normalize_rewards
    samples = samples_of(trainer)[:-1]
    for sample, row in zip(samples, ROWS, strict=False):
        sample.reward = row.score
    for args.advantage_estimator in ("grpo", "gspo", "reinforce_plus_plus_baseline", "ppo"):
        for args.grpo_std_normalization in (True, False):
            _, expected = conversion._post_process_rewards(args, samples, None)
            assert normalize_rewards(args, samples)[1] == pytest.approx(expected, abs=1e-6)
