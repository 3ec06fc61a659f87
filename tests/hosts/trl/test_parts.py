"""The parts of a rubric in real steps of TRL: one grading for all parts, and the advantages of a reference."""

from __future__ import annotations

import asyncio
import math
import pickle
import re
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.judges import LMJudge
from rubric_integrations.training import JudgeOutage, RubricReward
from tests.hosts.trl.test_trainers import make_trainer, trl, weights_of
from tests.openai_server import Call, OpenAIServer, Reply

pytestmark = pytest.mark.timeout(300)

RUBRIC = Rubric(
    [
        Criterion(name="even", requirement="Has an even number of letters", weight=6),
        Criterion(name="digits", requirement="Has more than two digits", weight=3),
        Criterion(name="long", requirement="Has more than 14 characters", weight=-2),
    ]
)
GROUP, BATCH = 4, 16
Missing = Literal["none", "abstentions", "failures"]


def text_of(call: Call) -> str:
    return re.findall(r"<data [^>]+>\n(.*?)\n</data", call.prompt, re.DOTALL)[-2]


def answers(missing: Missing) -> Callable[[Call], Reply]:
    """Return a script that answers by the bytes of a completion, and leaves out some verdicts or some completions."""

    def answer(call: Call) -> Reply:
        number = sum(text_of(call).encode())
        if missing == "failures" and number % 5 == 0:
            return Reply(text="I'm sorry, I can't help with that.")
        if missing == "abstentions" and number % 4 == 0 and "digits" in call.criterion:
            return Reply(verdict="CANNOT_ASSESS")
        return Reply(verdict="MET" if (number >> len(call.criterion) % 3) % 2 else "UNMET")

    return answer


class Step:
    """Records the rewards of each function and the advantages of the steps of a trainer."""

    def __init__(self, trainer: Any):
        self.rewards: list[Any] = []
        self.advantages: list[Any] = []
        compute, score = trainer._calculate_rewards, trainer._generate_and_score_completions

        def record_rewards(*args: Any, **kwargs: Any) -> Any:
            self.rewards.append(compute(*args, **kwargs))
            return self.rewards[-1]

        def record_advantages(*args: Any, **kwargs: Any) -> Any:
            output = score(*args, **kwargs)
            self.advantages.append(output["advantages"].tolist())
            return output

        trainer._calculate_rewards, trainer._generate_and_score_completions = record_rewards, record_advantages


def reference(rewards: Any, weights: list[float], kind: str, aggregation: str) -> list[float]:
    """Compute the advantages from the rewards of the parts, written from the formulas and not from TRL's code.

    A completion without any reward counts in no mean and has the advantage 0. A single missing reward counts as 0 in a
    sum, and as the mean of its group if each part is normalized first. Numbers have 32 bits, as in the trainer.
    """
    values = np.array(rewards, dtype=np.float32).reshape(-1, GROUP, len(weights))
    is_out = np.isnan(values).all(axis=2)
    exact = np.array(weights, dtype=np.float32)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # groups in which all completions lack a part
        if aggregation == "normalize_then_sum":
            means, deviations = np.nanmean(values, axis=1), np.nanstd(values, axis=1, ddof=1)
            apart = (values - means[:, None]) / (np.nan_to_num(deviations)[:, None] + np.float32(1e-4))
            totals = np.where(is_out, np.nan, np.nansum(apart * exact, axis=2))
            advantages = (totals - np.nanmean(totals)) / (np.nanstd(totals, ddof=1) + np.float32(1e-4))
        else:
            totals = np.where(is_out, np.nan, np.nansum(values * exact, axis=2))
            if kind == "GRPO":
                deviations = np.nan_to_num(np.nanstd(totals, axis=1, ddof=1))
                advantages = (totals - np.nanmean(totals, axis=1)[:, None]) / (deviations[:, None] + np.float32(1e-4))
            else:
                others = (~is_out).sum(axis=1)[:, None] - 1
                advantages = totals - (np.nansum(totals, axis=1)[:, None] - totals) / others
    return np.nan_to_num(advantages, nan=0.0).ravel().tolist()


@contextmanager
def served(missing: Missing) -> Generator[tuple[OpenAIServer, RubricReward]]:
    with OpenAIServer(answers(missing)) as server:
        judge = LMJudge("openai/mock", api_base=server.url)
        yield server, RubricReward(RUBRIC, grader=PerCriterionGrader(judge, max_retries=0))


