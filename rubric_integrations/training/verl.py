"""The reward function of verl (tested with 0.9.1): `reward.custom_reward_function` names a file with `compute_score`.

Each reward worker of verl loads this file and calls the function once for each sample.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from rubric_integrations.formats.rubric_like import RubricLike
from rubric_integrations.results.outcomes import outcomes_of
from rubric_integrations.results.report import JudgeError
from rubric_integrations.submission.thinking import split_completion
from rubric_integrations.submission.values import value_text
from rubric_integrations.training.sample_grader import DEFAULT_CONCURRENCY, SampleGrader

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import JudgeLike

ComputeScore = Callable[..., Awaitable[dict[str, float | None]]]


def verl_reward(
    rubric: RubricLike,
    judge: JudgeLike | None = None,
    *,
    grader: Grader | None = None,
    normalize: bool = True,
    empty: float | Literal["least"] = "least",
    ledger: str | PathLike[str] | None = None,
    max_concurrency: int = DEFAULT_CONCURRENCY,
    query_key: str = "query",
    starts_in_thinking: bool = False,
) -> ComputeScore:
    """Return an asynchronous `compute_score` for verl, which grades each sample by a rubric.

    It returns a dictionary with the same keys for every sample: `score`, which is the reward; `rubric/coverage`, the
    share in [0, 1] of the weights that was assessed; and `rubric.<criterion>`, in [0, 1], where higher is better also
    for penalties. A criterion without a verdict has None, which verl leaves out of its validation metrics.

    If the judge fails, or abstains so that the score is undefined, the function raises a `JudgeError`, so that verl
    trains without the sample. Keep `reward.reward_manager.name=naive` (the default): the manager `rate_limited` would
    make 0.0 of it, and `remote` refuses asynchronous functions.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary. A file is read now, in each worker: on
            several machines, name it by an absolute path.
        judge: What judges the criteria, such as a model name. Pass either `judge` or `grader`.
        grader: A configured grader, with settings and limits of its own.
        normalize: Whether rewards are in [0, 1]; if not, they are raw weighted sums. For `judge` only.
        empty: The reward of a completion without an answer. By default (`"least"`) the lowest reward that the rubric
            allows: 0, or with raw scores the sum of the negative weights.
        ledger: The path of a file, for all workers of one machine, or the URL of a PostgreSQL database, where
            judgments are stored and not requested a second time.
        max_concurrency: The largest number of concurrent calls of each reward worker, at least 1; verl starts 8 workers
            (`reward.num_workers`). For `judge` only.
        query_key: The key of the task in the column `extra_info`: a text or messages. Without it, the judge sees no
            task. The reference is the `ground_truth`, unless it is empty.
        starts_in_thinking: Whether the chat template ends the prompt with `<think>`, so that the policy writes only the
            end of its thinking: a completion without `</think>` has no answer then.

    Raises:
        RubricError: The rubric or its file is invalid.
        TypeError: `ledger` is an open ledger.
        ValueError: Neither or both of `judge` and `grader` are passed, or a setting is out of range or does not go with
            `grader`.

    Example:
        >>> import asyncio
        >>> compute_score = verl_reward([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}], "offline")
        >>> asyncio.run(compute_score(data_source="sums", solution_str="It is 42.", ground_truth=""))
        {'score': 1.0, 'rubric/coverage': 1.0, 'rubric.c1': 1.0}
    """
    samples = SampleGrader(
        rubric, judge, grader=grader, normalize=normalize, empty=empty, ledger=ledger, max_concurrency=max_concurrency
    )
    # verl awaits coroutine functions and partial functions of them, but no other callables. A partial function can be
    # pickled, which a function within this one could not.
    return partial(_compute_score, samples, query_key, starts_in_thinking)


async def _compute_score(
    samples: SampleGrader,
    query_key: str,
    starts_in_thinking: bool,
    /,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    # A reward model and `reward_kwargs` of the configuration add further arguments.
    **_more: Any,
) -> dict[str, float | None]:
    query = _text((extra_info or {}).get(query_key))
    try:
        completion = split_completion(solution_str, starts_in_thinking)
        score, report = await samples.grade(completion, query, _text(ground_truth))
    except JudgeError as error:
        raise JudgeError(
            f"no reward for a sample of {data_source!r}: {error}. Keep the reward manager `naive`, which gives this "
            "sample no reward; `rate_limited` would take 0.0 for it",
            error.report,
        ) from error
    outcomes = {outcome.name: outcome.score for outcome in outcomes_of(report)} if report else {}
    names = [f"rubric.{key}" for key in samples.rubric.keys]
    coverage = report.coverage if report else 0.0
    return {"score": score, "rubric/coverage": coverage, **{name: outcomes.get(name) for name in names}}


def _text(value: Any) -> str | None:
    # The columns of a Parquet file hold lists, such as messages, as arrays.
    return value_text(value.tolist() if hasattr(value, "tolist") else value) or None
