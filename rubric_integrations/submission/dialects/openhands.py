"""Reads the events of OpenHands (version 0), and the lines of its `output.jsonl`, which have events in `history`.

An action of the agent is a call, unless the action is a message or an internal event. The `tool_call_metadata` of an
action contain the tool name and the arguments that the model wrote. An observation refers to its action by `cause`. The
`message` of an event is a text for the user interface and is not read. The answer is the last message, or the final
thought of the action `finish`.
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
    code_field,
    flag_field,
    list_field,
    object_field,
    read_arguments,
    read_call,
    result_text,
    text_field,
)
from rubric_integrations.submission.dialects.chat import Role

_ROLES: dict[str, Role] = {"agent": "assistant", "user": "user", "environment": "system"}
_OWN_KEYS = ("source", "tool_call_metadata", "extras")
"""A list of events has at least one of these keys. Some exports leave out the `source`."""
_TEXTS = {
    "message": ("content",),
    "system": ("content",),
    "finish": ("final_thought", "thought"),
    "reject": ("thought",),
}
"""Actions that are not calls, with the arguments that may contain their text."""
_INTERNAL = ("recall", "change_agent_state", "condensation", "condensation_request", "null", "agent_state_changed",
              "condense", "loop_recovery", "loop_detection_pause")  # fmt: skip


def matches_openhands(conversation: Any) -> bool:
    """Return whether a value, or its `history`, is a list of OpenHands' events or of pairs of events."""
    events = _events(conversation)
    return all(map(_is_event, events)) and any(key in event for event in events for key in _OWN_KEYS)


def read_openhands(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read OpenHands' events. The calls of one reply of the model form one message."""
    messages: list[Message] = []
    by_reply: dict[str, int] = {}
    ignored: set[str] = set()
    for index, event in enumerate(_events(conversation)):
        place, event_id = f"history[{index}]", _id(event, "id", index)
        if event.get("action") in _INTERNAL or event.get("observation") in _INTERNAL:
            ignored.add(event_id)
        elif event.get("observation") == "error" and event.get("cause") is None:
            # The model wrote a call that could not be parsed. It is not an action, and its error is a message to the
            # model.
            text = result_text(event["content"], f"{place}.content", attachments)
            messages.append(Message("system", [Text(f"[error]\n{text}")], place))
        elif "observation" in event:
            # The observation of a message or of a final thought repeats its text.
            if (cause := _id(event, "cause")) not in ignored:
                messages.append(Message("tool", [_read_observation(event, cause, place, attachments)], place))
        elif event["action"] in _TEXTS:
            ignored.add(event_id)
            messages.append(_read_text(event, place, attachments))
        else:
            reply = text_field(object_field(object_field(event, "tool_call_metadata"), "model_response"), "id")
            parts = _read_action(event, event_id, place)
            if reply is not None and reply in by_reply:
                messages[by_reply[reply]].parts.extend(parts)
                continue
            if reply is not None:
                by_reply[reply] = len(messages)
            messages.append(Message(_ROLES[event.get("source") or "agent"], parts, place))
    return messages


def _events(conversation: Any) -> list[Any]:
    history = conversation.get("history") if isinstance(conversation, Mapping) else conversation
    events: list[Any] = []
    for event in cast("list[Any]", history) if isinstance(history, list | tuple) else []:
        events += cast("list[Any]", event) if isinstance(event, list | tuple) and len(event) == 2 else [event]
    return events


def _is_event(event: Any) -> bool:
    if not isinstance(event, Mapping) or event.get("source") not in (*_ROLES, None):
        return False
    action, observation = event.get("action"), event.get("observation")
    if isinstance(action, str):
        return observation is None and isinstance(event.get("args"), Mapping)
    return action is None and isinstance(observation, str) and "content" in event


def _id(event: Mapping[str, Any], key: str, default: int | None = None) -> str:
    return text_field(event, key) or str(default)


def _read_text(event: Mapping[str, Any], place: str, attachments: AttachmentList) -> Message:
    fields = event["args"]
    source = event.get("source")
    if source is None and event["action"] == "message":
        raise ValueError(
            f"`{place}` is a message without a `source`: write 'user' or 'agent', or its author is not known"
        )
    role = "system" if event["action"] == "system" else _ROLES[source or "agent"]
    text = text_field(fields, *_TEXTS[event["action"]]) or text_field(event, "message") or ""
    parts: list[Part] = [Text(text)]
    for number, url in enumerate(list_field(fields, "image_urls", f"{place}.args")):
        parts.append(attachments.add({"url": url}, "image_url", f"{place}.args.image_urls[{number}]"))
    return Message(role, parts, place)


def _read_action(event: Mapping[str, Any], event_id: str, place: str) -> list[Part]:
    fields, metadata = event["args"], object_field(event, "tool_call_metadata")
    parts: list[Part] = [Text(thought)] if (thought := text_field(fields, "thought")) else []
    name, call_id = text_field(metadata, "function_name") or event["action"], text_field(metadata, "tool_call_id")
    for choice in list_field(object_field(metadata, "model_response"), "choices", place):
        for call in list_field(object_field(choice, "message"), "tool_calls", place):
            if call_id is not None and text_field(call, "id") == call_id:
                return [*parts, read_call(call, place)._replace(id=event_id)]
    arguments = {key: value for key, value in fields.items() if key != "thought"}
    return [*parts, Call(name, read_arguments(arguments), event_id)]


def _read_observation(event: Mapping[str, Any], cause: str, place: str, attachments: AttachmentList) -> Result:
    extras, success = object_field(event, "extras"), flag_field(event, "success")
    code = code_field(object_field(extras, "metadata"), "exit_code")
    code = code_field(extras, "exit_code") if code is None else code
    is_error = None if success is None else not success
    # A command that is still running has the code -1.
    if code is not None and code >= 0:
        is_error = code > 0
    if event["observation"] == "error":
        is_error = True
    return Result(result_text(event["content"], f"{place}.content", attachments), cause, None, is_error)
