"""The steps of a conversation or of an agent's run, their text for a judge, and the results of their tool calls."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from rubric_integrations._util.json import json_lines
from rubric_integrations._util.records import EncodableText, SparseRecord, encodable
from rubric_integrations.submission.dialects.blocks import Call, Message, Result, Text
from rubric_integrations.submission.selection import StepSelection

Role = Literal["user", "assistant", "system", "tool"]
"""The author of a step. A step with the role `tool` is a result whose call is not in the trace."""


class ToolCall(SparseRecord):
    """One call of a tool, with its result.

    Attributes:
        name: The tool's name.
        arguments: The arguments as a JSON object, or as a text if they are not a JSON object. None if the trace does
            not contain the arguments.
        result: The text that the tool returned. None if the trace has no result.
        is_error: Whether the tool failed. None if the trace does not record this.
        omitted: The number of characters that were removed from the result (see `Trajectory.shortened`).
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("omitted",)

    name: EncodableText = Field(min_length=1)
    arguments: dict[str, Any] | EncodableText | None = None
    result: EncodableText | None = None
    is_error: bool | None = None
    omitted: int = Field(default=0, ge=0)

    def shortened(self, step_limit: int) -> Self:
        """Return this call with only the beginning and the end of a result of more than `step_limit` characters.

        A note replaces the removed characters. If the result was shortened earlier, its note does not count as part of
        the result. Therefore, two calls of this method have the same effect as one call with the smaller limit.

        Args:
            step_limit: The largest number of characters of the result, without the note.
        """
        result, earlier = self.result or "", _note(self.omitted)
        cut = len(result) - step_limit - (len(earlier) if self.omitted and earlier in result else 0)
        if cut <= 0:
            return self
        omitted, end = self.omitted + cut, step_limit // 2
        text = f"{result[: step_limit - end]}{_note(omitted)}{result[len(result) - end :]}"
        return self.model_copy(update={"result": text, "omitted": omitted})


