"""Grades Arrow batches, one batch of grades for each: the core of every engine that distributes rows in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubric_integrations.formats.rubric_like import RubricLike
from rubric_integrations.graders import Grader
from rubric_integrations.graders.endpoint import JudgeUnusable
from rubric_integrations.runs.parquet import grade_record, grades_schema, import_arrow
from rubric_integrations.runs.rows import as_row
from rubric_integrations.runs.runner import grade_many
from rubric_integrations.runs.summary import Graded
from rubric_integrations.runs.tables import rows_of_batch
from rubric_integrations.submission.rows import Row

if TYPE_CHECKING:
    from rubric_integrations.runs.ledger import LedgerLike

NOT_GRADED = "not graded: "
"""Begins the error of a row that a limit of the run left ungraded."""

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
    run: str | None = None,
) -> Iterator[Any]:
    """Grade the rows of Arrow batches, and yield a batch of grades for each, in their order (extra `parquet`).

    All batches are one run: while the last rows of one are judged, the next ones begin. The grades have the schema
    of `write_parquet`, and then the chosen columns of the rows. Whatever is wrong with a row or its judge is its
    `error`.

    Args:
        batches: `pyarrow.RecordBatch`es or `pyarrow.Table`s with the columns that `read_responses` reads. They are read
            as fast as they are graded, in another thread. A row without an `id` gets its number, over all batches.
        rubric: As for `grade_many`, but no function.
        grader: The grader.
        library: As for `grade_many`.
        ledger: As for `grade_many`.
        max_concurrency: The largest number of concurrent calls, at least 1, shared by all runs of the grader with the
            same number.
        columns: The names of the rows' columns that the grades have, too, as they are.
        max_cost: The most to spend, in US dollars. The rows that are left have an `error`, which begins with "not
            graded".
        max_calls: The largest number of calls, with the same effect.
        run: As for `grade_many`.

    Yields:
        A `pyarrow.RecordBatch` with one row for each row of the batch, in its order.

    Raises:
        ImportError: pyarrow is not installed.
        JudgeUnusable: The judge cannot be used, or does not reply for `CallLimits.max_outage` seconds. All further rows
            would fail.
        ValueError: A column is not in a batch, or has the name of one of the grades; or as for `grade_many`.

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
    source = _Source(iter(batches), columns)
    results = grade_many(
        source.rows(), rubric, grader, library=library, ledger=ledger, max_concurrency=max_concurrency,
        max_cost=max_cost, max_calls=max_calls, run=run,
    )  # fmt: skip
    return _grades(source, results)


def _grades(source: _Source, results: Any) -> Iterator[Any]:
    for graded in results:
        source.add(graded)
        yield from source.take()
    if results.summary.judge_is_unusable:
        raise JudgeUnusable(results.summary.stopped)
    yield from source.take_rest(f"{NOT_GRADED}{results.summary.stopped}")


class _Batch:
    """A batch whose rows are under way."""

    def __init__(self, batch: Any, first: int, columns: Sequence[str]):
        self.batch, self.first = batch, first
        self.records: dict[int, dict[str, Any]] = {}
        absent = [name for name in columns if name not in batch.schema.names]
        # An engine may pass an empty batch without any column.
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
        """Give each row without a result an error."""
        for position, row in enumerate(rows_of_batch(self.batch), self.first):
            if position not in self.records:
                self.records[position] = grade_record(Graded(as_row(row, position), None, error))

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
    """The rows of all batches, and the batches that wait for results, in their order."""

    def __init__(self, batches: Iterator[Any], columns: Sequence[str]):
        self._batches, self._columns = batches, columns
        self._waiting: deque[_Batch] = deque()
        self._next = 1

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all batches with their positions, by which `add` finds their places.

        A run that a limit ends leaves out rows between others, and ids may repeat.
        """
        while (batch := self._read()) is not None:
            for position, fields in enumerate(rows_of_batch(batch.batch), batch.first):
                yield as_row(fields, position)._replace(metadata={_POSITION: position})

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
        """Put a result into its place."""
        position = (graded.row.metadata or {})[_POSITION]
        batch = next(batch for batch in self._waiting if batch.first <= position < batch.end)
        batch.records[position] = grade_record(graded)

    def take(self) -> Iterator[Any]:
        """Yield the grades of the batches whose turn it is."""
        while self._waiting and self._waiting[0].is_complete:
            yield self._waiting.popleft().grades()

    def take_rest(self, error: str) -> Iterator[Any]:
        """Yield the grades of the other batches, also of those that were not read, with an error in rows without any.

        Args:
            error: Why the run has left rows ungraded.
        """
        while self._waiting or self._read() is not None:
            batch = self._waiting.popleft()
            batch.fill(error)
            yield batch.grades()
