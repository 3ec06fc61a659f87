"""OpenTelemetry's GenAI messages: a list of `parts`, each with a `type`; calls, results, reasoning and files are parts.

The convention does not record whether a tool failed.
"""

from __future__ import annotations

from typing import Any

from rubric_integrations.submission.dialects.blocks import result_text
from rubric_integrations.submission.dialects.chat import read_message, read_role
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import (
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    first_field,
    get_field,
    list_field,
    read_arguments,
    text_field,
)

_NOTES = ("reasoning", "thinking", "compaction")
_CALLS = ("tool_call", "server_tool_call")
_RESULTS = ("tool_call_response", "server_tool_call_response")
_FILES = ("blob", "uri", "file")


def matches(conversation: Any) -> bool:
    """Return whether a conversation is a list of messages with `parts` that have a type."""
    if not isinstance(conversation, list | tuple):
        return False
    parts = [get_field(message, "parts") for message in conversation]
    first = next((part for several in parts if isinstance(several, list | tuple) for part in several), None)
    return isinstance(get_field(first, "type"), str)


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read messages with parts."""
    messages: list[Message] = []
    for index, message in enumerate(conversation):
        place = f"messages[{index}]"
        if get_field(message, "parts") is None:
            messages.append(read_message(message, place, attachments))
            continue
        role, name = read_role(message, place), text_field(message, "name")
        entries = list_field(message, "parts", place)
        parts = [_read_part(part, f"{place}.parts[{number}]", attachments) for number, part in enumerate(entries)]
        messages.append(Message(role, parts, place, name))
    return messages


def _read_part(part: Any, place: str, attachments: AttachmentList) -> Part:
    kind, content = get_field(part, "type"), get_field(part, "content")
    if kind == "text" and isinstance(content, str):
        return Text(content)
    if kind in _NOTES:
        return Text(f"[{kind}]", "note")
    if kind in _CALLS and (name := text_field(part, "name")):
        return Call(name, read_arguments(first_field(part, "arguments", kind)), text_field(part, "id"))
    if kind in _RESULTS:
        response = first_field(part, "response", "result", kind)
        return Result(result_text(response, place, attachments), text_field(part, "id"), text_field(part, "name"))
    if kind in _FILES:
        return attachments.add(part, kind, place)
    raise UnknownBlockError(place, f"is a part of the type {kind!r}, which no reader knows")
