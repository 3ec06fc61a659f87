"""`ms_swift_rewards` through the functions of the real ms-swift that call rewards and compute advantages.

ms-swift requires more than these functions need. To run these tests, put the folder of its source or wheel on
`PYTHONPATH`, in an environment with PyTorch, transformers and datasets.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from rubric_integrations.graders.endpoint import JudgeOutage
from rubric_integrations.training import RubricReward, ms_swift_rewards
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader

for _module in ("swift.rl_core.grpo_algorithm", "swift.rewards"):
    pytest.importorskip(_module, reason="the source of ms-swift is not on the path", exc_type=ImportError)


def rewards_of(entries: dict[str, Any], scale_rewards: str, rows: list[Any]) -> tuple[Any, list[str]]:
    """Return the rewards of a step and the names of the functions, from ms-swift's own code."""
    import_module("swift.rewards").orms.update(entries)
    utilities: Any = import_module("swift.rlhf_trainers.utils")
    functions, names = utilities.resolve_reward_funcs(list(entries), SimpleNamespace(scale_rewards=scale_rewards))
    sample_type: Any = import_module("swift.rl_core.data").GRPOSample
    samples = [
        sample_type(
            messages=[{"role": "user", "content": QUERY}, {"role": "assistant", "content": row.response}],
            prompt_id="a prompt",
            request_id=row.id,
        )
        for row in rows
    ]
    algorithm: Any = import_module("swift.rl_core.grpo_algorithm")
    rewards = algorithm.compute_rewards_per_func(samples, functions, None, "cpu", SimpleNamespace(global_step=1))
    return rewards, names


def advantages_of(rewards: Any, scale_rewards: str) -> list[float]:
    torch: Any = import_module("torch")
    weights = torch.ones(rewards.shape[1])
    compute_advantages: Any = import_module("swift.rl_core.advantage").compute_advantages
    return compute_advantages(rewards, weights, len(rewards), scale_rewards=scale_rewards)[0].tolist()


def test_rewards_of_a_step_have_the_scores_and_the_name_of_the_reward() -> None:
    entries = ms_swift_rewards(RubricReward(RUBRIC, grader=make_grader()))
    rewards, names = rewards_of(entries, "group", ROWS[:-1])
    assert names == ["rubric"]
    assert rewards[:, 0].tolist() == [pytest.approx(row.score) for row in ROWS[:-1]]


def test_failure_with_gdpo_has_the_advantage_zero_and_changes_no_other() -> None:
    entries = ms_swift_rewards(RubricReward(RUBRIC, grader=make_grader()).parts(aggregation="normalize_then_sum"))
    rewards, names = rewards_of(entries, "gdpo", [*ROWS[:4], ROWS[-1]])
    assert names == ["rubric.right", "rubric.sourced", "rubric.rude"]
    assert rewards[-1].isnan().all()
    advantages = advantages_of(rewards, "gdpo")
    assert advantages[-1] == pytest.approx(0.0, abs=1e-6)
    others = advantages_of(rewards[:-1], "gdpo")
    # The standard deviation of the batch includes the zero. The order and the ratios stay the same.
    assert [value / advantages[0] for value in advantages[:-1]] == pytest.approx(
        [value / others[0] for value in others]
    )


def test_failure_without_gdpo_would_be_the_worst_reward_and_therefore_ends_the_training() -> None:
    torch: Any = import_module("torch")
    assert advantages_of(torch.tensor([[1.0], [0.5], [torch.nan]]), "group")[2] < -0.9
    entries = ms_swift_rewards(RubricReward(RUBRIC, grader=make_grader()))
    with pytest.raises(JudgeOutage, match="would count as 0"):
        rewards_of(entries, "group", ROWS)
