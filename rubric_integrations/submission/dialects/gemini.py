"""Gemini's `contents`: each part holds its text, call, result or file under a key of its own, in either case.

Results often have no id and refer to their call by its name. A failed one has an `error` in its `response`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubric_integrations.submission.dialects.blocks import result_text
from rubric_integrations.submission.dialects.chat import Role
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import (
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    all_fields,
    data_text,
    first_field,
    get_field,
    list_field,
    read_arguments,
    text_field,
)

_ROLES: dict[str | None, Role] = {
    "user": "user",
    "model": "assistant",
    "function": "tool",
    "system": "system",
    None: "user",
}
_CODE = "code_execution"
_PART_KEYS = ("text", "functionCall", "function_call", "functionResponse", "function_response", "inlineData",
              "inline_data", "fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult",
              "code_execution_result")  # fmt: skip


def matches(conversation: Any) -> bool:
    """Return whether a conversation is a request with `contents`, or a list of contents whose parts have no type."""
    if isinstance(conversation, Mapping):
        return isinstance(conversation.get("contents"), list)
    if not isinstance(conversation, list | tuple):
        return False
    parts = [get_field(content, "parts") for content in conversation]
    first = next((part for several in parts if isinstance(several, list | tuple) for part in several), None)
    return first is not None and get_field(first, "type") is None and first_field(first, *_PART_KEYS) is not None


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read contents, and the system instruction of a request."""
    if not isinstance(conversation, Mapping):
        return _read_contents(conversation, "contents", attachments)
    system = first_field(conversation, "systemInstruction", "system_instruction")
    instruction = [] if system is None else [{"parts": get_field(system, "parts"), "role": "system"}]
    if isinstance(system, str):
        instruction = [{"parts": [{"text": system}], "role": "system"}]
    return [
        *_read_contents(instruction, "system_instruction", attachments),
        *_read_contents(conversation["contents"], "contents", attachments),
    ]


def _read_contents(contents: Any, name: str, attachments: AttachmentList) -> list[Message]:
    messages: list[Message] = []
    for index, content in enumerate(contents):
        place, role = f"{name}[{index}]", get_field(content, "role")
        if get_field(content, "parts") is None:
            raise ValueError(f"`{place}` has no `parts`: write all messages as Gemini's contents, or none")
        if role is not None and (not isinstance(role, str) or role not in _ROLES):
            raise ValueError(f"`{place}` has the unknown role {role!r}: use 'user' or 'model'")
        parts = [
            part
            for number, entry in enumerate(list_field(content, "parts", place))
            for part in _read_part(entry, f"{place}.parts[{number}]", attachments)
        ]
        messages.append(Message(_ROLES[role], parts, place))
    return messages


def _read_part(part: Any, place: str, attachments: AttachmentList) -> list[Part]:
    text = get_field(part, "text")
    if isinstance(text, str):
        return [Text("[reasoning]", "note") if get_field(part, "thought") else Text(text)]
    if (call := first_field(part, "functionCall", "function_call")) is not None:
        name = text_field(call, "name")
        if name is None:
            raise UnknownBlockError(place, "is a call without a name")
        return [Call(name, read_arguments(get_field(call, "args")), text_field(call, "id"))]
    if (response := first_field(part, "functionResponse", "function_response")) is not None:
        return [_read_response(response, place, attachments)]
    if (code := first_field(part, "executableCode", "executable_code")) is not None:
        return [Call(_CODE, read_arguments(all_fields(code)), text_field(code, "id"))]
    if (outcome := first_field(part, "codeExecutionResult", "code_execution_result")) is not None:
        is_error = get_field(outcome, "outcome") not in (None, "OUTCOME_OK")
        output = text_field(outcome, "output") or ""
        return [Result(output, text_field(outcome, "id"), _CODE, is_error)]
    for keys in (("inlineData", "inline_data"), ("fileData", "file_data")):
        if (media := first_field(part, *keys)) is not None:
            return [attachments.add(media, keys[0], place)]
    raise UnknownBlockError(place, f"is a part with the keys {sorted(all_fields(part))!r}, which no reader knows")


def _read_response(response: Any, place: str, attachments: AttachmentList) -> Result:
    """Read a result. By Gemini's convention, `output` or `error` hold all of it; its client writes `result`, too."""
    output = get_field(response, "response")
    fields = all_fields(output) if isinstance(output, Mapping) else {}
    whole = next((fields[key] for key in ("output", "result", "error") if list(fields) == [key]), output)
    text = whole if isinstance(whole, str) else data_text(whole)
    media = list_field(response, "parts", place)
    files = [result_text({"type": "media", **all_fields(part)}, place, attachments) for part in media]
    is_error = True if fields.get("error") is not None else False if "output" in fields else None
    name, call_id = text_field(response, "name"), text_field(response, "id")
    return Result("\n".join([text, *files]), call_id, name, is_error)
