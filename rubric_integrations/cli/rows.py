"""The rows of a file of responses: counted and checked once before the first call, and read again for each use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations._util.text import counted
from rubric_integrations.checks.metrics import unregistered_metrics
from rubric_integrations.cli.console import refuse
from rubric_integrations.cli.outputs import is_rubric
from rubric_integrations.formats.row_rubrics import problem_of
from rubric_integrations.library.catalogue import PREFIX
from rubric_integrations.reporting.validation import unregistered_fault
from rubric_integrations.submission.readers import ONE_RESPONSE
from rubric_integrations.submission.text_files import ResponsesError

if TYPE_CHECKING:
    from rubric_integrations.formats.row_rubrics import RowRubrics
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.submission.files import ResponsesFile
    from rubric_integrations.submission.inputs import Row


# The most kinds of problems, and the most rows of one kind, that are printed.
MAX_KINDS = 20
MAX_IDS = 8


class RowsOfFile:
    """The rows of a file. The file is checked once. Its rows are then read on each iteration, and not kept in memory.

    Args:
        file: The file.
        rubrics: Finds the rubric of each row.
        rubric_file: The file of the shared rubric. None if there is none.
        rubric_format: The format of the shared rubric, for the summary.
        strict: Whether to refuse rubrics that leave out a part of their file.

    Attributes:
        file: The file.
        inputs: The number of independent rows. Several samples of one prompt count once.
        metadata: The keys that the `metadata` of all rows have that have a response. None if no row has one.

    Raises:
        ResponsesError: The file cannot be read, or is empty.
        ValueError: The file is a rubric. No row has a valid rubric. Or `strict` is set, and a rubric leaves out a part
            of its file. A single row without a valid rubric is not an error.
    """

    def __init__(
        self,
        file: ResponsesFile,
        rubrics: RowRubrics,
        rubric_file: Path | None,
        rubric_format: str | None = None,
        *,
        strict: bool = False,
    ):
        self.file, self._rubrics, self._rubric_file, self._format = file, rubrics, rubric_file, rubric_format
        # The position of each row in progress, by its id. Ids are unique in a file.
        self._places: dict[str, int] = {}
        self._count, self._has_own_rubrics, self.inputs = 0, False, 0
        self.metadata: set[str] | None = None
        if rubrics.shared:
            _refuse_unregistered_metrics(rubrics.shared, str(rubric_file))
            if strict:
                _refuse_partial(rubrics.shared, str(rubric_file))
        try:
            self._check(strict=strict)
        except ValueError as error:
            if rubric_file is None and _may_be_rubric(file):
                path = file.path
                message = f"{path}: is a rubric: name the file of responses after it, such as {path} responses.csv"
                raise ValueError(message) from error
            raise

    def _check(self, *, strict: bool) -> None:
        """Count the rows, find the metadata that all rows have, and refuse a file without a valid rubric."""
        path, rubrics, has_valid_rubric, problem = self.file.path, self._rubrics, False, ""
        groups = set[str]()
        for row in self.file.check():
            self._count += 1
            self.inputs += row.group is None or row.group not in groups
            groups.update(() if row.group is None else (row.group,))
            self._has_own_rubrics = self._has_own_rubrics or row.rubric is not None
            if row.error is not None:
                continue
            names = set(row.metadata or ())
            self.metadata = names if self.metadata is None else self.metadata & names
            try:
                own = rubrics.own_of(row, row.rubric)
                _ = rubrics.join(own)
                if own is not None:
                    _refuse_unregistered_metrics(own, f"row {row.id}")
                has_valid_rubric = True
            except (ValueError, TypeError) as error:
                problem = problem or f"{path}: row {row.id} {problem_of(error)}"
                continue
            if strict and own is not None:
                _refuse_partial(own, f"{path}: row {row.id}")
        if not self._count:
            raise ResponsesError(f"{path}: is empty: there is nothing to grade")
        if problem and not has_valid_rubric:
            raise ValueError(problem)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        for place, row in enumerate(self.file.rows()):
            self._places[row.id] = place
            yield row

    @property
    def rubric_names(self) -> str:
        """The names of the run's rubrics for a summary, with the format of the shared rubric."""
        shared = [self._rubrics.shared.name or "the rubric"] if self._rubrics.shared else []
        if shared and self._format:
            shared = [f"{shared[0]} ({self._format} format)"]
        return " and ".join([*shared, *(["the rows' own rubrics"] if self._has_own_rubrics else [])])

    @property
    def suite_name(self) -> str:
        """The name of the suite in a JUnit file: the name of the shared rubric.

        If the rubric has no name, it is the name of the rubric's file. Without a shared rubric, it is the name of the
        file of rows.
        """
        name = self._rubrics.shared.name if self._rubrics.shared else None
        return name or (self._rubric_file or self.file.path).stem

    def take_place(self, row: Row) -> int:
        """Return the position of a finished row, from 0, and remove the row from the rows in progress."""
        return self._places.pop(row.id)


