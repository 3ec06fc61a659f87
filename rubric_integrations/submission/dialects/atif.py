"""Harbor's Agent Trajectory Interchange Format: `steps` with their calls, and the results in the `observation`.

Each step has its tokens and its cost in `metrics`. Its duration is the time since the step before. The format does not
record whether a tool failed. The trajectory of a subagent is not read; the reference to it is its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rubric_integrations.submission.dialects.blocks import read_content, result_text
from rubric_integrations.submission.dialects.chat import Role
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import (
    NO_NAME,
    Call,
    Message,
    Part,
    Result,
    Text,
    count_field,
    data_text,
    get_field,
    list_field,
    number_field,
    read_arguments,
    text_field,
)

_ROLES: dict[str, Role] = {"user": "user", "agent": "assistant", "system": "system"}


def matches(conversation: Any) -> bool:
    """Return whether a conversation is a document with `steps`, or a list of steps, that have a `source`."""
    steps = conversation.get("steps") if isinstance(conversation, Mapping) else conversation
    if not isinstance(steps, list | tuple) or not steps:
        return False
    return all(isinstance(step, Mapping) and "source" in step and "message" in step for step in steps)


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read steps."""
    steps = conversation["steps"] if isinstance(conversation, Mapping) else conversation
    messages: list[Message] = []
    before: datetime | None = None
    for index, step in enumerate(steps):
        place, now = f"steps[{index}]", _time(step.get("timestamp"))
        seconds = None if now is None or (index and before is None) else (now - (before or now)).total_seconds()
        message = _read_step(step, place, attachments)
        milliseconds = None if seconds is None or seconds < 0 else seconds * 1000
        messages.append(message._replace(milliseconds=milliseconds))
        before = now
    return messages


def _read_step(step: Mapping[str, Any], place: str, attachments: AttachmentList) -> Message:
    role = _ROLES.get(step["source"]) if isinstance(step["source"], str) else None
    if role is None:
        raise ValueError(f"`{place}` has the unknown source {step['source']!r}: use 'user', 'agent' or 'system'")
    parts: list[Part] = [Text("[reasoning]", "note")] if text_field(step, "reasoning_content") else []
    message = read_content(step["message"], f"{place}.message", attachments)
    calls = [_read_call(call) for call in list_field(step, "tool_calls", place)]
    # An empty message beside calls is no text.
    parts += [part for part in message if not (calls and part == Text(""))]
    parts += calls
    observation = step.get("observation")
    if observation is not None and get_field(observation, "results") is None:
        raise ValueError(
            f"`{place}.observation` has no `results`: write what it holds as one of them, or it would be lost"
        )
    for number, result in enumerate(list_field(observation, "results", f"{place}.observation")):
        parts.append(_read_result(result, f"{place}.observation.results[{number}]", attachments))
    metrics = step.get("metrics")
    tokens, cost = count_field(metrics, "prompt_tokens", "completion_tokens"), number_field(metrics, "cost_usd")
    return Message(role, parts, place, None, tokens, cost)


def _read_call(call: Any) -> Call:
    name, arguments = text_field(call, "function_name") or NO_NAME, read_arguments(get_field(call, "arguments"))
    return Call(name, arguments, text_field(call, "tool_call_id"))


def _read_result(result: Any, place: str, attachments: AttachmentList) -> Result:
    texts = [result_text(get_field(result, "content"), f"{place}.content", attachments)]
    reference = get_field(result, "subagent_trajectory_ref")
    texts += [data_text({"subagent_trajectory_ref": reference})] if reference else []
    return Result("\n".join(text for text in texts if text), text_field(result, "source_call_id"))


def _time(timestamp: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(timestamp)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
