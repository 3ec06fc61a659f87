"""The reward function of TRL: `GRPOTrainer(reward_funcs=RubricReward(rubric, "openai/gpt-5-mini"))`.

It reads the completions of a step, grades the answers without their thinking, and writes the graded completions to a
file.

Every process logs the same metrics and columns, also after failures, because the processes of a trainer gather their
metrics one by one. If one process omitted a metric, the other processes would wait forever, or would count its number
for another metric.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from rubric_integrations._host import HostGrader, check_fields, column_of
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction, problem_of
from rubric_integrations.graders import CallLimits, Grader
from rubric_integrations.graders.endpoint import JudgeOutage
from rubric_integrations.graders.grader import refuse_made_up_scores
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import is_run_file, run_line
from rubric_integrations.runs.run import grade_many
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring.report import outcomes_of
from rubric_integrations.submission.dialects.detect import read_conversation
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.messages import NO_FIELDS, Fields, Respond, check_respond
from rubric_integrations.submission.submission import Submission, error_line
from rubric_integrations.submission.thinking import SplitResponse, split_completion, split_thinking
from rubric_integrations.training.sample_grader import EmptyReward, check_empty

# The fields in which parsers of chat templates store the thinking of a message.
_THINKING_FIELDS = ("reasoning_content", "reasoning", "thinking")


class NoAnswerError(ValueError):
    """Raised if a completion has no answer.

    The completion is blank, its thinking has no end, its last message has no text, or its last message is not from the
    assistant.
    """


def read_completion(
    prompt: Any,
    completion: Any,
    *,
    respond: Respond = "last",
    starts_in_thinking: bool = False,
    show_thinking: bool = False,
    reference: Any = None,
    context: Any = None,
) -> Submission:
    """Convert a completion in the standard or the conversational format of TRL to a submission.

    Args:
        prompt: The prompt, as a text or a list of messages.
        completion: The completion, as a text or as the list of messages after the prompt, with tool calls and results.
        respond: The part of messages to grade: `"last"` is the last answer, `"transcript"` is all messages of the
            completion, and `"trajectory"` is all messages with numbered steps.
        starts_in_thinking: Whether the completion begins within the thinking, because the chat template has written
            `<think>`. For a prompt that is a text, this is detected.
        show_thinking: Whether the judge sees the thinking before the answer. The thinking of earlier messages is always
            left out. With another `respond` than `"last"`, the thinking of all messages is left out.
        reference: A reference answer, or None.
        context: Documents, or None.

    Raises:
        NoAnswerError: There is no answer to grade.
        TypeError: `completion` is neither a text nor a list of messages.
        ValueError: The texts or messages cannot be read.

    Example:
        >>> read_completion("6 x 7?", "<think>6 times 7</think>It is 42.").response
        'It is 42.'
        >>> read_completion("6 x 7?<think>", "6 times 7, that is")
        Traceback (most recent call last):
            ...
        rubric_integrations.training.reward.NoAnswerError: the thinking has no end
    """
    fields: dict[str, Any] = {"query": prompt, "hide_thinking": not show_thinking}
    fields |= {"reference": None if reference == "" else reference, "context": () if context is None else context}
    if isinstance(completion, str):
        starts_in_thinking |= isinstance(prompt, str) and prompt.rstrip().lower().endswith(("<think>", "<thinking>"))
        parts = split_completion(completion, starts_in_thinking)
        _require_answer(parts)
        return _submission(fields, parts.output, parts.thinking)
    if not isinstance(completion, list | tuple):
        raise TypeError(f"a completion must be a text or a list of messages, got {type(completion).__name__}")
    messages: list[Any] = [_without_thinking(message, starts_in_thinking) for message in completion]
    if not messages:
        raise NoAnswerError("there are no messages")
    if respond != "last":
        return _submission({**fields, "respond": respond}, messages, "")
    last = read_conversation(messages).messages[-1]
    if last.role != "assistant":
        raise NoAnswerError(f"the last message is of the role {last.role!r}")
    thinking = _thinking_of(messages[-1])
    _require_answer(SplitResponse(thinking, last.answer()) if thinking else split_thinking(last.answer()))
    return _submission(fields, messages, thinking)


def group_of(prompt: Any) -> str:
    """Return a short name for the group of completions of a prompt, computed from the prompt by a hash.

    Equal prompts have the same name in all processes and steps.

    Example:
        >>> group_of("6 x 7?") == group_of("6 x 7?"), len(group_of("6 x 7?"))
        (True, 12)
    """
    text = json.dumps(prompt, sort_keys=True, default=lambda value: type(value).__name__)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _submission(fields: Mapping[str, Any], response: Any, thinking: str) -> Submission:
    # If `thinking` is set, the response is not split again.
    return Submission.model_validate({**fields, "response": response, "thinking": thinking or None})


def _require_answer(parts: SplitResponse) -> None:
    if not parts.is_closed:
        raise NoAnswerError("the thinking has no end")
    if not parts.output.strip():
        raise NoAnswerError("there is no text" + (" after the thinking" if parts.thinking else ""))


def _without_thinking(message: Any, starts_in_thinking: bool) -> Any:
    """Return an assistant's message with its thinking in a separate field. Other messages are unchanged."""
    if not isinstance(message, Mapping):
        return message
    content = message.get("content")
    if content is None:
        content = ""  # the reader refuses a message without content, but here it is a message without an answer
    if message.get("role") != "assistant" or not isinstance(content, str):
        return message
    thinking = _thinking_of(message)
    # If the trainer has parsed the thinking, the content does not begin with thinking any more.
    parts = split_completion(content, starts_in_thinking and not thinking)
    thinking = "\n\n".join(text for text in (thinking, parts.thinking) if text)
    return {**message, "content": parts.output, **({_THINKING_FIELDS[0]: thinking} if thinking else {})}


