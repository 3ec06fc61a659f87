"""Grades single completions, for trainers that call a reward function with one sample at a time.

The adapters of these trainers share the limit of failures and the normalization of rewards within groups.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Hashable, Sequence
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from rubric_integrations._host import HostGrader
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.graders.grader import refuse_made_up_scores
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.length import least_score
from rubric_integrations.scoring.report import EvaluationReport, JudgeError, outcomes_of
from rubric_integrations.submission.messages import value_text
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.thinking import SplitResponse, split_completion

EmptyReward = float | Literal["least"]
"""The reward of a completion without an answer: a number, or the lowest reward that the rubric allows."""

_logger = logging.getLogger(__name__)


class Reward(NamedTuple):
    """The reward of one completion.

    Attributes:
        score: The reward. For a graded completion, the score of the report. For an empty completion, the value that the
            setting `empty` defines. NaN if the grade failed.
        report: The report, or None for an empty completion, which is not graded, and for a failed grade.
    """

    score: float
    report: EvaluationReport | None


NO_REWARD = Reward(math.nan, None)
"""The reward of a completion whose grade failed, for trainers that leave NaN out."""


class SampleGrader:
    """Grades completions with one grader for each process, which is created for the first completion.

    A pickle contains the settings and not the grader. Therefore, each process of a trainer has its own concurrency
    limit, and reads API keys from its own environment.

    Args:
        rubric: A `Rubric`, the path of a rubric file, a list or a dictionary. A file is read at construction.
        judge: The judge of the criteria, such as a model name. Pass either `judge` or `grader`.
        grader: A grader with its own settings and limits.
        ledger: A ledger that stores judgments. Stored judgments are not requested again. Pass the path of a file for
            all processes of one machine, the URL of a PostgreSQL database, or an open ledger, which other processes
            open again by its path or URL.
        normalize: Whether rewards are in [0, 1]. If not, rewards are raw weighted sums. Only with `judge`.
        limits: The limits on the calls of each process, by default `CallLimits()`. Only with `judge`.
        empty: The reward of a completion without an answer. By default (`"least"`), this is the lowest reward that the
            rubric allows: 0, or with raw scores the sum of the negative weights.
        host: The public name that error messages contain, such as `verl_reward`.

    Attributes:
        rubric: The rubric.
        empty: The reward of a completion without an answer.

    Raises:
        RubricError: The rubric or its file is invalid.
        ValueError: Neither or both of `judge` and `grader` are passed, a setting is out of range, a setting cannot be
            combined with `grader`, or the grader has a fallback for failures or `stop_when_decided`.

    Example:
        >>> samples = SampleGrader([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}], "offline")
        >>> [samples.grade_sync(text).score for text in ("It is 42.", "It is 41.", "")]
        [1.0, 0.0, 0.0]
    """

    def __init__(
        self,
        rubric: RubricLike,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
        normalize: bool = True,
        limits: CallLimits | None = None,
        empty: EmptyReward = "least",
        host: str = "SampleGrader",
    ):
        self._grader = HostGrader(host, judge, grader, ledger, normalize=normalize, limits=limits, opens_late=True)
        check_empty(empty)
        if grader:
            refuse_made_up_scores(grader)
        self.rubric: Rubric = as_rubric(rubric)
        least = grader.least_score(self.rubric) if grader else least_score(self.rubric, normalize=normalize)
        self.empty = least if empty == "least" else float(empty)
        self._is_checked = False

    async def grade(self, completion: str | SplitResponse, query: Any = None, reference: Any = None) -> Reward:
        """Grade one completion. The judge does not see the thinking before the answer.

        A completion is empty if it has no text after its thinking, or if it ends within its thinking. Its reward is
        then the `empty` reward of this grader.

        Args:
            completion: The policy's text after the prompt. If the thinking is already separate, pass a `SplitResponse`.
                The `output` of the `SplitResponse` is graded unchanged, even if it contains a thinking marker.
            query: The task as a text or a list of messages. None or an empty text for no task.
            reference: A reference answer, as a text or a list of messages, or None.

        Raises:
            JudgeError: The judge failed on a criterion, or its abstentions leave the score undefined.
            ValueError: The completion is too long, or the query or the reference cannot be read.
        """
        from rubric_integrations.submission.inputs import as_submission

        parts = split_completion(completion) if isinstance(completion, str) else completion
        if not parts.output.strip():
            return Reward(self.empty, None)
        fields = {"thinking": parts.thinking, "output": parts.output}
        submission: Submission = as_submission(fields, query or None, reference or None)
        submission = submission.model_copy(update={"hide_thinking": True})
        report = await self._checked_grader().grade(self.rubric, submission)
        if report.score is None:
            raise JudgeError(
                f"the score is undefined, because the judge abstained on {report.cannot_assess_count} criteria", report
            )
        return Reward(report.score, report)

    def grade_sync(self, completion: str | SplitResponse, query: Any = None, reference: Any = None) -> Reward:
        """Grade one completion like `grade`, for a synchronous caller, such as a trainer that calls it in threads.

        Raises:
            JudgeError: As in `grade`.
            ValueError: As in `grade`.
        """
        return run_sync(self.grade(completion, query, reference))

    def metrics(
        self, reward: Reward, no_verdict: float | None = None, no_answer: float | None = None
    ) -> dict[str, float | None]:
        """Return the metrics of a reward, with the same names for every completion.

        - `rubric/coverage`: the share of the weights that was assessed, in [0, 1].
        - `rubric.<criterion>`: the score of a criterion in [0, 1], where higher is better, also for penalties.

        The coverage of a reward that is NaN is NaN, and each criterion is then without a verdict.

        Args:
            reward: The reward.
            no_verdict: The value of a criterion without a verdict.
            no_answer: The value of each criterion of an empty completion.

        Example:
            >>> samples = SampleGrader([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}], "offline")
            >>> samples.metrics(Reward(0.0, None))
            {'rubric/coverage': 0.0, 'rubric.c1': None}
        """
        names = [f"rubric.{key}" for key in self.rubric.keys]
        if math.isnan(reward.score):
            return {"rubric/coverage": math.nan, **dict.fromkeys(names, no_verdict)}
        if reward.report is None:
            return {"rubric/coverage": 0.0, **dict.fromkeys(names, no_answer)}
        scores = {outcome.name: outcome.score for outcome in outcomes_of(reward.report)}
        values = {name: no_verdict if scores.get(name) is None else scores[name] for name in names}
        return {"rubric/coverage": reward.report.coverage, **values}

    def _checked_grader(self) -> Grader:
        grader = self._grader()
        if not self._is_checked:
            grader.check_rubric(self.rubric)
            self._is_checked = True
        return grader


class FailureLimit:
    """Ends a training run whose samples fail one after the other, because it would continue without rewards.

    Concurrent failures of several threads may be counted as one failure. The run then ends slightly later.

    Args:
        max_failures: The number of consecutive failures that ends the run, at least 1.

    Raises:
        ValueError: `max_failures` is below 1.
    """

    def __init__(self, max_failures: int):
        if max_failures < 1:
            raise ValueError(f"`max_failures` must be at least 1, got {max_failures!r}")
        self._max_failures, self._failures = max_failures, 0

    def count(self, error: Exception | None) -> None:
        """Count a failure, or with None a success.

        Raises:
            ValueError: This is the last of `max_failures` consecutive failures.
        """
        self._failures = self._failures + 1 if error else 0
        if self._failures >= self._max_failures:
            raise ValueError(f"{self._failures} samples in a row failed, the last one because {error}") from error

    async def reward(self, grade: Awaitable[Reward], failure: type[ValueError] = JudgeError) -> Reward:
        """Return the reward of a grade, or `NO_REWARD` if it failed, and count both.

        Args:
            grade: The grade, such as `SampleGrader.grade(...)`.
            failure: The errors that are a failed grade. Others are raised.

        Raises:
            ValueError: This is the last of `max_failures` consecutive failures.
        """
        try:
            reward = await grade
        except failure as error:
            self.count(error)
            _logger.warning("a sample has no reward: %s", error)
            return NO_REWARD
        self.count(None)
        return reward


def normalize_in_groups(rewards: Sequence[float], groups: Sequence[Hashable], *, is_scaled: bool) -> list[float]:
    """Subtract from each reward the mean of its group. A reward that is NaN counts in no mean, and its result is 0.

    Args:
        rewards: The rewards.
        groups: The group of each reward.
        is_scaled: Whether to divide by the standard deviation of the group (with n - 1) plus 1e-6, as GRPO does. A
            group with a single reward is not divided.

    Example:
        >>> normalize_in_groups([1.0, 0.0, math.nan, 3.0], ["a", "a", "a", "b"], is_scaled=False)
        [0.5, -0.5, 0.0, 0.0]
    """
    indices_of_groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        if not math.isnan(reward):
            indices_of_groups[group].append(index)
    normalized = [0.0] * len(rewards)
    for indices in indices_of_groups.values():
        values = [rewards[index] for index in indices]
        mean, scale = fmean(values), stdev(values) + 1e-6 if is_scaled and len(values) > 1 else 1.0
        for index in indices:
            normalized[index] = (rewards[index] - mean) / scale
    return normalized


def check_empty(empty: object) -> None:
    """Check the setting for the reward of an empty completion, because trainers need a finite number.

    Raises:
        ValueError: The value is neither `"least"` nor a finite number.
    """
    is_number = isinstance(empty, int | float) and not isinstance(empty, bool) and math.isfinite(empty)
    if empty != "least" and not is_number:
        raise ValueError(f"`empty` must be a finite number or 'least', got {empty!r}: trainers compute with it")


def column_text(value: object) -> str | None:
    """Return the value of a dataset's column as a text, or None if the text is empty.

    The columns of a Parquet file contain lists, such as messages, as arrays.
    """
    values: Any = value
    return value_text(values.tolist() if hasattr(values, "tolist") else values) or None