class Step(SparseRecord):
    """One step: a message of the user, the system or the assistant, with its tool calls and their results.

    Attributes:
        role: The author of the step.
        text: The text of the step. An attachment is written as `[attachment 1]`, by its number in the submission.
        name: The name of the author, if a conversation has several authors with one role.
        calls: The tool calls, in order.
        tokens: The number of tokens of the step, sent and received. None if the trace does not contain the number.
        cost: The cost of the step in US dollars. None if the trace does not contain the cost.
        milliseconds: The duration of the step in milliseconds. None if the trace does not contain the duration.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("name", "calls")

    role: Role
    text: EncodableText = ""
    name: EncodableText | None = None
    calls: tuple[ToolCall, ...] = ()
    tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    milliseconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)


def render_steps(steps: Sequence[Step], *, numbered: bool = False, selection: StepSelection | None = None) -> str:
    """Write steps as text: one JSON object per line with the role, the content, and the calls with their results.

    JSON escapes line breaks. Therefore the content of a step cannot imitate another step.

    Args:
        steps: The steps.
        numbered: Whether each line begins with the number of its step. The first step has the number 1.
        selection: The numbers of the steps in a longer trajectory, if they were selected from one. Notes about the
            steps that are not shown are then added as separate lines, and the steps are always numbered.

    Example:
        >>> call = ToolCall(name="look", result="8.4%")
        >>> print(render_steps([Step(role="assistant", calls=(call,))], numbered=True))
        {"step": 1, "role": "assistant", "content": "", "tool_calls": [{"name": "look", "result": "8.4%"}]}
    """
    if selection is not None:
        return _render_selection(steps, selection)
    lines = enumerate(map(_line, steps), start=1)
    return json_lines({"step": number, **line} if numbered else line for number, line in lines)


def _render_selection(steps: Sequence[Step], selection: StepSelection) -> str:
    """Write selected steps with their original numbers, and a line for each range of steps that is not shown."""
    notes, lines = selection.notes(), list[str]()
    for step, shown in zip(steps, selection.steps, strict=True):
        part = shown.describe_lines()
        # A separate field, because the text of a step can contain a text that looks like a note.
        fields = {"step": shown.number, **({"shown_lines": part} if part else {}), **_line(step)}
        lines += [*filter(None, (notes.get(shown.number),)), json_lines([fields])]
    ends = (notes.get(selection.total + 1), selection.absence_note())
    return "\n".join([*lines, *filter(None, ends)])


def _note(omitted: int) -> str:
    return f"\n... [{omitted:,} characters omitted] ...\n"


def _line(step: Step) -> dict[str, Any]:
    author = {"name": step.name} if step.name else {}
    calls = {"tool_calls": [_call(call) for call in step.calls]} if step.calls else {}
    return {"role": step.role, "content": step.text, **calls, **author}


def _call(call: ToolCall) -> dict[str, Any]:
    """Return the fields of a call that a judge reads.

    `is_error` is included only if the call failed, because not every trace records success.
    """
    optional = {"arguments": call.arguments, "result": call.result, "is_error": call.is_error or None}
    # A separate field, because a result can contain a text that looks like the note.
    omitted = {"omitted_characters": call.omitted} if call.omitted else {}
    return {"name": call.name, **{name: value for name, value in optional.items() if value is not None}, **omitted}


@dataclass
class _OpenCall:
    """A call that may still get its result."""

    call: Call
    message: int
    result: Result | None = None

    def close(self) -> ToolCall:
        result = self.result
        return ToolCall(
            name=encodable(self.call.name),
            arguments=self.call.arguments,
            result=None if result is None else result.text,
            is_error=None if result is None else result.is_error,
        )


@dataclass
class _OpenStep:
    """A step to which texts and calls can be added. `result` is set if the step is a result without a call."""

    texts: list[str] = field(default_factory=list[str])
    calls: list[_OpenCall] = field(default_factory=list[_OpenCall])
    result: Result | None = None


class _OpenCalls:
    """The calls without a result, by their id. Calls without an id are found by their name or by their order."""

    def __init__(self) -> None:
        self._by_key: defaultdict[str | tuple[str | None], deque[_OpenCall]] = defaultdict(deque)

    def add(self, call: _OpenCall) -> None:
        call_id = call.call.id
        if call_id is None:
            self._by_key[(call.call.name,)].append(call)
            self._by_key[(None,)].append(call)
            return
        waiting = self._by_key[call_id]
        # Some models number the calls of each message from zero. A result then belongs to the newest call with its id.
        if waiting and waiting[-1].message != call.message:
            waiting.clear()
        waiting.append(call)

    def take(self, result: Result) -> _OpenCall | None:
        """Return the earliest open call that a result belongs to, or None if there is none."""
        waiting = self._by_key.get((result.name,) if result.id is None else result.id, deque())
        while waiting:
            call = waiting.popleft()
            if call.result is None:
                return call
        return None


def join_calls(messages: Iterable[Message]) -> list[list[Step]]:
    """Return the list of steps of each message, with the results of calls joined to the calls.

    A result is joined to one call that has no result yet:

    - A result with an id is joined to the call with the same id.
    - A result without an id is joined to the earliest call that has no id and has the same name.
    - A result without an id and without a name is joined to the earliest call without an id.

    A result for which there is no such call becomes a step with the role `tool`, for example the second result of one
    call. A text or a call after a result begins a new step. A message that contains only results of earlier calls has
    no steps.
    """
    open_calls = _OpenCalls()
    groups = [(message, _open_steps(message, number, open_calls)) for number, message in enumerate(messages)]
    return [[_close(step, message, is_first=step is steps[0]) for step in steps] for message, steps in groups]


def _open_steps(message: Message, number: int, open_calls: _OpenCalls) -> list[_OpenStep]:
    """Return the steps of a message and add each result to its call, which may be in an earlier message."""
    steps: list[_OpenStep] = []
    step: _OpenStep | None = None
    for part in message.parts:
        if isinstance(part, Result):
            call = open_calls.take(part)
            if call is None:
                steps.append(_OpenStep(result=part))
            else:
                call.result = part
            step = None
            continue
        if step is None:
            step = _OpenStep()
            steps.append(step)
        if isinstance(part, Text):
            step.texts.append(part.text)
        else:
            step.calls.append(_OpenCall(part, number))
            open_calls.add(step.calls[-1])
    return steps if steps or message.parts else [_OpenStep()]


def _close(step: _OpenStep, message: Message, *, is_first: bool) -> Step:
    """Convert an open step of a message to a `Step`."""
    if step.result is not None:
        # A step with the role `tool` has no field for the error.
        prefix = "[error]\n" if step.result.is_error else ""
        return Step(role="tool", name=step.result.name, text=prefix + step.result.text)
    # The first step of a message gets the tokens, cost and time of the message.
    spent = (message.tokens, message.cost, message.milliseconds)
    tokens, cost, milliseconds = spent if is_first else (None if amount is None else 0 for amount in spent)
    return Step(
        role=message.role,
        name=message.name,
        text="\n".join(step.texts),
        calls=tuple(call.close() for call in step.calls),
        tokens=tokens,
        cost=cost,
        milliseconds=milliseconds,
    )