def _thinking_of(message: Any) -> str:
    fields: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
    texts = (fields.get(name) for name in _THINKING_FIELDS)
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


class Rollout(NamedTuple):
    """One completion of a step, with its grade and its reward.

    Attributes:
        graded: The grade. Its report is None before the completion is graded, and if the completion has nothing to
            grade.
        group: The name of the group of completions of the same prompt.
        is_empty: Whether the completion has no answer and is therefore not graded.
        reward: The reward, or None if the completion is left out of its group.
    """

    graded: Graded
    group: str
    is_empty: bool = False
    reward: float | None = None

    @property
    def failure(self) -> str | None:
        """The reason why the grade failed. None if the grade did not fail, or if there was nothing to grade."""
        return None if self.is_empty else self.graded.judge_error or self.graded.row.error

    @property
    def scores(self) -> dict[str, float]:
        """The scores in [0, 1] of the criteria with a verdict, by name. Empty if the grade failed."""
        report = self.graded.report
        if report is None or self.failure:
            return {}
        outcomes = outcomes_of(report, "rubric")[1:]
        return {
            outcome.name.removeprefix("rubric."): outcome.score for outcome in outcomes if outcome.score is not None
        }

    def with_grade(self, graded: Graded) -> Rollout:
        """Return this completion with its grade, and with its score as the reward.

        The reward of a completion without an answer does not change.
        """
        return self._replace(graded=graded, reward=self.reward if self.is_empty else graded.score)


