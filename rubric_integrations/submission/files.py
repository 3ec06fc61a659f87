"""Reads files of responses: JSON Lines, JSON, CSV, Parquet, or one text for each file.

A row that cannot be graded is returned with an error and never dropped. Counts of rows therefore stay correct. A file
that cannot be read as a whole is one error.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO, cast

from rubric_integrations._util.json import parse_json, refuse_endless
from rubric_integrations._util.lazy import install_command
from rubric_integrations.submission.attachments import file_in_folder
from rubric_integrations.submission.inputs import (
    USUAL_COLUMNS,
    ColumnNames,
    Row,
    describe_missing_column,
    field_columns,
    fold,
    missing_column,
    read_row,
)
from rubric_integrations.submission.messages import is_conversation
from rubric_integrations.submission.submission import MAX_CHARS, error_line

_DELIMITERS = (",", ";", "\t")


class CsvError(ValueError):
    """A CSV file cannot be read; the message does not name the file."""


class CsvRecord(NamedTuple):
    """One record of a CSV file.

    Attributes:
        line: The number, from 1, of the line on which it begins.
        fields: Its fields by the names of the header; None for those that a shorter record lacks.
        error: Why it has no fields; None if it has.
    """

    line: int
    fields: dict[str, str | None]
    error: str | None = None


def read_csv(path: Path, find_problem: Callable[[Sequence[str]], str | None]) -> Iterator[CsvRecord]:
    """Yield the records of a CSV file, separated by commas, semicolons or tabs, without its header.

    Args:
        path: The file, in UTF-8, with or without a byte order mark.
        find_problem: Says what a header of these names lacks; None if it lacks nothing.

    Raises:
        CsvError: The header has a problem, or one name twice, or a quote is not closed.
        OSError: The file cannot be read.
        UnicodeDecodeError: It is not text.
    """
    csv.field_size_limit(10 * MAX_CHARS)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        header_line, skipped = _first_line(lines)
        if not header_line:
            return
        default = "\t" if path.suffix.lower() == ".tsv" else ","
        delimiter = _find_delimiter(header_line, find_problem, default)
        # Without `strict`, an unclosed quote silently takes all following rows into one field.
        reader = csv.reader(chain([header_line], lines), delimiter=delimiter, strict=True)
        begins, header = 0, list[str]()
        try:
            for record in reader:
                line, begins = skipped + begins + 1, reader.line_num
                if not header:
                    header = record
                    _check_header(header, find_problem)
                elif record:
                    yield _to_record(header, record, line, delimiter)
        except csv.Error as error:
            raise CsvError(
                f'line {skipped + begins + 1}: {error}: close each quote ("), and write a quote within a quoted text '
                'twice ("")'
            ) from None


def _first_line(lines: TextIO) -> tuple[str, int]:
    """Return the first line that is not blank, and the number of lines before it."""
    skipped = 0
    while (line := lines.readline()) and not line.strip():
        skipped += 1
    return line, skipped


def _find_delimiter(header: str, find_problem: Callable[[Sequence[str]], str | None], default: str) -> str:
    """Return the delimiter by which the header has the needed columns; else the one that gives the most columns."""

    def rank(delimiter: str) -> tuple[bool, int, bool]:
        names = next(csv.reader([header], delimiter=delimiter), list[str]())
        return find_problem(names) is None, len(names), delimiter == default

    return max(_DELIMITERS, key=rank)


def _check_header(header: Sequence[str], find_problem: Callable[[Sequence[str]], str | None]) -> None:
    counts = Counter(fold(name) for name in header if name.strip())
    repeated = next((name for name in header if counts[fold(name)] > 1), None)
    if repeated is not None:
        last = next(name for name in reversed(header) if fold(name) == fold(repeated))
        raise CsvError(f"the column {last!r} is there twice: rename or remove one of them")
    if (problem := find_problem(header)) is not None:
        raise CsvError(problem)


def _to_record(header: Sequence[str], record: Sequence[str], line: int, delimiter: str) -> CsvRecord:
    if len(record) > len(header):
        message = (
            f"has {len(record)} fields, but the header has {len(header)}: put quotes around a text that contains "
            f"{delimiter!r}"
        )
        return CsvRecord(line, {}, message)
    # A row may be shorter than the header: its last cells are empty.
    fields: dict[str, str | None] = dict.fromkeys(header)
    return CsvRecord(line, fields | dict(zip(header, record, strict=False)))


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


def _read_jsonl(path: Path, columns: ColumnNames) -> Iterator[Entry]:
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


def _read_json(path: Path, columns: ColumnNames) -> Iterator[Entry]:
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


def _json_entry(data: object, number: int, place: str, columns: ColumnNames) -> Entry:
    if isinstance(data, str):
        return Entry(number, place, {columns.response or "response": data})
    if isinstance(data, dict):
        return Entry(number, place, cast("dict[str, Any]", data))
    return Entry(number, place, None, f"{place} is {type(data).__name__}, not an object with a `response`")


def _read_csv(path: Path, columns: ColumnNames) -> Iterator[Entry]:
    def find_problem(names: Sequence[str]) -> str | None:
        missing = missing_column(names, columns)
        return None if missing is None else describe_missing_column(names, missing)

    try:
        for number, (line, fields, error) in enumerate(read_csv(path, find_problem), start=1):
            place = f"line {line}"
            yield Entry(number, place, None if error else fields, f"{place} {error}" if error else None)
    except CsvError as error:
        raise ResponsesError(f"{path}: {error}") from None


def _read_parquet(path: Path, columns: ColumnNames) -> Iterator[Entry]:
    try:
        import pyarrow as arrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ResponsesError(f"{path}: a Parquet file needs pyarrow: {install_command('parquet')}") from None
    try:
        file = ParquetFile(path)
        if (missing := missing_column(file.schema_arrow.names, columns)) is not None:
            raise ResponsesError(f"{path}: {describe_missing_column(file.schema_arrow.names, missing)}")
        # Vectors and other large columns that no field has are not read.
        plain = [column.name for column in file.schema_arrow if _is_plain(column.type)]
        needed, number = {*field_columns(file.schema_arrow.names, columns), *plain}, 0
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=sorted(needed)):
            for fields in batch.to_pylist():
                number += 1
                yield Entry(number, f"row {number}", fields)
    except arrow.ArrowException as error:
        raise ResponsesError(f"{path}: is no Parquet file that can be read: {error_line(error)}") from None


def _is_plain(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_boolean, types.is_integer, types.is_floating, types.is_string, types.is_large_string)
    return any(test(kind) for test in tests)


READERS: Mapping[str, Callable[[Path, ColumnNames], Iterator[Entry]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}
"""The reader of each file format, by the suffix of the file; files with other suffixes are read as one text."""


# A file is wrong as a whole if so many rows at its beginning have no response.
_MAX_WITHOUT_RESPONSE = 1000
# Characters; a longer text is a rubric, and no path of one.
_MAX_PATH = 1000


def read_responses(
    path: str | Path,
    query: str | None = None,
    *,
    response_column: str | None = None,
    query_column: str | None = None,
    reference_column: str | None = None,
    id_column: str | None = None,
    rubric_column: str | None = None,
) -> Iterator[Row]:
    """Yield the rows of a `.jsonl`, `.json`, `.csv`, `.tsv` or `.parquet` file; any other text file is one row.

    Fields of a CSV file are separated by commas, semicolons or tabs, whichever its header shows. A `.json` file is a
    list of rows or one conversation; any other JSON in it is one response. The file is read as it is consumed.

    A row may bring its own rubric: as lists and objects, as their JSON in a cell, or as the path of a file in the
    folder of the rows or below it. What it brings as `labels` (answers by criterion) and `metadata` is carried along.

    The column `attachments` has files for the judge: a list of objects with a `path`, relative to the file and in its
    folder, or `data` (base64 or a `data:` URI), or a `url`; and optionally `mime_type`, `name` and `detail`.

    Args:
        path: The file.
        query: The task of every row that has no `query` of its own.
        response_column: The column of the responses, instead of a usual name, such as `response` or `output`.
        query_column: The column of the tasks, instead of a usual name, such as `query` or `input`.
        reference_column: The column of the exemplary responses, instead of a usual name, such as `reference`.
        id_column: The column of the ids, instead of `id`.
        rubric_column: The column of the rows' own rubrics, instead of `rubric` or `rubrics`.

    Raises:
        ResponsesError: The file cannot be opened, or is not text; it is a format that cannot be read; no row has a
            column that is needed; two rows have the same id; pyarrow is not installed, and it is a Parquet file.
    """
    file = Path(path)
    columns = ColumnNames(response_column, query_column, reference_column, id_column, rubric_column)
    suffix = file.suffix.lower()
    if suffix in UNSUPPORTED:
        raise ResponsesError(f"{path}: `{suffix}` files are not supported: {UNSUPPORTED[suffix]}")
    try:
        refuse_endless(file)
        if suffix in READERS:
            yield from _convert(file, READERS[suffix](file, columns), query, columns)
        elif columns != USUAL_COLUMNS:
            raise ResponsesError(f"{path}: is read as one text, which has no columns: name none")
        else:
            yield _text_row(file, query)
    except OSError as error:
        raise ResponsesError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ResponsesError(f"{path}: is not text (byte {error.start}): save it as UTF-8") from None


def _convert(path: Path, entries: Iterator[Entry], query: str | None, columns: ColumnNames) -> Iterator[Row]:
    """Yield the rows of a file, and refuse a file where no row has a response, or two have the same id."""
    places: dict[str, str] = {}
    # Rows before the first that has a response: if there is none, the file gets one error in place of theirs.
    waiting: list[Row] = []
    refusal: str | None = None
    unreadable: str | None = None
    repeated: str | None = None
    is_right = has_readable_row = False
    for entry in entries:
        if entry.fields is None:
            row = Row(str(entry.number), None, entry.error)
            unreadable = unreadable or entry.error
        else:
            has_readable_row, missing = True, missing_column(entry.fields, columns)
            is_right = is_right or missing is None
            if missing is not None:
                refusal = refusal or describe_missing_column(entry.fields, missing)
            row = _with_rubric_file(read_row(entry.fields, entry.number, query, columns, path.parent), path.parent)
        if (first := places.setdefault(row.id, entry.place)) != entry.place:
            repeated = repeated or (
                f"the `id` {row.id!r} is on {first} and {entry.place}: give each row its own, or the grades of one "
                "could be taken for the other's"
            )
        if is_right and repeated:
            raise ResponsesError(f"{path}: {repeated}")
        waiting.append(row)
        if len(waiting) >= _MAX_WITHOUT_RESPONSE:
            if not is_right and (refusal or not has_readable_row):
                refusal = refusal or (
                    f"none of its first {_MAX_WITHOUT_RESPONSE:,} rows can be read, as if it were another kind of "
                    f"file; {unreadable}: correct them, or each would be a row without a grade"
                )
                break
            is_right = True
        if is_right:
            yield from waiting
            waiting.clear()
    if refusal and not is_right:
        raise ResponsesError(f"{path}: {refusal}")
    yield from waiting


def _with_rubric_file(row: Row, folder: Path) -> Row:
    """Replace the name of a rubric file in the folder of the rows by its path, by the same rule as for attachments."""
    name = row.rubric
    if not isinstance(name, str) or len(name) > _MAX_PATH or "\n" in name:
        return row
    with suppress(OSError, ValueError):
        file_in_folder(name, folder)
        return row._replace(rubric=folder / name)
    return row


def _text_row(path: Path, query: str | None) -> Row:
    return read_row({"id": path.stem, "response": path.read_text(encoding="utf-8-sig")}, 1, query)
