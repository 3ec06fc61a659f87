"""AgentV's transcripts: the lines of `transcript.jsonl`, its document with `turns`, and the lines of raw transcripts.

A call contains its result, with a status: as a `tool_use` block of the content, or as an entry of `tool_calls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubric_integrations.submission.dialects.blocks import read_block, read_content, result_text
from rubric_integrations.submission.dialects.chat import read_role
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import (
    NO_NAME,
    Call,
    Message,
    Part,
    Result,
    count_field,
    first_field,
    get_field,
    list_field,
    number_field,
    read_arguments,
    text_field,
)

_FAILED = {"success": False, "ok": False, "error": True, "timeout": True, "cancelled": True}


def matches(conversation: Any) -> bool:
    """Return whether a conversation is a document with `turns`, or a list of lines of a transcript."""
    lines = conversation.get("turns") if isinstance(conversation, Mapping) else conversation
    if not isinstance(lines, list | tuple) or not lines:
        return False
    return all(isinstance(line, Mapping) and (_is_turn(line) or "message_index" in line) for line in lines)


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the lines of a transcript."""
    lines = conversation["turns"] if isinstance(conversation, Mapping) else conversation
    return [_read_line(line, f"messages[{index}]", attachments) for index, line in enumerate(lines)]


def _is_turn(line: Mapping[str, Any]) -> bool:
    return line.get("v") == 1 and "agent" in line and "type" in line


def _read_line(line: Mapping[str, Any], place: str, attachments: AttachmentList) -> Message:
    role, content = read_role(line, place), line.get("content")
    name, milliseconds = text_field(line, "name"), number_field(line, "duration_ms")
    if role == "tool":
        text = result_text(content, f"{place}.content", attachments)
        return Message(role, [Result(text, None, name)], place, milliseconds=milliseconds)
    parts: list[Part] = []
    for index, block in enumerate(content if isinstance(content, list) else []):
        block_place = f"{place}.content[{index}]"
        is_call = get_field(block, "type") == "tool_use"
        parts += _read_call(block, block_place, attachments) if is_call else read_block(block, block_place, attachments)
    if not isinstance(content, list):
        parts = read_content(content, f"{place}.content", attachments)
    for index, call in enumerate(list_field(line, "tool_calls", place)):
        parts += _read_call(call, f"{place}.tool_calls[{index}]", attachments)
    # Calls come before their results, so that calls that were made at once are one step.
    parts.sort(key=lambda part: isinstance(part, Result))
    tokens = count_field(line, "input_tokens", "output_tokens")
    if tokens is None:
        tokens = count_field(line.get("token_usage"), "input", "output")
    return Message(role, parts, place, name, tokens, None, milliseconds)


def _read_call(call: Any, place: str, attachments: AttachmentList) -> list[Part]:
    name, arguments = (
        text_field(call, "name", "tool") or NO_NAME,
        read_arguments(first_field(call, "input", "arguments")),
    )
    result = get_field(call, "result")
    holder = call if result is None else result
    output, status = get_field(holder, "output"), get_field(holder, "status")
    if output is None and result is None and status is None:
        return [Call(name, arguments)]  # Its result may be a row of its own, which refers to it by its name.
    # Ids may repeat or be missing, but the call holds its result.
    call_id = place
    is_error = _FAILED.get(status) if isinstance(status, str) else None
    text = result_text(output, place, attachments)
    return [Call(name, arguments, call_id), Result(text, call_id, name, is_error)]
