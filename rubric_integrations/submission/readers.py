"""Reads the rows of a file by its format (`READERS`): JSON Lines, JSON, YAML and logs of Inspect."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from rubric_integrations._util.json import parse_json
from rubric_integrations.rubric.rubric import RubricError
from rubric_integrations.submission.columns import USUAL_COLUMNS, ColumnNames, missing_column
from rubric_integrations.submission.containers import SWE_AGENT_KEYS, find_rows, is_at, is_single_row, rows_at
from rubric_integrations.submission.dialects.detect import SESSIONS, dialect_of
from rubric_integrations.submission.inputs import own_id
from rubric_integrations.submission.messages import is_conversation, is_message
from rubric_integrations.submission.session_files import is_session_text
from rubric_integrations.submission.tables import Layout, read_csv_rows, read_parquet, read_sheet
from rubric_integrations.submission.text_files import (
    MAX_PARSED,
    LayoutError,
    open_text,
    read_lines,
    read_text,
)
from rubric_integrations.submission.tool_answers import RawRow


def _read_jsonl(path: Path, layout: Layout) -> Iterator[RawRow]:
    with open_text(path, layout.encoding) as file:
        for number, line in enumerate(read_lines(file), start=1):
            if not line.strip():
                continue
            try:
                data = parse_json(line)
            except ValueError as error:
                yield RawRow({}, f"line {number} {error}", number, f"line {number}")
                continue
            yield _json_row(data, number, f"line {number}", layout.columns)


def _read_json(path: Path, layout: Layout) -> Iterator[RawRow]:
    text = read_text(path, layout.encoding)
    try:
        data: Any = parse_json(text)
    except ValueError as error:
        # A file in UTF-16 or UTF-32 without a byte order mark has zeros between its characters.
        begin = text.lstrip("\0\ufeff \t\r\n")[:1]
        if begin in ("[", "{"):
            remedy = "" if begin == "[" else AS_TEXT
            raise LayoutError(f"{error}{remedy}") from None
        data = None
    yield from _document_rows(path, data, text, layout)


def _read_yaml(path: Path, layout: Layout) -> Iterator[RawRow]:
    """Yield the rows of a YAML file."""
    from rubric_integrations.formats.parsing import load_text

    text = read_text(path, layout.encoding)
    try:
        # Converted by JSON: dates become texts, and the values that aliases share become separate values.
        data = parse_json(json.dumps(load_text(text, "yaml", str(path)), default=str))
    except RubricError as error:
        problem = str(error).removeprefix(f"{path}: ")
        raise LayoutError(f"{problem}; write it as JSON, or save a text as a `.txt` file") from None
    except (TypeError, ValueError) as error:
        raise LayoutError(f"cannot be read as JSON: {error}; save a text as a `.txt` file") from None
    # Unlike JSON, YAML that is cut off is often valid.
    if PROMPTFOO_TEXT.match(text) and "config" not in data:
        raise LayoutError("is promptfoo's results without `config`, its end: write them again")
    yield from _document_rows(path, data, text, layout)


def _document_rows(path: Path, data: Any, text: str, layout: Layout) -> Iterator[RawRow]:
    """Yield the rows of a JSON or YAML document. If it has none, its text is the response."""
    columns = layout.columns
    rows: Iterable[Any] | None = None
    if layout.rows is not None:
        rows = rows_at(data, layout.rows)
    elif isinstance(data, dict):
        rows = find_rows(cast("dict[str, Any]", data), columns)
    elif isinstance(data, list):
        rows = cast("list[Any]", data)
        is_session = dialect_of(rows) in SESSIONS and columns.response is None
        if not is_session and is_conversation(rows) and not _has_response(rows[0], columns):
            fields = {columns.id or "id": path.stem, columns.response or "response": rows}
            yield RawRow(fields, None, 1, "item 1", ONE_RESPONSE)
            return
    if rows is None:
        fields, form = _single_row(path, data, text, columns)
        yield RawRow(fields, None, 1, "item 1", form)
    else:
        form = ROWS_OF_OBJECT if isinstance(data, dict) else "JSON, a list of rows"
        for number, item in enumerate(rows, start=1):
            yield _json_row(item, number, f"item {number}", columns)._replace(form=form)


ROWS_OF_OBJECT = "JSON, rows in one object"


ONE_RESPONSE = "JSON, all of it one response"


def _has_response(row: object, columns: ColumnNames) -> bool:
    return isinstance(row, Mapping) and missing_column(cast("Mapping[str, Any]", row), columns) is None


def _single_row(path: Path, data: object, text: str, columns: ColumnNames) -> tuple[dict[str, Any], str]:
    """Return the fields and the form of a JSON file that is one row, one conversation or one response."""
    own_id_column, response = columns.id or "id", columns.response or "response"
    if not isinstance(data, dict):
        return {own_id_column: path.stem, response: text}, ONE_RESPONSE
    fields = cast("dict[str, Any]", data)
    is_named = columns.response is not None and is_at(fields, columns.response)
    if is_named and fields.keys() >= SWE_AGENT_KEYS:
        # Its `trajectory` repeats the commands of its `history`, and is not a conversation.
        fields = {**fields, "trajectory": None if columns.response == "history" else fields["history"]}
    if is_named or (columns.response is None and is_single_row(fields)):
        return (fields if own_id(fields, columns) else {**fields, own_id_column: path.stem}), "JSON, one row"
    is_text = dialect_of(fields) is None and not is_message(fields)
    return {own_id_column: path.stem, response: text if is_text else fields}, ONE_RESPONSE


def _json_row(data: object, number: int, place: str, columns: ColumnNames) -> RawRow:
    if isinstance(data, str):
        return RawRow({columns.response or "response": data}, None, number, place)
    if isinstance(data, dict):
        return RawRow(cast("dict[str, Any]", data), None, number, place)
    return RawRow({}, f"{place} is {type(data).__name__}, not an object with a `response`", number, place)


def _read_inspect_log(path: Path, layout: Layout) -> Iterator[RawRow]:
    """Yield the samples of an `.eval` file, which is a ZIP archive of JSON files."""
    try:
        # Opened once, also for the samples that `zipfile` cannot unpack.
        with path.open("rb") as file, ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")]
            if not names:
                raise LayoutError("is an Inspect log without samples: there is nothing to grade")
            for number, name in enumerate(names, start=1):
                data = parse_json(_unpack(file, archive, name).decode("utf-8"))
                yield _json_row(data, number, name, layout.columns)
    except (BadZipFile, UnicodeDecodeError, RuntimeError, EOFError, zlib.error) as error:
        raise LayoutError(f"is no Inspect log that can be read: {error}") from None
    except LayoutError:
        raise
    except ValueError as error:
        raise LayoutError(f"a sample {error}") from None


# The Zstandard compression of ZIP files, which Python reads from version 3.14.
_ZSTANDARD = 93


def _unpack(file: BinaryIO, archive: ZipFile, name: str) -> bytes:
    """Return the content of one file in an Inspect log, which may be compressed by Zstandard."""
    member = archive.getinfo(name)
    if member.file_size > MAX_PARSED:
        raise LayoutError(f"{name[:MAX_PATH]} has {member.file_size:,} bytes, more than {MAX_PARSED:,}")
    if member.compress_type in (ZIP_STORED, ZIP_DEFLATED):
        with archive.open(member) as content:
            # Not more than the size in the archive. Without a limit, all content would be unpacked before its size is
            # compared.
            return content.read(member.file_size)
    if member.compress_type != _ZSTANDARD:
        raise LayoutError(
            f"is compressed by the method {member.compress_type}, which Inspect does not write: convert it by "
            "`inspect log convert --to json`"
        )
    from zstandard import ZstdDecompressor, ZstdError

    file.seek(member.header_offset)
    header = file.read(30)
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    try:
        # Not more than the size in the archive, because a frame can unpack to any size.
        packed = io.BytesIO(file.read(member.compress_size))
        unpacked = ZstdDecompressor().stream_reader(packed).read(member.file_size + 1)
    except ZstdError as error:
        raise LayoutError(f"{name} cannot be unpacked: {error}") from None
    if len(unpacked) != member.file_size:
        raise LayoutError(f"{name} cannot be unpacked: it has another size than the archive says")
    return unpacked


ONE_TEXT = "one text"


def read_one_text(path: Path, layout: Layout) -> Iterator[RawRow]:
    """Yield the text of a file as one response."""
    text = read_text(path, layout.encoding)
    if layout.columns != USUAL_COLUMNS:
        raise LayoutError("is read as one text, which has no columns: name none")
    if PROMPTFOO_TEXT.match(text):
        raise LayoutError("is promptfoo's results as YAML: rename it to `.yaml`, or all would be one response")
    if is_session_text(text):
        raise LayoutError(
            "is a session or the output of a coding agent: rename it to `.jsonl`, or to `.json` if it is one value "
            "(for stdin, `--input-format jsonl`), or its JSON would be graded as a text"
        )
    yield RawRow({"id": path.stem, "response": text}, None, 1, "line 1", ONE_TEXT)


READERS: Mapping[str, Callable[[Path, Layout], Iterator[RawRow]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".csv": read_csv_rows,
    ".tsv": read_csv_rows,
    ".parquet": read_parquet,
    ".xlsx": read_sheet,
    ".xlsm": read_sheet,
    ".eval": _read_inspect_log,
    ".traj": _read_json,
}
"""The reader of each file format, by the suffix of the file. For other suffixes, it is `read_one_text`."""


AS_TEXT = "; to grade it as one text, save it as a `.txt` file"


# The largest number of characters of a path. A longer text is a rubric, not its path.
MAX_PATH = 1000


# promptfoo writes the same content to an output file with the suffix `.txt` as to a file with `.yaml`.
PROMPTFOO_TEXT = re.compile(r"evalId: \S+\nresults:\n")
