"""The Parquet file, or the folder of such files, to which `grade --out` writes grades."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rubric_integrations.cli.console import refuse, unwritable
from rubric_integrations.cli.output_checks import refuse_existing, refuse_inputs

if TYPE_CHECKING:
    from rubric_integrations.runs.summary import Graded


class ParquetOutput:
    """The Parquet files of a run, which appear when they are whole (see `write_parquet`).

    The constructor ends the command with `Exit.BAD_INPUT` if they must not be written.

    Args:
        path: A file that ends in `.parquet`, or a folder.
        overwrite: Whether the user allows to replace existing grades.
        resumes: Whether the run resumes an earlier one, whose grades are replaced without `overwrite`.
        inputs: The files that the command reads, or writes by another option; these are never replaced.

    Attributes:
        is_direct: True: a file of grades cannot be sorted later, so that the results must come in order.
        left_partial: None: what is not whole cannot be read, and is removed.
    """

    is_direct = True
    left_partial: Path | None = None

    def __init__(self, path: Path, *, overwrite: bool, resumes: bool, inputs: Iterable[Path]):
        from rubric_integrations.runs.parquet import GradesWriter, earlier_grades, is_grades_file, is_grades_path

        self._path, self._is_unfinished = path, False
        try:
            earlier = earlier_grades(path)
            if is_grades_path(path):
                own = resumes and all(map(is_grades_file, earlier))
                refuse_inputs("--out", path, inputs)
                refuse_existing("--out", path, overwrite=overwrite or own, replaces=None, may_be_rubric=False)
            elif any(file.resolve().parent == path.resolve() for file in inputs):
                refuse(f"`--out` {path} is the folder of a file that this command reads or writes: name another folder")
            elif earlier and not (overwrite or resumes):
                refuse(f"{earlier[0]}: exists: name another folder, or pass --overwrite, which replaces its grades")
            self._writer = GradesWriter(path)
        except (FileExistsError, ImportError) as error:
            refuse(f"`--out` {path}: {error}")
        self._is_new = not earlier

    def write(self, graded: Graded) -> None:
        """Write a result."""
        try:
            self._writer.write(graded)
        except OSError as error:
            refuse(unwritable(self._path, error))

    def write_table(self, table: Any) -> None:
        """Write the results of an Arrow table of the schema of grades."""
        try:
            self._writer.write_table(table)
        except OSError as error:
            refuse(unwritable(self._path, error))

    def leave_unfinished(self) -> None:
        """At the end of the block, keep the earlier grades, if there are any, in place of those of some rows."""
        self._is_unfinished = not self._is_new

    def __enter__(self) -> Self:
        try:
            self._writer.open()
        except OSError as error:
            refuse(unwritable(self._path, error))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._writer.close(is_whole=kind is None and not self._is_unfinished)
        except OSError as failure:
            refuse(unwritable(self._path, failure))
