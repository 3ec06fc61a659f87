"""Reads the messages of pydantic-ai: objects, or the JSON that `all_messages_json` writes.

A request contains prompts and results of tools. A response contains texts and calls. Before version 2, the result of a
failed call is a `retry-prompt`.
"""

from __future__ import annotations

from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import (
    NO_NAME,
    AttachmentList,
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    citation_text,
    count_field,
    get_field,
    list_field,
    read_arguments,
    result_text,
    text_field,
)
from rubric_integrations.submission.dialects.chat import Role, refuse_unread_calls

_SYSTEM = ("system-prompt", "instruction")
_CALLS = ("tool-call", "builtin-tool-call")
_RETURNS = ("tool-return", "builtin-tool-return")
_NOTES = ("thinking", "compaction")
_FILES = {"image-url": "image_url", "audio-url": "audio_url", "video-url": "video_url", "document-url": "document"}
_FAILED = {None: False, "success": False, "failed": True, "retried": True, "denied": True, "interrupted": True}


def matches_pydantic_ai(conversation: Any) -> bool:
    """Return whether a value is a list of pydantic-ai's requests and responses, whose parts have a `part_kind`."""
    if not isinstance(conversation, list | tuple) or not conversation:
        return False
    return all(
        get_field(message, "kind") in ("request", "response")
        and isinstance(parts := get_field(message, "parts"), list | tuple)
        and all(isinstance(get_field(part, "part_kind"), str) for part in cast("list[Any]", parts))
        for message in cast("list[Any]", conversation)
    )


def read_pydantic_ai(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read pydantic-ai's requests and responses. Instructions that a request repeats are read once."""
    messages: list[Message] = []
    instructions: str | None = None
    for index, message in enumerate(conversation):
        place = f"messages[{index}]"
        refuse_unread_calls(message, place, ())
        parts = [
            part
            for number, entry in enumerate(get_field(message, "parts"))
            for part in _read_part(entry, f"{place}.parts[{number}]", attachments)
        ]
        if get_field(message, "kind") == "response":
            tokens = count_field(get_field(message, "usage"), "input_tokens", "output_tokens")
            messages.append(Message("assistant", [part for _, part in parts], place, tokens=tokens))
            continue
        if (text := text_field(message, "instructions")) and text != instructions:
            messages.append(Message("system", [Text(text)], place))
            instructions = text
        for role, part in parts:
            if messages and (messages[-1].role, messages[-1].place) == (role, place):
                messages[-1].parts.append(part)
            else:
                messages.append(Message(role, [part], place))
    return messages


def _read_part(part: Any, place: str, attachments: AttachmentList) -> list[tuple[Role, Part]]:
    """Return the contents of a part of a request or a response, each with the role of its author in a request."""
    kind, content = get_field(part, "part_kind"), get_field(part, "content")
    name, call_id = text_field(part, "tool_name"), text_field(part, "tool_call_id")
    if kind in _SYSTEM and isinstance(content, str):
        return [("system", Text(content))]
    if kind == "user-prompt":
        return [("user", entry) for entry in _read_prompt(content, place, attachments)]
    if kind == "text" and isinstance(content, str):
        return [("assistant", Text(content + _citations(part, place)))]
    if kind in _NOTES:
        return [("assistant", Text(f"[{kind}]", "note"))]
    if kind in _CALLS:
        return [("assistant", Call(name or NO_NAME, read_arguments(get_field(part, "args")), call_id))]
    if kind in _RETURNS:
        is_error = _FAILED.get(text_field(part, "outcome"))
        return [("tool", Result(result_text(content, place, attachments), call_id, name, is_error))]
    if kind == "retry-prompt" and name is not None:
        return [("tool", Result(result_text(content, place, attachments), call_id, name, is_error=True))]
    if kind in ("retry-prompt", "retry-feedback"):
        return [("user", Text(result_text(content, place, attachments)))]
    if kind == "file":
        return [("assistant", attachments.add(content, "file", place))]
    raise UnknownBlockError(place, f"is a part of the kind {kind!r}, which no reader knows")


def _read_prompt(content: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Read the content of a user's prompt: texts and files."""
    if isinstance(content, str):
        return [Text(content)]
    parts: list[Part] = []
    for index, item in enumerate(cast("list[Any]", content) if isinstance(content, list | tuple) else [content]):
        kind = get_field(item, "kind")
        if isinstance(item, str):
            parts.append(Text(item))
        elif kind == "text-content" and (text := get_field(item, "content")) is not None:
            parts.append(Text(str(text)))
        elif kind in _FILES or kind == "binary":
            parts.append(attachments.add(item, _FILES.get(kind, "file"), f"{place}.content[{index}]"))
        elif kind != "cache-point":
            raise UnknownBlockError(f"{place}.content[{index}]", f"is of the kind {kind!r}, which no reader knows")
    return parts


def _citations(part: Any, place: str) -> str:
    """Return the sources that a part cites, as text."""
    sources = [
        source for citation in list_field(part, "citations", place) for source in list_field(citation, "sources", place)
    ]
    return "".join(
        citation_text(
            {
                "cited_text": "\n".join(list_field(source, "excerpts", place)),
                "title": get_field(source, "title"),
                "url": get_field(source, "url"),
                "file_id": get_field(source, "document_id"),
            }
        )
        for source in sources
    )
