"""Writes grades as Parquet files with a fixed schema, and grades Arrow batches for engines that distribute rows.

A file has a temporary name until it is complete. This module is separate because it imports pyarrow at the first use.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rubric_integrations._util.lazy import install_command
from rubric_integrations._util.records import encodable
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.graders import Grader
from rubric_integrations.judges.spend import Prices
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.runs.files import IncompleteRunWarning, describe_stop, expected_rows
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring.judgment import NO_SPEND
from rubric_integrations.submission.inputs import Row, as_row

ROWS_PER_GROUP = 5_000
"""The number of rows in memory before they are written as one row group."""

ROWS_PER_PART = 100_000
"""The number of rows in each file of a folder."""

# Identifies files of this library, which a later run may replace.
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
    """Return a result as a row of a table of grades, with the columns of `grades_schema`.

    The fields `calls` and `cost` are sums over the judgments of the result, including judgments from a ledger. `cost`
    is None if a price is unknown.
    """
    report = graded.report
    spend = report.spend if report else NO_SPEND
    verdicts = [
        {
            "name": encodable(row.name),
            "verdict": row.verdict,
            "value": row.value,
            "reason": row.shown_reason,
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
    """Iterate a run and write its grades to a Parquet file, or to several files in a folder (extra `parquet`).

    At most 5,000 rows are in memory. A file has a temporary name until it is complete. If the run is interrupted, a
    folder contains the complete files, and the run's ledger contains all judgments. A warning tells if a limit stopped
    the run. The metadata of each file has the number of submissions that the run was given, as `submissions`.

    Args:
        run: A run of `grade_many`, or any iterable of results.
        path: The file, if the path ends in `.parquet`. Otherwise a folder, which is created if it does not exist. It
            gets the files `part-00000.parquet`, `part-00001.parquet` and so on, with up to 100,000 rows each.
        overwrite: Whether an existing file of grades, or the earlier parts in the folder, may be replaced.

    Raises:
        FileExistsError: The path already has grades and `overwrite` is not set, or a part in the folder is not a file
            of grades.
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
    if note := describe_stop(writer.written, writer.expected):
        warnings.warn(f"{path}: {note}", IncompleteRunWarning, stacklevel=2)


def earlier_grades(path: Path) -> list[Path]:
    """Return the files that `write_parquet` would replace: the file itself, or the parts of the folder, in order.

    Raises:
        FileExistsError: A file in the folder has the name of a part and is not a file of grades. The
            file may belong to another program.
    """
    if is_grades_path(path):
        return [path] if path.exists() else []
    parts = sorted(path.glob("part-*.parquet"))
    if other := next((part for part in parts if not is_grades_file(part)), None):
        raise FileExistsError(f"{other} is no file of grades: name another folder, since its data could be lost")
    return parts


def is_grades_path(path: Path) -> bool:
    """Whether `write_parquet` writes one file to this path, and not several files into a folder."""
    return path.suffix.lower() == ".parquet" and not path.is_dir()


def is_grades_file(path: Path) -> bool:
    """Whether `write_parquet` wrote a file. False if pyarrow is not installed."""
    with suppress(ImportError, OSError, ValueError):
        import pyarrow.parquet as pq

        metadata = pq.read_schema(path).metadata or {}
        return metadata.get(b"rubric_integrations", b"").startswith(b"grades ")
    return False