def _may_be_rubric(file: ResponsesFile) -> bool:
    """Return whether a file is a rubric, or YAML without rows. A YAML rubric with a fault is read as one response."""
    if str(file.path).startswith(PREFIX):
        return True
    if file.path.suffix.lower() in (".yaml", ".yml") and file.path.is_file():
        return file.description is None or file.description.format == ONE_RESPONSE or is_rubric(file.path)
    return file.path.is_file() and is_rubric(file.path)


def _refuse_partial(rubric: Rubric, source: str) -> None:
    if rubric.left_out:
        count = f"{len(rubric.left_out)} {'part' if len(rubric.left_out) == 1 else 'parts'}"
        message = f"{source}: --strict: {count} of the rubric would be left out, and no grade could pass: "
        raise ValueError(f"{message}{rubric.left_out[0]}")


def _refuse_unregistered_metrics(rubric: Rubric, source: str) -> None:
    """End the command with an error if a rubric has a custom metric that is not registered.

    Without this check, the error would come only after the first paid calls.
    """
    for where, name in unregistered_metrics(rubric)[:1]:
        refuse(f"{source}: {unregistered_fault(where, name)}")


class Problems:
    """Counts problems of rows by kind, and keeps the first message and the first rows of each kind.

    Attributes:
        count: The number of all problems.
    """

    def __init__(self) -> None:
        self.count = 0
        # By kind: the number of rows, and the position, id and message of the first rows.
        self._kinds: dict[str, tuple[int, list[tuple[int, str, str]]]] = {}
        self._more = 0

    def add(self, place: int, row_id: str, problem: str) -> None:
        """Add the problem of a row at a position in the file of responses."""
        self.count += 1
        kind = _kind_of(problem, row_id)
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            self._more += 1
            return
        count, rows = self._kinds.get(kind, (0, []))
        self._kinds[kind] = (count + 1, sorted([*rows, (place, row_id, problem)])[: MAX_IDS + 1])

    def lines(self, rest: str = "") -> list[str]:
        """Return a line for each kind of problem. `rest` is appended if a line names only some of its rows."""
        lines: list[str] = []
        for count, [(_, row_id, problem), *others] in sorted(self._kinds.values(), key=lambda kind: kind[1]):
            first, ids = f"{row_id}: {problem}", ", ".join(other_id for _, other_id, _ in others)
            cut = f", ...{rest}" if count - 1 > len(others) else ""
            lines.append(f"{first} (and {counted(count - 1, 'more row')} alike: {ids}{cut})" if count > 1 else first)
        return [*lines, f"and {counted(self._more, 'more row')} with other problems{rest}"] if self._more else lines


def _kind_of(problem: str, row_id: str) -> str:
    """Return a problem without the parts that differ between rows: ids, criteria, and other numbers."""
    text = problem.removeprefix(f"row {row_id}")
    return re.sub(r"\d+", "#", re.sub(r"`[^`]*` was not judged", "", text))
