"""LangChain's messages: objects, their dictionaries, serialized `lc` messages, and pairs of role and content.

Calls have parsed `args`, and are repeated as blocks of the content. Results have a `status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubric_integrations.submission.dialects.chat import read_chat, to_record
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import Message, get_field

_TYPES = ("human", "ai", "system", "tool", "function", "chat")


def matches(conversation: Any) -> bool:
    """Return whether a message is a pair, or has a type of LangChain."""
    if not isinstance(conversation, list | tuple):
        return False
    return any(isinstance(message, list | tuple) or _is_own(to_record(message)) for message in conversation)


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read LangChain's messages, also among OpenAI's."""
    return read_chat(list(conversation), attachments)


def _is_own(message: Any) -> bool:
    kind = get_field(message, "type")
    is_typed = isinstance(kind, str) and kind.removesuffix("MessageChunk").lower() in _TYPES
    return is_typed and (not isinstance(message, Mapping) or "content" in message)
