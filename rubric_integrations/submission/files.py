"""Reads files of responses: JSON Lines, JSON, YAML, CSV, Parquet, spreadsheets, Inspect logs, and single texts.

A row that cannot be graded is returned with an error and never dropped. Therefore the counts of rows stay correct. If
the file itself cannot be read, one error is raised.
"""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, count, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple, cast

from rubric_integrations._util.json import refuse_endless, split_path, value_at
from rubric_integrations.submission.attachments import file_in_folder
from rubric_integrations.submission.columns import (
    USUAL_COLUMNS,
    ColumnNames,
    describe_missing_column,
    fold,
    has_id_column,
    missing_column,
)
from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.inputs import (
    Row,
    holds_messages,
    other_columns,
    own_id,
    read_row,
    row_fields,
    source_columns,
)
from rubric_integrations.submission.messages import Respond, check_respond
from rubric_integrations.submission.readers import (
    AS_TEXT,
    MAX_PATH,
    ONE_RESPONSE,
    PROMPTFOO_TEXT,
    READERS,
    ROWS_OF_OBJECT,
)
from rubric_integrations.submission.tables import Entry, Layout
from rubric_integrations.submission.text_files import (
    BinaryFileError,
    ResponsesError,
    how_to_encode,
    read_text,
    refuse_controls,
)
from rubric_integrations.submission.tool_answers import LayoutError, RowFormat, ToolAnswer, as_mapping, parsed_json
from rubric_integrations.submission.tool_rows import find_row_format
from rubric_integrations.submission.traces import SPANS, TRACE_FORMATS, read_traces

# A file is refused if this many rows at its beginning have no response.
_MAX_WITHOUT_RESPONSE = 1000


def read_responses(
    path: str | Path,
    query: str | None = None,
    *,
    response_column: str | None = None,
    query_column: str | None = None,
    reference_column: str | None = None,
    id_column: str | None = None,
    rubric_column: str | None = None,
    rows: str | None = None,
    encoding: str | None = None,
    respond: Respond | None = None,
) -> Iterator[Row]:
    """Yield the rows of a `.jsonl`, `.json`, `.yaml`, `.csv`, `.parquet` or `.xlsx` file. A text file is one row.

    The separator of a CSV file (comma, semicolon or tab) is found from its header. A `.json` or `.yaml` file contains a
    list of rows, one row or one conversation. Other data in such a file are graded as one response. Only an object that
    contains a list of objects is refused, because the objects in the list could be the rows. The file is read while the
    rows are used.

    The results of promptfoo, Inspect (`.json`, `.eval`), LangSmith, ragas, lm-eval, tau-bench and others, and the
    output of batches of OpenAI and Anthropic, are recognized and converted. With a `response_column`, their rows are
    not converted.

    A row may contain its own rubric. The rubric consists of lists and objects, or of their JSON in a cell, or is the
    path of a rubric file in the folder of the rows or below it. The `labels` (answers by criterion) and `metadata` of a
    row are copied to its result.

    The column `attachments` has files for the judge. It is a list of objects with a `path` (relative to the file and in
    its folder), `data` (base64 or a `data:` URI) or a `url`, and optionally with `mime_type`, `name` and `detail`.

    Args:
        path: The file.
        query: The task of each row without a `query`.
        response_column: The column of the responses, if it is not a usual name such as `response` or `output`. Like the
            other columns, it can be a path into nested values, such as `response.body.choices.0.message.content`.
        query_column: The column of the tasks, if it is not a usual name such as `query` or `input`.
        reference_column: The column of the reference responses, if it is not a usual name such as `reference`.
        id_column: The column of the ids, if it is not `id`.
        rubric_column: The column of the rows' own rubrics, if it is not `rubric` or `rubrics`.
        rows: The path of the list of rows in a JSON file, such as `data` or `run.results`, or the name of a sheet in an
            `.xlsx` file.
        encoding: The encoding of a text file, such as `cp1252`. By default, UTF-8, or UTF-16 if the file has a byte
            order mark.
        respond: The part of each conversation that is graded: the `last` answer, the `transcript` of all messages, or
            the `trajectory`, which is the transcript with numbered steps. It replaces the `respond` of the rows. The
            default is `last`. In two cases, the default is `trajectory`, with a warning: for an agent's run that ends
            without an answer, and for all rows of tau-bench and tau2.

    Raises:
        ResponsesError: The file cannot be opened, is not text, or has an unknown format. A required column is missing
            in all rows. Two rows have the same id. It is not clear which part of the file contains the rows. Or the
            file needs pyarrow (Parquet) or openpyxl (spreadsheet), which is not installed.

    Example:
        >>> import json, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "run.json"
        >>> _ = path.write_text(json.dumps({"run": {"answers": [{"id": "a", "output": {"text": "It is 42."}}]}}))
        >>> [row] = read_responses(path, rows="run.answers", response_column="output.text")
        >>> row.id, row.submission.response
        ('a', 'It is 42.')
    """
    columns = ColumnNames(response_column, query_column, reference_column, id_column, rubric_column)
    if respond is not None:
        check_respond(respond)
    file, layout = Path(path), Layout(columns, rows, encoding, respond)
    with _refused_by_name(file, layout):
        if file.suffix.lower() in READERS:
            yield from _convert(file, partial(_answers, file, layout, query), query, layout)
        else:
            yield _text_row(file, query, layout)


