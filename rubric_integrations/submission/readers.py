"""Reads the rows of a file of each format, before they are converted to submissions."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO, cast

from rubric_integrations._util.extras import install_command
from rubric_integrations._util.json_lines import parse_json
from rubric_integrations.submission.messages import is_conversation
from rubric_integrations.submission.rows import Columns, describe_missing_column, fold, missing_column
from rubric_integrations.submission.submission import MAX_CHARS, error_line

# Rows of a Parquet file in memory at once.
_PARQUET_ROWS = 200

_DELIMITERS = (",", ";", "\t")

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
    csv.field_size_limit(10 * MAX_CHARS)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        header_line, skipped = _first_line(lines)
        if not header_line:
            return
        delimiter = _find_delimiter(header_line, columns, default="\t" if path.suffix.lower() == ".tsv" else ",")
        # Without `strict`, an unclosed quote silently takes all following rows into one field.
        reader = csv.reader(chain([header_line], lines), delimiter=delimiter, strict=True)
        number, begins, header = 0, 0, list[str]()
        try:
            for record in reader:
                place, begins = f"line {skipped + begins + 1}", reader.line_num
                if not header:
                    header = record
                    _check_header(path, header, columns)
                elif record:
                    number += 1
                    yield _csv_entry(header, record, number, place, delimiter)
        except csv.Error as error:
            raise ResponsesError(
                f'{path}: line {skipped + begins + 1}: {error}: close each quote ("), and write a quote within a '
                'quoted text twice ("")'
            ) from None


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
        number = 0
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
            for fields in batch.to_pylist():
                number += 1
                yield Entry(number, f"row {number}", fields)
    except arrow.ArrowException as error:
        raise ResponsesError(f"{path}: is no Parquet file that can be read: {error_line(error)}") from None


def _first_line(lines: TextIO) -> tuple[str, int]:
    """Return the first line that is not blank, and the number of lines before it."""
    skipped = 0
    while (line := lines.readline()) and not line.strip():
        skipped += 1
    return line, skipped


def _find_delimiter(header: str, columns: Columns, default: str) -> str:
    """Return the delimiter by which the header has the needed columns; else the one that gives the most columns."""

    def rank(delimiter: str) -> tuple[bool, int, bool]:
        names = next(csv.reader([header], delimiter=delimiter), list[str]())
        return missing_column(names, columns) is None, len(names), delimiter == default

    return max(_DELIMITERS, key=rank)


def _check_header(path: Path, header: Sequence[str], columns: Columns) -> None:
    names = [fold(name) for name in header if name.strip()]
    counts = Counter(names)
    repeated = next((name for name in header if counts[fold(name)] > 1), None)
    if repeated is not None:
        last = next(name for name in reversed(header) if fold(name) == fold(repeated))
        raise ResponsesError(f"{path}: the column {last!r} is there twice: rename or remove one of them")
    missing = missing_column(header, columns)
    if missing is not None:
        raise ResponsesError(f"{path}: {describe_missing_column(header, missing)}")


def _csv_entry(header: Sequence[str], record: Sequence[str], number: int, place: str, delimiter: str) -> Entry:
    if len(record) > len(header):
        message = (
            f"{place} has {len(record)} fields, but the header has {len(header)}: put quotes around a text that "
            f"contains {delimiter!r}"
        )
        return Entry(number, place, None, message)
    # A row may be shorter than the header: its last cells are empty.
    return Entry(number, place, dict(zip(header, record, strict=False)) | dict.fromkeys(header[len(record) :]))


READERS: Mapping[str, Callable[[Path, Columns], Iterator[Entry]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}
"""The reader of each file format, by the suffix of the file; files with other suffixes are read as one text."""
