"""The reward function of OpenRLHF (tested with 0.11.2), for the file that `--reward.remote_url` names.

Each vLLM engine of OpenRLHF loads this file and calls its `reward_func` in threads, once for each sample.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.graders.endpoint import JudgeOutage
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.submission.messages import value_text
from rubric_integrations.submission.thinking import response_of
from rubric_integrations.training.sample_grader import NO_REWARD, EmptyReward, FailureLimit, Reward, SampleGrader

RewardFunc = Callable[[Sequence[str], Sequence[str], Sequence[Any]], dict[str, Any]]


def openrlhf_reward(
    rubric: RubricLike,
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    ledger: LedgerLike | None = None,
    normalize: bool = True,
    limits: CallLimits | None = None,
    empty: EmptyReward = "least",
    failed: Literal["raise", "nan"] = "raise",
    max_failures: int = 64,
) -> RewardFunc:
    """Return a `reward_func(queries, prompts, labels)` for OpenRLHF that grades each response by a rubric.

    OpenRLHF passes the prompt and the response together as the query. The response is the part after the prompt,
    without special tokens at the end. The judge sees the prompt as the task. A label that is not empty is the reference
    answer.

    The function returns a dictionary with these keys. Each value is a number for one sample, as OpenRLHF calls the
    function, or a list for several samples.

    - `rewards` and `scores`: the reward.
    - `extra_logs`: a dictionary with the same keys for every sample. `rubric/coverage` is the share of the weights that
      was assessed, in [0, 1]. `rubric.<criterion>` is the score of a criterion in [0, 1], where higher is better, also
      for penalties. The score is NaN for a criterion without a verdict.

    A failure raises a `JudgeOutage`, which ends the training run. OpenRLHF would only log other exceptions at the level
    INFO and stop later with another error. With `failed="nan"` and `--algo.dynamic_filtering_enable`, OpenRLHF drops
    the group of a failed sample and takes another prompt.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary. Each engine reads the file when it calls
            this function. For several machines, pass an absolute path.
        judge: The judge of the criteria, such as a model name. Pass either `judge` or `grader`.
        grader: A grader with its own settings and limits.
        ledger: A ledger that stores judgments. Stored judgments are not requested again. Pass the path of a file for
            all engines of one machine, the URL of a PostgreSQL database, or an open ledger.
        normalize: Whether rewards are in [0, 1]. If not, rewards are raw weighted sums. Only with `judge`.
        empty: The reward of a response without an answer. By default (`"least"`), this is the lowest reward that the
            rubric allows: 0, or with raw scores the sum of the negative weights.
        limits: The limits on the calls of each vLLM engine, by default `CallLimits()`. Only with `judge`.
        failed: The behaviour if the judge fails, or if its abstentions leave the score undefined. `"raise"` ends the
            training run. `"nan"` returns NaN. Use `"nan"` only with dynamic filtering. Without dynamic filtering, NaN
            would enter the advantages of all samples.
        max_failures: With `failed="nan"`, the number of consecutive failures that ends the training run, at least 1.
            Without this limit, OpenRLHF would replace groups until no prompts are left.

    Raises:
        RubricError: The rubric or its file is invalid.
        ValueError: Neither or both of `judge` and `grader` are passed, a setting is out of range, or a setting cannot
            be combined with `grader`.

    Example:
        >>> reward_func = openrlhf_reward([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}], "offline")
        >>> reward_func(["User: 6 x 7? Assistant: It is 42.</s>"], ["User: 6 x 7? Assistant:"], [""])["rewards"]
        1.0
    """
    if failed not in ("raise", "nan"):
        raise ValueError(f"`failed` must be 'raise' or 'nan', got {failed!r}: no number can stand for a failure")
    samples = SampleGrader(
        rubric, judge, grader=grader, ledger=ledger, normalize=normalize, limits=limits, empty=empty,
        host="openrlhf_reward",
    )  # fmt: skip
    return _RewardFunction(samples, failed == "nan", FailureLimit(max_failures))


class _RewardFunction:
    """The reward function. It is an object because it counts failures and must be picklable."""

    def __init__(self, samples: SampleGrader, failed_is_nan: bool, failures: FailureLimit):
        self._samples, self._failed_is_nan, self._failures = samples, failed_is_nan, failures

    def __call__(self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
        try:
            rows = list(zip(queries, prompts, labels, strict=True))
            results = run_sync(self._grade_all(rows))
        except Exception as error:
            raise JudgeOutage(f"no reward: {error}. The run ends here: OpenRLHF cannot train without it") from error
        rewards = [result.score for result in results]
        logs = [self._logs(result) for result in results]
        one = len(results) == 1
        extra_logs = logs[0] if one else {name: [log[name] for log in logs] for name in self._logs(NO_REWARD)}
        return {
            "rewards": rewards[0] if one else rewards,
            "scores": rewards[0] if one else list(rewards),
            "extra_logs": extra_logs,
        }

    async def _grade_all(self, rows: Sequence[tuple[str, str, Any]]) -> Sequence[Reward]:
        return await asyncio.gather(*(self._grade(*row) for row in rows))

    async def _grade(self, query: str, prompt: str, label: Any) -> Reward:
        """Grade one sample. A failure of the judge is NaN, until too many samples in a row have failed."""
        try:
            response = response_of(query, prompt)
        except ValueError as error:
            raise ValueError(
                f"a query cannot be graded: {error}. OpenRLHF cuts a prompt that is too long: raise `--data.max_len`, "
                f"lower `--rollout.max_new_tokens` or leave such prompts out; it begins with {query[:60]!r}"
            ) from None
        grade = self._samples.grade(response, prompt, value_text(label))
        return await (self._failures.reward(grade) if self._failed_is_nan else grade)

    def _logs(self, reward: Reward) -> dict[str, float | None]:
        # OpenRLHF converts these values to tensors, and needs the same names for each sample.
        return self._samples.metrics(reward, no_verdict=math.nan, no_answer=math.nan)
