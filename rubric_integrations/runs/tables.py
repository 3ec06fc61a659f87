"""The rows of tables as mappings: data frames of pandas, tables and batches of Arrow, and iterables of these."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any

# Rows of an Arrow table that are Python objects at the same time.
_ROWS_AT_ONCE = 1_000


def rows_of_table(submissions: Iterable[Any] | AsyncIterable[Any]) -> Iterable[Any] | AsyncIterable[Any]:
    """Return the rows of a table; any other submissions unchanged.

    To iterate a table itself would yield its columns, or their names, which would be graded in place of the rows.

    Args:
        submissions: Whatever a user passes as submissions.
    """
    if _is_arrow(submissions):
        return rows_of_batch(submissions)
    if hasattr(submissions, "itertuples") and hasattr(submissions, "columns"):
        return _rows_of_frame(submissions)
    return submissions


def rows_of_batch(item: Any) -> Iterator[Any]:
    """Yield the rows of an Arrow table or batch as dictionaries; any other item is one row.

    Args:
        item: One item of whatever a user passes as submissions.
    """
    if not _is_arrow(item):
        yield item
        return
    for start in range(0, item.num_rows, _ROWS_AT_ONCE):
        yield from item.slice(start, _ROWS_AT_ONCE).to_pylist()


def _is_arrow(value: Any) -> bool:
    # By its module, because Arrow need not be installed.
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "num_rows")


def _rows_of_frame(frame: Any) -> Iterator[Mapping[str, Any]]:
    names = [str(name) for name in frame.columns]
    for values in frame.itertuples(index=False, name=None):
        yield dict(zip(names, values, strict=True))
