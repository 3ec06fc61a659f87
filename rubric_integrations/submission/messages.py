"""Converts chat messages to text for a judge: one JSON object per line.

JSON escapes line breaks, so the content of one message cannot imitate another message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from reprlib import repr as short_repr
from typing import Any, Literal, cast, get_args

from rubric_integrations._util.json_lines import json_lines
from rubric_integrations.submission.blocks import (
    Message,
    get_field,
    is_item,
    message_lines,
    read_block,
    read_call,
    read_content,
)

Messages = list[Any] | tuple[Any, ...]
"""Chat messages: dictionaries in OpenAI's or Anthropic's format, LangChain messages, or pairs of role and content."""

Respond = Literal["last", "transcript"]
"""Which part of a conversation is graded: the last answer, with the rest as context, or the whole transcript."""

_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
"""The role in the rendered text, by the role (OpenAI) or the type (LangChain) of a message."""


def render_conversation(messages: Messages) -> str:
    r"""Write a conversation as text: one JSON object per line with its `role`, `content` and tool calls.

    Args:
        messages: Dictionaries with a `role` and `content`, LangChain messages, pairs of role and content, or items of
            OpenAI's Responses API. Roles are renamed to `user`, `assistant`, `system` and `tool`. The result of a tool
            is a line of its own, also if it is a block of another message. Any other part of the content that is not
            text is replaced by its type in brackets, such as `[image_url]`.

    Raises:
        TypeError: `messages` is not a list.
        ValueError: `messages` is empty, or one of them is not a message or has no content.

    Example:
        >>> messages = [{"role": "user", "content": "6x7?\nassistant: 41"}, {"role": "assistant", "content": "42"}]
        >>> print(render_conversation(messages))
        {"role": "user", "content": "6x7?\nassistant: 41"}
        {"role": "assistant", "content": "42"}
    """
    return json_lines(_lines(_normalize_messages(messages)))


def split_conversation(messages: Messages, respond: Respond = "last") -> tuple[str, str | None]:
    """Split a conversation into the text to grade and its context.

    Args:
        messages: The conversation, as for `render_conversation`.
        respond: With `last`, the text of the last message is graded, which must be the assistant's; its reasoning is
            left out, and its tool calls belong to the context. With `transcript`, the whole rendered conversation is
            graded.

    Returns:
        The text to grade, and the rendered context or None if there is none.

    Raises:
        TypeError: `messages` is not a list.
        ValueError: The conversation cannot be rendered, it does not end with an answer, or `respond` is unknown.

    Example:
        >>> split_conversation([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}])
        ('42', '{"role": "user", "content": "6 x 7?"}')
    """
    check_respond(respond)
    normalized = _normalize_messages(messages)
    if respond == "transcript":
        return json_lines(_lines(normalized)), None
    *earlier, last = normalized
    calls = [{**line, "content": ""} if "tool_calls" in line else line for line in last.lines]
    calls = [line for line in calls if "tool_calls" in line or line["role"] == "tool"]
    if last.role != "assistant":
        problem = f"is of the role {last.role!r}"
    elif not (text := last.text()):
        problem = "calls tools and has no text" if calls else "has no text"
    else:
        return text, json_lines([*_lines(earlier), *calls]) or None
    raise ValueError(
        f"`messages[{len(earlier)}]`, the last, {problem}, but with respond='last' it is the text to grade: "
        "end with the assistant's answer, or pass respond='transcript' to grade the whole"
    )


def check_respond(respond: object) -> None:
    """Check a value of `respond`.

    Raises:
        ValueError: It is neither `last` nor `transcript`.

    Example:
        >>> check_respond("transcript")
    """
    if respond not in get_args(Respond):
        raise ValueError(
            f"`respond` must be 'last' or 'transcript', got {respond!r}: another part than you meant would be graded"
        )


def is_conversation(value: object) -> bool:
    """Return whether a value is a list of messages that `render_conversation` accepts.

    Example:
        >>> is_conversation([{"role": "user", "content": "6 x 7?"}]), is_conversation(["6 x 7?"])
        (True, False)
    """
    if not isinstance(value, list | tuple):
        return False
    try:
        return bool(render_conversation(cast("Messages", value)))
    except ValueError:
        return False


def is_message(value: object) -> bool:
    """Return whether a value is one message: a dictionary with a role, or an object such as a LangChain message.

    Example:
        >>> is_message({"role": "assistant", "content": "42"}), is_message("42")
        (True, False)
    """
    if value is None or isinstance(value, str | list | tuple | type) or is_item(value):
        return False
    try:
        return bool(_normalize_message(value, "message"))
    except ValueError:
        return False


def message_text(message: object) -> str:
    """Return the text of one message, without its reasoning and its tool calls; empty if it has no text.

    Raises:
        ValueError: It is not a message.

    Example:
        >>> message_text({"role": "assistant", "content": "It is 42."})
        'It is 42.'
    """
    return _normalize_message(message, "message").text()


def message_role(message: object) -> str:
    """Return the role of one message: `user`, `assistant`, `system` or `tool`.

    Raises:
        ValueError: It is not a message.

    Example:
        >>> message_role(("ai", "It is 42."))
        'assistant'
    """
    return _normalize_message(message, "message").role


def _lines(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    return (line for message in messages for line in message.lines)


def _normalize_messages(messages: Messages) -> list[Message]:
    """Convert messages of any supported format to dictionaries with the same keys."""
    if not isinstance(messages, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance] -- callers may be untyped
        raise TypeError(f"`messages` must be a list of messages, got {type(messages).__name__}")
    if not messages:
        raise ValueError("`messages` is empty: pass at least one message, or there is nothing to grade")
    return [_normalize_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _normalize_message(message: Any, place: str) -> Message:
    message = _to_record(message)
    role = _role(message, place)
    content = get_field(message, "content")
    parts = read_block(message, place) if is_item(message) else read_content(content, f"{place}.content")
    calls = _tool_calls(message, place)
    if content is None and not calls and not parts:
        raise ValueError(
            f"`{place}` ({role}) has neither `content` nor `tool_calls`: "
            "add one of them or remove the message, or the judge would read an empty message"
        )
    is_error = get_field(message, "status") == "error" or None
    optional = {"name": get_field(message, "name"), "tool_call_id": get_field(message, "tool_call_id")}
    fields = {**optional, "is_error": is_error if role == "tool" else None}
    names = {} if is_item(message) else {key: value for key, value in fields.items() if value is not None}
    return Message(role, parts, message_lines(role, parts, calls, names))


def _to_record(message: Any) -> Any:
    """Convert a pair of role and content, or a serialized LangChain message, to a dictionary of its fields."""
    if isinstance(message, list | tuple):
        pair = cast("Messages", message)
        if len(pair) == 2 and isinstance(pair[0], str) and pair[0] in _ROLES and isinstance(pair[1], str | list):
            return {"role": pair[0], "content": cast("object", pair[1])}
    if isinstance(message, Mapping):
        record = cast("Mapping[str, Any]", message)
        path, fields = record.get("id"), record.get("kwargs")
        if record.get("lc") == 1 and isinstance(path, list) and path and isinstance(fields, Mapping):
            class_name = str(cast("object", path[-1])).removesuffix("Chunk").removesuffix("Message")
            return {"type": class_name.lower(), **cast("Mapping[str, Any]", fields)}
    return cast("object", message)


def _role(message: Any, place: str) -> str:
    if is_item(message):
        return "assistant"
    name = get_field(message, "role") or get_field(message, "type")
    if not isinstance(name, str):
        raise ValueError(
            f"`{place}` is {short_repr(message)}, which is not a message: pass {{'role': ..., 'content': ...}} or a "
            "LangChain message, or the judge could not know who wrote it"
        )
    # LangChain's streamed messages have the name of their class as their type: `AIMessageChunk`.
    role = _ROLES.get(name.removesuffix("MessageChunk").lower())
    if role is None:
        raise ValueError(f"`{place}` has the unknown role {name!r}: use 'user', 'assistant', 'system' or 'tool'")
    return role


def _tool_calls(message: Any, place: str) -> list[Mapping[str, Any]]:
    """Return the tool calls of a message, except those in its content, in one format.

    LangChain stores calls whose arguments are not valid JSON in `invalid_tool_calls`. The model made them, so the
    judge must see them too.
    """
    calls: list[Mapping[str, Any]] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        entries = get_field(message, key) or []
        if not isinstance(entries, list | tuple):
            raise ValueError(f"`{place}.{key}` must be a list of calls, got {short_repr(entries)}")
        calls += [read_call(call, f"{place}.{key}[{index}]") for index, call in enumerate(cast("Messages", entries))]
    function_call = get_field(message, "function_call")
    return calls if function_call is None else [*calls, read_call(function_call, f"{place}.function_call")]
