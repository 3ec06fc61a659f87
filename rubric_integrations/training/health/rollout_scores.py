"""Reads the graded completions of a training run, and keeps of each only what its figures need."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rubric_integrations.agreement.rows import RunLike, complete_score, read_rows
from rubric_integrations.results.criterion_report import CriterionReport
from rubric_integrations.results.outcomes import higher_is_better
from rubric_integrations.runs.run_files import GradedRow, RunFile, read_run
from rubric_integrations.scoring.length import word_count

# Beyond it, floats no longer tell neighbouring whole numbers apart.
_LARGEST = 10**15
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,15}\s*")

CriterionKey = tuple[str, str]
"""The name and the requirement of a criterion."""


class Answer(NamedTuple):
    """The answer of a judge to one criterion.

    Attributes:
        score: Its score in [0, 1], for which higher is better, also for a penalty; None for an abstention.
        weight: The weight of the criterion.
    """

    score: float | None
    weight: float


class RolloutScores(NamedTuple):
    """What the figures need of one completion.

    Attributes:
        row: Its place among all rows.
        step: Its training step.
        group: The name of its prompt; None if it is unknown.
        reward: Its reward; None if it was left out.
        words: The number of words of its answer; None if it has none.
        coverage: The share of the rubric that was assessed; None without a complete grade.
        failed: Whether its grade failed; None if there was nothing to grade.
        answers: The answers to its criteria, without those of a grade that failed.
    """

    row: int
    step: int
    group: str | None
    reward: float | None
    words: int | None = None
    coverage: float | None = None
    failed: bool | None = None
    answers: Mapping[CriterionKey, Answer] = {}


class RunRows:
    """The rows of one or several runs, which stay in their files.

    Args:
        run: The path of a file, several paths, results, or a `RunFile`.

    Raises:
        RunFileError: A file is not a run.
        TypeError: An item is neither a path nor a result.
    """

    def __init__(self, run: RunLike):
        self._parts: list[Sequence[GradedRow]] = []
        if isinstance(run, str | Path | RunFile):
            self._parts.append(_rows_of(run))
            return
        others: list[Any] = []
        for item in run:
            if isinstance(item, str | Path | RunFile):
                self._parts.append(_rows_of(item))
            else:
                others.append(item)
        self._parts.append(read_rows(others))

    def __iter__(self) -> Iterator[GradedRow]:
        for part in self._parts:
            yield from part

    def __getitem__(self, place: int) -> GradedRow:
        for part in self._parts:
            if place < len(part):
                return part[place]
            place -= len(part)
        raise IndexError(place)


def read_scores(rows: Iterable[GradedRow]) -> tuple[list[RolloutScores], int]:
    """Return the completions of a run, and the number of rows without a step.

    Raises:
        ValueError: No row has a step.
    """
    scores: list[RolloutScores] = []
    without_step = 0
    for place, row in enumerate(rows):
        step = _step_of((row.metadata or {}).get("step"))
        if step is None:
            without_step += 1
        else:
            scores.append(_scores_of(row, place, step))
    if not scores:
        raise ValueError(
            "no row has a training step: pass the file of `RubricReward(record=...)`, or rows whose `metadata` has a "
            "whole number as `step`"
        )
    return scores, without_step


def is_compared(entry: CriterionReport) -> bool:
    """Whether a second judge can be asked about a criterion: a judge, and not code, has decided on it."""
    return entry.was_judged and entry.value is not None and not entry.computed


def score_of(entry: CriterionReport) -> float | None:
    """Return the score of a criterion, for which higher is better; None for an abstention."""
    return None if entry.value is None else higher_is_better(entry.value, is_penalty=entry.weight < 0)


def _rows_of(run: str | Path | RunFile) -> Sequence[GradedRow]:
    return run.rows if isinstance(run, RunFile) else read_run(Path(run)).rows


def _scores_of(row: GradedRow, place: int, step: int) -> RolloutScores:
    metadata, report = row.metadata or {}, row.report
    group = metadata.get("group")
    reward = _number(metadata["reward"]) if "reward" in metadata else complete_score(row)
    scores = RolloutScores(
        row=place,
        step=step,
        group=None if group is None else str(group),
        reward=reward,
        words=word_count(row.submission.response) if row.submission else None,
    )
    if report is None:
        return scores
    if report.failed_count or not row.is_graded:
        return scores._replace(failed=True)
    answers = {
        (entry.name, entry.requirement): Answer(score_of(entry), entry.weight)
        for entry in report.criteria
        if entry.was_judged
    }
    return scores._replace(failed=False, coverage=report.coverage, answers=answers)


def _step_of(value: object) -> int | None:
    """Return a step that is a whole number, also one written as a text; None for anything else."""
    if isinstance(value, str):
        return int(value) if _WHOLE_NUMBER.fullmatch(value) else None
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None


def _number(value: object) -> float | None:
    """Return a finite number of a size that figures can be computed with; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST and math.isfinite(value) else None
