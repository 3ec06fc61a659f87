"""The rollouts of a training step: the completions of TRL as submissions, their grades, the file and the metrics.

The completions are in the standard or the conversational format of TRL. Only the answers are graded, without their
thinking.

Every process logs the same metrics and columns, also after failures, because the processes of a trainer gather their
metrics one by one. If one process omitted a metric, the other processes would wait forever, or would count its number
for another metric.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from rubric_integrations.formats.row_rubrics import RowRubrics, problem_of
from rubric_integrations.graders import Grader
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import is_run_file, run_line
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring.report import outcomes_of
from rubric_integrations.submission.dialects.detect import read_conversation
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.messages import Respond
from rubric_integrations.submission.submission import Submission, error_line
from rubric_integrations.submission.thinking import SplitResponse, split_completion, split_thinking
from rubric_integrations.training.sample_grader import EmptyReward

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
        rubric_integrations.training.rollouts.NoAnswerError: the thinking has no end
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
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        columns: Mapping[str, Any],
        id_prefix: str,
        check_rubric: Callable[[Rubric], None] | None = None,
    ) -> list[Rollout]:
        """Return the completions of a step before they are graded.

        Args:
            prompts: The prompt of each completion.
            completions: The completions.
            columns: The other keyword arguments that the trainer passes. A list with one value for each completion is a
                column of the dataset.
            id_prefix: The prefix of the ids of the rows.
            check_rubric: Raises an error for a rubric that cannot be used. Only the rows with this rubric then fail.

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
        rows = ({name: values[index] for name, values in of_rows.items()} for index in range(len(prompts)))
        return [self._read(Row(f"{id_prefix}-{index}", None), data, check_rubric) for index, data in enumerate(rows)]

    def _read(self, row: Row, data: Mapping[str, Any], check_rubric: Callable[[Rubric], None] | None) -> Rollout:
        """Read one completion and its rubric. A completion that cannot be read gets an error."""
        group = group_of(data["prompt"])
        try:
            own = self.rubrics.own_of(data, data.get("rubric"))
            rubric = self.rubrics.join(own)
            self.grader.check_rubric(rubric)
            if check_rubric is not None:
                check_rubric(rubric)
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
    """Yield the metric name and the name of each criterion. All metric names differ, also from `FIXED_METRICS`."""
    reserved, names = {*FIXED_METRICS, "error"}, shared.keys if shared else ()
    for name in names:
        key = name
        while key in reserved or (key != name and key in names):
            key = f"criterion_{key}"
        yield key, name


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


class StepLog(NamedTuple):
    """The arguments of TRL with which a reward function identifies the step and logs figures.

    Attributes:
        trainer_state: TRL's state. Its `global_step` is recorded.
        log_extra: A function that adds a column to TRL's table of completions, or None.
        log_metric: A function that logs a number, or None.
    """

    trainer_state: Any = None
    log_extra: Callable[[str, list[Any]], None] | None = None
    log_metric: Callable[[str, float], None] | None = None