class FileDescription(NamedTuple):
    """A description of how `read_responses` reads a file, based on the first 1,000 rows.

    Attributes:
        format: The format of the file, such as `JSON Lines` or `CSV, separated by ';'`.
        tool: The tool that wrote the rows, such as `promptfoo results`. None for rows in the columns of this library.
        dialect: The dialect of the first response, trajectory or query that is a conversation. None without a
            conversation.
        columns: For each field, the columns of a row, or the paths in a row, from which the values of the field are
            read. Empty if the reader of the tool computes the values.
        metadata: The names of the values that are copied to the results as metadata.
        ignored: The columns that are not read. Empty for rows of a tool, because most of their values are not read.
        is_plain: Whether the format is certain, because the file has rows in the usual columns or is one text.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "run.jsonl"
        >>> _ = path.write_text('{"output": "It is 42.", "model": "m"}')
        >>> describe_responses(path).columns, describe_responses(path).metadata
        ({'response': ('output',)}, ('model',))
    """

    format: str
    tool: str | None
    dialect: str | None
    columns: Mapping[str, tuple[str, ...]]
    metadata: tuple[str, ...]
    ignored: tuple[str, ...]
    is_plain: bool


def describe_responses(
    path: str | Path,
    query: str | None = None,
    *,
    response_column: str | None = None,
    query_column: str | None = None,
    reference_column: str | None = None,
    id_column: str | None = None,
    rubric_column: str | None = None,
    rows: str | None = None,
    encoding: str | None = None,
    respond: Respond | None = None,
) -> FileDescription:
    r"""Describe how `read_responses` reads a file: the format, the tool, and the columns of the fields.

    The arguments and errors are the same as for `read_responses`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "answers.csv"
        >>> _ = path.write_text("Antwort;query\nIt is 42.;6 x 7?\n")
        >>> describe_responses(path, response_column="Antwort").format
        "CSV, separated by ';'"
    """
    columns = ColumnNames(response_column, query_column, reference_column, id_column, rubric_column)
    file, layout = Path(path), Layout(columns, rows, encoding, respond)
    with _refused_by_name(file, layout):
        if file.suffix.lower() in READERS:
            return _describe(file.suffix.lower(), layout, islice(_answers(file, layout, query), _MAX_DESCRIBED))
        _text_row(file, query, layout)
    return FileDescription("one text", None, None, {}, (), (), is_plain=True)


# The largest number of rows that a description reads.
_MAX_DESCRIBED = 1000


