"""The reward function of TRL: `GRPOTrainer(reward_funcs=RubricReward(rubric, "openai/gpt-5-mini"))`.

It grades the completions of a step, and writes the graded completions to a file.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from rubric_integrations._host import HostGrader, check_fields, column_of
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.graders.endpoint import JudgeOutage
from rubric_integrations.graders.grader import refuse_made_up_scores
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.runs.run import grade_many
from rubric_integrations.runs.summary import Graded
from rubric_integrations.submission.messages import NO_FIELDS, Fields, Respond, check_respond
from rubric_integrations.training.reward_parts import Aggregation, PartLayout, PartsBy, RewardParts, make_parts
from rubric_integrations.training.rollouts import (
    Rollout,
    RolloutFile,
    RolloutReader,
    StepLog,
    columns_of,
    metrics_of,
    rank,
)
from rubric_integrations.training.sample_grader import EmptyReward, check_empty

# With fewer grades, the share of failures is not reliable: a single failure could be 100 %.
_FEWEST_GRADES = 4
_NOT_PICKLED = ("_recent", "_calls", "_is_coroutine_mark")

_logger = logging.getLogger(__name__)


class RubricReward:
    """A reward function for TRL (`trl>=1.6`) that grades the completions of each training step against a rubric.

    It supports `GRPOTrainer`, `RLOOTrainer` and `AsyncGRPOTrainer`, and completions in the standard and the
    conversational format. If a completion is a list of messages, the last answer is graded. The earlier messages, tool
    calls and results are its context. The judge does not see thinking in `<think>`.

    - A completion has no answer if it is blank, if its thinking has no end, or if its last message is not the
      assistant's or has no text, for example only tool calls. Such a completion is not graded, and its reward is
      `empty`. With `respond="transcript"` or `"trajectory"`, messages are graded even if the last one has no answer.
    - If the grade fails, or if abstentions leave the score undefined, the reward is None. If no other reward function
      has a reward for the completion, TRL leaves it out of the mean of its group, and its advantage is 0. A number
      would train the policy to write completions on which judges fail.

    Each process of a training run has a copy of this object. Therefore, the judge gets up to `max_concurrency` calls
    from each process. A pickle contains the settings, but no connections or counts.

    TRL 1.14 and newer await this object. With an older TRL and Python 3.11, pass its method:
    `reward_funcs=reward.__call__`.

    Args:
        rubric: The rubric: a `Rubric`, the path of a rubric file, a list or a dictionary. If a row of the dataset has
            its own rubric in the column `rubric`, the row is graded by both. Pass None if every row has its own rubric.
            You can also pass a function that returns the rubric of a row. The function gets a dictionary with the
            `prompt`, the `completion` and all columns of the dataset.
        judge: The judge, as for a grader: a model name, a `dspy.LM`, an async function, a `Judge`, or `"offline"`.
        grader: A grader with its own settings, instead of `judge`.
        ledger: A ledger that stores judgments. A resumed training run does not request them again. Pass the path of a
            file for the processes of one machine, the URL of a PostgreSQL database for several machines, or an open
            ledger.
        normalize: Whether the reward is in [0, 1]. If not, it is the weighted sum. Only with `judge`.
        limits: The limits on the calls of this process, by default `CallLimits()`. Only with `judge`.
        fields: The names of two columns of the dataset. `reference` names the column of the reference answers, by
            default `"reference"`. `context` names the column of the documents, which are texts or lists of texts, by
            default `"context"`. A column with the default name may be missing. A column with another name must exist.
        respond: The part of messages to grade: `"last"` is the last answer, `"transcript"` is all messages of the
            completion, and `"trajectory"` is all messages with numbered steps.
        empty: The reward of a completion without an answer. By default (`"least"`), this is the lowest reward that the
            rubric allows: 0, or for a weighted sum the sum of the negative weights, minus the highest length penalty.
            None leaves such completions out of training.
        starts_in_thinking: Whether the chat template ends the prompt with `<think>`. The policy then writes only the
            end of its thinking, and a completion without `</think>` has no answer. This setting is needed only for
            conversational prompts, and only if TRL does not parse the thinking into `reasoning_content`.
        show_thinking: Whether the judge sees the thinking before the last answer, for criteria about the thinking. It
            must be False unless `respond` is `"last"`. The policy may learn to persuade the judge in its thinking, and
            each call needs more tokens. A length penalty also counts thinking that is hidden.
        stop_after: The largest tolerated share of failed grades in a step, in [0, 1]. If a larger share fails, a
            `JudgeOutage` ends the training. In a step with fewer than four grades, the grades of earlier steps also
            count. With 1, only a judge that cannot be used at all ends the training.
        record: The file to which each step appends its graded completions, for `rubric-integrations report` and
            `read_run`. Each process writes its own file. For `rollouts.jsonl`, the second process writes
            `rollouts.rank1.jsonl`. The `metadata` of a row contains `step`, `group` (equal for completions of one
            prompt), `rank` and `reward`.
        name: The name of the reward, and the prefix of the names of its metrics.

    Raises:
        ValueError: Neither or both of `judge` and `grader` are passed, a setting is unknown or out of range, or the
            grader has a fallback for failures or `stop_when_decided`.
        TypeError: `rubric` has a type from which no rubric can be read, or there is a `ledger` and the judge has no
            `fingerprint`.
        RubricError: The file or the data of `rubric` is not a rubric.

    Example:
        >>> import asyncio
        >>> from rubric_integrations import Rubric
        >>> rubric = Rubric.from_dict([{"requirement": "Says 42", "check": {"number": 42}}])
        >>> reward = RubricReward(rubric, "offline")
        >>> asyncio.run(reward(["6 x 7?"] * 3, ["It is 42.", "It is 41.", "<think>6 times 7 is"]))
        [1.0, 0.0, 0.0]
    """

    def __init__(
        self,
        rubric: RubricLike | RubricFunction | None = None,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        ledger: LedgerLike | None = None,
        normalize: bool = True,
        limits: CallLimits | None = None,
        fields: Fields = NO_FIELDS,
        respond: Respond = "last",
        empty: EmptyReward | None = "least",
        starts_in_thinking: bool = False,
        show_thinking: bool = False,
        stop_after: float = 0.5,
        record: str | PathLike[str] | None = None,
        name: str = "rubric",
    ):
        if isinstance(stop_after, bool) or not 0 <= stop_after <= 1:
            raise ValueError(f"`stop_after` must be a share from 0 to 1, got {stop_after!r}")
        if empty is not None:
            check_empty(empty)
        if not name:
            raise ValueError("`name` is empty: the metrics of the reward begin with it")
        check_respond(respond)
        if show_thinking and respond != "last":
            raise ValueError(
                f"`show_thinking` has no effect with `respond={respond!r}`, which leaves all thinking out: leave out "
                "`show_thinking`, or leave out `respond` to grade the last answer"
            )
        check_fields("RubricReward", fields, "reference", "context")
        # With a ledger, this refuses a judge without a fingerprint before the first step.
        opened = HostGrader("RubricReward", judge, grader, ledger, normalize=normalize, limits=limits)
        self.grader, self.store = opened.without_ledger, opened.store
        refuse_made_up_scores(self.grader)
        rubrics = RowRubrics(rubric)
        if rubrics.shared is not None:
            self.grader.check_rubric(rubrics.shared)
        self._reader = RolloutReader(
            rubrics, self.grader, empty, respond, column_of(fields, "reference"),
            column_of(fields, "context"), starts_in_thinking, show_thinking,
        )  # fmt: skip
        self._shared = rubrics.shared
        self._max_concurrency = self.grader.call_limiter.limits.concurrency
        self._stop_after = stop_after
        self._record = None if record is None else RolloutFile(record)
        self.__name__ = name
        self._start()

    async def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        trainer_state: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Grade the completions of one step. TRL calls this method.

        It logs the following metrics with the prefix `name`, by default `rubric`. They are the same in each process and
        step. A mean without values is NaN.

        - `rubric/failed` and `rubric/empty`: the share of completions whose grade failed, and the share without an
          answer.
        - `rubric/coverage` and `rubric/passed`: the mean coverage and the share of passed completions, among the graded
          completions.
        - `rubric/<criterion>`: the mean score of a criterion in [0, 1], where higher is better. For a penalty, 0 means
          that the error was made. Only the criteria of a rubric that all rows share have this metric.
        - `rubric/informative_criteria`: the share of criteria whose scores differ within a group, among the completions
          of this process. A criterion with equal scores in a group does not change the advantages in this step, but it
          is part of the reward.

        Args:
            prompts: The prompt of each completion, as a text or a list of messages. The completions of a group must be
                adjacent.
            completions: The completions, as texts or lists of messages.
            trainer_state: TRL's state. Its `global_step` is recorded.
            log_extra: A function that adds a column to TRL's table of completions: `rubric/error`, and a column for
                each criterion.
            log_metric: A function that logs a number.
            columns: The other columns of the dataset, each a list with a value for each completion.

        Returns:
            The reward of each completion, or None for a completion without a reward.

        Raises:
            JudgeOutage: More than the share `stop_after` of the grades failed, or the judge cannot be used.
            StoreError: The ledger cannot be written.
            ValueError: The numbers of prompts and completions differ, or the dataset has no column with a name in
                `fields`.
        """
        log = StepLog(trainer_state, log_extra, log_metric)
        rollouts = await self._run_step(prompts, completions, columns, log)
        return [rollout.reward for rollout in rollouts]

    def parts(self, by: PartsBy = "criterion", aggregation: Aggregation = "sum_then_normalize") -> RewardParts:
        """Return one reward function for each criterion, or for each group of criteria. They share one grading.

        Pass the list to a trainer as `reward_funcs`, and its `weights` as `reward_weights`. A step is graded once for
        all parts. `GRPOTrainer` and `RLOOTrainer` await the parts. `AsyncGRPOTrainer` ignores the weights, and
        `OnlineDPOTrainer` does not await reward functions.

        - The reward of a part is in [0, 1], and higher is better, also for penalties: the score of its criterion, or
          the mean of its criteria, weighted by the absolute weights. A part without a reward is None.
        - A weight is the sum of a part's absolute weights, divided by the sum of all positive weights. The weighted sum
          of the parts ranks completions as the reward with `normalize=False` does.
        - If the grade failed, all parts are None. If the judge abstains and `cannot_assess` is `"skip"`, all parts are
          None with `sum_then_normalize`, because TRL would count the part as 0. With `normalize_then_sum`, or if the
          weight of the criterion is 0, only the part with the criterion is None.
        - A completion without an answer gets 0 in each part, or None with `empty=None`.
        - If each row has its own rubric, all weights are 1, and each part is its share of the points of the row's
          rubric.

        Args:
            by: `"criterion"`, or the names of the criteria of each part, such as `{"facts": ["margin", "sources"]}`.
                All other criteria are then the part `other`. `"criterion"` needs a rubric that all rows share. If each
                row has its own rubric, a name that no row of the first step has is logged.
            aggregation: The `multi_objective_aggregation` of the trainer's configuration. `"normalize_then_sum"` (GDPO)
                normalizes each part within its group before the sum. `RLOOTrainer` only has the default. The parts
                cannot know the configuration: if it differs, the trainer counts an abstention as 0.

        Raises:
            ValueError: An argument is invalid, or the reward is not a weighted sum over the criteria, because of
                groups, caps, `applies_when`, hybrid metrics or a length penalty, or because `empty` is a number.

        Example:
            >>> import asyncio
            >>> right = {"name": "right", "weight": 3, "requirement": "Says 42", "check": {"number": 42}}
            >>> rude = {"name": "rude", "weight": -1, "requirement": "Is rude", "check": {"contains": "fool"}}
            >>> parts = RubricReward([right, rude], "offline").parts()
            >>> [part.__name__ for part in parts], parts.weights
            (['rubric.right', 'rubric.rude'], [1.0, 0.3333333333333333])
            >>> asyncio.run(parts[1](["6 x 7?"] * 2, ["It is 42.", "42, you fool."]))
            [1.0, 0.0]
        """
        return make_parts(self._run_step, self._reader, self.__name__, by, aggregation)

    async def _run_step(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        columns: Mapping[str, Any],
        log: StepLog,
        layout: PartLayout | None = None,
    ) -> list[Rollout]:
        """Grade the completions of a step, record them and log their figures.

        Args:
            prompts: The prompt of each completion.
            completions: The completions.
            columns: The other columns of the dataset.
            log: The step, and the functions that log figures.
            layout: The parts of the rubric, whose weighted sum is recorded as the reward. None for the score.
        """
        step = getattr(log.trainer_state, "global_step", self._calls)
        id_prefix = f"{step}-{self._calls}-{rank()}"
        rollouts = self._reader.read(prompts, completions, columns, id_prefix, layout and layout.check_rubric)
        self._calls += 1
        if layout is not None:
            layout.check_rows(rollouts)
        rollouts, unusable = await self._grade(rollouts)
        if layout is not None:
            rollouts = [layout.with_reward(rollout) for rollout in rollouts]
        if self._record is not None:
            self._record.append(rollouts, step)
        self._check_failures(rollouts, unusable)
        self._check_abstentions(rollouts, layout)
        if log.log_metric is not None:
            for key, value in metrics_of(rollouts, self._shared).items():
                log.log_metric(f"{self.__name__}/{key}", value)
        if log.log_extra is not None:
            for key, values in columns_of(rollouts, self._shared).items():
                log.log_extra(f"{self.__name__}/{key}", values)
        return rollouts

    async def _grade(self, rollouts: Sequence[Rollout]) -> tuple[list[Rollout], str | None]:
        """Return the graded completions of a step, and the reason if the judge cannot be used, or None."""
        rows = [rollout.graded.row for rollout in rollouts]
        run = grade_many(rows, self._shared, self.grader, ledger=self.store, max_concurrency=self._max_concurrency)
        results = {graded.row.id: graded async for graded in run}
        stopped = run.summary.stopped
        # A run that stops early has no results for the remaining rows.
        graded = [results.get(row.id) or Graded(row, None, stopped) for row in rows]
        unusable = stopped if run.summary.judge_is_unusable else None
        return [rollout.with_grade(grade) for rollout, grade in zip(rollouts, graded, strict=True)], unusable

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def _start(self) -> None:
        # Whether each of the last grades failed, and the number of graded steps.
        self._recent, self._calls = deque[bool](maxlen=_FEWEST_GRADES), 0
        if mark := getattr(inspect, "markcoroutinefunction", None):
            mark(self)  # TRL before 1.14 inspects the object and not its class. Python 3.11 cannot mark an object

    def _check_failures(self, rollouts: Sequence[Rollout], unusable: str | None) -> None:
        """Log the failures of a step.

        Raises:
            JudgeOutage: Too many grades failed, or the judge cannot be used.
        """
        failures = [rollout.failure for rollout in rollouts if not rollout.is_empty]
        messages = [message for message in failures if message]
        if messages:
            text = "%d of %d completions have no reward, because their grade failed; the first: %s"
            _logger.warning(text, len(messages), len(rollouts), messages[0])
        recent = [message is not None for message in failures]
        if len(recent) < _FEWEST_GRADES:
            recent = [*self._recent, *recent][-_FEWEST_GRADES:]
        self._recent.extend(message is not None for message in failures)
        is_outage = len(recent) >= _FEWEST_GRADES and sum(recent) > self._stop_after * len(recent)
        if messages and (unusable or is_outage):
            reason = unusable or f"{sum(recent)} of {len(recent)} grades failed, the last one because: {messages[-1]}"
            raise JudgeOutage(
                f"{reason}. The training ends here, because it would go on with few of the completions, or with none. "
                "Fix the judge and resume from the last checkpoint"
            )

    def _check_abstentions(self, rollouts: Sequence[Rollout], layout: PartLayout | None) -> None:
        """Log that most completions of a step have no reward, because the judge abstained. This ends no training."""
        names: list[str] = []
        lost = 0
        for rollout in rollouts:
            rewards = [rollout.reward] if layout is None else layout.scores(rollout)
            report = rollout.graded.report
            if report is not None and not rollout.failure and all(reward is None for reward in rewards):
                lost += 1
                names += [row.name for row in report.criteria if row.abstained]
        if names and lost > self._stop_after * len(rollouts):
            _logger.warning(
                "%d of %d completions have no reward, because the judge abstained, most often on %r: check its "
                "wording, or set `cannot_assess`. The training goes on without these completions",
                lost, len(rollouts), max(names, key=names.count),
            )  # fmt: skip
