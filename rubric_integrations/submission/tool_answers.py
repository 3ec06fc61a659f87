"""Common parts of the readers of other tools' results: an answer, the format of a row, and the values in a row.

A row of a tool is recognized by the keys and types that the tool always writes. Therefore a user's own file is not
mistaken for the file of a tool. A row without an answer, such as a failed request, is an error and never an empty text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rubric_integrations._util.json import JsonObject, parse_json
from rubric_integrations.submission.columns import USUAL_COLUMNS, missing_column
from rubric_integrations.submission.inputs import task_fields
from rubric_integrations.submission.messages import Respond, is_conversation, value_text
from rubric_integrations.submission.submission import MAX_CHARS
from rubric_integrations.submission.text_files import LayoutError

if TYPE_CHECKING:
    from rubric_integrations.submission.traces import Span


class RawRow(NamedTuple):
    """One row of a file, or one answer in a row of a tool, before it is converted to a `Row`.

    Attributes:
        fields: The values of the row by column. They have the column names of this library if a tool wrote the row.
        error: The reason why the row cannot be read or has no answer. None for any other row.
        number: The number of the row, or of its line. A row without an id gets this number as its id.
        place: The place in the file where the row begins, such as `line 3`.
        form: The format of the rows in the file, such as `CSV, separated by ';'`. Empty if the suffix of the file
            already determines the format.
        tool: The format of the tool that wrote the row. None for rows in the columns of this library.
        source: The row as the tool wrote it. None if `tool` is None.
        sample: The number of the sample, from 1, if the row of the file has several. Its id then ends with it. None for
            a row with one response.
        group: The prompt of which the row is one of several samples, if a tool wrote it. None for other rows.
    """

    fields: JsonObject
    error: str | None = None
    number: int = 0
    place: str = ""
    form: str = ""
    tool: RowFormat | None = None
    source: JsonObject | None = None
    sample: int | None = None
    group: str | None = None


class Session(NamedTuple):
    """The lines of one session of a coding agent.

    Attributes:
        id: The id of the session. None if its lines contain none.
        rows: The lines, at least one.
        metadata: The model, the version of the agent, and similar values.
    """

    id: str | None
    rows: list[RawRow]
    metadata: dict[str, Any]


class RowFormat(NamedTuple):
    """The format of the rows of a tool.

    Attributes:
        name: The tool and its file, for messages.
        matches: Returns whether a row has this format. It never raises an error.
        read: Returns the answers of a row that matches. Each has an `id`, which is unique in the file. The result is
            empty if the row is only a part of another row.
        tasks_are_in: The name of the file that contains the tasks. None if the rows contain the tasks.
        repeats: Whether the tool writes one answer in several rows. Of several rows with the same id and the same
            answer, only one is read.
        prepare: Adapts this format to one file, and returns the adapted format. It is set if the reader of a row needs
            the rows before it or another file in the folder. Otherwise None.
        respond: The part of the conversations that is graded by default. None uses the `respond` of each row.
        spans: Returns the spans of a row, if a trace has several rows. Otherwise None.
        sessions: Divides the lines of a file into sessions, if each line is a step of one. Otherwise None.
        has_all_calls: Whether a conversation contains all tool calls of its run. If not, a conversation without calls
            is not used as a trajectory. A check could otherwise conclude that the agent made no calls.
    """

    name: str
    matches: Callable[[JsonObject], bool]
    read: Callable[[JsonObject], Iterable[RawRow]]
    tasks_are_in: str | None = None
    repeats: bool = False
    prepare: Callable[[RowFormat, Path], RowFormat] | None = None
    respond: Respond | None = None
    has_all_calls: bool = False
    spans: Callable[[JsonObject], Iterable[Span]] | None = None
    sessions: Callable[[list[RawRow]], Iterable[Session]] | None = None


def failed_answer(row_id: str, reason: object) -> RawRow:
    """Return an answer with an error, for a row in which the tool recorded a failure.

    Args:
        row_id: The id of the row.
        reason: The reason that the tool recorded: a text, or an object with a `message`.
    """
    if isinstance(reason, Mapping):
        error = cast("JsonObject", reason)
        reason = error.get("message") or error.get("code") or error
    text = " ".join(str(reason or "no reason is recorded").split())
    return RawRow({"id": row_id}, f"row {row_id}: has no answer: {text[:_MAX_REASON]}")


# The largest number of characters of a provider's error message, which may contain a web page.
_MAX_REASON = 300


def unknown_form(row: RawRow, tool: RowFormat) -> str:
    """Return the error of a row that does not have the format of the rows before it."""
    return f"{row.place} is no row of {tool.name}, which the rows before it are: its form is unknown"


def unclear_answer(row_id: str, places: Sequence[str]) -> RawRow:
    """Return an answer with an error, for a row with several outputs. The message names the places of the outputs."""
    return RawRow(
        {"id": row_id},
        f"row {row_id}: has several outputs ({', '.join(places)[:_MAX_REASON]}): name the one to grade by "
        f"`response_column` (`--response-column {places[0]}`)",
    )


def unread_rows(name: str, remedy: str) -> Callable[[JsonObject], Iterable[RawRow]]:
    """Return a reader that refuses the rows of a tool, because such rows never contain answers.

    The reader always raises a `LayoutError` with advice.

    Args:
        name: The name of the tool and its file, for the message.
        remedy: Advice on the data to grade instead.
    """

    def read(_: JsonObject) -> Iterable[RawRow]:
        raise LayoutError(f"is {name}, which has no answers: {remedy}")

    return read


def has_keys(*names: str) -> Callable[[JsonObject], bool]:
    """Return a function that tests whether a row or an object has all the given keys."""
    return lambda fields: fields.keys() >= set(names)


def has_no_response(row: JsonObject) -> bool:
    """Return whether a row has no column with a usual name of a response."""
    return missing_column(row, USUAL_COLUMNS) is not None


def all_objects(values: object, test: Callable[[JsonObject], bool]) -> bool:
    """Return whether a value is a list of one or more objects that all pass a test."""
    if not isinstance(values, list) or not values:
        return False
    return all(isinstance(value, Mapping) and test(cast("JsonObject", value)) for value in cast("list[Any]", values))


def as_mapping(value: object) -> JsonObject:
    """Return a value if it is an object. Otherwise return an empty object.

    Use this function only for values that are not graded, because a value of another type is lost.
    """
    return cast("JsonObject", value) if isinstance(value, Mapping) else {}


def object_at(fields: JsonObject, name: str) -> JsonObject:
    """Return an entry that must be an object. The object is empty if the entry is missing.

    Raises:
        ValueError: The entry is not an object.
    """
    return _checked(fields, name, Mapping) or {}


def list_at(fields: JsonObject, name: str) -> list[Any]:
    """Return an entry that must be a list. The list is empty if the entry is missing.

    Raises:
        ValueError: The entry is not a list.
    """
    return _checked(fields, name, list) or []


def text_at(fields: JsonObject, name: str) -> str | None:
    """Return an entry that must be a text or a whole number, as text, or None if the entry is missing or empty.

    Raises:
        ValueError: The entry is not a text or a whole number.
    """
    value = _checked(fields, name, str | int)
    return None if value is None else str(value)


def _checked(fields: JsonObject, name: str, kind: Any) -> Any:
    value = fields.get(name)
    if not has_value(value):
        return None
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ValueError(f"`{name}` has a value of the type {type(value).__name__}")
    return value


def short_values(fields: JsonObject, *names: str) -> dict[str, Any]:
    """Return the short values of an object, for the metadata of a row.

    Short values are Booleans, numbers and texts with at most 200 characters.

    Args:
        fields: The object.
        names: The names of the values. Without names, all short values are returned.
    """
    chosen = {name: fields.get(name) for name in names} if names else fields
    return {name: v for name, v in chosen.items() if isinstance(v, bool | int | float | str) and len(str(v)) <= 200}


def prefixed_values(row: JsonObject, prefix: str) -> dict[str, Any]:
    """Return the values of a row whose names have a prefix, by their names without the prefix."""
    return {name[len(prefix) :]: value for name, value in row.items() if name.startswith(prefix)}


def has_value(value: object) -> bool:
    """Return whether a value is present. None, an empty text and the NaN of a table are missing values."""
    return value is not None and value != "" and value == value  # noqa: PLR0124


def parsed_json(value: object) -> Any:
    """Parse a text that is a JSON object or list. Any other value is returned unchanged."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError):
            return parse_json(value)
    return value