class GradesWriter:
    """Writes results to a Parquet file, or to several files in a folder, in the block of a `with` statement.

    If the block ends with an exception, the incomplete file is removed. Earlier files that were not replaced yet are
    kept.

    Args:
        path: One file if the path ends in `.parquet`, otherwise a folder for several files. Earlier files with the same
            names are replaced. Additional earlier parts are removed when the last new part is complete.

    Attributes:
        written: The number of results so far.

    Raises:
        FileExistsError: The folder has a part that is not a file of grades.
        ImportError: pyarrow is not installed.
    """

    def __init__(self, path: Path):
        self._path, self._is_folder = path, not is_grades_path(path)
        self._schema, self._earlier = grades_schema(), earlier_grades(path)
        self._records: list[dict[str, Any]] = []
        self._file: Any = None
        self._rows = self._parts = self.written = 0
        self._marks: list[object] = []

    @property
    def expected(self) -> int | None:
        """The number of submissions that the run was given. None if it is unknown."""
        return expected_rows(self._marks)

    @property
    def _target(self) -> Path:
        return self._path / f"part-{self._parts:05}.parquet" if self._is_folder else self._path

    @property
    def _partial(self) -> Path:
        # The name contains the process id. Otherwise two processes would write into one file.
        return self._target.with_name(f"{self._target.name}.{os.getpid()}.partial")

    def write(self, graded: Graded) -> None:
        """Add a result. Results are written to the file in groups of 5,000."""
        self._records.append(grade_record(graded))
        if graded.run or not self.written:
            self._marks.append(graded.run)
        self.written += 1
        if len(self._records) >= ROWS_PER_GROUP:
            self._write_group()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(is_whole=kind is None)

    def close(self, *, is_whole: bool) -> None:
        """Close the last file. If the grades are complete, rename the file from its temporary name to its final name.

        If the grades are not complete, remove the last file, and keep earlier files that it would have replaced.

        Args:
            is_whole: Whether the grades are complete.
        """
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
        """Open the next file and return its Parquet writer.

        The first file is opened before the run. If it cannot be opened, no call has been paid for.
        """
        import pyarrow.parquet as pq

        if self._is_folder:
            self._path.mkdir(parents=True, exist_ok=True)
        self._file = pq.ParquetWriter(self._partial, self._schema)
        return self._file

    def _write_group(self) -> None:
        pa: Any = import_arrow()
        if self._records:
            file = self._file or self.open()
            file.write_table(pa.Table.from_pylist(self._records, schema=self._schema))
            self._rows += len(self._records)
            self._records = []
        if self._is_folder and self._rows >= ROWS_PER_PART:
            self._publish()

    def _publish(self) -> None:
        if self.expected is not None:
            self._file.add_key_value_metadata({"submissions": str(self.expected)})
        self._file.close()
        self._file = None
        self._partial.replace(self._target)
        self._rows, self._parts = 0, self._parts + 1


