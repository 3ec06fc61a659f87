"""Files of responses: JSONL, CSV, or one text. A row that cannot be graded is told apart, never dropped."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from rubric_integrations.submission import MAX_CHARS, Submission

_NAMES = {
    "response": ("response", "output", "completion", "answer", "text"),
    "thinking": ("thinking",),
    "query": ("query", "input", "prompt", "question"),
    "reference": ("reference", "reference_output", "expected_output"),
}


class ResponsesError(ValueError):
    """A file of responses that cannot be read at all."""


class Row(NamedTuple):
    """One row of a file.

    Attributes:
        id: Its `id` column, or its line's number (of a text file: its name).
        submission: What to grade; None where the row cannot be graded.
        error: Why not; None where it can.
    """

    id: str
    submission: Submission | None
    error: str | None = None


def read_responses(path: Path, query: str | None = None) -> Iterator[Row]:
    """Yield the rows of a `.jsonl`, `.csv` or `.tsv` file, or the one row that any other text file is.

    Args:
        path: The file.
        query: The task of every row that names none.

    Raises:
        ResponsesError: The file is not there, or is not text.
    """
    readers = {".jsonl": _jsonl, ".ndjson": _jsonl, ".csv": _csv, ".tsv": _csv}
    try:
        yield from readers.get(path.suffix.lower(), _text)(path, query)
    except OSError as error:
        raise ResponsesError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ResponsesError(f"{path}: is not text (byte {error.start}): save it as UTF-8") from None
    except csv.Error as error:
        raise ResponsesError(f"{path}: is not CSV: {error}") from None


def _jsonl(path: Path, query: str | None) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Row(str(number), None, f"line {number} is not JSON: {str(error) or 'too deep'}")
                continue
            if isinstance(data, str):
                data = {"response": data}
            if isinstance(data, dict):
                yield _row(cast("dict[str, Any]", data), number, query)
            else:
                yield Row(str(number), None, f"line {number} is {type(data).__name__}, not an object with a `response`")


def _csv(path: Path, query: str | None) -> Iterator[Row]:
    csv.field_size_limit(10 * MAX_CHARS)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        for number, data in enumerate(csv.DictReader(lines, delimiter=delimiter), start=1):
            yield _row(data, number, query)


def _text(path: Path, query: str | None) -> Iterator[Row]:
    yield _row({"id": path.stem, "response": path.read_text(encoding="utf-8-sig")}, 1, query)


def _row(data: Mapping[str, Any], number: int, query: str | None) -> Row:
    row_id = str(data.get("id") or number)
    fields: dict[str, Any] = {}
    for field, names in _NAMES.items():
        name = next((name for name in names if data.get(name) is not None), None)
        if name is not None:
            fields[field] = data[name]
    if "response" not in fields:
        columns = sorted(map(str, data))
        return Row(row_id, None, f"row {row_id} has no `response` (its fields are {columns!r}): nothing to grade")
    try:
        return Row(row_id, Submission.model_validate({"query": query, **fields}))
    except ValidationError as error:
        details = error.errors()[0]
        message = details["msg"].removeprefix("Value error, ").lower()
        return Row(row_id, None, f"row {row_id}: `{'.'.join(map(str, details['loc']))}` {message}")