def _describe(suffix: str, layout: Layout, entries: Iterable[Entry]) -> FileDescription:
    columns = layout.columns
    # Dictionaries without values are used as ordered sets.
    sources: dict[str, dict[str, None]] = {}
    names, metadata = dict[str, None](), dict[str, None]()
    form, tool, dialect = "", None, None
    for entry in entries:
        form, tool = form or entry.form, tool or entry.tool
        if entry.fields is None or entry.error is not None:
            continue
        fields = entry.fields
        columns_of = source_columns(fields, columns)
        dialect = dialect or _dialect_of_fields({
            field: parsed_json(fields[own[-1]]) if field == "trajectory" or holds_messages(own[-1]) else fields[own[-1]]
            for field, own in columns_of.items()
        })  # fmt: skip
        own_metadata = parsed_json(fields[columns_of["metadata"][0]]) if "metadata" in columns_of else None
        metadata.update(dict.fromkeys([*other_columns(fields, columns), *map(str, as_mapping(own_metadata))]))
        names.update(dict.fromkeys(fields))
        for field, own in columns_of.items():
            if entry.source is None or own[0] in columns:
                sources.setdefault(field, {}).update(dict.fromkeys(own))
            elif field not in sources:
                sources[field] = dict.fromkeys(_paths_of(fields[own[0]], entry.source))
    roots = {split_path(path)[0] for path in columns if path}
    read = {name for own in sources.values() for name in own} | metadata.keys() | roots
    is_plain = not tool and not dialect and columns == USUAL_COLUMNS and form not in (ROWS_OF_OBJECT, ONE_RESPONSE)
    return FileDescription(
        form or _FORMS[suffix], tool, dialect, {field: tuple(own) for field, own in sources.items()}, tuple(metadata),
        () if tool else tuple(name for name in names if name not in read and name.strip()), is_plain=is_plain,
    )  # fmt: skip


_FORMS = {
    ".jsonl": "JSON Lines", ".ndjson": "JSON Lines", ".json": "JSON", ".traj": "JSON", ".csv": "CSV", ".tsv": "CSV",
    ".parquet": "Parquet", ".xlsx": "spreadsheet", ".xlsm": "spreadsheet", ".eval": "ZIP archive",
}  # fmt: skip


def _dialect_of_fields(fields: Mapping[str, Any]) -> str | None:
    """Return the dialect of the first field that is a conversation or an agent's state with one."""
    values = [fields.get(name) for name in _CONVERSATIONS]
    states = [as_mapping(value).get("messages") for value in values]
    names = (dialect_of(value) for pair in zip(values, states, strict=True) for value in pair)
    return next((name for name in names if name is not None and name != "refused"), None)


_CONVERSATIONS = ("response", "trajectory", "query")