class RolloutReader(NamedTuple):
    """Reads the completions of a training step.

    Attributes:
        rubrics: The rubric of all rows, and how a row's own rubric is found.
        grader: The grader, which checks each rubric and defines the lowest reward.
        empty: The reward of a completion without an answer, `"least"` for the lowest reward, or None to leave it out.
        respond: The part of messages to grade: `"last"`, `"transcript"` or `"trajectory"`.
        reference: The name of the dataset's column of reference answers.
        context: The name of the dataset's column of documents.
        starts_in_thinking: Whether a completion begins within the thinking.
        show_thinking: Whether the judge sees the thinking before the answer.
    """

    rubrics: RowRubrics
    grader: Grader
    empty: EmptyReward | None
    respond: Respond
    reference: str
    context: str
    starts_in_thinking: bool
    show_thinking: bool

    def read(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any], id_prefix: str
    ) -> list[Rollout]:
        """Return the completions of a step before they are graded.

        Args:
            prompts: The prompt of each completion.
            completions: The completions.
            columns: The other keyword arguments that the trainer passes. A list with one value for each completion is a
                column of the dataset.
            id_prefix: The prefix of the ids of the rows.

        Raises:
            ValueError: The numbers of prompts and completions differ, or a column that `fields` names is missing.
        """
        if len(prompts) != len(completions):
            raise ValueError(f"there are {len(prompts)} prompts for {len(completions)} completions: pass one for each")
        of_rows: dict[str, Sequence[Any]] = {
            name: values
            for name, values in columns.items()
            if isinstance(values, list | tuple) and len(values) == len(prompts)
        }
        for parameter, column in (("reference", self.reference), ("context", self.context)):
            if column not in of_rows and column != parameter:
                raise ValueError(
                    f"`Fields.{parameter}` is {column!r}, which is no column ({sorted(of_rows)!r}): correct the name, "
                    "or the judge would not see it"
                )
        of_rows |= {"prompt": prompts, "completion": completions}
        return [
            self._read(Row(f"{id_prefix}-{index}", None), {name: values[index] for name, values in of_rows.items()})
            for index in range(len(prompts))
        ]

    def _read(self, row: Row, data: Mapping[str, Any]) -> Rollout:
        """Read one completion and its rubric. A completion that cannot be read gets an error."""
        group = group_of(data["prompt"])
        try:
            own = self.rubrics.own_of(data, data.get("rubric"))
            rubric = self.rubrics.join(own)
            self.grader.check_rubric(rubric)
        except Exception as error:  # noqa: BLE001 -- whatever a row or a function of the user's holds fails this row
            return _ungraded(row, f"the row {problem_of(error)}", group)
        try:
            submission = read_completion(
                data["prompt"],
                data["completion"],
                respond=self.respond,
                starts_in_thinking=self.starts_in_thinking,
                show_thinking=self.show_thinking,
                reference=data.get(self.reference),
                context=data.get(self.context),
            )
        except NoAnswerError as error:
            reward = self.grader.least_score(rubric) if self.empty == "least" else self.empty
            rollout = _ungraded(row, f"the completion has no answer: {error}", group)
            return rollout._replace(is_empty=True, reward=reward)
        except (TypeError, ValueError) as error:
            return _ungraded(row, f"the completion cannot be read: {error_line(error)}", group)
        return Rollout(Graded(row._replace(submission=submission, rubric=own), None), group)


def _ungraded(row: Row, error: str, group: str) -> Rollout:
    return Rollout(Graded(row._replace(error=error), None), group)


_TAIL = 1 << 16


