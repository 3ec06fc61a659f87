"""Reads the messages of tau2's simulations.

The simulated user also calls tools. These calls are part of the user's steps and do not count as calls of the agent. A
result has the `id` of its call. One message may have several results in `tool_messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import (
    AttachmentList,
    Message,
    Part,
    Result,
    count_field,
    flag_field,
    get_field,
    list_field,
    number_field,
    result_text,
    text_field,
)
from rubric_integrations.submission.dialects.chat import read_message


def matches_tau2(conversation: Any) -> bool:
    """Return whether a value is a list of tau2's messages, whose calls and results have a `requestor`."""
    if not isinstance(conversation, list | tuple):
        return False
    parts: list[Any] = []
    for message in cast("list[Any]", conversation):
        if not isinstance(message, Mapping):
            return False
        calls = message.get("tool_calls")
        parts += cast("list[Any]", calls) if isinstance(calls, list) else []
        parts += _results(cast("Mapping[str, Any]", message)) if message.get("role") == "tool" else []
    return bool(parts) and all(isinstance(part, Mapping) and "requestor" in part for part in parts)


def read_tau2(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read tau2's messages of the agent, the user and the tools."""
    return [_read_message(message, f"messages[{index}]", attachments) for index, message in enumerate(conversation)]


def _read_message(message: Mapping[str, Any], place: str, attachments: AttachmentList) -> Message:
    """Read one message. A message of the role `tool` may have several results."""
    if message.get("role") == "tool":
        results: list[Part] = [
            Result(
                result_text(get_field(result, "content"), place, attachments),
                text_field(result, "id"),
                is_error=bool(flag_field(result, "error")),
            )
            for result in _results(message)
        ]
        return Message("tool", results, place)
    read = read_message(message, place, attachments)
    for call in list_field(message, "tool_calls", place):
        if get_field(call, "requestor") != read.role:
            raise ValueError(
                f"`{place}` ({read.role}) has a call whose `requestor` is {get_field(call, 'requestor')!r}: write who "
                "made the call, or it could count as another's"
            )
    if read.role != "assistant":
        return read
    tokens = count_field(message.get("usage"), "prompt_tokens", "completion_tokens")
    return read._replace(tokens=tokens, cost=number_field(message, "cost"))


def _results(message: Mapping[str, Any]) -> list[Any]:
    several = message.get("tool_messages")
    return [message] if not isinstance(several, list) else cast("list[Any]", several)
