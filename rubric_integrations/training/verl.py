"""The reward function of verl (tested with 0.9.1), for the file that `reward.custom_reward_function` names.

Each reward worker of verl loads this file and calls its `compute_score` once for each sample.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rubric_integrations._host import check_fields, column_of
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.scoring.policies import CannotAssess
from rubric_integrations.scoring.report import JudgeError
from rubric_integrations.submission.messages import NO_FIELDS, Fields
from rubric_integrations.submission.thinking import split_completion
from rubric_integrations.training.reward_parts import refuse_grader, refuse_rubric, score_of_criterion
from rubric_integrations.training.sample_grader import EmptyReward, SampleGrader, column_text

ComputeScore = Callable[..., Awaitable[dict[str, float | None]]]


def verl_reward(
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
    gdpo: bool = False,
) -> ComputeScore:
    """Return an asynchronous `compute_score` for verl that grades each sample by a rubric.

    The function returns a dictionary with the same keys for every sample:

    - `score`: the reward.
    - `rubric/coverage`: the share of the weights that was assessed, in [0, 1].
    - `rubric.<criterion>`: the score of a criterion in [0, 1], where higher is better, also for penalties. The score is
      None for a criterion without a verdict. verl leaves None out of its validation metrics.

    If the judge fails, or if its abstentions leave the score undefined, the function raises a `JudgeError`. verl then
    trains without the sample. Keep `reward.reward_manager.name=naive` (the default), because the manager `rate_limited`
    would use the reward 0.0, and `remote` refuses asynchronous functions.

    For verl's GDPO, set `gdpo=True` and list the criteria in `+algorithm.gdpo_reward_keys`. verl normalizes each
    criterion within its group, and a single None would make the advantages of the whole batch NaN
    (`compute_gdpo_outcome_advantage` in `verl.trainer.ppo.core_algos`). verl's default trainer does not pass the
    criteria on (`verl.trainer.ppo.v1.trainer_base`, line 1745) and fails with `KeyError: 'prompts'`. Set
    `trainer.use_v1=False`. In that trainer, a failed sample ends the training run.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary. Each worker reads the file when it calls
            this function. For several machines, pass an absolute path.
        judge: The judge of the criteria, such as a model name. Pass either `judge` or `grader`.
        grader: A grader with its own settings and limits.
        ledger: A ledger that stores judgments. Stored judgments are not requested again. Pass the path of a file for
            all workers of one machine, the URL of a PostgreSQL database, or an open ledger.
        normalize: Whether rewards are in [0, 1]. If not, rewards are raw weighted sums. Only with `judge`.
        empty: The reward of a completion without an answer. By default (`"least"`), this is the lowest reward that the
            rubric allows: 0, or with raw scores the sum of the negative weights.
        limits: The limits on the calls of each reward worker, by default `CallLimits()`. verl starts 8 workers
            (`reward.num_workers`). Only with `judge`.
        fields: `fields.query` is the key of the task in the column `extra_info`, by default `"query"`. The task is a
            text or a list of messages. Without a task, the judge sees only the response. If the `ground_truth` is not
            empty, it is the reference answer.
        starts_in_thinking: Whether the chat template ends the prompt with `<think>`. The policy then writes only the
            end of its thinking, and a completion without `</think>` has no answer.
        gdpo: Whether each criterion must have a number. The function then raises a `JudgeError` for a criterion without
            a verdict, also if the score is defined. With a `grader` whose `cannot_assess` is not `"skip"`, an
            abstention is a number instead. Each criterion of a completion without an answer is 0.

    Raises:
        RubricError: The rubric or its file is invalid.
        ValueError: Neither or both of `judge` and `grader` are passed, a setting is out of range, a setting cannot be
            combined with `grader`, or with `gdpo` the score is not a weighted sum over the criteria.

    Example:
        >>> import asyncio
        >>> compute_score = verl_reward([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}], "offline")
        >>> asyncio.run(compute_score(data_source="sums", solution_str="It is 42.", ground_truth=""))
        {'score': 1.0, 'rubric/coverage': 1.0, 'rubric.c1': 1.0}
    """
    check_fields("verl_reward", fields, "query")
    samples = SampleGrader(
        rubric, judge, grader=grader, ledger=ledger, normalize=normalize, limits=limits, empty=empty, host="verl_reward"
    )
    if gdpo:
        refuse_rubric(samples.rubric, "gdpo")
        if grader:
            refuse_grader(grader, "gdpo")
    policy = (grader.policies.cannot_assess if grader else "skip") if gdpo else None
    # verl awaits only coroutine functions and partial functions of them. Unlike a nested function, a partial function
    # can be pickled.
    return partial(_compute_score, samples, column_of(fields, "query"), starts_in_thinking, policy)


async def _compute_score(
    samples: SampleGrader,
    query_key: str,
    starts_in_thinking: bool,
    gdpo_policy: CannotAssess | None,
    /,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    # A reward model and `reward_kwargs` of the configuration add further arguments.
    **_more: Any,
) -> dict[str, float | None]:
    """Grade one sample, and return its score with the scores of the criteria, as verl expects."""
    query = column_text((extra_info or {}).get(query_key))
    try:
        completion = split_completion(solution_str, starts_in_thinking)
        reward = await samples.grade(completion, query, column_text(ground_truth))
        metrics = samples.metrics(reward, no_answer=None if gdpo_policy is None else 0.0)
        if gdpo_policy is not None and reward.report:
            metrics |= {f"rubric.{row.name}": score_of_criterion(row, gdpo_policy) for row in reward.report.criteria}
            if missing := [name for name, value in metrics.items() if value is None]:
                raise JudgeError(f"there is no verdict on {missing!r}, which GDPO needs", reward.report)
    except JudgeError as error:
        raise JudgeError(
            f"no reward for a sample of {data_source!r}: {error}. Keep the reward manager `naive`, which gives this "
            "sample no reward; `rate_limited` would take 0.0 for it",
            error.report,
        ) from error
    return {"score": reward.score, **metrics}
