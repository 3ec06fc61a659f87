"""The rows that `grade` reads from a file, and a look at all of them before any call is paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations.cli.import_option import refuse_unregistered_metrics
from rubric_integrations.formats.row_rubrics import problem_of

if TYPE_CHECKING:
    from rubric_integrations.formats.row_rubrics import RowRubrics
    from rubric_integrations.submission.files import Row


class RowsOfFile:
    """The rows of a file, read again on each iteration, so that none is kept in memory.

    Args:
        read: Reads the file.
        rubrics: Finds the rubric of each row.
        path: The file, for errors.

    Attributes:
        has_own_rubrics: Whether a row brings a rubric.

    Raises:
        ResponsesError: The file cannot be read.
        ValueError: No row has a valid rubric; one that has none does not stop the others.
    """

    def __init__(self, read: Callable[[], Iterator[Row]], rubrics: RowRubrics, path: Path):
        self._read = read
        self._count, self.has_own_rubrics, has_valid_rubric, problem = 0, False, False, ""
        if rubrics.shared:
            refuse_unregistered_metrics(rubrics.shared, "the rubric")
        for row in read():
            self._count += 1
            self.has_own_rubrics = self.has_own_rubrics or row.rubric is not None
            if row.submission is None:
                continue
            if row.rubric is None and rubrics.shared:
                has_valid_rubric = True
                continue
            try:
                refuse_unregistered_metrics(rubrics.of(row, row.rubric), f"row {row.id}")
                has_valid_rubric = True
            except (ValueError, TypeError) as error:
                problem = problem or f"{path}: row {row.id} {problem_of(error)}"
        if problem and not has_valid_rubric:
            raise ValueError(problem)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return self._read()


def name_of_rubrics(rubrics: RowRubrics, rows: RowsOfFile) -> str:
    """Return what a summary calls the rubrics of a run."""
    names = [rubrics.shared.name or "the rubric"] if rubrics.shared else []
    return " and ".join([*names, *(["the rows' own rubrics"] if rows.has_own_rubrics else [])])
