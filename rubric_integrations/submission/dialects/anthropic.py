"""Anthropic's messages: calls and results are blocks of the content, and results are in the user's messages.

A `tool_result` without `is_error` did not fail.
"""

from __future__ import annotations

from typing import Any

from rubric_integrations.submission.dialects.chat import read_chat
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import Message, get_field

_OWN_BLOCKS = ("tool_use", "tool_result", "server_tool_use", "thinking", "redacted_thinking")


def matches(conversation: Any) -> bool:
    """Return whether a message has a block that only Anthropic's content has, and a role."""
    if not isinstance(conversation, list | tuple):
        return False
    contents = [get_field(message, "content") for message in conversation if get_field(message, "role") is not None]
    blocks = [block for content in contents if isinstance(content, list | tuple) for block in content]
    return any(get_field(block, "type") in _OWN_BLOCKS for block in blocks)


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read messages whose content has blocks."""
    return read_chat(list(conversation), attachments)
