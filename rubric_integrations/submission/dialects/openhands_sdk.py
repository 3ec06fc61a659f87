"""Reads the events of the OpenHands SDK (version 1), which have the name of their class in `kind`.

An `ActionEvent` is a call. If its arguments are invalid, its `action` is null. An observation refers to the call by the
`tool_call_id`. The answer is the last message, or the `message` of `finish`. An ACP server reports each call several
times. The last report is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rubric_integrations.submission.dialects.blocks import (
    NO_NAME,
    AttachmentList,
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    code_field,
    first_field,
    flag_field,
    get_field,
    list_field,
    object_field,
    read_arguments,
    read_call,
    result_text,
    text_field,
)
from rubric_integrations.submission.dialects.chat import read_role

_RESULTS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")
_INTERNAL = ("Condensation", "CondensationRequest", "ConversationStateUpdateEvent", "HookExecutionEvent",
             "LLMCompletionLogEvent", "PauseEvent", "InterruptEvent", "SecurityAnalysisEvent", "StreamingDeltaEvent",
             "TokenEvent")  # fmt: skip
"""Events that are not part of the conversation: settings, logs, and repetitions."""
_NOTES = {"CondensationSummaryEvent": "summary", "ConversationErrorEvent": "detail"}
"""Events of the system, with the field that contains their text."""
_OWN_KINDS = ("ActionEvent", "ACPToolCallEvent", "MessageEvent", "SystemPromptEvent", *_RESULTS)
_OWN_KEYS = ("action", "tool_name", "tool_call_id", "llm_message", "system_prompt")
"""The keys of events with a kind in `_OWN_KINDS`. Such an event has at least one of them."""
_FINISH = "finish"


def matches_openhands_sdk(conversation: Any) -> bool:
    """Return whether a value, or its `history`, is a list of the OpenHands SDK's events, which have a `kind`."""
    events = _events(conversation)
    is_typed = all(isinstance(event, Mapping) and isinstance(event.get("kind"), str) for event in events)
    return is_typed and any(event["kind"] in _OWN_KINDS and any(key in event for key in _OWN_KEYS) for event in events)