def parsed_python(text: str) -> Any:
    """Parse a text that is a Python list or dictionary, as pandas writes it to a cell. Any other text is returned.

    A text that is not `is_short_python` is also returned.
    """
    if text.startswith(("[", "{")) and is_short_python(text):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return ast.literal_eval(text)
    return text


def is_short_python(text: str) -> bool:
    """Return whether a text can be parsed as Python in about a second. It takes far longer than for JSON."""
    return len(text) <= MAX_CHARS and text.count(",") + text.count(":") <= MAX_PYTHON_VALUES


MAX_PYTHON_VALUES = 50_000
"""The largest number of commas and colons in a text that is parsed as Python."""


def prompt_of(prompt: object) -> Any:
    """Return a prompt as a text, or as a list of messages if it is a conversation or the JSON of a conversation."""
    messages = parsed_json(prompt)
    if is_conversation(messages):
        return messages
    return value_text(prompt) if isinstance(prompt, Mapping | list) else prompt


def query_of(inputs: object) -> Any:
    """Return the task in the inputs of a program, or None if the inputs contain no task.

    The task is the input with a usual name of a task, or the only input, or all inputs as JSON.
    """
    return None if inputs in (None, {}, []) else task_fields(inputs).get("query")


def response_of(output: object) -> Any:
    """Return an output as a text or as a conversation. Any other value becomes JSON. None for a missing output."""
    if isinstance(output, float) and not has_value(output):
        return None
    return output if isinstance(output, str) or is_conversation(output) else value_text(output)
