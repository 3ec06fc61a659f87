"""Reads the memory of smolagents: the steps that `get_full_steps` returns, and a `RunResult` with such steps.

A step has its calls in `tool_calls`. If the step failed, the calls may be only in the message of the model. Its error
names the call that failed, and the outcome of the other calls is unknown. If it names none, all calls count as failed.
If a step has several calls, smolagents records their results as one text, which becomes the result of the last call. A
code agent has only one tool, its interpreter. Functions that the code calls are not read as separate calls. The answer
is the argument of `final_answer`, or the `action_output` of code.
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
    count_field,
    flag_field,
    get_field,
    list_field,
    number_field,
    object_field,
    read_call,
    result_text,
    text_field,
)

_FINAL = "final_answer"
_JOINED = "[in the result of the last call of this step]"
_WITHOUT_CALLS = ("AgentParsingError", "AgentGenerationError", "AgentMaxStepsError")
"""Types of errors of steps that called no tool."""


def matches_smolagents(conversation: Any) -> bool:
    """Return whether a value, or its `steps`, is a list of smolagents' tasks, plans and numbered steps."""
    steps = _steps(conversation)
    if not steps or not all(isinstance(step, Mapping) for step in steps):
        return False
    is_step = [any(key in step for key in ("step_number", "task", "plan", "system_prompt")) for step in steps]
    return all(is_step) and any("step_number" in step and "model_output" in step for step in steps)


def read_smolagents(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read smolagents' tasks, plans and steps."""
    messages: list[Message] = []
    for index, step in enumerate(_steps(conversation)):
        place = f"steps[{index}]"
        if "step_number" not in step:
            role = "system" if "system_prompt" in step else "user" if "task" in step else "assistant"
            text = text_field(step, "task", "plan", "system_prompt") or ""
            messages.append(Message(role, [Text(text)], place))
            if step.get("task_images"):
                raise UnknownBlockError(f"{place}.task_images", "has images as raw pixels, which no reader knows")
            continue
        messages += _read_step(step, place, attachments)
    return messages


def _steps(conversation: Any) -> list[Any]:
    steps = conversation.get("steps") if isinstance(conversation, Mapping) else conversation
    return list(cast("list[Any]", steps)) if isinstance(steps, list | tuple) else []


def _read_step(step: Mapping[str, Any], place: str, attachments: AttachmentList) -> list[Message]:
    """Read one step: its text, its calls and their results, its error and the final answer."""
    error = object_field(step, "error")
    text = result_text(step.get("model_output"), f"{place}.model_output", attachments)
    parts: list[Part] = [Text(text)] if text else []
    entries = list_field(step, "tool_calls", place)
    if not entries:
        entries = list_field(object_field(step, "model_output_message"), "tool_calls", place)
    if error is not None and not entries and get_field(error, "type") not in _WITHOUT_CALLS:
        raise UnknownBlockError(place, f"failed ({get_field(error, 'type')}), and the call that failed is not in it")
    calls: list[Call] = []
    for number, entry in enumerate(entries):
        call = read_call(entry, f"{place}.tool_calls[{number}]")
        if call.name == _FINAL and error is None:
            parts.append(Text(_final_text(call, place, attachments)))
        else:
            calls.append(call)
    timing, usage = step.get("timing"), step.get("token_usage")
    seconds = number_field(timing, "duration")
    message = Message("assistant", [*parts, *calls], place,
                      tokens=count_field(usage, "input_tokens", "output_tokens"),
                      milliseconds=None if seconds is None else seconds * 1000)  # fmt: skip
    messages = [message] if message.parts else []
    results = _read_results(step, calls, place, attachments)
    messages += [Message("tool", list(results), place)] if results else []
    if error is not None and not calls:
        messages.append(Message("system", [Text(f"[error]\n{text_field(error, 'message') or ''}")], place))
    # The code of a code agent returns the answer. An agent that reached its limit of steps is requested to give an
    # answer.
    output = step.get("action_output")
    has_answer = flag_field(step, "is_final_answer") or get_field(error, "type") == "AgentMaxStepsError"
    if has_answer and output is not None:
        messages.append(Message("assistant", [Text(result_text(output, place, attachments))], place))
    return messages


def _read_results(step: Mapping[str, Any], calls: list[Call], place: str, attachments: AttachmentList) -> list[Result]:
    error, observed = step.get("error"), text_field(step, "observations") or ""
    if step.get("observations_images"):
        raise UnknownBlockError(f"{place}.observations_images", "has images as raw pixels, which no reader knows")
    if error is not None:
        message = text_field(error, "message") or ""
        text = "\n".join(filter(None, (observed, message)))
        return [Result(text, call.id, call.name, is_error=True) for call in _failed_calls(calls, message)]
    texts = [*[_JOINED] * (len(calls) - 1), observed]
    return [Result(text, call.id, call.name, is_error=False) for text, call in zip(texts, calls, strict=False)]


def _failed_calls(calls: list[Call], message: str) -> list[Call]:
    """Return the calls of a failed step that failed: the one that the error names, or all if it names none.

    smolagents begins the error with the name of the tool and its arguments, as Python writes them. The text of the
    exception comes after both.
    """
    for is_exact in (False, True):
        named = [call for call in calls if message.startswith(_error_beginnings(call, is_exact=is_exact))]
        if len(named) == 1:
            return named
    return calls


def _error_beginnings(call: Call, *, is_exact: bool) -> tuple[str, ...]:
    """Return the beginnings of smolagents' errors of a call, with its arguments if `is_exact`."""
    called = f"'{call.name}' with arguments {call.arguments}: " if is_exact else f"'{call.name}' with arguments "
    return (
        f"Error executing tool {called}",
        f"Error executing request to team member {called}",
        f"Unknown tool {call.name}, ",
    )


def _final_text(call: Call, place: str, attachments: AttachmentList) -> str:
    arguments = call.arguments
    if isinstance(arguments, Mapping) and list(arguments) == ["answer"]:
        return result_text(arguments["answer"], place, attachments)
    return result_text(arguments, place, attachments)