def read_openhands_sdk(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the events of the OpenHands SDK. The calls of one reply of the model form one message."""
    messages: list[Message] = []
    by_reply: dict[str, int] = {}
    finished: set[str] = set()
    events = _events(conversation)
    reports = {
        text_field(event, "tool_call_id") or f"events[{index}]": event
        for index, event in enumerate(events)
        if event["kind"] == "ACPToolCallEvent"
    }
    for index, event in enumerate(events):
        place, kind = f"events[{index}]", event["kind"]
        if kind in _INTERNAL:
            continue
        if kind in _RESULTS:
            if text_field(event, "tool_call_id") not in finished:
                messages.append(Message("tool", [_read_result(event, place, attachments)], place))
        elif kind == "ACPToolCallEvent":
            if (last := reports.pop(text_field(event, "tool_call_id") or place, None)) is not None:
                messages.append(Message("assistant", _read_acp_call(last, place, attachments), place))
        elif kind == "ActionEvent":
            reply, parts = text_field(event, "llm_response_id"), _read_action(event, place, attachments)
            if not any(isinstance(part, Call) for part in parts):
                finished.add(text_field(event, "tool_call_id") or place)
            if reply is not None and reply in by_reply:
                messages[by_reply[reply]].parts.extend(parts)
                continue
            if reply is not None:
                by_reply[reply] = len(messages)
            messages.append(Message("assistant", parts, place))
        else:
            messages.append(_read_message(event, place, attachments))
    return messages


def _events(conversation: Any) -> list[Any]:
    history = conversation.get("history") if isinstance(conversation, Mapping) else conversation
    return list(cast("list[Any]", history)) if isinstance(history, list | tuple) else []


def _read_message(event: Mapping[str, Any], place: str, attachments: AttachmentList) -> Message:
    """Read an event that contains a message, the system prompt or a note."""
    kind = event["kind"]
    if kind in _NOTES:
        return Message("system", [Text(text_field(event, _NOTES[kind]) or "")], place)
    if kind == "SystemPromptEvent":
        prompts = [event.get("system_prompt"), event.get("dynamic_context")]
        return Message("system", _read_content([prompt for prompt in prompts if prompt], place, attachments), place)
    if kind != "MessageEvent":
        raise UnknownBlockError(place, f"is an event of the kind {kind!r}, which no reader knows")
    message = object_field(event, "llm_message")
    role = read_role(message, f"{place}.llm_message")
    parts = _read_content(list_field(message, "content", place), place, attachments)
    parts += _read_content(list_field(event, "extended_content", place), place, attachments)
    if role == "assistant":
        calls = list_field(message, "tool_calls", place)
        parts = [*_read_thinking(message, place), *parts, *(read_call(call, place) for call in calls)]
    return Message(role, parts, place, text_field(event, "sender"))


def _read_content(blocks: list[Any], place: str, attachments: AttachmentList) -> list[Part]:
    parts: list[Part] = []
    for block in blocks:
        text, urls = get_field(block, "text"), list_field(block, "image_urls", place)
        if isinstance(text, str):
            parts.append(Text(text))
        elif urls:
            parts += [attachments.add({"url": url}, "image_url", place) for url in urls]
        else:
            raise UnknownBlockError(
                place, f"has a block of the type {get_field(block, 'type')!r}, which no reader knows"
            )
    return parts


def _read_thinking(record: Any, place: str) -> list[Part]:
    has_thinking = text_field(record, "reasoning_content") or list_field(record, "thinking_blocks", place)
    return [Text("[thinking]", "note")] if has_thinking else []


def _read_action(event: Mapping[str, Any], place: str, attachments: AttachmentList) -> list[Part]:
    parts = [*_read_thinking(event, place),
             *_read_content(list_field(event, "thought", place), f"{place}.thought", attachments)]  # fmt: skip
    action, call = object_field(event, "action"), object_field(event, "tool_call")
    if event.get("tool_name") == _FINISH and (answer := text_field(action, "message")):
        return [*parts, Text(answer)]
    # The call of the model also has the tool's name and invalid arguments, which are missing in its `action`.
    arguments = first_field(call, "arguments") if call is not None else action
    name = text_field(event, "tool_name") or text_field(call, "name") or NO_NAME
    return [*parts, Call(name, read_arguments(arguments), text_field(event, "tool_call_id"))]


def _read_result(event: Mapping[str, Any], place: str, attachments: AttachmentList) -> Result:
    name, call_id = text_field(event, "tool_name"), text_field(event, "tool_call_id")
    if event["kind"] != "ObservationEvent":
        return Result(text_field(event, "error", "rejection_reason") or "", call_id, name, is_error=True)
    observation = object_field(event, "observation")
    content = get_field(observation, "content")
    blocks = [{"text": content}] if isinstance(content, str) else list_field(observation, "content", place)
    parts = _read_content(blocks, f"{place}.observation", attachments)
    # A command that is still running has the code -1.
    has_failed = bool(flag_field(observation, "is_error")) or (code_field(observation, "exit_code") or 0) > 0
    return Result("\n".join(part.text for part in parts if isinstance(part, Text)), call_id, name, has_failed)


def _read_acp_call(event: Mapping[str, Any], place: str, attachments: AttachmentList) -> list[Part]:
    call_id = text_field(event, "tool_call_id")
    call = Call(text_field(event, "title", "tool_kind") or NO_NAME, read_arguments(event.get("raw_input")), call_id)
    output = first_field(event, "raw_output", "content")
    if output is None:
        return [call]
    return [call, Result(result_text(output, place, attachments), call_id, None, bool(flag_field(event, "is_error")))]