def import_arrow() -> Any:
    """Import pyarrow.

    Raises:
        ImportError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ImportError(f"Parquet and Arrow need pyarrow: {install_command('parquet')}") from error
    return pa


NOT_GRADED = "not graded: "
"""The beginning of the error of a row that a limit of the run left ungraded."""

_POSITION = "position"


def grade_batches(
    batches: Iterable[Any],
    rubric: RubricLike | None,
    grader: Grader,
    *,
    library: Mapping[str, RubricLike] | str | Path | None = None,
    ledger: LedgerLike | None = None,
    max_concurrency: int = 64,
    columns: Sequence[str] = (),
    max_cost: float | None = None,
    max_calls: int | None = None,
    prices: Prices | None = None,
    run: str | None = None,
) -> Iterator[Any]:
    """Grade the rows of Arrow batches, and yield one batch of grades for each, in order (extra `parquet`).

    All batches form one run. While the last rows of a batch are still being graded, the first rows of the next batch
    start. The grades have the schema of `write_parquet`, followed by the chosen columns of the rows. A problem with a
    row or its judge is in the column `error`.

    Args:
        batches: `pyarrow.RecordBatch`es or `pyarrow.Table`s with the columns that `read_responses` reads. Another
            thread reads the batches, only as fast as their rows are graded. A row without an `id` gets its number over
            all batches.
        rubric: The rubric for all rows, or None if each row has its own rubric. A function is not accepted.
        grader: The grader.
        library: Rubrics by name, or the path of a file of such rubrics, for rows whose `rubric` is a name.
        ledger: The store of judgments: a path, the URL of a database, or an open ledger. Stored judgments are not
            requested again.
        max_concurrency: The largest number of concurrent calls, at least 1. Runs of one grader with the same
            `max_concurrency` share this limit.
        columns: The names of columns of the rows that are copied to the grades.
        max_cost: The largest cost, in US dollars. Rows that were not graded because of this limit have an `error` that
            begins with "not graded".
        max_calls: The largest number of calls to models. It has the same effect as `max_cost`.
        prices: The prices of a million input and output tokens in US dollars, by the name of the model. By
            default, the prices of DSPy's price list.
        run: A name under which several processes with the same ledger share `max_cost` and `max_calls`.

    Yields:
        A `pyarrow.RecordBatch` with one row for each row of the batch, in the same order.

    Raises:
        ImportError: pyarrow is not installed.
        JudgeUnusable: The judge cannot be used, or does not reply for `CallLimits.max_outage` seconds. All further rows
            would fail.
        ValueError: A name in `columns` is not in a batch, or is the name of a column of the grades. `grade_many` can
            also raise this error.

    Example:
        >>> import pyarrow as pa
        >>> from rubric_integrations import PerCriterionGrader
        >>> batch = pa.record_batch({"id": ["a", "b"], "response": ["It is 42.", None]})
        >>> says_42 = [{"requirement": "Says 42", "check": {"number": 42}}]
        >>> for grades in grade_batches([batch], says_42, PerCriterionGrader("offline")):
        ...     grades.select(["id", "score", "error"]).to_pylist()
        [{'id': 'a', 'score': 1.0, 'error': None}, \
{'id': 'b', 'score': None, 'error': 'row b: `response` is null: there is nothing to grade'}]
    """
    if callable(rubric) and not hasattr(rubric, "criteria"):
        raise TypeError("`rubric` is a function: give each row its rubric in a column `rubric`")
    if isinstance(columns, str):
        raise TypeError(f"`columns` must be a list of names, got {columns!r}")
    if taken := [name for name in columns if name in grades_schema().names]:
        raise ValueError(f"`columns` {taken!r} are names of the grades: rename them in the rows")
    from rubric_integrations.runs.run import grade_many

    source = _Source(iter(batches), columns)
    results = grade_many(
        source.rows(), rubric, grader, library=library, ledger=ledger, max_concurrency=max_concurrency,
        max_cost=max_cost, max_calls=max_calls, prices=prices, run=run,
    )  # fmt: skip
    return _grades(source, results)


def _grades(source: _Source, results: Any) -> Iterator[Any]:
    from rubric_integrations.graders.endpoint import JudgeUnusable

    for graded in results:
        source.add(graded)
        yield from source.take()
    if results.summary.judge_is_unusable:
        raise JudgeUnusable(results.summary.stopped)
    yield from source.take_rest(f"{NOT_GRADED}{results.summary.stopped}")


class _Batch:
    """A batch and the grades of its rows so far."""

    def __init__(self, batch: Any, first: int, columns: Sequence[str]):
        self.batch, self.first = batch, first
        self.records: dict[int, dict[str, Any]] = {}
        absent = [name for name in columns if name not in batch.schema.names]
        # Some engines pass an empty batch without columns.
        if absent and batch.num_rows:
            raise ValueError(f"`columns` {absent!r} are not in the batch: its columns are {batch.schema.names[:20]!r}")
        self._columns = [name for name in columns if name not in absent]

    @property
    def end(self) -> int:
        return self.first + self.batch.num_rows

    @property
    def is_complete(self) -> bool:
        return len(self.records) == self.batch.num_rows

    def fill(self, error: str) -> None:
        """Add a result with an error for each row that has none."""
        from rubric_integrations.runs.run import rows_of_batch

        for position, row in enumerate(rows_of_batch(self.batch), self.first):
            if position not in self.records:
                self.records[position] = grade_record(Graded(as_row(row, position, warns=False), None, error))

    def grades(self) -> Any:
        pa: Any = import_arrow()
        schema = grades_schema()
        records = [self.records[position] for position in range(self.first, self.end)]
        arrays = pa.RecordBatch.from_pylist(records, schema=schema).columns
        for name in self._columns:
            values = self.batch.column(name)
            arrays.append(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)
            schema = schema.append(self.batch.schema.field(name))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Source:
    """The rows of all batches, and the batches that wait for results, in order."""

    def __init__(self, batches: Iterator[Any], columns: Sequence[str]):
        self._batches, self._columns = batches, columns
        self._waiting: deque[_Batch] = deque()
        self._next = 1

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all batches, each with its position in the metadata. `add` uses the position.

        Ids cannot be used instead, because they may repeat. The order of the results cannot be used either, because a
        run that ends at a limit leaves out rows.
        """
        from rubric_integrations.runs.run import rows_of_batch

        while (batch := self._read()) is not None:
            for position, fields in enumerate(rows_of_batch(batch.batch), batch.first):
                yield as_row(fields, position, warns=False)._replace(metadata={_POSITION: position})

    def _read(self) -> _Batch | None:
        batch = next(self._batches, None)
        if batch is None:
            return None
        if not hasattr(batch, "num_rows"):
            kind = type(batch).__name__
            raise TypeError(f"`batches` must be an iterable of Arrow tables or record batches, got one of {kind}")
        waiting = _Batch(batch, self._next, self._columns)
        self._next = waiting.end
        self._waiting.append(waiting)
        return waiting

    def add(self, graded: Graded) -> None:
        """Add a result to the batch of its row."""
        position = (graded.row.metadata or {})[_POSITION]
        batch = next(batch for batch in self._waiting if batch.first <= position < batch.end)
        batch.records[position] = grade_record(graded)

    def take(self) -> Iterator[Any]:
        """Yield the grades of complete batches, in order."""
        while self._waiting and self._waiting[0].is_complete:
            yield self._waiting.popleft().grades()

    def take_rest(self, error: str) -> Iterator[Any]:
        """Yield the grades of all other batches, including batches not yet read. Rows without a result get an error.

        Args:
            error: The reason why the run left rows ungraded.
        """
        while self._waiting or self._read() is not None:
            batch = self._waiting.popleft()
            batch.fill(error)
            yield batch.grades()
