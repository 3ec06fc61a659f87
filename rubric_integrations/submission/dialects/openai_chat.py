"""OpenAI's chat messages: calls in `tool_calls` with arguments as JSON text, results in messages of the role `tool`.

This is the reader for every list of messages that no other dialect claims.
"""

from __future__ import annotations

from typing import Any

from rubric_integrations.submission.dialects.chat import read_chat
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import Message


def matches(conversation: Any) -> bool:
    """Return whether a conversation is a list."""
    return isinstance(conversation, list | tuple)


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read chat messages."""
    return read_chat(list(conversation), attachments)
