"""The reward function of TRL: `GRPOTrainer(reward_funcs=RubricReward(rubric, "openai/gpt-5-mini"))`."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction
from rubric_integrations.formats.rubric_like import RubricLike
from rubric_integrations.graders import Grader, PerCriterionGrader
from rubric_integrations.graders.made_up_scores import refuse_made_up_scores
from rubric_integrations.graders.outage import JudgeOutage
from rubric_integrations.runs.ledger.addresses import as_store
from rubric_integrations.runs.runner import grade_many
from rubric_integrations.runs.summary import Graded
from rubric_integrations.submission.messages import Respond, check_respond
from rubric_integrations.training.rollout_file import RolloutFile, rank
from rubric_integrations.training.rollouts import EmptyReward, Rollout, RolloutReader
from rubric_integrations.training.sample_grader import check_empty
from rubric_integrations.training.step_metrics import columns_of, metrics_of

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike
    from rubric_integrations.runs.ledger import LedgerLike

# Fewer grades say nothing about the judge: of a step with one completion, a single failure would be all.
_FEWEST_GRADES = 4
_NOT_PICKLED = ("_recent", "_calls", "_is_coroutine_mark")

_logger = logging.getLogger(__name__)


class RubricReward:
    """Grades the completions of each training step against a rubric; a reward function of TRL (`trl>=1.6`).

    It serves `GRPOTrainer`, `RLOOTrainer` and `AsyncGRPOTrainer`, and completions in the standard and in the
    conversational format. Of messages, the last answer is graded, with the earlier messages, tool calls and results as
    its context. Thinking in `<think>` is not shown to the judge.

    - A completion without an answer is not graded: a blank one, one whose thinking was cut off, and one that ends with
      a tool call or its result. Its reward is `empty`.
    - If the grade fails, or the judge abstains on every criterion, the reward is None: TRL leaves the completion out of
      the mean of its group, and its advantage is 0. A number would be a gradient towards what makes judges fail.

    Each process of a training run has a copy, so that the judge gets up to `max_concurrency` calls from each. A pickle
    has the settings, and neither connections nor counts.

    TRL 1.14 and newer await this object. With an older one and Python 3.11, pass its method:
    `reward_funcs=reward.__call__`.

    Args:
        rubric: The rubric: a `Rubric`, the path of a rubric file, a list or a dictionary. A row of the dataset with a
            column `rubric` of its own is graded by both; None if every row has one. Or a function that returns one of
            these for a row, which is a dictionary of its `prompt`, its `completion` and all columns of the dataset.
        judge: The judge, as for a grader: a model name, a `dspy.LM`, an async function, a `Judge`, or `"offline"`.
        grader: A grader with settings of its own, in place of `judge`.
        normalize: Whether the reward is in [0, 1], which is the default; if not, it is the weighted sum. With `grader`,
            set the grader's `normalize` instead.
        empty: The reward of a completion without an answer. By default (`"least"`) the lowest reward that the rubric
            allows: 0, or the sum of the negative weights if the reward is a weighted sum, less the highest length
            penalty. None leaves such completions out, so that the policy learns nothing from them.
        respond: The part to grade of messages: `"last"` the last answer, `"transcript"` or `"trajectory"` all messages
            of the completion, without or with numbered steps.
        reference: The column with exemplary answers. A dataset without the usual one, `"reference"`, has none.
        context: The column with documents, texts or lists of texts. The same holds for `"context"`.
        starts_in_thinking: Whether the chat template ends the prompt with `<think>`, so that the policy writes only the
            end of its thinking: a completion without `</think>` has no answer then. Needed for conversational prompts
            alone; and not if TRL parses the thinking, into `reasoning_content`.
        show_thinking: Whether the judge is shown the thinking before the answer, for criteria about it. The policy may
            then learn to persuade the judge there, and each call costs its tokens. A length penalty counts it anyway.
        max_concurrency: The largest number of concurrent calls of this process, at least 1.
        ledger: Stores each judgment, so that a run that is resumed requests none again: the path of a file for the
            processes of one machine, the URL of a PostgreSQL database for several machines, or an open ledger.
        stop_after: The share in [0, 1] of failed grades above which `JudgeOutage` ends the training, over the
            completions of a step, with those of the steps before if it has fewer than four. With 1, only a judge that
            cannot be used at all ends it.
        record: The file to which each step appends its graded completions, for `rubric-integrations report` and
            `read_run`. Each process writes one; that of the second is `rollouts.rank1.jsonl` for `rollouts.jsonl`. The
            `metadata` of a row are its `step`, `group` (equal for completions of one prompt), `rank` and `reward`.
        name: The name of the reward, and the first part of the names of its metrics.

    Raises:
        ValueError: Neither or both of `judge` and `grader` were passed, a setting is unknown or out of range, or the
            grader would turn failures into scores, or leave scores open.
        TypeError: `rubric` is nothing that a rubric can be read from, or there is a `ledger`, and the judge has no
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
        rubric: RubricLike | RubricFunction | None,
        judge: JudgeLike | None = None,
        *,
        grader: Grader | None = None,
        normalize: bool | None = None,
        empty: EmptyReward = "least",
        respond: Respond = "last",
        reference: str = "reference",
        context: str = "context",
        starts_in_thinking: bool = False,
        show_thinking: bool = False,
        max_concurrency: int = 64,
        ledger: LedgerLike | None = None,
        stop_after: float = 0.5,
        record: str | PathLike[str] | None = None,
        name: str = "rubric",
    ):
        if (judge is None) == (grader is None):
            raise ValueError("`RubricReward` needs either `judge`, such as 'openai/gpt-5-mini', or `grader`")
        if grader is not None and normalize is not None:
            raise ValueError("`normalize` goes with `judge`: set `normalize` of the `grader` instead")
        if max_concurrency < 1:
            raise ValueError(f"`max_concurrency` must be at least 1, got {max_concurrency!r}")
        if isinstance(stop_after, bool) or not 0 <= stop_after <= 1:
            raise ValueError(f"`stop_after` must be a share from 0 to 1, got {stop_after!r}")
        if empty is not None:
            check_empty(empty)
        if not name:
            raise ValueError("`name` is empty: the metrics of the reward begin with it")
        check_respond(respond)
        self.grader = grader or PerCriterionGrader(judge, normalize=normalize is None or normalize)
        refuse_made_up_scores(self.grader)
        rubrics = RowRubrics(rubric)
        if rubrics.shared is not None:
            self.grader.check_rubric(rubrics.shared)
        self.store = None if ledger is None else as_store(ledger)
        if self.store is not None:
            self.grader.with_store(self.store)  # refuses a judge without a fingerprint before the first step
        self._reader = RolloutReader(
            rubrics, self.grader, empty, respond, reference, context, starts_in_thinking, show_thinking
        )
        self._shared = rubrics.shared
        self._max_concurrency, self._stop_after = max_concurrency, stop_after
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
        """Grade the completions of one step; TRL calls this.

        It logs these metrics, the same in each process and step, of which a mean of nothing is NaN: `rubric/failed` and
        `rubric/empty` are shares of the completions, `rubric/coverage` and `rubric/passed` are means over the graded
        ones. `rubric/right` is the mean score of the criterion `right` in [0, 1], for which higher is better, also for
        a penalty: 0 if the error was committed. Only the criteria of a rubric that all rows share have one.
        `rubric/informative_criteria` is the share of criteria whose scores differ within a group, or the part of it
        that this process has: a criterion that all completions of a group meet, or none, changes no advantage in this
        step. It is part of the reward all the same.

        Args:
            prompts: The prompts, texts or lists of messages; the completions of a group are side by side.
            completions: A completion for each: a text, or a list of messages.
            trainer_state: TRL's state, of which `global_step` is recorded.
            log_extra: Adds a column to TRL's table of completions: `rubric/error`, and one for each criterion.
            log_metric: Logs a number.
            columns: The other columns of the dataset, each a list with a value for each completion.

        Returns:
            A reward for each completion, or None.

        Raises:
            JudgeOutage: More than the share `stop_after` of the grades failed, or the judge cannot be used.
            StoreError: The ledger cannot be written.
            ValueError: There is not a prompt for each completion, or the dataset has no column of the chosen name.
        """
        step = getattr(trainer_state, "global_step", self._calls)
        rollouts = self._reader.read(prompts, completions, columns, f"{step}-{self._calls}-{rank()}")
        self._calls += 1
        rollouts, unusable = await self._grade(rollouts)
        if self._record is not None:
            self._record.append(rollouts, step)
        self._check_failures(rollouts, unusable)
        if log_metric is not None:
            for key, value in metrics_of(rollouts, self._shared).items():
                log_metric(f"{self.__name__}/{key}", value)
        if log_extra is not None:
            for key, values in columns_of(rollouts, self._shared).items():
                log_extra(f"{self.__name__}/{key}", values)
        return [rollout.reward for rollout in rollouts]

    async def _grade(self, rollouts: Sequence[Rollout]) -> tuple[list[Rollout], str | None]:
        """Return the graded completions of a step, and why the judge cannot be used, if that is so."""
        rows = [rollout.graded.row for rollout in rollouts]
        run = grade_many(rows, self._shared, self.grader, ledger=self.store, max_concurrency=self._max_concurrency)
        results = {graded.row.id: graded async for graded in run}
        stopped = run.summary.stopped
        # A run that stops has no results for the rest of its rows.
        graded = [results.get(row.id) or Graded(row, None, stopped) for row in rows]
        unusable = stopped if run.summary.judge_is_unusable else None
        return [rollout.with_grade(grade) for rollout, grade in zip(rollouts, graded, strict=True)], unusable

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def _start(self) -> None:
        # Whether each of the last grades failed, and how many steps were graded.
        self._recent, self._calls = deque[bool](maxlen=_FEWEST_GRADES), 0
        if mark := getattr(inspect, "markcoroutinefunction", None):
            mark(self)  # TRL before 1.14 looks at the object, not at its class; Python 3.11 cannot mark one

    def _check_failures(self, rollouts: Sequence[Rollout], unusable: str | None) -> None:
        """Log the failures of a step.

        Raises:
            JudgeOutage: There are too many.
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
