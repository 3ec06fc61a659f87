"""Reads the messages of AutoGen, in a list or in the saved state of an agent or a group chat.

The `type` of a message is the name of its class. The `source` is the name of an agent, or `user`.

- Calls and results are in the `content` of separate messages. A later summary message repeats the same calls.
- A thought of the model before its calls is read as the text of the message with the calls.
- If an executor with a model writes and runs code, the execution is read as a call of `execute_code`. An executor
  without a model replies with plain text, in which a call cannot be recognized.
- The state of an agent has its messages in `llm_context.messages`. The state of a group chat has its messages in
  `message_thread`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import (
    AttachmentList,
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    code_field,
    count_field,
    flag_field,
    get_field,
    list_field,
    object_field,
    read_call,
    result_text,
    text_field,
)

_CALLS = ("ToolCallRequestEvent", "AssistantMessage")
_RESULTS = ("ToolCallExecutionEvent", "FunctionExecutionResultMessage")
_SUMMARY = "ToolCallSummaryMessage"
_INTERNAL = ("ModelClientStreamingChunkEvent", "UserInputRequestedEvent", "SelectSpeakerEvent", "SelectorEvent")
_TEXTS = ("TextMessage", "MultiModalMessage", "StopMessage", "HandoffMessage", "StructuredMessage", "UserMessage",
          "SystemMessage", "MemoryQueryEvent")  # fmt: skip
_CODE = ("CodeGenerationEvent", "CodeExecutionEvent")
_THOUGHT = "ThoughtEvent"
_TYPES = (*_CALLS, *_RESULTS, _SUMMARY, *_INTERNAL, *_TEXTS, *_CODE, _THOUGHT)
_SYSTEM = ("SystemMessage", "MemoryQueryEvent")
_USERS = ("user", "user_proxy")


def matches_autogen(conversation: Any) -> bool:
    """Return whether a value is a list of AutoGen's messages, or a state that contains such messages.

    The messages are recognized by the class name in their `type`.
    """
    messages = _messages(conversation)
    kinds = [_kind(message) for message in messages]
    return all(kind.endswith(("Message", "Event")) or _is_structured(kind) for kind in kinds) and any(
        kind in _TYPES for kind in kinds
    )


def read_autogen(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read AutoGen's messages. If there are several agents, each message gets the name of its agent."""
    items = _messages(conversation)
    users = {*_USERS, *(text_field(item, "source") for item in items if _kind(item) == "UserInputRequestedEvent")}
    agents = {text_field(item, "source") for item in items if _kind(item) not in (*_RESULTS, *_SYSTEM)} - users
    messages: list[Message] = []
    seen: set[str | None] = set()
    thought: list[Part] = []
    for index, item in enumerate(items):
        place, kind = f"messages[{index}]", _kind(item)
        name = text_field(item, "source") if len(agents) > 1 else None
        tokens = count_field(get_field(item, "models_usage"), "prompt_tokens", "completion_tokens")
        if kind in _INTERNAL:
            continue
        if kind == _THOUGHT:
            thought = [Text(text_field(item, "content") or "")]
            continue
        if kind in _RESULTS:
            results: list[Part] = [
                _read_result(result, f"{place}.content[{number}]", attachments)
                for number, result in enumerate(list_field(item, "content", place))
            ]
            messages.append(Message("tool", results, place))
            continue
        if kind == _SUMMARY:
            parts = _read_unseen(item, seen, place, attachments)
        elif kind in _CODE:
            parts = _read_code(item, place)
        elif kind in _CALLS or kind in _TEXTS or _is_structured(kind):
            content = list_field(item, "content", place) if kind == _CALLS[0] else get_field(item, "content")
            parts = _read_content(content, place, attachments)
        else:
            raise UnknownBlockError(place, f"is a message of the type {kind!r}, which no reader knows")
        if text := text_field(item, "thought"):
            thought = [Text(text)]
        calls = [part for part in parts if isinstance(part, Call)]
        seen |= {call.id for call in calls}
        if thought and not calls:
            thought = [Text("[thought]", "note")]
        is_user = kind == "UserMessage" or text_field(item, "source") in users
        role = "system" if kind in _SYSTEM else "tool" if kind == _CODE[1] else "user" if is_user else "assistant"
        messages.append(Message(role, [*thought, *parts], place, name, tokens))
        thought = []
    return messages