def rank() -> int:
    """Return the number of this process in the training run: the environment variable `RANK`, or 0 if it is not set."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


class RolloutFile:
    """A JSON Lines file to which each step appends its graded completions.

    Each process of a training run writes its own file. The process with rank 0 writes `path`. For `rollouts.jsonl`, the
    process with rank 3 writes `rollouts.rank3.jsonl`. If a crash left an incomplete last line, it is removed first.

    Args:
        path: The file of the process with rank 0.

    Attributes:
        path: The file of this process.

    Raises:
        ValueError: The file exists and is not a file of graded completions.
    """

    def __init__(self, path: str | PathLike[str]):
        own = Path(path)
        self.path = own.with_name(f"{own.stem}.rank{rank()}{own.suffix}") if rank() else own
        if self.path.exists() and self.path.stat().st_size and not is_run_file(self.path):
            raise ValueError(f"`record` {str(self.path)!r} is not a file of graded completions: name a new one")
        self._is_checked = False

    def append(self, rollouts: Iterable[Rollout], step: int) -> None:
        """Append the completions of a step in one write.

        Raises:
            OSError: The file cannot be written.
        """
        lines: list[str] = []
        for rollout in rollouts:
            metadata = {"step": step, "group": rollout.group, "rank": rank(), "reward": rollout.reward}
            lines.append(run_line(rollout.graded, metadata=metadata))
        data = "".join(lines).encode()
        self._check()
        with self.path.open("ab") as file:
            file.write(data)

    def _check(self) -> None:
        """Remove an incomplete last line, because the next line would be joined to it and make the file unreadable."""
        if self._is_checked:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            position = size = file.seek(0, os.SEEK_END)
            while position > 0:
                position = max(0, position - _TAIL)
                file.seek(position)
                end = file.read(min(_TAIL, size - position)).rfind(b"\n")
                if end >= 0:
                    position += end + 1
                    break
            file.truncate(position)
        self._is_checked = True


FIXED_METRICS = ("failed", "empty", "coverage", "passed", "informative_criteria")


def metrics_of(rollouts: Sequence[Rollout], shared: Rubric | None) -> dict[str, float]:
    """Return the metrics of a step by name. Every step has the same metrics. The mean of no values is NaN.

    The metrics are the shares of failed and of empty completions, the share of graded completions that passed, the mean
    coverage, and the mean score of each criterion. `informative_criteria` is the share of criteria whose scores differ
    within a group, over all groups.

    Args:
        rollouts: The completions of the step. The completions of a group must be adjacent.
        shared: The rubric of all rows, whose criteria are metrics, or None if each row has its own rubric.
    """
    reports = [rollout.graded.report for rollout in rollouts if not rollout.failure]
    graded = [report for report in reports if report is not None]
    scores = [rollout.scores for rollout in rollouts]
    metrics = {
        "failed": _mean(rollout.failure is not None for rollout in rollouts),
        "empty": _mean(rollout.is_empty for rollout in rollouts),
        "coverage": _mean(report.coverage for report in graded),
        "passed": _mean(report.passed for report in graded),
        "informative_criteria": _mean(_informative(rollouts)),
    }
    for key, name in _criterion_metrics(shared):
        metrics[key] = _mean(values[name] for values in scores if name in values)
    return metrics


def columns_of(rollouts: Sequence[Rollout], shared: Rubric | None) -> Mapping[str, list[float | str | None]]:
    """Return additional columns, by name, for the table of completions that TRL logs in each step.

    Each column contains one value or None for each completion: the error, or the score of a criterion.

    Args:
        rollouts: The completions of the step.
        shared: The rubric of all rows, whose criteria are columns, or None if each row has its own rubric.
    """
    scores = [rollout.scores for rollout in rollouts]
    columns: dict[str, list[float | str | None]] = {"error": [rollout.failure for rollout in rollouts]}
    for key, name in _criterion_metrics(shared):
        columns[key] = [values.get(name) for values in scores]
    return columns


def _criterion_metrics(shared: Rubric | None) -> Iterator[tuple[str, str]]:
    """Yield the metric name and the name of each criterion. The metric name differs from `FIXED_METRICS`."""
    reserved = {*FIXED_METRICS, "error"}
    for name in shared.keys if shared else ():
        yield (f"criterion_{name}" if name in reserved else name), name


def _informative(rollouts: Iterable[Rollout]) -> Iterator[bool]:
    """Yield, for each criterion of each group, whether the scores of the graded completions differ."""
    for _, group in groupby(rollouts, key=lambda rollout: rollout.group):
        scores = [rollout.scores for rollout in group]
        for name in dict.fromkeys(name for values in scores for name in values):
            values = [completion[name] for completion in scores if name in completion]
            if len(values) > 1:
                yield max(values) > min(values)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


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
