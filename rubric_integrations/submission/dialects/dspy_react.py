"""The `trajectory` of a `dspy.ReAct` prediction: a thought, a tool, its arguments and the observation of each turn.

It has neither the task nor the answer, which are fields of the example and of the prediction. A tool that raised an
error has an observation that begins with `Execution error in` and its name. DSPy ends a run by a tool of its own, which
no user expects among the calls: of that turn only the thought is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rubric_integrations.submission.dialects.blocks import result_text
from rubric_integrations.submission.dialects.media import AttachmentList
from rubric_integrations.submission.dialects.parts import (
    NO_NAME,
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    read_arguments,
    text_field,
)

# DSPy gives every agent this tool, in place of one of the user's with the same name.
_FINISH = "finish"
_KEY = re.compile(r"(thought|tool_name|tool_args|observation)_(\d{1,9})")


def matches(conversation: Any) -> bool:
    """Return whether a conversation is a dictionary with the keys of a trajectory, and with no others."""
    return isinstance(conversation, Mapping) and bool(conversation) and all(map(_number, conversation))


def read(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read one message for each turn. The oldest turns may be missing, if the agent's context was full."""
    numbers = sorted({number for key in conversation if (number := _number(key))}, key=int)
    turns = [_read_turn(conversation, number, attachments) for number in numbers]
    return [turn for turn in turns if turn.parts] or turns


def _number(key: object) -> str | None:
    match = _KEY.fullmatch(key) if isinstance(key, str) else None
    return None if match is None else match[2]


def _read_turn(trajectory: Mapping[str, Any], number: str, attachments: AttachmentList) -> Message:
    place = f"thought_{number}"
    thought, arguments = trajectory.get(place), trajectory.get(f"tool_args_{number}")
    if thought is not None and not isinstance(thought, str):
        raise UnknownBlockError(place, "is not a text")
    parts: list[Part] = [Text(thought)] if thought else []
    name = text_field(trajectory, f"tool_name_{number}")
    if name == _FINISH:
        return Message("assistant", parts, place)
    if name is not None or arguments is not None:
        parts.append(Call(name or NO_NAME, read_arguments(arguments), number))
    observation = trajectory.get(f"observation_{number}")
    if f"observation_{number}" in trajectory:
        text = result_text(observation, f"observation_{number}", attachments)
        is_error = isinstance(observation, str) and observation.startswith(f"Execution error in {name}:")
        parts.append(Result(text, number, name, is_error))
    return Message("assistant", parts, place)