@pytest.mark.parametrize("missing", ["none", "abstentions", "failures"])
@pytest.mark.parametrize(
    ("kind", "aggregation"),
    [("GRPO", "sum_then_normalize"), ("GRPO", "normalize_then_sum"), ("RLOO", "sum_then_normalize")],
)
def test_advantages_are_those_of_the_reference_and_a_step_is_judged_once(
    tmp_path: Path, kind: str, aggregation: Any, missing: Missing
) -> None:
    with served(missing) as (server, reward):
        parts = reward.parts(aggregation=aggregation)
        changes: dict[str, Any] = {"multi_objective_aggregation": aggregation} if kind == "GRPO" else {"beta": 0.0}
        trainer = make_trainer(
            tmp_path, kind, parts, per_device_train_batch_size=BATCH, reward_weights=parts.weights, **changes,
        )  # fmt: skip
        step, before = Step(trainer), weights_of(trainer)
        trainer.train()
        calls = len(server.calls)
    assert len(step.rewards) == 2
    largest = 0.0
    for rewards, advantages in zip(step.rewards, step.advantages, strict=True):
        expected = reference(rewards.tolist(), parts.weights, kind, aggregation)
        differences = [abs(value - other) for value, other in zip(advantages, expected, strict=True)]
        largest = max(largest, *differences)
        # Equal up to the last bits of a number of 32 bits, whose order of additions may differ.
        assert advantages == pytest.approx(expected, rel=2**-22, abs=1e-7)
        assert any(advantages)
    print(f"\ntrl {trl.__version__}, {kind}, {aggregation}, {missing}: {calls} calls, difference {largest:.1e}")
    lost = [sum(map(math.isnan, row)) for rewards in step.rewards for row in rewards.tolist()]
    if missing == "none":
        assert set(lost) == {0}
    elif missing == "failures" or aggregation == "sum_then_normalize":
        assert set(lost) == {0, 3}
    else:
        assert set(lost) == {0, 1}
    if missing != "failures":
        assert calls == 2 * BATCH * len(RUBRIC)
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    names = {f"rewards/rubric.{name}/mean" for name in ("even", "digits", "long")}
    assert names | {"rubric/failed", "rubric/even"} <= logs[0].keys()
    assert logs[0]["rubric/failed"] == pytest.approx(sum(count == 3 for count in lost[:BATCH]) / BATCH) or (
        missing == "abstentions"
    )
    assert weights_of(trainer).ne(before).any()


def test_sum_of_the_parts_gives_the_advantages_of_the_weighted_sum(tmp_path: Path) -> None:
    advantages: list[list[float]] = []
    for is_split in (False, True):
        with served("none") as (_, reward):
            whole = RubricReward(RUBRIC, grader=PerCriterionGrader(reward.grader.judges[0], normalize=False))
            parts = reward.parts()
            trainer = make_trainer(
                tmp_path, "GRPO", parts if is_split else whole, per_device_train_batch_size=BATCH, max_steps=1,
                reward_weights=parts.weights if is_split else None,
            )  # fmt: skip
            step = Step(trainer)
            trainer.train()
            advantages += step.advantages
    # The weights of the parts are a ninth of those of the sum, and so is the deviation to which 1e-4 is added.
    assert advantages[0] == pytest.approx(advantages[1], abs=5e-3)


def test_outage_in_the_parts_ends_the_training_with_its_reason(tmp_path: Path) -> None:
    with OpenAIServer(lambda call: Reply(text="I would rather not answer.")) as server:
        judge = LMJudge("openai/mock", api_base=server.url)
        reward = RubricReward(RUBRIC, grader=PerCriterionGrader(judge, max_retries=0))
        with pytest.raises(JudgeOutage, match="grades failed"):
            make_trainer(tmp_path, "GRPO", reward.parts()).train()


def test_groups_that_overlap_in_the_asynchronous_trainer_are_judged_once_each_and_added_without_weights() -> None:
    """Its own computation gets the rewards, after the pickle that it sends to another process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the experimental package
        module: Any = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
    pytest.importorskip("accelerate").PartialState()  # its logger needs the state
    with served("none") as (server, reward):
        parts = pickle.loads(pickle.dumps(reward.parts()))
        worker = SimpleNamespace(
            reward_funcs=parts, reward_func_names=[part.__name__ for part in parts], _env_reward_types=[],
            _provides_rollout_reward=False,
        )  # fmt: skip

        def group_of(number: int) -> Any:
            texts = [f"{number // 2} answer {index}" for index in range(GROUP)]  # each batch exists twice
            sequence = SimpleNamespace(input_ids=[1], completion_mask=[1], old_log_probs=[0.0])
            return module.RolloutGroup(
                prompts=[[{"role": "user", "content": "6 x 7?"}]] * GROUP,
                reward_kwargs={}, completions=[[{"role": "assistant", "content": text}] for text in texts],
                completions_ids=[[1]] * GROUP, completions_sequences=[[sequence]] * GROUP,
                tool_call_counts=[0] * GROUP, tool_failure_counts=[0] * GROUP, model_version=0, group_id=number,
                env_rewards=[None] * GROUP, rollout_rewards=[None] * GROUP,
            )  # fmt: skip

        async def score_all() -> list[Any]:
            score = module._AsyncRolloutLoop._score_group
            return await asyncio.gather(*(score(worker, group_of(number)) for number in range(10)))

        groups = asyncio.run(score_all())
        assert len(server.calls) == 10 * GROUP * len(RUBRIC)
    for sample in (sample for group in groups for sample in group):
        rewards = [sample.metrics[f"rewards/rubric.{name}"] for name in ("even", "digits", "long")]
        assert sample.metrics["reward"] == sum(rewards)


def test_pickled_parts_are_judged_once_by_the_trainer(tmp_path: Path) -> None:
    """The asynchronous trainer sends reward functions to another process."""
    with served("none") as (server, reward):
        parts = pickle.loads(pickle.dumps(reward.parts()))
        trainer = make_trainer(tmp_path, "GRPO", parts, reward_weights=parts.weights, max_steps=1)
        trainer.train()
        assert len(server.calls) == 8 * len(RUBRIC)
