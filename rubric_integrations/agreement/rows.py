"""The rows of a run, in whatever form a caller has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.runs.run_files import GradedRow, RunFile, read_run

RunLike = str | Path | RunFile | Iterable[Any]
"""A run: the path of a file that `grade --out` wrote, a `RunFile`, results of `grade_many`, or reports."""


def read_rows(run: RunLike) -> Sequence[GradedRow]:
    """Return the rows of a run, in memory. Reports have no ids: they get their positions, from 1.

    Raises:
        RunFileError: A file is not a run.
        TypeError: An item is neither a result nor a report.
    """
    if isinstance(run, str | Path):
        return list(read_run(Path(run)).rows)
    if isinstance(run, RunFile):
        return list(run.rows)
    return [_as_row(item, number) for number, item in enumerate(run, start=1)]


def complete_score(row: GradedRow) -> float | None:
    """Return the score of a row; None without one, or if the judge failed on a criterion: a fallback is no answer."""
    return None if row.report is None or row.report.failed_count else row.report.score


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
