"""Reads files of responses: JSON Lines, CSV, or one text per file.

A row that cannot be graded is returned with an error, never dropped, so that counts of rows stay correct.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from rubric_integrations.submission.submission import MAX_CHARS, Submission, error_line

_COLUMNS = {
    "response": ("response", "output", "completion", "answer", "text", "messages"),
    "thinking": ("thinking",),
    "query": ("query", "input", "prompt", "question"),
    "reference": ("reference", "reference_output", "expected_output"),
}
"""The column names of each field of a submission; the first that is present is used."""


class ResponsesError(ValueError):
    """Raised if a file of responses cannot be read at all."""


class Row(NamedTuple):
    """One row of a file of responses.

    Attributes:
        id: The row's `id` column, or its number from 1 (JSON Lines: its line number); for a text file, its name.
        submission: The submission to grade; None if the row cannot be graded.
        error: Why the row cannot be graded; None if it can.
    """

    id: str
    submission: Submission | None
    error: str | None = None


def read_responses(path: str | Path, query: str | None = None) -> Iterator[Row]:
    """Yield the rows of a `.jsonl`, `.csv` or `.tsv` file; any other text file is one row.

    Args:
        path: The file.
        query: The task of every row that has no `query` of its own.

    Raises:
        ResponsesError: The file cannot be opened, or is not text.
    """
    file = Path(path)
    try:
        yield from _READERS.get(file.suffix.lower(), _read_text)(file, query)
    except OSError as error:
        raise ResponsesError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ResponsesError(f"{path}: is not text (byte {error.start}): save it as UTF-8") from None
    except csv.Error as error:
        raise ResponsesError(f"{path}: is not CSV: {error}") from None


def _read_jsonl(path: Path, query: str | None) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Row(str(number), None, f"line {number} is not JSON: {str(error) or 'nested too deeply'}")
                continue
            if isinstance(data, str):
                data = {"response": data}
            if isinstance(data, dict):
                yield read_row(cast("dict[str, Any]", data), number, query)
            else:
                yield Row(str(number), None, f"line {number} is {type(data).__name__}, not an object with a `response`")


def _read_csv(path: Path, query: str | None) -> Iterator[Row]:
    csv.field_size_limit(10 * MAX_CHARS)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        for number, data in enumerate(csv.DictReader(lines, delimiter=delimiter), start=1):
            yield read_row(data, number, query)


def _read_text(path: Path, query: str | None) -> Iterator[Row]:
    yield read_row({"id": path.stem, "response": path.read_text(encoding="utf-8-sig")}, 1, query)


_READERS: Mapping[str, Callable[[Path, str | None], Iterator[Row]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".csv": _read_csv,
    ".tsv": _read_csv,
}
"""The reader of each file format, by the suffix of the file; files with other suffixes are read as one text."""


def read_row(data: Mapping[str, Any], number: int, query: str | None = None) -> Row:
    """Convert one row of named fields, from a file or a caller, to a submission.

    Args:
        data: A `response` and optionally a `query`, `reference`, `thinking` and `id`, each under any usual name.
        number: The number of the row, from 1; its id if it has none.
        query: The task, if the row has none.

    Example:
        >>> read_row({"output": "42", "question": "6 x 7?"}, 1).submission.query
        '6 x 7?'
    """
    row_id = str(data.get("id") or number)
    fields: dict[str, Any] = {}
    for field, columns in _COLUMNS.items():
        column = next((column for column in columns if data.get(column) is not None), None)
        if column is not None:
            fields[field] = data[column]
    if isinstance(fields.get("response"), list | tuple):
        # Only for conversations: beside a text, `respond` is a column without a meaning here, with any content.
        fields["respond"] = data.get("respond")
    if "response" not in fields:
        names = sorted(map(str, data))
        return Row(row_id, None, f"row {row_id} has no `response` (its fields are {names!r}): nothing to grade")
    try:
        return Row(row_id, Submission.model_validate({"query": query, **fields}))
    except ValidationError as error:
        return Row(row_id, None, f"row {row_id}: {error_line(error)}")
