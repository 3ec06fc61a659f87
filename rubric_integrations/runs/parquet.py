"""Writes grades as Parquet files with a fixed schema, which appear when they are whole."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rubric_integrations._util.extras import install_command
from rubric_integrations._util.records import encodable
from rubric_integrations.results.usage import NO_SPEND
from rubric_integrations.runs.summary import Graded

ROWS_PER_GROUP = 5_000
"""Rows that are in memory until they are written as one row group."""

ROWS_PER_PART = 100_000
"""Rows of each file of a folder."""

# Marks our own files, which a later run may replace.
_MARK = {b"rubric_integrations": b"grades 1"}


def grades_schema() -> Any:
    """Return the Arrow schema of grades, which is the same for all rubrics.

    Raises:
        ImportError: pyarrow is not installed.
    """
    pa: Any = import_arrow()
    text, number = pa.string(), pa.float64()
    verdict = pa.struct([("name", text), ("verdict", text), ("value", number), ("reason", text), ("error", text)])
    fields = [
        pa.field("id", text, nullable=False),
        ("score", number),
        pa.field("passed", pa.bool_(), nullable=False),
        ("coverage", number),
        ("error", text),
        pa.field("calls", pa.int64(), nullable=False),
        ("cost", number),
        pa.field("verdicts", pa.list_(verdict), nullable=False),
    ]
    return pa.schema(fields, metadata=_MARK)


def grade_record(graded: Graded) -> dict[str, Any]:
    """Return a result as a row of `grades_schema`.

    Its `calls` and `cost` are those of its judgments, also of those that came from a ledger; `cost` is None where a
    price is unknown.
    """
    report = graded.report
    spend = report.spend if report else NO_SPEND
    verdicts = [
        {
            "name": encodable(row.name),
            "verdict": row.verdict,
            "value": row.value,
            "reason": row.reason,
            "error": row.error,
        }
        for row in (report.criteria if report else ())
    ]
    error = graded.judge_error or graded.row.error or (report.error if report else None)
    return {
        "id": encodable(graded.row.id),
        "score": graded.score,
        "passed": bool(report and report.passed and not graded.judge_error),
        "coverage": report.coverage if report else None,
        "error": encodable(error) if error else None,
        "calls": spend.calls,
        "cost": spend.cost,
        "verdicts": verdicts,
    }


def write_parquet(run: Iterable[Graded], path: str | Path, *, overwrite: bool = False) -> None:
    """Iterate a run, and write its grades to a Parquet file, or to the parts of a folder (extra `parquet`).

    Memory holds 5,000 rows. A file is written beside its place, and gets its name when it is whole: if the run is
    interrupted, a folder has the parts that are complete, and the run's ledger has all judgments.

    Args:
        run: A run of `grade_many`, or any results.
        path: The file, if it ends in `.parquet`; otherwise a folder, which gets `part-00000.parquet`,
            `part-00001.parquet` and so on, each with 100,000 rows, and is created if it does not exist.
        overwrite: Whether a file, or the earlier parts in the folder, may be replaced.

    Raises:
        FileExistsError: There are grades already, and `overwrite` is not set.
        ImportError: pyarrow is not installed.
        OSError: A file cannot be written.

    Example:
        >>> import tempfile
        >>> from rubric_integrations import PerCriterionGrader, Rubric, grade_many
        >>> rubric = Rubric.from_dict([{"weight": 1, "requirement": "Says 42", "check": {"number": 42}}])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = grade_many(["It is 42."], rubric, PerCriterionGrader("offline"))
        ...     write_parquet(run, f"{folder}/grades.parquet")
        ...     os.listdir(folder)
        ['grades.parquet']
    """
    target = Path(path)
    if not overwrite and (earlier := earlier_grades(target)):
        raise FileExistsError(f"{earlier[0]} exists: name another path, or pass `overwrite=True`, which replaces it")
    with GradesWriter(target) as writer:
        for graded in run:
            writer.write(graded)


def earlier_grades(path: Path) -> list[Path]:
    """Return the files that `write_parquet` would replace: the file itself, or the parts of the folder, in their order.

    Raises:
        FileExistsError: A part is no file of grades. Other programs name their parts in the same way.
    """
    if is_grades_path(path):
        return [path] if path.exists() else []
    parts = sorted(path.glob("part-*.parquet"))
    if other := next((part for part in parts if not is_grades_file(part)), None):
        raise FileExistsError(f"{other} is no file of grades: name another folder, since its data could be lost")
    return parts


def is_grades_path(path: Path) -> bool:
    """Whether `write_parquet` writes one file to a path, and not the parts of a folder."""
    return path.suffix.lower() == ".parquet" and not path.is_dir()


def is_grades_file(path: Path) -> bool:
    """Whether a file is one that `write_parquet` wrote; False where pyarrow is not installed."""
    with suppress(ImportError, OSError, ValueError):
        import pyarrow.parquet as pq

        metadata = pq.read_schema(path).metadata or {}
        return metadata.get(b"rubric_integrations", b"").startswith(b"grades ")
    return False


class GradesWriter:
    """Writes results to a Parquet file, or to the parts of a folder, in the block of a `with` statement.

    If the block ends with an exception, what is not whole is removed, and what was there before stays.

    Args:
        path: As for `write_parquet`. Earlier files with the same names are replaced, and further parts are removed when
            the last one is whole.

    Raises:
        FileExistsError: The folder has a part that is no file of grades.
        ImportError: pyarrow is not installed.
    """

    def __init__(self, path: Path):
        self._path, self._is_folder = path, not is_grades_path(path)
        self._schema, self._earlier = grades_schema(), earlier_grades(path)
        self._records: list[dict[str, Any]] = []
        self._tables: list[Any] = []
        self._file: Any = None
        self._rows = self._parts = 0

    @property
    def _target(self) -> Path:
        return self._path / f"part-{self._parts:05}.parquet" if self._is_folder else self._path

    @property
    def _partial(self) -> Path:
        # With the process in its name: two processes would otherwise write into one file.
        return self._target.with_name(f"{self._target.name}.{os.getpid()}.partial")

    def write(self, graded: Graded) -> None:
        """Add a result."""
        self._records.append(grade_record(graded))
        if len(self._records) >= ROWS_PER_GROUP:
            self._write_group()

    def write_table(self, table: Any) -> None:
        """Add the results of an Arrow table of the schema of grades."""
        self._tables.append(table)
        if sum(table.num_rows for table in self._tables) >= ROWS_PER_GROUP:
            self._write_group()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(is_whole=kind is None)

    def close(self, *, is_whole: bool) -> None:
        """Give the last file its name if the grades are whole; otherwise remove it, and leave what was there before."""
        try:
            if is_whole:
                self._finish()
        finally:
            self._discard()

    def _finish(self) -> None:
        self._write_group()
        if self._file:
            self._publish()
        if self._is_folder:
            for part in self._earlier[self._parts :]:
                part.unlink()

    def _discard(self) -> None:
        if self._file:
            with suppress(OSError):
                self._file.close()
            self._file = None
            self._partial.unlink(missing_ok=True)

    def open(self) -> Any:
        """Open the next file; the first one before the run, so that no call is paid for if it cannot be written."""
        import pyarrow.parquet as pq

        if self._is_folder:
            self._path.mkdir(parents=True, exist_ok=True)
        self._file = pq.ParquetWriter(self._partial, self._schema)
        return self._file

    def _write_group(self) -> None:
        pa: Any = import_arrow()
        if self._records:
            self._tables.append(pa.Table.from_pylist(self._records, schema=self._schema))
        if self._tables:
            file = self._file or self.open()
            table = pa.concat_tables(self._tables).cast(self._schema)
            file.write_table(table)
            self._rows += table.num_rows
            self._records, self._tables = [], []
        if self._is_folder and self._rows >= ROWS_PER_PART:
            self._publish()

    def _publish(self) -> None:
        self._file.close()
        self._file = None
        self._partial.replace(self._target)
        self._rows, self._parts = 0, self._parts + 1


def import_arrow() -> Any:
    """Import pyarrow.

    Raises:
        ImportError: It is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ImportError(f"Parquet and Arrow need pyarrow: {install_command('parquet')}") from error
    return pa
