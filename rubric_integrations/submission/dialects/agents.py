"""Reads the runs of agents: Harbor's ATIF, AgentV's transcripts, `dspy.History`, `dspy.ReAct` and Inspect's messages.

- Harbor's ATIF has `steps` with calls, and with the results in the `observation`. The tokens and the cost of a step are
  in `metrics`. The duration of a step is the time since the previous step. The format does not record whether a tool
  failed. The trajectory of a subagent is not read. The reference to this trajectory becomes the result of the call.
- AgentV's transcripts are the lines of `transcript.jsonl`, its document with `turns`, or the lines of raw transcripts.
  A call contains its result, with a status.
- `dspy.History` has chat messages, or turns with the fields of a signature. In a turn of `dspy.ReActV2`, the fields
  before the thought and the calls belong to the user, and the fields after them belong to the assistant. In any other
  turn, the first field belongs to the user, and the others belong to the assistant.
- The `trajectory` of `dspy.ReAct` has neither the task nor the answer, which are fields of the example and of the
  prediction. If a tool raised an error, its observation begins with `Execution error in` and its name. DSPy ends a run
  with a call of its own tool `finish`. Only the thought of this last turn is read.
- Inspect's calls have objects as arguments. A result has an `error` if its tool failed. An `EvalSample` has the
  messages in `messages`, and the large values of these messages in `attachments`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
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
    count_field,
    data_text,
    first_field,
    flag_field,
    get_field,
    list_field,
    number_field,
    object_field,
    read_arguments,
    read_block,
    read_content,
    result_text,
    text_field,
)
from rubric_integrations.submission.dialects.chat import Role, read_message, read_role

_FAILED = {"success": False, "ok": False, "error": True, "timeout": True, "cancelled": True}


def matches_agentv(conversation: Any) -> bool:
    """Return whether a value is AgentV's transcript: a document with `turns`, or a list of lines of a transcript."""
    lines = conversation.get("turns") if isinstance(conversation, Mapping) else conversation
    if not isinstance(lines, list | tuple) or not lines:
        return False
    return all(isinstance(line, Mapping) and (_is_turn(line) or "message_index" in line) for line in lines)