def _paths_of(value: object, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths in a tool's row where a value, or the parts of a value, are found by identity.

    Empty if nothing is found. Comparison by equality would also find the path of an equal reference.
    """
    paths: dict[int, tuple[str, ...] | None] = {}
    inner: list[tuple[tuple[str, ...], Any]] = [((), row)]
    for keys, item in inner:  # which grows
        children = item.items() if isinstance(item, Mapping) else enumerate(item) if isinstance(item, list) else ()
        for key, child in cast("Iterable[tuple[Any, Any]]", children):
            # Python may use one object for equal short texts and numbers. Therefore they are left out.
            if isinstance(child, list | Mapping) or (isinstance(child, str) and len(child) > 1):
                paths[id(child)] = None if id(child) in paths else (*keys, str(key))
                inner.append(((*keys, str(key)), child))
    parts, places = [value], list[tuple[str, ...]]()
    for part in parts:  # which grows
        if place := paths.get(id(part)):
            places.append(place)
        elif isinstance(part, Mapping | list):
            parts += part.values() if isinstance(part, Mapping) else cast("list[Any]", part)
    shared = takewhile(lambda keys: len(set(keys)) == 1, zip(*places, strict=False))
    path = ".".join(keys[0] for keys in shared)
    return (path,) if path else tuple(dict.fromkeys(keys[0] for keys in places))


@contextmanager
def _refused_by_name(path: Path, layout: Layout) -> Generator[None]:
    """Refuse a file that cannot be read. Errors in the block are replaced by errors that name the file."""
    rows, encoding = layout.rows, layout.encoding
    suffix = path.suffix.lower()
    if rows is not None and suffix not in _WITH_PLACES:
        raise ResponsesError(f"{path}: `rows` (`--rows`) is for {', '.join(_WITH_PLACES)} files: leave it out")
    try:
        if path.is_dir():
            raise ResponsesError(f"{path}: {_folder_problem(path)}")
        refuse_endless(path)
        yield
    except (LayoutError, BinaryFileError) as error:
        raise ResponsesError(f"{path}: {error}") from None
    except LookupError as error:
        if encoding is None or not str(error).startswith("unknown encoding"):
            raise
        raise ResponsesError(
            f"{path}: `encoding` {encoding!r} is unknown: use one such as 'cp1252' or 'utf-16'"
        ) from None
    except MemoryError:
        raise ResponsesError(f"{path}: needs more memory than there is: split it into several files") from None
    except OSError as error:
        raise ResponsesError(f"{path}: cannot be read: {' '.join(str(error.strerror or error).split())}") from None
    except UnicodeDecodeError as error:
        remedy = f"{how_to_encode(suffix)}, or name its encoding, such as `encoding='cp1252'` (`--encoding cp1252`)"
        what = "text" if encoding is None else f"text in {encoding!r}"
        with _refused_by_name(path, layout):
            # Any encoding that is named would be wrong.
            refuse_controls(error.object.decode("latin-1"))
        raise ResponsesError(f"{path}: is not {what} (byte {error.start}): {remedy}") from None
    except UnicodeError as error:  # UTF-16 without its byte order mark
        raise ResponsesError(f"{path}: is not text in {encoding!r}: {error}") from None


def _folder_problem(folder: Path) -> str:
    """Return the error of a folder, with a command that makes rows of its texts."""
    command = """for f in {}/*; do jq -cRs --arg id "$f" '{{id: $id, response: .}}' "$f"; done > rows.jsonl"""
    return (
        f"is a folder: name one of its files; or make a row of each text: `{command.format(shlex.quote(str(folder)))}`"
    )


_MAX_SHAPES = 1000
_TRACES = frozenset(known.name for known in TRACE_FORMATS)
_WITH_PLACES = (".json", ".yaml", ".yml", ".xlsx", ".xlsm")


def _answers(path: Path, layout: Layout, query: str | None) -> Iterator[Entry]:
    """Yield the entries of a file. Rows of another tool are converted to the columns of this library.

    The first row decides the format. Therefore later rows cannot be read in another way than earlier ones.
    """
    columns = layout.columns
    known: RowFormat | None = None
    is_decided, has_answers, has_parts, seen = columns.response is not None, False, False, set[tuple[str, str]]()
    # The names and types of the values in earlier rows that no tool wrote. Most rows of a file have the same.
    plain = set[tuple[Any, ...]]()
    for entry in READERS[path.suffix.lower()](path, layout):
        if entry.fields is None:
            has_answers = True
            yield entry
            continue
        is_plain = is_decided and known is None and columns.response is None
        if is_plain and (error := _of_another_tool(entry, entry.fields, plain)):
            yield Entry(entry.number, entry.place, None, error)
            continue
        if not is_decided:
            known, is_decided = find_row_format(entry.fields), True
            known = known.prepare(known, path) if known and known.prepare else known
            if known and known.tasks_are_in and not (query or columns.query):
                _warn_of_tasks(path, known)
            if known and known.name in SPANS:
                yield from _trace_entries(path, layout, known, entry)
                return
            if known and known.respond and layout.respond is None:
                _warn_of_respond(path, known)
        if known is None:
            has_answers = True
            yield entry._replace(fields=_with_paths(entry.fields, columns))
            continue
        answers = _read_answers(known, entry)
        has_parts = has_parts or not answers
        for number, answer in enumerate(answers, start=1):
            if known.repeats and answer.error is None:
                content = (str(answer.fields["id"]), json.dumps(answer.fields, default=str))
                if content in seen:
                    continue
                seen.add(content)
            has_answers = True
            place = entry.place if len(answers) == 1 else f"{entry.place}, answer {number}"
            respond = {"respond": known.respond} if known.respond else {}
            fields = {**respond, **answer.fields, **_named_values(entry.fields, columns)}
            lacks = not known.has_all_calls
            yield Entry(entry.number, place, fields, answer.error, entry.form, known.name, entry.fields, lacks)
    if has_parts and not has_answers:
        raise ResponsesError(f"{path}: has {known.name if known else 'rows'}, but only parts of runs and no whole run")


def _of_another_tool(entry: Entry, fields: Mapping[str, Any], plain: set[tuple[Any, ...]]) -> str | None:
    """Return the error of a row that a tool wrote, if the first row was not written by a tool. None if there is none.

    If the response of the row is a text, the row is read like the rows before it. Any other response would be graded
    together with all values that the tool wrote.

    Args:
        entry: The row.
        fields: The fields of the row.
        plain: The names and types of earlier rows that no tool wrote. The names and types of this row are added.

    Raises:
        LayoutError: The row is a step of a trace. The other rows may be steps, too.
    """
    shape = (*fields, *map(type, fields.values()))
    if shape in plain:
        return None
    later = find_row_format(fields)
    if later is None:
        if len(plain) < _MAX_SHAPES:
            plain.add(shape)
        return None
    if later.name in SPANS:
        raise LayoutError(
            f"has rows of {later.name}, and the first row is not one: correct or remove that row, or steps would be "
            "graded as answers"
        )
    if isinstance(row_fields(fields, warns=False).get("response"), str):
        return None
    return f"{entry.place} is a row of {later.name}, and the first row is not: correct or remove that row"


def _trace_entries(path: Path, layout: Layout, known: RowFormat, first: Entry) -> Iterator[Entry]:
    """Yield an entry for each trace in a file of spans, and an entry for each unreadable row from `first` on."""

    def rows() -> Iterator[tuple[Entry, Mapping[str, Any] | None]]:
        return ((entry, entry.fields) for entry in READERS[path.suffix.lower()](path, layout))

    for entry, answer in read_traces(known, rows):
        if entry.number < first.number:
            continue
        fields, error = answer or ({}, entry.error or _unknown_form(known, entry))
        yield Entry(entry.number, entry.place, fields, error, entry.form, known.name, entry.fields)


def _warn_of_tasks(path: Path, known: RowFormat) -> None:
    warnings.warn(
        f"{path}: is read as {known.name}, whose tasks are in {known.tasks_are_in}: the judge sees the responses "
        "without them; for one task, use `query` (`--query`), or join the files and use `query_column` "
        "(`--query-column`)",
        stacklevel=2,
    )


def _warn_of_respond(path: Path, known: RowFormat) -> None:
    warnings.warn(
        f"{path}: is read as {known.name}, whose conversations need not end with an answer: each is graded as a whole, "
        f"by respond={known.respond!r}; name another by `respond` (`--respond`)",
        stacklevel=2,
    )


def _read_answers(known: RowFormat, entry: Entry) -> list[ToolAnswer]:
    fields = entry.fields or {}
    try:
        if known.matches(fields):
            return list(known.read(fields))
    except LayoutError as error:
        raise LayoutError(f"{entry.place} {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        pass
    return [ToolAnswer({}, _unknown_form(known, entry))]


def _unknown_form(known: RowFormat, entry: Entry) -> str:
    return f"{entry.place} is no row of {known.name}, which the rows before it are: its form is unknown"


def _with_paths(fields: Mapping[str, Any], columns: ColumnNames) -> Mapping[str, Any]:
    """Return a row with added values for column names that are paths, such as `response.body`."""
    return fields if columns == USUAL_COLUMNS else {**fields, **_named_values(fields, columns)}


def _named_values(fields: Mapping[str, Any], columns: ColumnNames) -> dict[str, Any]:
    """Return the values of a row at the names and paths of the columns that a caller chose."""
    values = dict[str, Any]()
    for name in (name for name in columns if name is not None):
        own = next((own for own in fields if own == name), None) or next(
            (o for o in fields if fold(o) == fold(name)), None
        )
        with suppress(LookupError):
            values[own or name] = fields[own] if own is not None else value_at(fields, split_path(name))
    return values


def _convert(path: Path, read: Callable[[], Iterator[Entry]], query: str | None, layout: Layout) -> Iterator[Row]:
    """Yield the rows of a file. A file is refused if no row has a response, or if two rows have the same id."""
    columns, respond = layout.columns, {} if layout.respond is None else {"respond": layout.respond}
    own_ids: set[str] | None = None
    places: dict[str, str] = {}
    # Rows before the first row with a response. If no row has one, the file gets one error instead of their errors.
    waiting: list[Row] = []
    refusal: str | None = None
    unreadable: str | None = None
    repeated: str | None = None
    is_right = has_readable_row = False
    for entry in read():
        row_id = own_id(entry.fields, columns) if entry.fields else None
        if row_id is None:
            if own_ids is None:
                own_ids = _own_ids(path, read, entry, columns)
            row_id = _free_id(entry.number, own_ids)
        if entry.fields is None or entry.error is not None:
            row = Row(row_id, None).with_error(entry.error or "")
            unreadable = unreadable or entry.error
        else:
            has_readable_row, missing = True, missing_column(entry.fields, columns)
            is_right = is_right or missing is None
            if missing is not None:
                refusal = refusal or describe_missing_column(entry.fields, missing)
            fields = {**entry.fields, **respond}
            # The reader of a trace has warned already of what it leaves out.
            row = read_row(fields, row_id, query, columns, path.parent, warns=entry.tool not in _TRACES)
            row = _with_rubric_file(row, path.parent)
            row = _without_absent_calls(row) if entry.may_lack_calls else row
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
        raise ResponsesError(f"{path}: {_with_remedy(refusal, path.suffix.lower(), read)}")
    yield from waiting


def _with_remedy(refusal: str, suffix: str, read: Callable[[], Iterator[Entry]]) -> str:
    """Return the refusal of a file without a response, with what to do if it may be one response as a whole."""
    if suffix in (".json", ".yaml", ".yml"):
        return f"{refusal}{AS_TEXT}"
    if suffix in (".jsonl", ".ndjson"):
        dialect = dialect_of([entry.fields for entry in islice(read(), _MAX_WITHOUT_RESPONSE)])
        # The last dialect reads every list.
        if dialect not in (None, "refused", "openai_chat"):
            return f"its lines are one conversation ({dialect}): write them as one list in a `.json` file"
    return refusal


def _without_absent_calls(row: Row) -> Row:
    """Remove a trajectory without calls, because the absence of calls in it is not certain."""
    submission = row.submission
    if submission is None or submission.trajectory is None or submission.trajectory.calls:
        return row
    return row._replace(submission=submission.model_copy(update={"trajectory": None, "show_trajectory": "always"}))


def _own_ids(path: Path, read: Callable[[], Iterator[Entry]], entry: Entry, columns: ColumnNames) -> set[str]:
    """Return the ids that the rows of a file contain. Rows without an id must get different ones."""
    is_table = path.suffix.lower() not in (".jsonl", ".ndjson", ".json", ".yaml", ".yml")
    if is_table and entry.fields and not has_id_column(entry.fields, columns):
        return set()
    ids = (own_id(other.fields, columns) for other in read() if other.fields)
    return {row_id for row_id in ids if row_id is not None}


def _free_id(number: int, taken: set[str]) -> str:
    """Return the id of a row without an id: its number, such as `2`, or `2-2` if another row has the id `2`."""
    names = chain([str(number)], (f"{number}-{suffix}" for suffix in count(2)))
    return next(name for name in names if name not in taken)


def _with_rubric_file(row: Row, folder: Path) -> Row:
    """Replace the name of a rubric file by its path. As for attachments, it must be in the folder of the rows."""
    name = row.rubric
    if not isinstance(name, str) or len(name) > MAX_PATH or "\n" in name:
        return row
    with suppress(OSError, ValueError):
        file_in_folder(name, folder)
        return row._replace(rubric=folder / name)
    return row


def _text_row(path: Path, query: str | None, layout: Layout) -> Row:
    text = read_text(path, layout.encoding)
    if layout.columns != USUAL_COLUMNS:
        raise ResponsesError(f"{path}: is read as one text, which has no columns: name none")
    if PROMPTFOO_TEXT.match(text):
        raise ResponsesError(
            f"{path}: is promptfoo's results as YAML: rename it to `.yaml`, or all would be one response"
        )
    return read_row({"id": path.stem, "response": text}, 1, query)
