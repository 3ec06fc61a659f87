"""Reads files of responses: JSON Lines, JSON, YAML, CSV, Parquet, spreadsheets, Inspect logs, and single texts.

A row that cannot be graded is returned with an error and never dropped. Therefore the counts of rows stay correct. If
the file itself cannot be read, one error is raised.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, count, takewhile
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, BinaryIO, NamedTuple, cast
from weakref import finalize

from rubric_integrations._util.json import refuse_endless, split_path, value_at
from rubric_integrations.submission.attachments import file_in_folder
from rubric_integrations.submission.columns import (
    TASK_ID,
    USUAL_COLUMNS,
    ColumnNames,
    describe_missing_column,
    find_columns,
    fold,
    has_id_column,
    missing_column,
)
from rubric_integrations.submission.dialects.detect import dialect_of
from rubric_integrations.submission.dialects.unread_tools import unread_tool
from rubric_integrations.submission.inputs import (
    Row,
    holds_messages,
    other_columns,
    own_id,
    own_task,
    read_row,
    row_fields,
    source_columns,
)
from rubric_integrations.submission.messages import Respond, check_respond
from rubric_integrations.submission.readers import (
    AS_TEXT,
    MAX_PATH,
    ONE_RESPONSE,
    ONE_TEXT,
    READERS,
    ROWS_OF_OBJECT,
    read_one_text,
)
from rubric_integrations.submission.samples import sample_column, split_samples
from rubric_integrations.submission.session_files import SessionsOfFolder, lacks_prompt, session_files, session_rows
from rubric_integrations.submission.tables import Layout
from rubric_integrations.submission.text_files import LayoutError, ResponsesError, how_to_encode, refuse_controls
from rubric_integrations.submission.tool_answers import (
    RawRow,
    RowFormat,
    Session,
    as_mapping,
    parsed_json,
    unknown_form,
)
from rubric_integrations.submission.tool_rows import find_row_format
from rubric_integrations.submission.traces import TRACE_FORMATS, TraceEnds, find_ends, join_traces

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
    input_format: str | None = None,
) -> Iterator[Row]:
    """Yield the rows of a `.jsonl`, `.json`, `.yaml`, `.csv`, `.parquet` or `.xlsx` file. A text file is one row.

    The separator of a CSV file (comma, semicolon or tab) is found from its header. A `.json` or `.yaml` file contains a
    list of rows, one row or one conversation. Other data in such a file are graded as one response. Only an object that
    contains a list of objects is refused, because the objects in the list could be the rows. The file is read while the
    rows are used.

    The sessions of Claude Code and Codex, and the output of `claude -p` and `codex exec --json`, are one row each. A
    folder has a row for each session in it.

    The results of promptfoo, Inspect (`.json`, `.eval`), LangSmith, ragas, lm-eval, tau-bench and others, and the
    output of batches of OpenAI and Anthropic, are recognized and converted. With a `response_column`, their rows are
    not converted.

    A list of responses under `responses`, `samples`, `completions` or `outputs`, or of `choices`, is several rows with
    ids such as `a#1` and `a#2`. They are samples of one prompt: its id is their `group`. So are rows with the same
    `task_id`, if they have no `id`.

    A row may contain its own rubric. The rubric consists of lists and objects, or of their JSON in a cell, or is the
    path of a rubric file in the folder of the rows or below it. The `labels` (answers by criterion) and `metadata` of a
    row are copied to its result.

    The column `attachments` has files for the judge. It is a list of objects with a `path` (relative to the file and in
    its folder), `data` (base64 or a `data:` URI) or a `url`, and optionally with `mime_type`, `name` and `detail`.

    Args:
        path: The file, or a folder of sessions.
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
        input_format: The format of the file, such as `jsonl`, or `txt` for one text. By default, the suffix of the file
            determines it. A pipe, such as `-` (stdin), usually has no suffix. It is copied to a private temporary file.

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
    yield from ResponsesFile(path, query, Layout(columns, rows, encoding, respond, input_format)).rows()


