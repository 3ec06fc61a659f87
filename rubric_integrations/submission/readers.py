"""Reads the rows of a file of each format, before they are converted to submissions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from rubric_integrations._util.extras import install_command
from rubric_integrations._util.json_lines import parse_json
from rubric_integrations.submission.csv_records import CsvError, read_csv
from rubric_integrations.submission.messages import is_conversation
from rubric_integrations.submission.rows import Columns, describe_missing_column, missing_column, needed_columns
from rubric_integrations.submission.submission import error_line

# Rows of a Parquet file in memory at once.
_PARQUET_ROWS = 1_000

_SHEET = "save the sheet as CSV (UTF-8)"
UNSUPPORTED = {".xlsx": _SHEET, ".xlsm": _SHEET, ".xls": _SHEET, ".ods": _SHEET}
"""What to do with files of other formats, by suffix."""


class ResponsesError(ValueError):
    """Raised if a file of responses cannot be read at all."""


class Entry(NamedTuple):
    """One row of a file before it is converted.

    Attributes:
        number: The id of the row if it has no other: its number, or that of its line.
        place: Where it begins in the file, such as `line 3`.
        fields: Its fields by column; None if it has none.
        error: Why it has none.
    """

    number: int
    place: str
    fields: Mapping[str, Any] | None
    error: str | None = None


def _read_jsonl(path: Path, columns: Columns) -> Iterator[Entry]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                data = parse_json(line)
            except ValueError as error:
                yield Entry(number, f"line {number}", None, f"line {number} {error}")
                continue
            yield _json_entry(data, number, f"line {number}", columns)


def _read_json(path: Path, columns: Columns) -> Iterator[Entry]:
    text = path.read_text(encoding="utf-8-sig")
    try:
        data = parse_json(text)
    except ValueError as error:
        if text.lstrip().startswith("["):
            raise ResponsesError(f"{path}: {error}") from None
        data = None
    first = cast("list[Any]", data)[0] if isinstance(data, list) and data else None
    is_row = isinstance(first, Mapping) and missing_column(cast("Mapping[str, Any]", first), columns) is None
    if not isinstance(data, list):
        yield Entry(1, "item 1", {columns.id or "id": path.stem, columns.response or "response": text})
    elif not is_row and is_conversation(cast("object", data)):
        yield Entry(1, "item 1", {columns.id or "id": path.stem, columns.response or "response": data})
    else:
        for number, item in enumerate(cast("list[Any]", data), start=1):
            yield _json_entry(item, number, f"item {number}", columns)


def _json_entry(data: object, number: int, place: str, columns: Columns) -> Entry:
    if isinstance(data, str):
        return Entry(number, place, {columns.response or "response": data})
    if isinstance(data, dict):
        return Entry(number, place, cast("dict[str, Any]", data))
    return Entry(number, place, None, f"{place} is {type(data).__name__}, not an object with a `response`")


def _read_csv(path: Path, columns: Columns) -> Iterator[Entry]:
    def find_problem(names: Sequence[str]) -> str | None:
        missing = missing_column(names, columns)
        return None if missing is None else describe_missing_column(names, missing)

    try:
        for number, (line, fields, error) in enumerate(read_csv(path, find_problem), start=1):
            place = f"line {line}"
            yield Entry(number, place, None if error else fields, f"{place} {error}" if error else None)
    except CsvError as error:
        raise ResponsesError(f"{path}: {error}") from None


def _read_parquet(path: Path, columns: Columns) -> Iterator[Entry]:
    try:
        import pyarrow as arrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ResponsesError(f"{path}: a Parquet file needs pyarrow: {install_command('parquet')}") from None
    try:
        file = ParquetFile(path)
        if (missing := missing_column(file.schema_arrow.names, columns)) is not None:
            raise ResponsesError(f"{path}: {describe_missing_column(file.schema_arrow.names, missing)}")
        number, needed = 0, needed_columns(file.schema_arrow.names, columns)
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=needed):
            for fields in batch.to_pylist():
                number += 1
                yield Entry(number, f"row {number}", fields)
    except arrow.ArrowException as error:
        raise ResponsesError(f"{path}: is no Parquet file that can be read: {error_line(error)}") from None


READERS: Mapping[str, Callable[[Path, Columns], Iterator[Entry]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}
"""The reader of each file format, by the suffix of the file; files with other suffixes are read as one text."""
