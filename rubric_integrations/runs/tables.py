"""The rows of tables as dictionaries: data frames of pandas, tables and batches of Arrow, and iterables of these."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Any

# Rows of an Arrow table that are Python objects at the same time.
_ROWS_AT_ONCE = 1_000


def rows_of_table(submissions: Iterable[Any] | AsyncIterable[Any]) -> Iterable[Any] | AsyncIterable[Any]:
    """Return the rows of a table; any other submissions unchanged.

    To iterate a table itself would yield its columns, or their names, which would be graded in place of the rows.

    Args:
        submissions: Whatever a user passes as submissions.
    """
    return rows_of_batch(submissions) if _is_arrow(submissions) or _is_frame(submissions) else submissions


def rows_of_batch(item: Any) -> Iterator[Any]:
    """Yield the rows of a table or a batch as dictionaries; any other item is one row.

    Args:
        item: One item of whatever a user passes as submissions.
    """
    if _is_arrow(item):
        for start in range(0, item.num_rows, _ROWS_AT_ONCE):
            yield from item.slice(start, _ROWS_AT_ONCE).to_pylist()
    elif _is_frame(item):
        names = [str(name) for name in item.columns]
        for values in item.itertuples(index=False, name=None):
            yield dict(zip(names, values, strict=True))
    else:
        yield item


def _is_arrow(value: Any) -> bool:
    # By its module, because Arrow need not be installed.
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "num_rows")


def _is_frame(value: Any) -> bool:
    return hasattr(value, "itertuples") and hasattr(value, "columns")
