"""The rows of a run, in whatever form a caller has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.run_files import GradedRow, RunFile, is_run_file, read_run
from rubric_integrations.runs.summary import Graded

RunLike = str | Path | RunFile | Iterable[Any]
"""A run: the path of a file that `grade --out` wrote, a `RunFile`, results of `grade_many`, or reports."""


def read_rows(run: RunLike) -> Sequence[GradedRow]:
    """Return the rows of a run, in memory. Reports have no ids: they get their positions, from 1.

    Raises:
        RunFileError: A file is not a run.
        TypeError: An item is neither a result nor a report.
    """
    if isinstance(run, str | Path):
        return read_run(Path(run), in_memory=True).rows
    if isinstance(run, RunFile):
        return list(run.rows)
    return [_as_row(item, number) for number, item in enumerate(run, start=1)]


def complete_score(row: GradedRow) -> float | None:
    """Return the score of a row; None without one, or if the judge failed on a criterion: a fallback is no answer."""
    return None if row.report is None or row.report.failed_count else row.report.score


def is_trained_on(row: GradedRow) -> bool:
    """Whether the judge was aligned with a label of one of the row's judgments.

    Its errors there are not those that it makes elsewhere: labels of other rows correct the scores of other rows.
    """
    return row.report is not None and any(entry.trained_on for entry in row.report.criteria)


def is_run(value: object) -> bool:
    """Whether a value is a run, and not a rubric or a file of another kind. Of a path, the file decides."""
    if isinstance(value, str | Path):
        return is_run_file(Path(value))
    if isinstance(value, Rubric | Mapping | PathLike):
        return False
    if isinstance(value, list | tuple) and not isinstance(value, RunFile):
        return any(isinstance(item, GradedRow | EvaluationReport | Graded) for item in cast("list[object]", value)[:1])
    return isinstance(value, Iterable)


def _as_row(item: Any, number: int) -> GradedRow:
    if isinstance(item, GradedRow):
        return item
    if isinstance(item, EvaluationReport):
        return GradedRow(str(number), None, item, item.error)
    if not hasattr(item, "to_dict"):
        raise TypeError(
            f"a run must have reports or results of `grade_many`, got {type(item).__name__}: pass the path of a file "
            "that `grade --out` wrote, a list of `Graded`, or a list of reports"
        )
    return RunFile.of("run", [item]).rows[0]
