"""Reads files of responses: JSON Lines, JSON, CSV, or one text per file.

A row that cannot be graded is returned with an error, never dropped, so that counts of rows stay correct. A file that
is wrong as a whole is one error.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO, cast

from rubric_integrations._util.files import refuse_endless
from rubric_integrations._util.json_lines import parse_json
from rubric_integrations.submission.messages import is_conversation
from rubric_integrations.submission.rows import (
    USUAL_COLUMNS,
    Columns,
    Row,
    describe_missing_column,
    fold,
    missing_column,
    read_row,
)
from rubric_integrations.submission.submission import MAX_CHARS

# A file is wrong as a whole if so many rows at its beginning have no response.
_MAX_WITHOUT_RESPONSE = 1000

_DELIMITERS = (",", ";", "\t")

_SHEET = "save the sheet as CSV (UTF-8)"
_FRAME = 'convert it with pandas: pandas.read_parquet(path).to_json("rows.jsonl", orient="records", lines=True)'
UNSUPPORTED = {".xlsx": _SHEET, ".xlsm": _SHEET, ".xls": _SHEET, ".ods": _SHEET, ".parquet": _FRAME}
"""What to do with files of other formats, by suffix."""


class ResponsesError(ValueError):
    """Raised if a file of responses cannot be read at all."""


class _Entry(NamedTuple):
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


def read_responses(
    path: str | Path,
    query: str | None = None,
    *,
    response_column: str | None = None,
    query_column: str | None = None,
    reference_column: str | None = None,
    id_column: str | None = None,
) -> Iterator[Row]:
    """Yield the rows of a `.jsonl`, `.json`, `.csv` or `.tsv` file; any other text file is one row.

    Fields of a CSV file are separated by commas, semicolons or tabs, whichever its header shows. A `.json` file is a
    list of rows or one conversation; any other JSON in it is one response. The file is read as it is consumed.

    Args:
        path: The file.
        query: The task of every row that has no `query` of its own.
        response_column: The column of the responses, instead of `response`, `output`, `completion`, `answer`, `text`
            or `messages`.
        query_column: The column of the tasks, instead of `query`, `input`, `prompt` or `question`.
        reference_column: The column of the exemplary responses, instead of `reference`, `reference_output` or
            `expected_output`.
        id_column: The column of the ids, instead of `id`.

    Raises:
        ResponsesError: The file cannot be opened, or is not text; it is a format that cannot be read; no row has a
            column that is needed; two rows have the same id.
    """
    file, columns = Path(path), Columns(response_column, query_column, reference_column, id_column)
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


def _convert(path: Path, entries: Iterator[_Entry], query: str | None, columns: Columns) -> Iterator[Row]:
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
            row = read_row(entry.fields, entry.number, query, columns)
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


def _read_jsonl(path: Path, columns: Columns) -> Iterator[_Entry]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                data = parse_json(line)
            except ValueError as error:
                yield _Entry(number, f"line {number}", None, f"line {number} {error}")
                continue
            yield _json_entry(data, number, f"line {number}", columns)


def _read_json(path: Path, columns: Columns) -> Iterator[_Entry]:
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
        yield _Entry(1, "item 1", {columns.id or "id": path.stem, columns.response or "response": text})
    elif not is_row and is_conversation(cast("object", data)):
        yield _Entry(1, "item 1", {columns.id or "id": path.stem, columns.response or "response": data})
    else:
        for number, item in enumerate(cast("list[Any]", data), start=1):
            yield _json_entry(item, number, f"item {number}", columns)


def _json_entry(data: object, number: int, place: str, columns: Columns) -> _Entry:
    if isinstance(data, str):
        return _Entry(number, place, {columns.response or "response": data})
    if isinstance(data, dict):
        return _Entry(number, place, cast("dict[str, Any]", data))
    return _Entry(number, place, None, f"{place} is {type(data).__name__}, not an object with a `response`")


def _read_csv(path: Path, columns: Columns) -> Iterator[_Entry]:
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


def _csv_entry(header: Sequence[str], record: Sequence[str], number: int, place: str, delimiter: str) -> _Entry:
    if len(record) > len(header):
        message = (
            f"{place} has {len(record)} fields, but the header has {len(header)}: put quotes around a text that "
            f"contains {delimiter!r}"
        )
        return _Entry(number, place, None, message)
    # A row may be shorter than the header: its last cells are empty.
    return _Entry(number, place, dict(zip(header, record, strict=False)) | dict.fromkeys(header[len(record) :]))


def _text_row(path: Path, query: str | None) -> Row:
    return read_row({"id": path.stem, "response": path.read_text(encoding="utf-8-sig")}, 1, query)


READERS: Mapping[str, Callable[[Path, Columns], Iterator[_Entry]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
}
"""The reader of each file format, by the suffix of the file; files with other suffixes are read as one text."""
