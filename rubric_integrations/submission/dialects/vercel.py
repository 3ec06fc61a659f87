"""Reads the messages of the Vercel AI SDK: UI messages with `parts`, and model messages with blocks of calls.

A part of a UI message can be a call with its result. `step-start` begins a step. The failure of a tool is in the
`state` of a part, or in the type of a result's `output`. A part `data-...`, which applications define, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    first_field,
    flag_field,
    get_field,
    list_field,
    object_field,
    read_arguments,
    read_block,
    read_content,
    result_text,
    text_field,
)
from rubric_integrations.submission.dialects.chat import is_vercel_part, read_role, refuse_unread_calls

_INVOCATION = "tool-invocation"
_FAILED = {"output-error": True, "output-denied": True, "output-available": False}
_FAILED_OUTPUTS = ("error-text", "error-json", "execution-denied")


def matches_vercel(conversation: Any) -> bool:
    """Return whether a value is a list of the AI SDK's UI messages, or of its model messages with calls or results."""
    if not isinstance(conversation, list | tuple) or not conversation:
        return False
    messages = cast("list[Any]", conversation)
    if not all(isinstance(message, Mapping) and "role" in message for message in messages):
        return False
    if all(isinstance(message.get("parts"), list) for message in messages):
        return any(is_vercel_part(part) for message in messages for part in message["parts"])
    contents = [content for message in messages if isinstance(content := message.get("content"), list)]
    return any(isinstance(block, Mapping) and "toolCallId" in block for content in contents for block in content)


def read_vercel(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the UI messages or model messages of the Vercel AI SDK."""
    messages: list[Message] = []
    for index, message in enumerate(conversation):
        place = f"messages[{index}]"
        # Version 4 repeats the calls of the parts in `toolInvocations`.
        has_parts = any(get_field(part, "type") == _INVOCATION for part in list_field(message, "parts", place))
        refuse_unread_calls(message, place, ("toolInvocations",) if has_parts else ())
        if "parts" in message:
            messages += _read_ui_message(message, place, attachments)
            continue
        content = message.get("content")
        parts = [] if isinstance(content, list) else read_content(content, f"{place}.content", attachments)
        for number, block in enumerate(cast("list[Any]", content) if isinstance(content, list) else []):
            parts += _read_model_block(block, f"{place}.content[{number}]", attachments)
        messages.append(Message(read_role(message, place), parts, place))
    return messages


def _read_ui_message(message: Mapping[str, Any], place: str, attachments: AttachmentList) -> list[Message]:
    """Return a message for each step. Concurrent calls of a step come before their results."""
    steps: list[list[Part]] = [[]]
    results: list[Part] = []
    for number, part in enumerate(list_field(message, "parts", place)):
        kind = get_field(part, "type")
        if kind == "step-start":
            steps[-1] += results
            steps.append([])
            results = []
            continue
        read = _read_ui_part(part, kind, f"{place}.parts[{number}]", attachments)
        if any(isinstance(entry, Text) for entry in read):
            steps[-1] += results
            results = []
        steps[-1] += [entry for entry in read if not isinstance(entry, Result)]
        results += [entry for entry in read if isinstance(entry, Result)]
    steps[-1] += results
    role = read_role(message, place)
    return [Message(role, parts, place) for parts in steps if parts] or [Message(role, [], place)]


def _read_ui_part(part: Any, kind: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Read one part of a UI message. A tool's part contains the call and, if it has ended, its result."""
    if kind == "reasoning":
        return [Text("[reasoning]", "note")]
    if kind in ("source-url", "source-document"):
        return [Text(citation_text(part).lstrip())]
    if kind == "source":  # Version 4.
        return [Text(citation_text(get_field(part, "source")).lstrip())]
    if kind in ("text", "file"):
        return read_block(part, place, attachments)
    if kind == _INVOCATION:
        return _read_invocation(get_field(part, "toolInvocation"), place, attachments)
    if not isinstance(kind, str) or not kind.startswith(("tool-", "dynamic-tool")):
        raise UnknownBlockError(place, f"is a part of the type {kind!r}, which no reader knows")
    name = text_field(part, "toolName") or kind.removeprefix("tool-")
    state, call_id = text_field(part, "state"), text_field(part, "toolCallId")
    call = Call(name, read_arguments(first_field(part, "input", "rawInput")), call_id)
    output = first_field(part, "errorText", "output")
    if output is None and not (state or "").startswith("output-"):
        return [call]
    text = "[denied]" if output is None and state == "output-denied" else result_text(output, place, attachments)
    return [call, Result(text, call_id, name, _FAILED.get(state or ""))]


def _read_invocation(invocation: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Read a call of version 4, which does not record whether a tool failed."""
    name, call_id = text_field(invocation, "toolName"), text_field(invocation, "toolCallId")
    if name is None:
        raise UnknownBlockError(place, "is a call without a `toolInvocation.toolName`")
    call = Call(name, read_arguments(get_field(invocation, "args")), call_id)
    if text_field(invocation, "state") != "result":
        return [call]
    return [call, Result(result_text(get_field(invocation, "result"), place, attachments), call_id, name)]


def _read_model_block(block: Any, place: str, attachments: AttachmentList) -> list[Part]:
    kind, name, call_id = get_field(block, "type"), text_field(block, "toolName"), text_field(block, "toolCallId")
    if kind == "tool-call":
        return [Call(name or NO_NAME, read_arguments(first_field(block, "input", "args")), call_id)]
    if kind != "tool-result":
        return read_block(block, place, attachments)
    output = object_field(block, "output")
    if output is None:  # Version 4.
        text = result_text(get_field(block, "result"), place, attachments)
        return [Result(text, call_id, name, bool(flag_field(block, "isError")))]
    value = first_field(output, "value", "reason")
    is_error = get_field(output, "type") in _FAILED_OUTPUTS
    return [Result(result_text(value, f"{place}.output", attachments), call_id, name, is_error)]
