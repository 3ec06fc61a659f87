"""The rows of a run, in whatever form a caller has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from rubric_integrations.reporting.page.loading import read_run
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.submission.submission import Submission

RunLike = str | Path | Iterable[Any]
"""A run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports."""


class JudgedRow(NamedTuple):
    """One graded row of a run.

    Attributes:
        id: The row's id; the position from 1 for reports that have none.
        submission: What was graded; None if it is not known.
        report: The grade, which may be incomplete; None if there is none.
    """

    id: str
    submission: Submission | None
    report: EvaluationReport | None


def read_rows(run: RunLike) -> Sequence[JudgedRow]:
    """Return the rows of a run; those of a file one after another, in memory.

    Raises:
        RunFileError: A file is not a run.
        TypeError: An item is neither a result nor a report.
    """
    if isinstance(run, str | Path):
        return [JudgedRow(row.id, row.submission, row.report) for row in read_run(Path(run)).rows]
    return [_as_row(item, number) for number, item in enumerate(run, start=1)]


def _as_row(item: Any, number: int) -> JudgedRow:
    if isinstance(item, JudgedRow):
        return item
    if isinstance(item, EvaluationReport):
        return JudgedRow(str(number), None, item)
    row = getattr(item, "row", item)
    if not hasattr(item, "report") or not hasattr(row, "id"):
        raise TypeError(
            f"a run must have reports or results of `grade_many`, got {type(item).__name__}: pass the path of a file "
            "that `grade --out` wrote, a list of `Graded`, or a list of reports"
        )
    return JudgedRow(str(row.id), row.submission, cast("EvaluationReport | None", item.report))
