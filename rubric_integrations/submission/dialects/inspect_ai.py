"""Inspect's messages: the arguments of calls are objects, and a result has an `error` if its tool failed.

An `EvalSample` has them in `messages`, and the large values that they refer to in `attachments`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import result_text
from rubric_integrations.submission.dialects.chat import read_message
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import (
    Message,
    Result,
    get_field,
    text_field,
)

_REFERENCE = "attachment://"


def matches(conversation: Any) -> bool:
    """Return whether a conversation is a sample with `messages` and an `output`, or a list of Inspect's messages."""
    if not isinstance(conversation, list | tuple):
        messages = get_field(conversation, "messages")
        is_sample = get_field(conversation, "output") is not None or get_field(conversation, "epoch") is not None
        return isinstance(messages, list) and is_sample
    return any(_is_own(message) for message in conversation)


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read Inspect's messages."""
    if isinstance(conversation, list | tuple):
        messages = list(cast("list[Any]", conversation))
    else:
        values = get_field(conversation, "attachments")
        messages = list(get_field(conversation, "messages"))
        messages = [_resolve(message, values) for message in messages] if values else messages
    return [_read_message(message, f"messages[{index}]", attachments) for index, message in enumerate(messages)]


def _is_own(message: Any) -> bool:
    if get_field(message, "role") == "tool":
        return isinstance(get_field(message, "function"), str)
    calls = get_field(message, "tool_calls")
    return isinstance(calls, list) and any(isinstance(get_field(call, "function"), str) for call in calls)


def _read_message(message: Any, place: str, attachments: AttachmentList) -> Message:
    if get_field(message, "role") != "tool":
        return read_message(message, place, attachments)
    error, name = get_field(message, "error"), text_field(message, "function")
    texts = [result_text(get_field(message, "content"), f"{place}.content", attachments)]
    if error is not None:
        problem = text_field(error, "message") or result_text(error, f"{place}.error", attachments)
        texts = [text for text in texts if text and text != problem] + [problem]
    result = Result("\n".join(texts), text_field(message, "tool_call_id"), name, error is not None)
    return Message("tool", [result], place)


def _resolve(value: Any, attachments: Mapping[str, str]) -> Any:
    """Return a value with the texts that its references stand for."""
    if isinstance(value, str):
        return attachments.get(value.removeprefix(_REFERENCE), value) if value.startswith(_REFERENCE) else value
    if isinstance(value, list):
        return [_resolve(item, attachments) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        return {key: _resolve(item, attachments) for key, item in cast("Mapping[str, Any]", value).items()}
    return value
