"""Reads messages with a `role` and a `content`, as OpenAI, Anthropic, LangChain and many others write them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import Any, Literal, cast

from rubric_integrations.submission.dialects.blocks import read_call, read_content, result_text
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import (
    Call,
    Message,
    Part,
    Result,
    count_field,
    get_field,
    text_field,
)

Role = Literal["user", "assistant", "system", "tool"]

ROLES: dict[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
"""The role of a step, by the role (OpenAI) or the type (LangChain) of a message."""


def read_chat(messages: list[Any], attachments: AttachmentList) -> list[Message]:
    """Read a list of chat messages."""
    return [read_message(message, f"messages[{index}]", attachments) for index, message in enumerate(messages)]


def read_message(message: Any, place: str, attachments: AttachmentList) -> Message:
    """Read one chat message: a dictionary, an object such as a LangChain message, or a pair of role and content.

    Raises:
        ValueError: It is not a message, or a block of its content cannot be read.
    """
    record = to_record(message)
    role = read_role(record, place)
    content, name = get_field(record, "content"), text_field(record, "name")
    calls = _tool_calls(record, place)
    if content is None and not calls:
        raise ValueError(
            f"`{place}` ({role}) has neither `content` nor `tool_calls`: "
            "add one of them or remove the message, or the judge would read an empty message"
        )
    if role == "tool":
        status, text = get_field(record, "status"), result_text(content, f"{place}.content", attachments)
        # Only LangChain's messages have a status; OpenAI's do not tell whether the tool failed.
        is_error = status == "error" if isinstance(status, str) else None
        return Message(role, [Result(text, text_field(record, "tool_call_id"), name, is_error)], place)
    parts = read_content(content, f"{place}.content", attachments)
    usage = get_field(record, "usage_metadata")
    tokens = count_field(usage, "total_tokens")
    if tokens is None:
        tokens = count_field(usage, "input_tokens", "output_tokens")
    return Message(role, _merge_calls(parts, calls), place, name, tokens)


def read_role(record: Any, place: str) -> Role:
    """Return the role of a message.

    Raises:
        ValueError: It has none, or one that is not known.
    """
    name = get_field(record, "role") or get_field(record, "type")
    if not isinstance(name, str):
        raise ValueError(
            f"`{place}` is {short_repr(record)}, which is not a message: pass {{'role': ..., 'content': ...}} or a "
            "LangChain message, or the judge could not know who wrote it"
        )
    # LangChain's streamed messages have the name of their class as their type: `AIMessageChunk`.
    role = ROLES.get(name.removesuffix("MessageChunk").lower())
    if role is None:
        raise ValueError(f"`{place}` has the unknown role {name!r}: use 'user', 'assistant', 'system' or 'tool'")
    return role


def to_record(message: Any) -> Any:
    """Convert a pair of role and content, or a serialized LangChain message, to a dictionary of its fields."""
    if isinstance(message, list | tuple):
        pair = cast("list[Any]", message)
        if len(pair) == 2 and isinstance(pair[0], str) and pair[0] in ROLES and isinstance(pair[1], str | list):
            return {"role": pair[0], "content": cast("object", pair[1])}
    if isinstance(message, Mapping):
        record = cast("Mapping[str, Any]", message)
        path, fields = record.get("id"), record.get("kwargs")
        if record.get("lc") == 1 and isinstance(path, list) and path and isinstance(fields, Mapping):
            class_name = str(cast("object", path[-1])).removesuffix("Chunk").removesuffix("Message")
            return {"type": class_name.lower(), **cast("Mapping[str, Any]", fields)}
    return cast("object", message)


def _tool_calls(message: Any, place: str) -> list[Call]:
    """Return the tool calls of a message, except those in its content.

    LangChain stores calls whose arguments are not valid JSON in `invalid_tool_calls`. The model made them, so the
    judge must see them too.
    """
    calls: list[Call] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        entries = get_field(message, key) or []
        if not isinstance(entries, list | tuple):
            raise ValueError(f"`{place}.{key}` must be a list of calls, got {short_repr(entries)}")
        calls += [read_call(call, f"{place}.{key}[{index}]") for index, call in enumerate(cast("list[Any]", entries))]
    function_call = get_field(message, "function_call")
    return calls if function_call is None else [*calls, read_call(function_call, f"{place}.function_call")]


def _merge_calls(parts: list[Part], calls: list[Call]) -> list[Part]:
    """Return all parts. LangChain writes a call into the content and, completely parsed, into `tool_calls`."""
    parsed: defaultdict[str | None, deque[Call]] = defaultdict(deque)
    for call in calls:
        parsed[call.id].append(call)
    in_content: defaultdict[str, list[Part]] = defaultdict(list)
    merged: list[Part] = []
    for part in parts:
        if not isinstance(part, Call) or part.id is None:
            merged.append(part)
        elif parsed[part.id]:
            merged.append(parsed[part.id].popleft())
            in_content[part.id] += [part, merged[-1]]
        elif part not in in_content[part.id]:
            merged.append(part)
            in_content[part.id].append(part)
    return merged + [call for waiting in parsed.values() for call in waiting]