class FileDescription(NamedTuple):
    """A description of how a file is read, based on its first 1,000 rows.

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
    """

    format: str
    tool: str | None
    dialect: str | None
    columns: Mapping[str, tuple[str, ...]]
    metadata: tuple[str, ...]
    ignored: tuple[str, ...]
    is_plain: bool


# The largest number of rows that a description reads.
_MAX_DESCRIBED = 1000


class _Describer:
    """Collects the description of a file from its rows."""

    def __init__(self, columns: ColumnNames, form: str):
        self._columns, self._form, self._default = columns, "", form
        self._tool: str | None = None
        self._dialect: str | None = None
        # Dictionaries without values are used as ordered sets.
        self._sources: dict[str, dict[str, None]] = {}
        self._names, self._metadata = dict[str, None](), dict[str, None]()

    def add(self, row: RawRow) -> None:
        """Add the next row of the file."""
        self._form, self._tool = self._form or row.form, self._tool or (row.tool and row.tool.name)
        if row.error is not None or row.form == ONE_TEXT:
            return
        fields, columns_of = row.fields, source_columns(row.fields, self._columns)
        self._dialect = self._dialect or _dialect_of_fields({
            field: parsed_json(fields[own[-1]]) if field == "trajectory" or holds_messages(own[-1]) else fields[own[-1]]
            for field, own in columns_of.items()
        })  # fmt: skip
        own_metadata = parsed_json(fields[columns_of["metadata"][0]]) if "metadata" in columns_of else None
        names = [*other_columns(fields, self._columns), *map(str, as_mapping(own_metadata))]
        self._metadata.update(dict.fromkeys(names))
        self._names.update(dict.fromkeys(fields if row.source is None else row.source))
        for field, own in columns_of.items():
            if row.tool is None or own[0] in self._columns:
                read = _read_columns(row, field, own, self._columns)
                self._sources.setdefault(field, {}).update(dict.fromkeys(read))
            elif field not in self._sources:
                self._sources[field] = dict.fromkeys(_paths_of(fields[own[0]], row.source or {}))

    @property
    def description(self) -> FileDescription:
        """The description of the rows so far."""
        columns, tool, form = self._columns, self._tool, self._form or self._default
        roots = {split_path(path)[0] for path in columns if path}
        read = {name for own in self._sources.values() for name in own} | self._metadata.keys() | roots
        is_certain = columns == USUAL_COLUMNS and form not in (ROWS_OF_OBJECT, ONE_RESPONSE)
        return FileDescription(
            form, tool, self._dialect, {field: tuple(own) for field, own in self._sources.items()},
            tuple(self._metadata),
            () if tool else tuple(name for name in self._names if name not in read and name.strip()),
            is_plain=is_certain and not tool and not self._dialect,
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


def _read_columns(row: RawRow, field: str, own: tuple[str, ...], columns: ColumnNames) -> tuple[str, ...]:
    """Return the columns of the file from which a field of a row is read. A sample has another column than its row."""
    samples = sample_column(row.source, columns) if field == "response" and row.source is not None else None
    return own if samples is None else (samples,)


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


class ResponsesFile:
    """A file of responses. It is read at most twice: for `check`, and then for `rows`.

    It is read once more before if the traces of its spans or its rows with equal `task_id` must be counted.

    A pipe is copied to a private temporary file, which is removed with this object, or when the process ends.

    Args:
        path: The file, or `-` for stdin.
        query: The task of each row without a `query`.
        layout: The places of the rows and their fields, as the caller chose them.

    Attributes:
        path: The file.
        description: How the file is read. None until `check` has read all rows.

    Raises:
        ValueError: `respond` is unknown.
    """

    def __init__(self, path: str | Path, query: str | None, layout: Layout):
        if layout.respond is not None:
            check_respond(layout.respond)
        self.path, self._query, self._layout = Path(path), query, layout
        self.description: FileDescription | None = None
        self._suffix = f".{layout.input_format}" if layout.input_format else self.path.suffix.lower()
        self._folder = self.path.parent
        # The file that is opened, which is a copy of a pipe.
        self._file, self._copy = self.path, ""
        self._ids: set[str] | None = None
        self._ends: TraceEnds | None = None
        self._tasks: Counter[str] | None = None

    def check(self) -> Iterator[Row]:
        """Yield each row before its conversion: with its id, rubric and metadata, and without a submission.

        A row is yielded with an error if the error is known without its conversion. A row without an id has its number.

        Raises:
            ResponsesError: As for `read_responses`.
        """
        columns, places = self._layout.columns, dict[str, str]()
        form = "a folder" if self.path.is_dir() else _FORMS.get(self._suffix, ONE_TEXT)
        describer = _Describer(columns, form)
        with self._named_errors():
            seen = Counter[str]()
            for number, raw in enumerate(self._gradable_rows()):
                own = self._identify(raw, own_id(raw.fields, columns), seen)
                if own.id:
                    _refuse_repeated(own.id, raw, places)
                if number < _MAX_DESCRIBED:
                    describer.add(raw)
                own = own if own.id else self._identify(raw, str(raw.number), seen)
                yield self._outline(raw, own.id)._replace(group=own.group)
        self._ids, self.description = set(places), describer.description

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the file.

        Raises:
            ResponsesError: As for `read_responses`.
        """
        columns, places, is_checked = self._layout.columns, dict[str, str](), self._ids is not None
        with self._named_errors():
            seen = Counter[str]()
            for raw in self._gradable_rows():
                row_id = own_id(raw.fields, columns)
                if row_id is None:
                    self._ids = self._own_ids(raw) if self._ids is None else self._ids
                    row_id = _free_id(raw.number, self._ids)
                own = self._identify(raw, row_id, seen)
                if not is_checked:
                    _refuse_repeated(own.id, raw, places)
                yield self._converted(raw, own.id)._replace(group=own.group)

    def _identify(self, raw: RawRow, row_id: str | None, seen: Counter[str]) -> _Identity:
        """Return the id and the group of a row, which may be one of several samples.

        Args:
            raw: The row.
            row_id: Its id in the file. None if it has none, and the result has an empty id.
            seen: The numbers of earlier rows by `task_id`, which are counted on.
        """
        group = raw.group
        if row_id is None:
            return _Identity("", group)
        task = own_task(raw.fields, self._layout.columns) if raw.tool is None else None
        if task is not None:
            if self._tasks is None:
                rows = ((other, own_task(other.fields, self._layout.columns)) for other in self._raw_rows())
                self._tasks = Counter(own for other, own in rows if own is not None and other.sample in (None, 1))
            seen[task] += raw.sample in (None, 1)
            if self._tasks[task] > 1:
                row_id, group = f"{task}#{seen[task]}", task
        if raw.sample is None:
            return _Identity(row_id, group)
        return _Identity(f"{row_id}#{raw.sample}", group or row_id)

    @contextmanager
    def _named_errors(self) -> Generator[None]:
        """Refuse a file that cannot be read. Errors in the block are replaced by errors that name the file."""
        try:
            self._prepare()
            yield
        except (ValueError, LookupError, MemoryError, OSError) as error:
            problem = self._problem_of(error)
            if problem is None:
                raise
            # A command in the error names the pipe, and not its copy.
            raise ResponsesError(f"{self.path}: {problem.replace(self._copy, '') if self._copy else problem}") from None

    def _prepare(self) -> None:
        """Refuse a folder, a device and unknown settings, and copy a pipe."""
        path, layout = self.path, self._layout
        if layout.input_format and self._suffix not in (*READERS, ".txt"):
            known = ", ".join(suffix[1:] for suffix in (*READERS, ".txt"))
            raise LayoutError(
                f"`input_format` (`--input-format`) {layout.input_format!r} is unknown: use one of {known}"
            )
        if layout.rows is not None and self._suffix not in _WITH_PLACES:
            raise LayoutError(f"`rows` (`--rows`) is for {', '.join(_WITH_PLACES)} files: leave it out")
        if self._copy:
            return
        if str(path) == "-":
            if not layout.input_format:
                raise LayoutError(
                    "is stdin, whose format is unknown: name it by `input_format` (`--input-format jsonl`, or `txt` "
                    "for one text)"
                )
            self._keep(sys.stdin.buffer, "stdin")
        elif path.is_dir():
            if not session_files(path):
                raise LayoutError(_folder_problem(path))
        else:
            # Who names the format of a pipe knows that it has a writer.
            if not (layout.input_format and path.is_fifo()):
                refuse_endless(path)
            if not path.is_file():
                with path.open("rb") as pipe:
                    self._keep(pipe, path.stem)

    def _keep(self, pipe: BinaryIO, name: str) -> None:
        """Copy a pipe, because it can be read only once. Its rows may name files in the working directory."""
        folder = mkdtemp(prefix="rubric-integrations-")
        finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._file, self._copy, self._folder = Path(folder, f"{name}{self._suffix}"), f"{folder}{os.sep}", Path()
        with self._file.open("xb") as copy:
            shutil.copyfileobj(pipe, copy)

    def _problem_of(self, error: Exception) -> str | None:
        """Return why the file cannot be read. None for an error that has another reason."""
        encoding = self._layout.encoding
        match error:
            case LayoutError():
                return str(error)
            case LookupError() if encoding is not None and str(error).startswith("unknown encoding"):
                return f"`encoding` {encoding!r} is unknown: use one such as 'cp1252' or 'utf-16'"
            case MemoryError():
                return "needs more memory than there is: split it into several files"
            case OSError():
                return f"cannot be read: {' '.join(str(error.strerror or error).split())}"
            case UnicodeDecodeError():
                try:
                    # Any encoding that is named would be wrong.
                    refuse_controls(error.object.decode("latin-1"))
                except LayoutError as problem:
                    return str(problem)
                remedy = f"{how_to_encode(self._suffix)}, or name its encoding, such as `encoding='cp1252'`"
                what = "text" if encoding is None else f"text in {encoding!r}"
                return f"is not {what} (byte {error.start}): {remedy} (`--encoding cp1252`)"
            case UnicodeError():  # UTF-16 without its byte order mark
                return f"is not text in {encoding!r}: {error}"
            case _:
                return None

    def _read(self, path: Path, suffix: str) -> Iterator[RawRow]:
        return READERS.get(suffix, read_one_text)(path, self._layout)

    def _raw_rows(self) -> Iterator[RawRow]:
        """Yield the rows of the file. Rows of another tool are converted to the columns of this library.

        The first row decides the format. Therefore later rows cannot be read in another way than earlier ones.
        """
        if self._file.is_dir():
            yield from self._rows_in_folder()
        else:
            yield from self._rows_of(self._file, self._suffix)

    def _rows_in_folder(self) -> Iterator[RawRow]:
        """Yield the sessions in the files of a folder. A file that is not a session is a row with an error."""
        folder, has_session, waiting, sessions = self._file, False, list[RawRow](), SessionsOfFolder()
        for path in session_files(folder):
            name = path.relative_to(folder).as_posix()
            try:
                rows = list(self._rows_of(path, path.suffix.lower(), only_sessions=True))
            except (ValueError, LookupError, OSError) as error:
                if (problem := self._problem_of(error)) is None:
                    raise
                rows = [RawRow({"id": name}, f"row {name}: {problem}", place="line 1")]
            has_session = has_session or any(row.tool is not None for row in rows)
            waiting += [sessions.add(row, name)._replace(place=f"{row.place} of {name}") for row in rows]
            if has_session:
                yield from waiting
                waiting = []
        if not has_session:
            raise LayoutError(_folder_problem(folder))

    def _rows_of(self, path: Path, suffix: str, *, only_sessions: bool = False) -> Iterator[RawRow]:
        """Yield the rows of one file.

        Raises:
            LayoutError: The file is not a session, and only sessions are read.
        """
        rows = self._read(path, suffix)
        damaged, first = _first_row(rows)
        is_named = self._layout.columns.response is not None
        known = None if first is None or is_named else find_row_format(first.fields)
        if first is not None and known is not None and known.sessions is not None:
            yield from self._sessions_of(known, known.sessions, path, chain(damaged, [first], rows))
            return
        if only_sessions:
            raise LayoutError("is not a session of a coding agent: name it alone if it contains responses")
        yield from damaged
        if first is None:
            return
        if not is_named and (problem := unread_tool(first.fields)) is not None:
            raise LayoutError(problem)
        if known is None:
            yield from self._own_rows(chain([first], rows))
        elif known.spans is None:
            yield from self._tool_rows(known, chain([first], rows))
        else:
            if self._ends is None:
                self._ends = find_ends(known, chain(damaged, [first], rows))
                rows = (row for row in self._read(path, suffix) if row.number > first.number)
            yield from join_traces(known, chain([first], rows), self._ends)

    def _sessions_of(
        self, known: RowFormat, divide: Callable[[list[RawRow]], Iterable[Session]], path: Path, rows: Iterable[RawRow]
    ) -> Iterator[RawRow]:
        """Yield a row for each session in a file, and warn if the prompt of one is not in it."""
        answers = session_rows(known, divide, path, rows)
        if lacks_prompt(answers):
            self._warn_of(known)
        yield from answers

    def _own_rows(self, rows: Iterable[RawRow]) -> Iterator[RawRow]:
        """Yield the rows of a file that no tool wrote."""
        columns = self._layout.columns
        # The names and types of the values in earlier rows. Most rows of a file have the same.
        shapes = set[tuple[Any, ...]]()
        for number, row in enumerate(rows):
            error = row.error
            if error is None and number and columns.response is None:
                error = _of_another_tool(row, shapes)
            if error is not None:
                yield row._replace(fields={}, error=error)
                continue
            named = {} if columns == USUAL_COLUMNS else _named_values(row.fields, columns)
            yield from _samples_of(row._replace(fields={**row.fields, **named}) if named else row, columns)

    def _tool_rows(self, known: RowFormat, rows: Iterable[RawRow]) -> Iterator[RawRow]:
        """Yield the answers in the rows of a tool."""
        known = known.prepare(known, self.path) if known.prepare else known
        self._warn_of(known)
        has_answers, seen = False, set[tuple[str, str]]()
        for row in rows:
            if row.error is not None:
                has_answers = True
                yield row
                continue
            answers = _read_answers(known, row)
            for number, answer in enumerate(answers, start=1):
                if known.repeats and answer.error is None:
                    content = (str(answer.fields["id"]), json.dumps(answer.fields, default=str))
                    if content in seen:
                        continue
                    seen.add(content)
                has_answers = True
                respond = {"respond": known.respond} if known.respond else {}
                fields = {**respond, **answer.fields, **_named_values(row.fields, self._layout.columns)}
                place = row.place if len(answers) == 1 else f"{row.place}, answer {number}"
                yield row._replace(
                    fields=fields, error=answer.error, place=place, tool=known, source=row.fields, sample=answer.sample,
                    group=answer.group,
                )  # fmt: skip
        if not has_answers:
            raise LayoutError(f"has {known.name}, but only parts of runs and no whole run")

    def _warn_of(self, known: RowFormat) -> None:
        """Warn if the rows of a tool have no tasks, or are graded as whole conversations."""
        if known.tasks_are_in and not (self._query or self._layout.columns.query):
            warnings.warn(
                f"{self.path}: is read as {known.name}, whose tasks are in {known.tasks_are_in}: the judge sees the "
                "responses without them; for one task, use `query` (`--query`), or join the files and use "
                "`query_column` (`--query-column`)",
                stacklevel=2,
            )
        if known.respond and self._layout.respond is None:
            warnings.warn(
                f"{self.path}: is read as {known.name}, whose conversations need not end with an answer: each is "
                f"graded as a whole, by respond={known.respond!r}; name another by `respond` (`--respond`)",
                stacklevel=2,
            )

    def _gradable_rows(self) -> Iterator[RawRow]:
        """Yield the rows of the file, and refuse it if no row has a response."""
        columns, rows = self._layout.columns, self._raw_rows()
        # Rows before the first row with a response. If no row has one, the file gets one error instead of their errors.
        waiting: list[RawRow] = []
        refusal: str | None = None
        for row in rows:
            waiting.append(row)
            if row.error is None:
                missing = missing_column(row.fields, columns)
                if missing is None:
                    break
                refusal = refusal or describe_missing_column(row.fields, missing)
            if len(waiting) >= _MAX_WITHOUT_RESPONSE:
                refusal = refusal or (
                    f"none of its first {_MAX_WITHOUT_RESPONSE:,} rows can be read, as if it were another kind of "
                    f"file; {waiting[0].error}: correct them, or each would be a row without a grade"
                )
                raise LayoutError(_with_remedy(refusal, self._suffix, waiting))
        else:
            if refusal:
                raise LayoutError(_with_remedy(refusal, self._suffix, waiting))
        yield from chain(waiting, rows)

    def _own_ids(self, row: RawRow) -> set[str]:
        """Return the ids that the rows of a file contain. Rows without an id must get different ones."""
        columns = self._layout.columns
        is_table = self._suffix not in (".jsonl", ".ndjson", ".json", ".yaml", ".yml")
        if is_table and row.fields and not has_id_column(row.fields, columns):
            return set()
        ids = (own_id(other.fields, columns) for other in self._raw_rows())
        return {row_id for row_id in ids if row_id is not None}

    def _outline(self, raw: RawRow, row_id: str) -> Row:
        """Return a row that is not converted."""
        columns, row = self._layout.columns, Row(row_id, None)
        if raw.error is not None or missing_column(raw.fields, columns) is not None:
            return row.with_error(raw.error or "")
        try:
            fields = row_fields(raw.fields, columns, warns=raw.tool not in TRACE_FORMATS)
        except ValueError as error:
            return row.with_error(str(error))
        metadata = other_columns(raw.fields, columns) | dict(as_mapping(parsed_json(fields.get("metadata"))))
        return row._replace(rubric=self._rubric_of(fields.get("rubric")), metadata=metadata)

    def _converted(self, raw: RawRow, row_id: str) -> Row:
        if raw.error is not None:
            return Row(row_id, None).with_error(raw.error)
        layout, tool = self._layout, raw.tool
        fields = raw.fields if layout.respond is None else {**raw.fields, "respond": layout.respond}
        if own_id(fields, layout.columns) not in (None, row_id):
            # The id of a sample. The row's errors name it, too.
            names = find_columns(tuple(fields), layout.columns)["id"]
            fields = {**fields, "id" if fold(names[0]) == TASK_ID else names[0]: row_id}
        # The reader of a trace has warned already of what it leaves out.
        row = read_row(fields, row_id, self._query, layout.columns, self._folder, warns=tool not in TRACE_FORMATS)
        row = row._replace(rubric=self._rubric_of(row.rubric))
        return row if tool is None or tool.has_all_calls else _without_absent_calls(row)

    def _rubric_of(self, rubric: Any) -> Any:
        """Replace the name of a rubric file by its path. As for attachments, it must be in the folder of the rows."""
        if isinstance(rubric, str) and len(rubric) <= MAX_PATH and "\n" not in rubric:
            with suppress(OSError, ValueError):
                file_in_folder(rubric, self._folder)
                return self._folder / rubric
        return rubric


def _first_row(rows: Iterator[RawRow]) -> tuple[list[RawRow], RawRow | None]:
    """Return the damaged rows at the beginning of a file, and the first row that is not damaged.

    The row is None if there is none before the number of damaged rows by which a file is refused.
    """
    damaged = list[RawRow]()
    for row in rows:
        if row.error is None:
            return damaged, row
        damaged.append(row)
        if len(damaged) >= _MAX_WITHOUT_RESPONSE:
            break
    return damaged, None


class _Identity(NamedTuple):
    """The id of a row, and the prompt or task of which it is one of several samples."""

    id: str
    group: str | None


def _samples_of(row: RawRow, columns: ColumnNames) -> Iterator[RawRow]:
    """Yield a row, or each of the samples in it."""
    try:
        samples = split_samples(row.fields, columns)
    except ValueError as error:
        row_id = own_id(row.fields, columns)
        name = f"row {row_id}" if row_id else row.place
        yield row._replace(fields={"id": row_id} if row_id else {}, error=f"{name}: {error}")
        return
    if samples is None:
        yield row
        return
    for number, fields in enumerate(samples, start=1):
        # The only sample of a row has its id, as in a run with one response for each prompt.
        sample, place = (number, f"{row.place}, sample {number}") if len(samples) > 1 else (None, row.place)
        yield row._replace(fields=fields, place=place, sample=sample, source=row.fields)


def _folder_problem(folder: Path) -> str:
    """Return the error of a folder, with a command that makes rows of its texts."""
    command = """for f in {}/*; do jq -cRs --arg id "$f" '{{id: $id, response: .}}' "$f"; done > rows.jsonl"""
    return (
        f"is a folder: name one of its files; or make a row of each text: `{command.format(shlex.quote(str(folder)))}`"
    )


_MAX_SHAPES = 1000
_WITH_PLACES = (".json", ".yaml", ".yml", ".xlsx", ".xlsm")


def _refuse_repeated(row_id: str, row: RawRow, places: dict[str, str]) -> None:
    """Refuse a file with two rows of the same id. The place of the row is added to the places by id."""
    if (first := places.setdefault(row_id, row.place)) != row.place:
        raise LayoutError(
            f"the `id` {row_id!r} is on {first} and {row.place}: give each row its own, or the grades of one could be "
            "taken for the other's"
        )


def _of_another_tool(row: RawRow, shapes: set[tuple[Any, ...]]) -> str | None:
    """Return the error of a row that a tool wrote, if the first row was not written by a tool. None if there is none.

    If the response of the row is a text, the row is read like the rows before it. Any other response would be graded
    together with all values that the tool wrote.

    Args:
        row: The row.
        shapes: The names and types of earlier rows that no tool wrote. The names and types of this row are added.

    Raises:
        LayoutError: The row is a step of a trace. The other rows may be steps, too.
    """
    shape = (*row.fields, *map(type, row.fields.values()))
    if shape in shapes:
        return None
    if (problem := unread_tool(row.fields)) is not None:
        raise LayoutError(f"{row.place} {problem}")
    later = find_row_format(row.fields)
    if later is None:
        if len(shapes) < _MAX_SHAPES:
            shapes.add(shape)
        return None
    if later.spans or later.sessions:
        raise LayoutError(
            f"has rows of {later.name}, and the first row is not one: correct or remove that row, or steps would be "
            "graded as answers"
        )
    if isinstance(row_fields(row.fields, warns=False).get("response"), str):
        return None
    return f"{row.place} is a row of {later.name}, and the first row is not: correct or remove that row"


def _read_answers(known: RowFormat, row: RawRow) -> list[RawRow]:
    try:
        if known.matches(row.fields):
            return list(known.read(row.fields))
    except LayoutError as error:
        raise LayoutError(f"{row.place} {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        pass
    return [RawRow({}, unknown_form(row, known))]


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


def _with_remedy(refusal: str, suffix: str, rows: Iterable[RawRow]) -> str:
    """Return the refusal of a file without a response, with what to do if it may be one response as a whole."""
    if suffix in (".json", ".yaml", ".yml"):
        return f"{refusal}{AS_TEXT}"
    if suffix in (".jsonl", ".ndjson"):
        dialect = dialect_of([row.fields for row in rows])
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


def _free_id(number: int, taken: set[str]) -> str:
    """Return the id of a row without an id: its number, such as `2`, or `2-2` if another row has the id `2`."""
    names = chain([str(number)], (f"{number}-{suffix}" for suffix in count(2)))
    return next(name for name in names if name not in taken)
