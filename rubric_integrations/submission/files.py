"""Reads files of responses: JSON Lines, JSON, CSV, or one text per file.

A row that cannot be graded is returned with an error, never dropped, so that counts of rows stay correct. A file that
is wrong as a whole is one error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rubric_integrations._util.files import refuse_endless
from rubric_integrations.submission.readers import READERS, UNSUPPORTED, Entry, ResponsesError
from rubric_integrations.submission.rows import (
    USUAL_COLUMNS,
    Columns,
    Row,
    describe_missing_column,
    missing_column,
    read_row,
)

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
        response_column: The column of the responses, instead of `response`, `output`, `completion`, `answer`, `text`
            or `messages`.
        query_column: The column of the tasks, instead of `query`, `input`, `prompt` or `question`.
        reference_column: The column of the exemplary responses, instead of `reference`, `reference_output`,
            `reference_answer` or `expected_output`.
        id_column: The column of the ids, instead of `id`.
        rubric_column: The column of the rows' own rubrics, instead of `rubric` or `rubrics`.

    Raises:
        ResponsesError: The file cannot be opened, or is not text; it is a format that cannot be read; no row has a
            column that is needed; two rows have the same id; pyarrow is not installed, and it is a Parquet file.
    """
    file = Path(path)
    columns = Columns(response_column, query_column, reference_column, id_column, rubric_column)
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


def _convert(path: Path, entries: Iterator[Entry], query: str | None, columns: Columns) -> Iterator[Row]:
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
    """Replace the name of a rubric file in the folder of the rows by its path; one outside is not read."""
    name = row.rubric
    if not isinstance(name, str) or len(name) > _MAX_PATH or "\n" in name:
        return row
    file = folder / name
    with suppress(OSError, ValueError):
        if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
            return row._replace(rubric=file)
    return row


def _text_row(path: Path, query: str | None) -> Row:
    return read_row({"id": path.stem, "response": path.read_text(encoding="utf-8-sig")}, 1, query)
