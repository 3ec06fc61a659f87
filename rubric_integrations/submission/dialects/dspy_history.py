"""A `dspy.History`: turns of the fields of a signature, or chat messages.

In a turn of `dspy.ReActV2`, the fields before its thought and its calls are the user's, and those after them the
assistant's. In any other turn, the first field is the user's, and the others are the assistant's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import result_text
from rubric_integrations.submission.dialects.chat import Role, read_message
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import (
    NO_NAME,
    Call,
    Message,
    Part,
    Result,
    Text,
    get_field,
    list_field,
    read_arguments,
    text_field,
)

_THOUGHT, _CALLS = "next_thought", "tool_calls"


def matches(conversation: Any) -> bool:
    """Return whether a conversation is a `dspy.History`; DSPy is not imported for that."""
    classes = type(conversation).__mro__
    return any(cls.__name__ == "History" and cls.__module__.startswith("dspy.") for cls in classes)


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the turns of a history."""
    messages: list[Message] = []
    for index, turn in enumerate(conversation.messages):
        place = f"messages[{index}]"
        is_message = "role" in turn
        messages += [read_message(turn, place, attachments)] if is_message else _read_turn(turn, place, attachments)
    return messages


def _read_turn(turn: Mapping[str, Any], place: str, attachments: AttachmentList) -> list[Message]:
    names = list(turn)
    own = [names.index(name) for name in (_THOUGHT, _CALLS) if name in turn]
    inputs = names[: min(own)] if own else names[:1]
    outputs = [name for name in names[len(inputs) :] if name not in (_THOUGHT, _CALLS)]
    thought, calls = turn.get(_THOUGHT), turn.get(_CALLS)
    acts: list[Part] = [Text(_text(thought, place, attachments))] if thought is not None else []
    acts += _read_calls(calls, f"{place}.{_CALLS}", attachments)
    groups: list[tuple[Role, list[Part]]] = [("user", _fields(turn, inputs, place, attachments)), ("assistant", acts)]
    groups.append(("assistant", _fields(turn, outputs, place, attachments)))
    return [Message(role, parts, place) for role, parts in groups if parts]


def _fields(turn: Mapping[str, Any], names: list[str], place: str, attachments: AttachmentList) -> list[Part]:
    """Return the texts of several fields, with their names if there is more than one."""
    notes: list[Part] = [Text("[reasoning]", "note") for name in names if name == "reasoning"]
    texts = {
        name: _text(turn[name], f"{place}.{name}", attachments)
        for name in names
        if name != "reasoning" and turn[name] is not None
    }
    return notes + [Text(text if len(texts) == 1 else f"{name}: {text}") for name, text in texts.items()]


def _read_calls(value: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Read a `dspy.ToolCalls`, or its dictionary, with the results of the calls."""
    if value is None:
        return []
    entries = cast("list[Any]", value) if isinstance(value, list) else list_field(value, "tool_calls", place)
    parts: list[Part] = [
        Call(text_field(call, "name") or NO_NAME, read_arguments(get_field(call, "args")), text_field(call, "id"))
        for call in entries
    ]
    results = get_field(value, "tool_call_results")
    answers = results if isinstance(results, list) else list_field(results, "tool_call_results", place)
    for index, result in enumerate(cast("list[Any]", answers)):
        text = _text(get_field(result, "value"), f"{place}[{index}]", attachments)
        failed = get_field(result, "is_error")
        parts.append(Result(text, text_field(result, "call_id"), text_field(result, "name"), bool(failed)))
    return parts


def _text(value: Any, place: str, attachments: AttachmentList) -> str:
    """Return the text of a field; DSPy's reasoning is an object with a `content`."""
    content = get_field(value, "content") if not isinstance(value, str | Mapping | list) else None
    return content if isinstance(content, str) else result_text(value, place, attachments)
