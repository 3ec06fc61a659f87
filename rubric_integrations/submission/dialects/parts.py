"""The parts of messages that all dialects share, and the reading of single fields."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from rubric_integrations._util.json_lines import parse_json
from rubric_integrations._util.records import encodable

NO_NAME = "(no name)"
"""The name of a call that has none, such as a call whose arguments a provider could not parse."""

# Deeper values cannot be written by every JSON library; as text they are kept completely.
_MAX_DEPTH = 100


class Text(NamedTuple):
    """A text of a message.

    Attributes:
        text: The text, or a placeholder.
        kind: A `text`, the placeholder of an `attachment`, or the `[type]` of a `note`, such as reasoning, which is not
            graded.
    """

    text: str
    kind: Literal["text", "attachment", "note"] = "text"


class Call(NamedTuple):
    """A call of a tool; its id is None if the dialect has none."""

    name: str
    arguments: dict[str, Any] | str | None = None
    id: str | None = None


class Result(NamedTuple):
    """The result of a call, which it refers to by its id, or without one by the name of the tool or its position.

    Attributes:
        text: What the tool returned.
        id: The id of the call.
        name: The name of the tool.
        is_error: Whether the tool failed; None if the dialect does not tell it.
    """

    text: str
    id: str | None = None
    name: str | None = None
    is_error: bool | None = None


Part = Text | Call | Result


class Message(NamedTuple):
    """One message of any dialect.

    Attributes:
        role: `user`, `assistant`, `system` or `tool`.
        parts: Its texts, calls and results, in their order.
        place: Where it is, such as `messages[0]`, for errors.
        name: The name of the author.
        tokens: The tokens that it took, sent and received.
        cost: Its cost in US dollars.
        milliseconds: Its duration.
    """

    role: Literal["user", "assistant", "system", "tool"]
    parts: list[Part]
    place: str
    name: str | None = None
    tokens: int | None = None
    cost: float | None = None
    milliseconds: float | None = None

    def answer(self) -> str:
        """Return the texts and the placeholders of attachments, without reasoning; empty if all texts are blank."""
        texts = [part for part in self.parts if isinstance(part, Text) and part.kind != "note"]
        has_text = any(part.kind == "attachment" or part.text.strip() for part in texts)
        return "\n".join(part.text for part in texts) if has_text else ""


class UnknownBlockError(ValueError):
    """A part of a message cannot be read. Without it, a judge would grade a conversation that lacks evidence."""

    def __init__(self, place: str, problem: str):
        super().__init__(
            f"`{place}` {problem}: convert it to a text or remove it, or evidence would be missing from what is graded"
        )
        self._place, self._problem = place, problem

    def __reduce__(self) -> Any:
        return type(self), (self._place, self._problem)


def get_field(record: Any, key: str) -> Any:
    """Return an entry of a dictionary or an attribute of an object; None if it is missing.

    Example:
        >>> get_field({"role": "user"}, "role"), get_field({}, "role")
        ('user', None)
    """
    return cast("Mapping[str, Any]", record).get(key) if isinstance(record, Mapping) else getattr(record, key, None)


def first_field(record: Any, *keys: str) -> Any:
    """Return the first of several fields that is not None.

    Example:
        >>> first_field({"args": {"year": 2024}}, "arguments", "args")
        {'year': 2024}
    """
    return next((value for key in keys if (value := get_field(record, key)) is not None), None)


def all_fields(record: Any) -> dict[str, Any]:
    """Return the entries of a dictionary or the attributes of an object, without private ones."""
    if isinstance(record, Mapping):
        return {str(key): value for key, value in cast("Mapping[object, Any]", record).items()}
    return {key: value for key, value in getattr(record, "__dict__", {}).items() if not key.startswith("_")}


def text_field(record: Any, *keys: str) -> str | None:
    """Return the first of several fields that is a text and not empty."""
    return next((value for key in keys if isinstance(value := get_field(record, key), str) and value), None)


def list_field(record: Any, key: str, place: str) -> list[Any]:
    """Return a field that must be a list; empty if it is missing.

    Raises:
        ValueError: It is not a list.
    """
    value = get_field(record, key)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise ValueError(f"`{place}.{key}` must be a list, got {type(value).__name__}: write one entry per item")
    return list(cast("list[Any]", value))


def count_field(record: Any, *keys: str) -> int | None:
    """Return the sum of several fields that are whole numbers of at least 0; None if all are missing."""
    values = [get_field(record, key) for key in keys]
    counts = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value >= 0]
    return sum(counts) if counts else None


def number_field(record: Any, key: str) -> float | None:
    """Return a field that is a finite number of at least 0; None if it is missing."""
    value = get_field(record, key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < float("inf") else None


def read_arguments(arguments: Any) -> dict[str, Any] | str | None:
    """Return the arguments of a call as an object; as text if they are not the JSON text of an object.

    Raises:
        ValueError: They cannot be written as JSON.

    Example:
        >>> read_arguments('{"year": 2024}'), read_arguments('{"year": ')
        ({'year': 2024}, '{"year": ')
    """
    if arguments is None:
        return None
    text = arguments if isinstance(arguments, str) else data_text(arguments)
    try:
        value = parse_json(text)
        return _encodable(value, _MAX_DEPTH) if isinstance(value, dict) else text
    except ValueError:
        return text


def data_text(value: Any) -> str:
    """Return a value as JSON, with what JSON cannot express as text.

    Raises:
        ValueError: The value contains itself, is nested too deeply, or has keys that are not texts.

    Example:
        >>> data_text({"margin": 17.2})
        '{"margin": 17.2}'
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a message cannot be written as JSON: {str(error) or 'nested too deeply'}") from None


def _encodable(value: Any, depth: int) -> Any:
    if depth < 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not JSON")
    if isinstance(value, list):
        return [_encodable(item, depth - 1) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {encodable(key): _encodable(item, depth - 1) for key, item in entries.items()}
    return value