def read_agentv(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the lines of AgentV's transcript."""
    lines = conversation["turns"] if isinstance(conversation, Mapping) else conversation
    return [_read_line(line, f"messages[{index}]", attachments) for index, line in enumerate(lines)]


def _is_turn(line: Mapping[str, Any]) -> bool:
    return "v" in line and "agent" in line and "type" in line


def _read_line(line: Mapping[str, Any], place: str, attachments: AttachmentList) -> Message:
    """Read one line of AgentV's transcript."""
    if (version := line.get("v", 1)) != 1:
        raise ValueError(f"`{place}` has the version {version!r} of AgentV's transcripts: write version 1")
    role, content = read_role(line, place), line.get("content")
    name, milliseconds = text_field(line, "name"), number_field(line, "duration_ms")
    if role == "tool":
        text = result_text(content, f"{place}.content", attachments)
        return Message(role, [Result(text, None, name)], place, milliseconds=milliseconds)
    if "content" not in line and "tool_calls" not in line:
        raise UnknownBlockError(place, "has neither `content` nor `tool_calls`")
    parts: list[Part] = []
    for index, block in enumerate(content if isinstance(content, list) else []):
        block_place = f"{place}.content[{index}]"
        is_call = get_field(block, "type") == "tool_use"
        parts += (
            _read_agentv_call(block, block_place, attachments)
            if is_call
            else read_block(block, block_place, attachments)
        )
    if not isinstance(content, list):
        parts = read_content(content, f"{place}.content", attachments)
    for index, call in enumerate(list_field(line, "tool_calls", place)):
        parts += _read_agentv_call(call, f"{place}.tool_calls[{index}]", attachments)
    # Calls are sorted before their results. Concurrent calls then form one step.
    parts.sort(key=lambda part: isinstance(part, Result))
    tokens = count_field(line, "input_tokens", "output_tokens")
    if tokens is None:
        tokens = count_field(line.get("token_usage"), "input", "output")
    return Message(role, parts, place, name, tokens, None, milliseconds)


def _read_agentv_call(call: Any, place: str, attachments: AttachmentList) -> list[Part]:
    """Read a call of AgentV, followed by its result if the call contains it."""
    name, arguments = (
        text_field(call, "name", "tool") or NO_NAME,
        read_arguments(first_field(call, "input", "arguments")),
    )
    result = object_field(call, "result")
    holder = call if result is None else result
    output, status = get_field(holder, "output"), text_field(holder, "status")
    if output is None and result is None and status is None:
        return [Call(name, arguments)]  # Its result may be a separate line, which refers to the call by name.
    # The place is used as the id, because ids may repeat or be missing. The call contains its result.
    call_id = place
    is_error = _FAILED.get(status or "")
    text = result_text(output, place, attachments)
    return [Call(name, arguments, call_id), Result(text, call_id, name, is_error)]


_STEP_KEYS = (
    "step_id", "timestamp", "source", "model_name", "reasoning_effort", "message", "reasoning_content", "tool_calls",
    "observation", "metrics", "is_copied_context", "llm_call_count", "extra", "id", "name",
)  # fmt: skip
_ROLES: dict[str, Role] = {"user": "user", "agent": "assistant", "system": "system"}


def matches_atif(conversation: Any) -> bool:
    """Return whether a value is Harbor's ATIF: a document with `steps`, or a list of steps, which have a `source`."""
    steps = conversation.get("steps") if isinstance(conversation, Mapping) else conversation
    if not isinstance(steps, list | tuple) or not steps:
        return False
    # A list of steps is not in a document that names its format, and the events of OpenHands also have a source.
    keys = ("source", "message") if isinstance(conversation, Mapping) else ("source", "message", "step_id")
    return all(isinstance(step, Mapping) and all(key in step for key in keys) for step in steps)


def read_atif(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the steps of Harbor's ATIF."""
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
    """Read one step of an ATIF trajectory: its text, its calls and their results."""
    role = _ROLES.get(step["source"]) if isinstance(step["source"], str) else None
    if role is None:
        raise ValueError(f"`{place}` has the unknown source {step['source']!r}: use 'user', 'agent' or 'system'")
    for key, value in step.items():
        if key not in _STEP_KEYS and isinstance(value, str | list | Mapping) and value:
            raise UnknownBlockError(f"{place}.{key}", "is not a field of ATIF, which has `extra` for data of others")
    parts: list[Part] = [Text("[reasoning]", "note")] if text_field(step, "reasoning_content") else []
    message = read_content(step["message"], f"{place}.message", attachments)
    calls = [_read_atif_call(call) for call in list_field(step, "tool_calls", place)]
    # An empty message next to calls is not a text.
    parts += [part for part in message if not (calls and part == Text(""))]
    parts += calls
    observation = step.get("observation")
    if observation is not None and get_field(observation, "results") is None:
        raise ValueError(
            f"`{place}.observation` has no `results`: write what it holds as one of them, or it would be lost"
        )
    results = [
        _read_result(result, f"{place}.observation.results[{number}]", attachments)
        for number, result in enumerate(list_field(observation, "results", f"{place}.observation"))
    ]
    if len(calls) == len(results) == 1 and results[0].id is None:
        # Harbor's Terminus 2 has one result a step, without the id of a call.
        results = [results[0]._replace(id=calls[0].id)]
    parts += results
    metrics = step.get("metrics")
    tokens, cost = count_field(metrics, "prompt_tokens", "completion_tokens"), number_field(metrics, "cost_usd")
    return Message(role, parts, place, None, tokens, cost)


def _read_atif_call(call: Any) -> Call:
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


_THOUGHT, _CALLS = "next_thought", "tool_calls"


def matches_dspy_history(conversation: Any) -> bool:
    """Return whether a value is a `dspy.History`, without importing DSPy."""
    classes = type(conversation).__mro__
    return any(cls.__name__ == "History" and cls.__module__.startswith("dspy.") for cls in classes)


def read_dspy_history(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the turns of a `dspy.History`."""
    messages: list[Message] = []
    for index, turn in enumerate(conversation.messages):
        place = f"messages[{index}]"
        is_message = "role" in turn
        messages += (
            [read_message(turn, place, attachments)] if is_message else _read_history_turn(turn, place, attachments)
        )
    return messages


def _read_history_turn(turn: Mapping[str, Any], place: str, attachments: AttachmentList) -> list[Message]:
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
        failed = bool(flag_field(result, "is_error"))
        parts.append(Result(text, text_field(result, "call_id"), text_field(result, "name"), failed))
    return parts


def _text(value: Any, place: str, attachments: AttachmentList) -> str:
    """Return the text of a field. DSPy's reasoning is an object with a `content`."""
    content = get_field(value, "content") if not isinstance(value, str | Mapping | list) else None
    return content if isinstance(content, str) else result_text(value, place, attachments)


# DSPy gives every agent this tool. It replaces a tool of the user with the same name.
_FINISH = "finish"
_KEY = re.compile(r"(thought|tool_name|tool_args|observation)_(\d{1,9})")


def matches_dspy_react(conversation: Any) -> bool:
    """Return whether a value is the `trajectory` of `dspy.ReAct`: a dictionary with only keys such as `thought_0`."""
    return isinstance(conversation, Mapping) and bool(conversation) and all(map(_number, conversation))


def read_dspy_react(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the turns of `dspy.ReAct`, each as one message.

    The oldest turns may be missing if the agent's context was full.
    """
    numbers = sorted({number for key in conversation if (number := _number(key))}, key=int)
    turns = [_read_react_turn(conversation, number, attachments) for number in numbers]
    return [turn for turn in turns if turn.parts] or turns


def _number(key: object) -> str | None:
    match = _KEY.fullmatch(key) if isinstance(key, str) else None
    return None if match is None else match[2]


def _read_react_turn(trajectory: Mapping[str, Any], number: str, attachments: AttachmentList) -> Message:
    """Read one turn of DSPy's ReAct: a thought, a call and its observation."""
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


_REFERENCE = "attachment://"


def matches_inspect_ai(conversation: Any) -> bool:
    """Return whether a value is a list of Inspect's messages, or a sample: `messages` with an `output` or `epoch`."""
    if not isinstance(conversation, list | tuple):
        messages = get_field(conversation, "messages")
        is_sample = get_field(conversation, "output") is not None or get_field(conversation, "epoch") is not None
        return isinstance(messages, list) and is_sample
    kinds = [_is_own(message) for message in conversation]
    return True in kinds and False not in kinds


def read_inspect_ai(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the messages of a sample of Inspect, or a list of Inspect's messages."""
    if isinstance(conversation, list | tuple):
        messages = list(cast("list[Any]", conversation))
    else:
        values = get_field(conversation, "attachments")
        values = cast("Mapping[str, str]", values) if isinstance(values, Mapping) else {}
        references: list[str] = []
        messages = [_resolve(message, values, references) for message in get_field(conversation, "messages")]
        # Thousands of references to one text are a small file, and their texts could be larger than the memory.
        texts = (cast("object", values[name]) for name in references)
        if sum(len(text) for text in texts if isinstance(text, str)) > _MAX_ATTACHED:
            raise ValueError(
                f"`messages` refers to `attachments` of more than {_MAX_ATTACHED:,} characters in all: remove "
                "references that repeat a text"
            )
    return [_read_message(message, f"messages[{index}]", attachments) for index, message in enumerate(messages)]


def _is_own(message: Any) -> bool | None:
    """Return whether the calls of a message, or the message as a result, are Inspect's. None if this is unknown."""
    if get_field(message, "role") == "tool":
        return True if isinstance(get_field(message, "function"), str) else None
    calls = get_field(message, "tool_calls")
    if not isinstance(calls, list) or not calls:
        return None
    return all(isinstance(get_field(call, "function"), str) for call in cast("list[Any]", calls))


def _read_message(message: Any, place: str, attachments: AttachmentList) -> Message:
    if get_field(message, "role") != "tool":
        return read_message(message, place, attachments)
    error, name = get_field(message, "error"), text_field(message, "function")
    texts = [result_text(get_field(message, "content"), f"{place}.content", attachments)]
    if error is not None:
        problem = text_field(error, "message") or result_text(error, f"{place}.error", attachments)
        texts = [text for text in texts if text and text != problem] + [problem]
    result = Result("\n".join(texts), text_field(message, "tool_call_id"), name, error is not None)
    return Message("tool", [result], place)


_MAX_ATTACHED = 100_000_000


def _resolve(value: Any, attachments: Mapping[str, str], references: list[str]) -> Any:
    """Return a value with texts instead of references to attachments. The names are added to `references`."""
    if isinstance(value, str) and value.startswith(_REFERENCE):
        if (name := value.removeprefix(_REFERENCE)) not in attachments:
            raise ValueError(
                f"`messages` has {value[:100]!r}, which is not in the `attachments` of the sample: put the text there, "
                "or the reference would be graded"
            )
        references.append(name)
        return attachments[name]
    if isinstance(value, list):
        return [_resolve(item, attachments, references) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        return {key: _resolve(item, attachments, references) for key, item in cast("Mapping[str, Any]", value).items()}
    return value
