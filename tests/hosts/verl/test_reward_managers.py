"""The reward managers and the reward loop of the real verl, without a GPU, call a reward file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.scoring import JudgeError
from tests.hosts.byte_tokenizer import save_byte_tokenizer
from tests.hosts.model_server import reply
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, Row
from tests.openai_server import OpenAIServer, Reply

pytest.importorskip("verl.protocol", reason="verl is not installed: make test-host-verl")
# A failed criterion cancels the requests about the others, and LiteLLM leaves a coroutine behind then.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
ROOT = Path(__file__).resolve().parents[3]

REWARD_FILE = """
from rubric_integrations.training import verl_reward
compute_score = verl_reward({path!r}, "openai/judge", gdpo={gdpo})
"""
KEYS = ["score", "rubric/coverage", "rubric.right", "rubric.sourced", "rubric.rude"]


@pytest.fixture
def judge_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    with OpenAIServer(reply) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


@pytest.fixture
def config(tmp_path: Path, judge_server: OpenAIServer) -> Any:
    """The configuration of a PPO run of verl, with the reward file of a user."""
    rubric, file, gdpo_file = tmp_path / "rubric.yaml", tmp_path / "reward.py", tmp_path / "gdpo.py"
    rubric.write_text(RUBRIC.to_yaml(), encoding="utf-8")
    file.write_text(REWARD_FILE.format(path=str(rubric), gdpo=False), encoding="utf-8")
    gdpo_file.write_text(REWARD_FILE.format(path=str(rubric), gdpo=True), encoding="utf-8")
    hydra: Any = import_module("hydra")
    folder = Path(str(import_module("verl").__file__)).parent / "trainer/config"
    with hydra.initialize_config_dir(str(folder), version_base=None):
        return hydra.compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={save_byte_tokenizer(tmp_path / 'tokenizer')}",
                f"reward.custom_reward_function.path={file}",
                "reward.num_workers=2",
                "+algorithm.gdpo_reward_keys=[rubric.right,rubric.sourced,rubric.rude]",
            ],
        )


def batch_of(tokenizer: Any, rows: list[Row]) -> Any:
    """Return rollouts as verl holds them: padded tokens, and the columns of the Parquet file."""
    torch: Any = import_module("torch")
    numpy: Any = import_module("numpy")
    encoded = [tokenizer(row.response)["input_ids"] for row in rows]
    width = max(map(len, encoded))
    responses = torch.tensor([ids + [tokenizer.pad_token_id] * (width - len(ids)) for ids in encoded])
    lengths = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids in encoded])
    prompts = torch.tensor([tokenizer(QUERY)["input_ids"]] * len(rows))
    columns: dict[str, list[Any]] = {
        "data_source": ["answers"] * len(rows),
        "reward_model": [{"ground_truth": "", "style": "rule"} for _ in rows],
        "extra_info": [{"query": QUERY, "index": number} for number in range(len(rows))],
    }
    return import_module("verl").DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": responses,
            "attention_mask": torch.cat([torch.ones_like(prompts), lengths], dim=1),
        },
        non_tensors={name: numpy.array(values, dtype=object) for name, values in columns.items()},
    )


def manager_of(config: Any, name: str = "naive") -> Any:
    config.reward.reward_manager.name = name
    transformers: Any = import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(config.actor_rollout_ref.model.path)
    return import_module("verl.trainer.ppo.reward").load_reward_manager(config, tokenizer)


async def run(manager: Any, row: Row) -> dict[str, Any]:
    return await manager.run_single(batch_of(manager.tokenizer, [row]))


async def test_six_responses_get_scores_and_one_error_from_the_naive_manager(config: Any) -> None:
    manager = manager_of(config)
    assert manager.is_async_reward_score
    for row in ROWS[:-1]:
        result = await run(manager, row)
        print(f"| {row.id} | {result['reward_score']:.2f} | {result['reward_extra_info']} |")
        assert result["reward_score"] == pytest.approx(row.score)
        assert list(result["reward_extra_info"]) == KEYS
        assert (result["reward_extra_info"]["rubric.right"] is None) == (row.id == "unclear")
    with pytest.raises(JudgeError, match="Keep the reward manager `naive`") as caught:
        await run(manager, ROWS[-1])
    print(f"| failing | {type(caught.value).__name__}: {str(caught.value)[:100]} |")


async def test_failed_judge_gets_zero_from_the_rate_limited_manager_which_is_why_it_must_not_be_used(
    config: Any,
) -> None:
    result = await run(manager_of(config, "rate_limited"), ROWS[-1])
    assert result["reward_score"] == 0.0


async def test_response_without_an_answer_gets_the_least_reward_and_the_same_keys(
    config: Any, judge_server: OpenAIServer
) -> None:
    result = await run(manager_of(config), Row("empty", "<think>8.4%", 0.0))
    assert result["reward_extra_info"] == dict.fromkeys(KEYS) | {"score": 0.0, "rubric/coverage": 0.0}
    assert judge_server.calls == []


async def test_score_that_is_undefined_is_an_error_of_the_naive_manager(
    config: Any, judge_server: OpenAIServer
) -> None:
    judge_server.script = lambda _call: Reply("CANNOT_ASSESS")
    with pytest.raises(ValueError, match="undefined"):
        await run(manager_of(config), ROWS[0])


def gdpo_advantages(config: Any, results: list[dict[str, Any]]) -> list[float]:
    """Return the advantages of verl's own GDPO for one group of samples with these results of `compute_score`."""
    torch: Any = import_module("torch")
    numpy: Any = import_module("numpy")
    algorithms: Any = import_module("verl.trainer.ppo.core_algos")
    mask = torch.ones(len(results), 1)
    columns = {name: numpy.array([result[name] for result in results], dtype=object) for name in KEYS}
    advantages, _ = algorithms.compute_gdpo_outcome_advantage(
        token_level_rewards=torch.tensor([[result["score"]] for result in results]),
        response_mask=mask,
        index=numpy.array(["a prompt"] * len(results)),
        config=config.algorithm,
        non_tensor_batch=columns,
        batch={"prompts": mask, "attention_mask": torch.ones(len(results), 2, dtype=torch.long)},
    )
    return advantages[:, 0].tolist()


