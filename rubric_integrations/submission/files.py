"""Files of responses: JSONL, CSV, or one text. A row that cannot be graded is told apart, never dropped."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from rubric_integrations.submission.submission import MAX_CHARS, Submission, error_line

_NAMES = {
    "response": ("response", "output", "completion", "answer", "text", "messages"),
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
                yield read_row(cast("dict[str, Any]", data), number, query)
            else:
                yield Row(str(number), None, f"line {number} is {type(data).__name__}, not an object with a `response`")


def _csv(path: Path, query: str | None) -> Iterator[Row]:
    csv.field_size_limit(10 * MAX_CHARS)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        for number, data in enumerate(csv.DictReader(lines, delimiter=delimiter), start=1):
            yield read_row(data, number, query)


def _text(path: Path, query: str | None) -> Iterator[Row]:
    yield read_row({"id": path.stem, "response": path.read_text(encoding="utf-8-sig")}, 1, query)


def read_row(data: Mapping[str, Any], number: int, query: str | None = None) -> Row:
    """One row of named fields, as a file of responses or a caller has it.

    Args:
        data: A `response`, and if there are any a `query`, `reference`, `thinking` and `id`, under any usual name.
        number: Which row it is, from 1; its id if it has none.
        query: The task, if the row names none.

    Example:
        >>> read_row({"output": "42", "question": "6 x 7?"}, 1).submission.query
        '6 x 7?'
    """
    row_id = str(data.get("id") or number)
    fields: dict[str, Any] = {}
    for field, names in _NAMES.items():
        name = next((name for name in names if data.get(name) is not None), None)
        if name is not None:
            fields[field] = data[name]
    if isinstance(fields.get("response"), list | tuple):
        fields["respond"] = data.get("respond")  # of a text, it is a column like any other
    if "response" not in fields:
        columns = sorted(map(str, data))
        return Row(row_id, None, f"row {row_id} has no `response` (its fields are {columns!r}): nothing to grade")
    try:
        return Row(row_id, Submission.model_validate({"query": query, **fields}))
    except ValidationError as error:
        return Row(row_id, None, f"row {row_id}: {error_line(error)}")
