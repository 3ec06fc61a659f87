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
        path: The file.
        rubric_file: The file of the shared rubric; None if there is none.

    Raises:
        ResponsesError: The file cannot be read.
        ValueError: No row has a valid rubric; one that has none does not stop the others.
    """

    def __init__(self, read: Callable[[], Iterator[Row]], rubrics: RowRubrics, path: Path, rubric_file: Path | None):
        self._read, self._rubrics, self._path, self._rubric_file = read, rubrics, path, rubric_file
        # The place of each row that is under way, by its id, of which a file has each only once.
        self._places: dict[str, int] = {}
        self._count, self._has_own_rubrics, has_valid_rubric, problem = 0, False, False, ""
        if rubrics.shared:
            refuse_unregistered_metrics(rubrics.shared, str(rubric_file))
        for row in read():
            self._count += 1
            self._has_own_rubrics = self._has_own_rubrics or row.rubric is not None
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
        for place, row in enumerate(self._read()):
            self._places[row.id] = place
            yield row

    @property
    def rubric_names(self) -> str:
        """What a summary calls the rubrics of the run."""
        shared = [self._rubrics.shared.name or "the rubric"] if self._rubrics.shared else []
        return " and ".join([*shared, *(["the rows' own rubrics"] if self._has_own_rubrics else [])])

    @property
    def suite_name(self) -> str:
        """The name of the suite in a JUnit file: the rubric's, or that of its file or of the rows' file."""
        name = self._rubrics.shared.name if self._rubrics.shared else None
        return name or (self._rubric_file or self._path).stem

    def take_place(self, row: Row) -> int:
        """Return the place of a row that is done, from 0, and forget it."""
        return self._places.pop(row.id)