async def test_gdpo_of_criteria_without_a_missing_verdict_has_a_number_for_each_sample(config: Any) -> None:
    config.reward.custom_reward_function.path = config.reward.custom_reward_function.path.replace(
        "reward.py", "gdpo.py"
    )
    manager = manager_of(config, "gdpo")
    rows = [*ROWS[:4], Row("empty", "<think>8.4%", 0.0)]
    results = [(await run(manager, row))["reward_extra_info"] for row in rows]
    advantages = gdpo_advantages(config, results)
    print("| GDPO |", *(f"{value:+.2f} |" for value in advantages))
    assert not any(map(math.isnan, advantages))
    assert max(advantages) == advantages[0]
    for row in ROWS[4:]:
        with pytest.raises(JudgeError, match="no reward for a sample"):
            await run(manager, row)


async def test_gdpo_without_the_option_gets_nan_for_the_whole_batch_from_one_abstention(config: Any) -> None:
    manager = manager_of(config)
    results = [(await run(manager, row))["reward_extra_info"] for row in ROWS[:-1]]
    assert all(map(math.isnan, gdpo_advantages(config, results)))


def test_validation_metrics_leave_an_abstention_out() -> None:
    metrics: Any = import_module("verl.trainer.ppo.metric_utils")
    values = {"score": [1.0, 0.5], "rubric.right": [1.0, None]}
    result = metrics.process_validation_metrics(["answers"] * 2, ["a", "b"], values)["answers"]
    assert result["rubric.right"]["mean@1"] == 1.0


@pytest.mark.timeout(200)
def test_reward_loop_of_two_ray_workers_fills_the_tensor_of_rewards_and_a_failure_ends_it(config: Any) -> None:
    loop: Any = import_module("verl.experimental.reward_loop")
    ray: Any = import_module("ray")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    names = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "LITELLM_LOCAL_MODEL_COST_MAP")
    variables = {name: os.environ[name] for name in names} | {"PYTHONPATH": path}
    ray.init(
        address="local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
        runtime_env={"env_vars": variables},
    )  # fmt: skip
    try:
        manager = loop.RewardLoopManager(config)
        tokenizer = manager_of(config).tokenizer
        scored = manager.compute_rm_score(batch_of(tokenizer, ROWS[:-1]))
        rewards = scored.batch["rm_scores"].sum(dim=-1).tolist()
        assert rewards == [pytest.approx(row.score) for row in ROWS[:-1]]
        assert not any(map(math.isnan, rewards))
        assert scored.meta_info["reward_extra_keys"] == KEYS
        assert scored.non_tensor_batch["rubric.right"].tolist() == [1.0, 1.0, 0.0, 0.0, None]
        with pytest.raises(Exception, match="Keep the reward manager `naive`"):
            manager.compute_rm_score(batch_of(tokenizer, ROWS))
    finally:
        ray.shutdown()
