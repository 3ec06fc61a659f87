"""The reward functions of ms-swift (written from the source of 4.6.0), for the file that `--external_plugins` names.

ms-swift constructs the entries of `swift.rewards.orms` that `--reward_funcs` names, and calls them once for each step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.graders.endpoint import JudgeOutage

RewardFunction = Callable[..., list[float | None]]


class BatchReward(Protocol):
    """An asynchronous reward function of TRL, such as a `RubricReward` or one of its `parts`.

    Attributes:
        __name__: The name of the reward.
    """

    __name__: str

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> Awaitable[list[float | None]]:
        """Return the reward of each completion, or None."""
        ...


def ms_swift_rewards(rewards: BatchReward | Sequence[BatchReward]) -> dict[str, Callable[..., RewardFunction]]:
    """Return entries for `swift.rewards.orms`, by the names of the rewards.

    Pass the names to `--reward_funcs`. They are also the names of the metrics, because each entry makes a function:
    ms-swift names an object by its class (`swift.rlhf_trainers.grpo_trainer`, line 2233).

    - ms-swift calls the function with the completions as the only positional argument, and with the columns of the
      dataset as lists (`swift.rl_core.grpo_algorithm`, line 65). The prompt is all `messages` before the completion.
    - The function is synchronous and grades in the event loop of this library. ms-swift would run an asynchronous
      function in a new event loop at each step (line 76), which would close its connections.
    - If a grade fails, the reward is None. ms-swift counts None as 0 (`swift.rl_core.advantage`, line 58), except with
      `--scale_rewards gdpo`, where it is the mean of its group (line 90). Therefore, a None ends the training with a
      `JudgeOutage`, unless ms-swift runs with `--scale_rewards gdpo` and without a multi-turn rollout server, whose
      samples are normalized in another way (line 140).

    Args:
        rewards: A `RubricReward`, or its `parts`, which share one grading.

    Raises:
        ValueError: Two rewards have the same name.

    Example:
        >>> from types import SimpleNamespace as Namespace
        >>> from rubric_integrations.training import RubricReward
        >>> reward = RubricReward([{"requirement": "Says 42", "check": {"number": 42}}], "offline")
        >>> orms = ms_swift_rewards(reward)
        >>> function = orms["rubric"](args=Namespace(scale_rewards="group"))
        >>> messages = [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "It is 42."}]
        >>> function.__name__, function(["It is 42."], messages=[messages], trainer_state=None)
        ('rubric', [1.0])
    """
    functions = rewards if isinstance(rewards, Sequence) else [rewards]
    names = [function.__name__ for function in functions]
    if len(set(names)) < len(names):
        raise ValueError(f"two of the rewards {names!r} have the same name: set `name`, or one would replace the other")
    return {name: partial(_reward_function, function) for name, function in zip(names, functions, strict=True)}


def _reward_function(reward: BatchReward, args: Any = None) -> RewardFunction:
    """Return the function that ms-swift calls. ms-swift passes its arguments, such as `scale_rewards`."""
    scale = getattr(args, "scale_rewards", None)

    def function(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        prompts = [messages[:-1] for messages in columns["messages"]]
        results = run_sync(_grade(reward, {**columns, "prompts": prompts, "completions": completions}))
        if None in results and (scale != "gdpo" or "trajectory_inputs" in columns):
            raise JudgeOutage(
                f"{results.count(None)} of {len(results)} completions have no reward, which ms-swift would count as 0 "
                f"with `--scale_rewards` {scale!r}. The training ends here: resume it from the last checkpoint, or use "
                "`--scale_rewards gdpo` without a multi-turn server, which gives them the mean of their group"
            )
        return results

    function.__name__ = reward.__name__
    return function


async def _grade(reward: BatchReward, columns: dict[str, Any]) -> list[float | None]:
    return await reward(**columns)