def _messages(conversation: Any) -> list[Any]:
    """Return the messages of a list or a state. Empty for any other value."""
    if isinstance(conversation, Mapping):
        state = cast("Mapping[str, Any]", conversation)
        threads = [state, *(_mappings(state.get("agent_states")))]
        places = [get_field(state.get("llm_context"), "messages")]
        places += [thread.get("message_thread") for thread in threads]
        lists = [value for value in places if isinstance(value, list) and value]
        return cast("list[Any]", lists[0]) if len(lists) == 1 and str(state.get("type")).endswith("State") else []
    return list(cast("list[Any]", conversation)) if isinstance(conversation, list | tuple) else []


def _mappings(states: Any) -> list[Mapping[str, Any]]:
    values = cast("Mapping[str, Any]", states).values() if isinstance(states, Mapping) else ()
    return [value for value in values if isinstance(value, Mapping)]


def _kind(message: Any) -> str:
    kind = get_field(message, "type")
    return kind if isinstance(kind, str) else ""


def _is_structured(kind: str) -> bool:
    """Return whether a type means a message whose content has a schema, such as `StructuredMessage[Answer]`."""
    return kind.startswith("StructuredMessage")


def _read_content(content: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Read the content of a message: texts, calls, results and images."""
    if not isinstance(content, list | tuple):
        return [Text(result_text(content, f"{place}.content", attachments))]
    parts: list[Part] = []
    for number, item in enumerate(cast("list[Any]", content)):
        block_place = f"{place}.content[{number}]"
        if isinstance(item, str):
            parts.append(Text(item))
        elif get_field(item, "arguments") is not None:
            parts.append(read_call(item, block_place))
        elif get_field(item, "mime_type") is not None and get_field(item, "content") is not None:
            parts.append(Text(result_text(get_field(item, "content"), block_place, attachments)))
        else:
            image = {"data": get_field(item, "data"), "url": get_field(item, "data_uri"), "mime_type": "image/png"}
            parts.append(attachments.add(image, "image", block_place))
    return parts


def _read_result(result: Any, place: str, attachments: AttachmentList) -> Result:
    text = result_text(get_field(result, "content"), place, attachments)
    is_error = flag_field(result, "is_error")
    return Result(text, text_field(result, "call_id"), text_field(result, "name"), is_error)


def _read_unseen(item: Any, seen: set[str | None], place: str, attachments: AttachmentList) -> list[Part]:
    """Return the text of a summary. The summary's calls come first if they are not in earlier messages."""
    calls = [read_call(call, place) for call in list_field(item, "tool_calls", place)]
    results = [_read_result(result, place, attachments) for result in list_field(item, "results", place)]
    unseen = {call.id for call in calls} - seen
    parts: list[Part] = [part for part in (*calls, *results) if part.id in unseen]
    return [*parts, *_read_content(get_field(item, "content"), place, attachments)]


def _read_code(item: Any, place: str) -> list[Part]:
    if _kind(item) == _CODE[1]:
        result = object_field(item, "result")
        return [Result(text_field(result, "output") or "", None, "execute_code", code_field(result, "exit_code") != 0)]
    blocks = [
        {key: get_field(block, key) for key in ("language", "code")} for block in list_field(item, "code_blocks", place)
    ]
    text: list[Part] = [Text(text_field(item, "content") or "")]
    return [*text, Call("execute_code", {"code_blocks": blocks})] if blocks else text
