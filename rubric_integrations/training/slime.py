"""The reward model of slime and miles, for the function that `--custom-rm-path` names.

It was written from the sources of slime (commit 624b824a) and miles (31f1ca96) of 21 August 2026. Both await the
function with one sample, or with a list of samples for `--group-rm` (`async_rm` and `batched_async_rm` in their package
`rollout.rm_hub`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rubric_integrations._host import check_fields, column_of
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.graders.endpoint import JudgeOutage
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.submission.messages import NO_FIELDS, Fields
from rubric_integrations.submission.thinking import response_of, split_completion
from rubric_integrations.training.sample_grader import (
    NO_REWARD,
    EmptyReward,
    FailureLimit,
    SampleGrader,
    column_text,
    normalize_in_groups,
)

RewardModel = Callable[[Any, Any], Awaitable[Any]]


def slime_reward(
    rubric: RubricLike,
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    ledger: LedgerLike | None = None,
    normalize: bool = True,
    limits: CallLimits | None = None,
    fields: Fields = NO_FIELDS,
    empty: EmptyReward = "least",
    starts_in_thinking: bool = False,
    max_failures: int = 64,
) -> RewardModel:
    """Return an asynchronous `rm(args, sample)` for slime and miles that grades each sample by a rubric.

    Pass two functions to the trainer: the module and name of the returned function as `--custom-rm-path`, and
    `--custom-reward-post-process-path rubric_integrations.training.slime.normalize_rewards`.

    - The reward is a number. With `--reward-key`, it is a dictionary with the keys `score`, `rubric/coverage` and
      `rubric.<criterion>`: the score of a criterion in [0, 1], where higher is better, also for penalties. The score is
      NaN for a criterion without a verdict, and 0 for each criterion of a response without an answer.
    - If the grade fails, or if abstentions leave the score undefined, the reward is NaN, and the sample is removed
      (`sample.remove_sample`), which excludes it from the loss. `normalize_rewards` excludes it from the mean of its
      group. Without this function, NaN would reach the advantages of the whole group. Therefore, the reward function
      refuses a training run without a `--custom-reward-post-process-path`. NaN makes the mean of an evaluation, and the
      metric `raw_reward` of a step, NaN: the trainers cannot leave a sample out of them.
    - A `JudgeOutage` ends the run after `max_failures` failures in a row, or if the grades cannot be used at all.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary. The file is read when this function is
            called.
        judge: The judge of the criteria, such as a model name. Pass either `judge` or `grader`.
        grader: A grader with its own settings and limits.
        ledger: A ledger that stores judgments. Stored judgments are not requested again. Pass the path of a file, the
            URL of a PostgreSQL database, or an open ledger.
        normalize: Whether rewards are in [0, 1]. If not, rewards are raw weighted sums. Only with `judge`.
        limits: The limits on the calls of this process, by default `CallLimits()`. Only with `judge`.
        fields: `fields.query` is the key of the task in the `metadata` of a sample, by default `"query"`. Without such
            an entry, the task is the prompt of the sample. The `label`, if it is not empty, is the reference answer.
        empty: The reward of a response without an answer. By default (`"least"`), this is the lowest reward that the
            rubric allows: 0, or with raw scores the sum of the negative weights.
        starts_in_thinking: Whether the chat template ends the prompt with `<think>`. For a prompt that is a text, this
            is detected.
        max_failures: The number of consecutive failures that ends the training run, at least 1. Without this limit, the
            run would continue without rewards as long as the judge is down.

    Raises:
        RubricError: The rubric or its file is invalid.
        ValueError: Neither or both of `judge` and `grader` are passed, a setting is out of range, or a setting cannot
            be combined with `grader`.

    Example:
        >>> from types import SimpleNamespace as Namespace
        >>> path = "rubric_integrations.training.slime.normalize_rewards"
        >>> args = Namespace(reward_key=None, custom_reward_post_process_path=path)
        >>> sample = Namespace(prompt="6 x 7?", response="It is 42.</s>", label="", metadata={}, remove_sample=False)
        >>> rm = slime_reward([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}], "offline")
        >>> asyncio.run(rm(args, sample)), asyncio.run(rm(args, [sample, sample]))
        (1.0, [1.0, 1.0])
    """
    check_fields("slime_reward", fields, "query")
    samples = SampleGrader(
        rubric, judge, grader=grader, ledger=ledger, normalize=normalize, limits=limits, empty=empty,
        host="slime_reward",
    )  # fmt: skip
    return _RewardModel(samples, column_of(fields, "query"), starts_in_thinking, FailureLimit(max_failures))


class _RewardModel:
    """The reward function. It is an object because it counts failures and must be picklable."""

    def __init__(self, samples: SampleGrader, query_key: str, starts_in_thinking: bool, failures: FailureLimit):
        self._samples, self._query_key, self._starts_in_thinking = samples, query_key, starts_in_thinking
        self._failures = failures

    async def __call__(self, args: Any, sample: Any) -> Any:
        group: list[Any] = sample if isinstance(sample, list) else [sample]
        key = getattr(args, "reward_key", None)  # `replay_reward_fn` of miles passes None for the arguments
        try:
            if args is not None and not args.custom_reward_post_process_path:
                raise ValueError(f"set `--custom-reward-post-process-path`, such as to {_NORMALIZE!r}")
            if key and key not in (names := ["score", *self._samples.metrics(NO_REWARD)]):
                raise ValueError(f"`--reward-key` is {key!r}, which is none of {names!r}: correct it")
            rewards = await asyncio.gather(*(self._reward(each, key) for each in group))
        except Exception as error:
            # An `Exception` would not end the run: the trainers' asynchronous rollouts log it and take another prompt
            # (`generate_rollout_async` in miles, `fully_async_rollout` in slime), without end.
            raise JudgeOutage(f"no reward: {error}. The run ends here: it cannot train without rewards") from error
        return rewards if isinstance(sample, list) else rewards[0]

    async def _reward(self, sample: Any, key: str | None) -> float | dict[str, float | None]:
        """Return the score of a sample, or with a key also its metrics. Without a reward, the sample is removed."""
        prompt: str = sample.prompt if isinstance(sample.prompt, str) else ""
        # The response ends with special tokens, unless `--rollout-skip-special-tokens` is set.
        completion = split_completion(response_of(prompt + sample.response, prompt), self._starts_in_thinking)
        query = column_text((sample.metadata or {}).get(self._query_key)) or sample.prompt
        grade = self._samples.grade(completion, query, column_text(sample.label))
        reward = await self._failures.reward(grade, ValueError)
        values = {"score": reward.score, **self._samples.metrics(reward, no_verdict=math.nan, no_answer=0.0)}
        sample.remove_sample = sample.remove_sample or math.isnan(values[key or "score"] or 0.0)
        return values if key else reward.score


_NORMALIZE = "rubric_integrations.training.slime.normalize_rewards"
# The estimators that subtract the mean of the group, and those that also divide by its standard deviation.
_SCALED = ("grpo", "gspo", "cispo")
_CENTERED = (*_SCALED, "reinforce_plus_plus_baseline")


def normalize_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Normalize the rewards within each group, as slime and miles do, but without the samples whose reward is NaN.

    Name this function as `--custom-reward-post-process-path`. Without NaN, its result is the result of
    `_post_process_rewards` in `miles.ray.rollout.train_data_conversion` and `slime.ray.rollout`.

    Args:
        args: The arguments of the training run.
        samples: The samples of a step, with their rewards.

    Returns:
        The rewards, which the trainer logs, and the normalized rewards. A sample whose reward is NaN is NaN in the
        first list. In the second list it is the mean of its group, which is 0, and `remove_sample` excludes it from the
        loss.

    Raises:
        ValueError: A reward is NaN, and the `--advantage-estimator` or `--disable-rewards-normalization` needs a reward
            for each sample.
    """
    rewards: list[float] = [sample.get_reward_value(args) for sample in samples]
    estimator = args.advantage_estimator
    if estimator in _CENTERED and args.rewards_normalization:
        size = args.n_samples_per_prompt  # of the blocks that are groups if the samples name none
        groups = [(each.group_index, each.group_index is None and index // size) for index, each in enumerate(samples)]
        is_scaled = estimator in _SCALED and args.grpo_std_normalization
        return rewards, normalize_in_groups(rewards, groups, is_scaled=is_scaled)
    if any(map(math.isnan, rewards)):
        raise ValueError(f"a sample has no reward, which {estimator!r} needs: use {_CENTERED!r} and normalize rewards")
    return rewards, list(rewards)
