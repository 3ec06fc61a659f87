"""The items of OpenAI's Responses API: calls, results and reasoning stand beside the messages and have no role.

Reasoning, a message and the calls after it are one step, as in the other dialects.
"""

from __future__ import annotations

from typing import Any

from rubric_integrations.submission.dialects.blocks import HOSTED_CALLS, RESULTS, read_block
from rubric_integrations.submission.dialects.chat import read_message
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import Call, Message, Part, Result, get_field

_ITEMS = (
    "function_call",
    "custom_tool_call",
    "mcp_call",
    "mcp_list_tools",
    "reasoning",
    "compaction",
    *HOSTED_CALLS,
    *RESULTS,
)


def is_item(message: Any) -> bool:
    """Return whether a message is a call, a result or reasoning, which have no role.

    A list of other calls, such as LangChain's, is data, not a conversation.

    Example:
        >>> is_item({"type": "function_call_output", "call_id": "c1", "output": "42"})
        True
    """
    return get_field(message, "role") is None and get_field(message, "type") in _ITEMS


def matches(conversation: Any) -> bool:
    """Return whether a conversation has an item without a role."""
    return isinstance(conversation, list | tuple) and any(is_item(message) for message in conversation)


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read items, and the messages among them."""
    messages: list[Message] = []
    for index, item in enumerate(conversation):
        place = f"messages[{index}]"
        if not is_item(item):
            message = read_message(item, place, attachments)
            # The reasoning item before a message belongs to it.
            if message.role == "assistant" and messages and _is_reasoning(messages[-1]):
                message = message._replace(parts=[*messages.pop().parts, *message.parts])
            messages.append(message)
            continue
        parts = read_block(item, place, attachments)
        if any(isinstance(part, Call) for part in parts) and messages and _is_open(messages[-1]):
            messages[-1] = messages[-1]._replace(parts=[*messages[-1].parts, *parts], place=place)
        elif parts and isinstance(parts[0], Result):
            messages.append(Message("tool", parts, place))
        else:
            messages.append(Message("assistant", parts, place))
    return messages


def _is_open(message: Message) -> bool:
    """Return whether the next call belongs to a message: the assistant's, without a result."""
    return message.role == "assistant" and not any(isinstance(part, Result) for part in message.parts)


def _is_reasoning(message: Message) -> bool:
    return message.role == "assistant" and bool(message.parts) and all(_is_note(part) for part in message.parts)


def _is_note(part: Part) -> bool:
    return not isinstance(part, Call | Result) and part.kind == "note"
