"""Reads the `history` of SWE-agent's `.traj` files.

Calls are in OpenAI's `tool_calls`. In a message of the agent without `tool_calls`, the call is the command in `action`.
Its result is then the next message with the role `user`. Messages with `is_demo` belong to another run and are not
read. The format does not record whether a command failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubric_integrations.submission.dialects.blocks import (
    AttachmentList,
    Call,
    Message,
    Result,
    flag_field,
    get_field,
    result_text,
    text_field,
)
from rubric_integrations.submission.dialects.chat import read_message

_OWN_KEYS = ("message_type", "is_demo", "tool_call_ids", "thought", "action")


def matches_swe_agent(conversation: Any) -> bool:
    """Return whether a value, or its `history`, is a list of SWE-agent's messages, with a `role` and an `agent`."""
    history = conversation.get("history") if isinstance(conversation, Mapping) else conversation
    if not isinstance(history, list | tuple) or not history:
        return False
    is_chat = all(isinstance(item, Mapping) and "role" in item and "agent" in item for item in history)
    return is_chat and any(key in item for item in history for key in _OWN_KEYS)


def read_swe_agent(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read SWE-agent's messages, without the demonstrations of other runs."""
    history = conversation["history"] if isinstance(conversation, Mapping) else conversation
    messages: list[Message] = []
    command: str | None = None
    for index, item in enumerate(history):
        place = f"history[{index}]"
        if flag_field(item, "is_demo"):
            continue
        if command is not None and item["role"] == "user":
            text = result_text(item.get("content"), f"{place}.content", attachments)
            messages.append(Message("tool", [Result(text, command)], place))
            command = None
            continue
        # The text of the model contains its thought and its action.
        fields = {key: value for key, value in item.items() if key not in ("thought", "action")}
        message, command = read_message(fields, place, attachments), None
        action = text_field(item, "action")
        if message.role == "assistant" and action and not get_field(item, "tool_calls"):
            command = place
            message = message._replace(parts=[*message.parts, Call("bash", {"command": action}, command)])
        messages.append(message)
    return messages
