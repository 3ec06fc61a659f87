"""The steps of a conversation or of an agent's run, and their text for a judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from rubric_integrations._util.json_lines import json_lines
from rubric_integrations._util.records import EncodableText, SparseRecord

Role = Literal["user", "assistant", "system", "tool"]
"""Who wrote a step. A step of the role `tool` is a result whose call is not in the trace."""


class ToolCall(SparseRecord):
    """One call of a tool, with its result.

    Attributes:
        name: The tool's name.
        arguments: The arguments: a JSON object, or the text of arguments that are no JSON object. None if the trace
            does not tell them.
        result: What the tool returned; None if the trace has no result.
        is_error: Whether the tool failed; None if the trace does not tell it.
        omitted: The number of characters that were cut out of the result (see `Trajectory.shortened`).
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("omitted",)

    name: EncodableText = Field(min_length=1)
    arguments: dict[str, Any] | EncodableText | None = None
    result: EncodableText | None = None
    is_error: bool | None = None
    omitted: int = Field(default=0, ge=0)

    def shortened(self, step_limit: int) -> Self:
        """Return this call with the beginning and the end of a result of more than `step_limit` characters.

        The note of an earlier cut does not count: two cuts are the same as the shorter one alone.
        """
        result, earlier = self.result or "", _note(self.omitted)
        cut = len(result) - step_limit - (len(earlier) if self.omitted and earlier in result else 0)
        if cut <= 0:
            return self
        omitted, end = self.omitted + cut, step_limit // 2
        text = f"{result[: step_limit - end]}{_note(omitted)}{result[len(result) - end :]}"
        return self.model_copy(update={"result": text, "omitted": omitted})


class Step(SparseRecord):
    """One step: a message of the user, the system or the assistant, with the calls that it makes and their results.

    Attributes:
        role: Who wrote it.
        text: Its text. An attachment is written as `[attachment 1]`, by its number in the submission.
        name: The name of the author, where a conversation has several of one role.
        calls: The calls of tools, in their order.
        tokens: The tokens that the step took, sent and received; None if the trace does not tell them.
        cost: Its cost in US dollars; None if the trace does not tell it.
        milliseconds: Its duration; None if the trace does not tell it.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("name", "calls")

    role: Role
    text: EncodableText = ""
    name: EncodableText | None = None
    calls: tuple[ToolCall, ...] = ()
    tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    milliseconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)


def render_steps(steps: Sequence[Step], *, numbered: bool = False) -> str:
    """Write steps as text: one JSON object per line with the role, the content, and the calls with their results.

    JSON escapes line breaks, so that the content of one step cannot imitate another step.

    Args:
        steps: The steps.
        numbered: Whether each line begins with the number of its step, from 1.

    Example:
        >>> call = ToolCall(name="look", result="8.4%")
        >>> print(render_steps([Step(role="assistant", calls=(call,))], numbered=True))
        {"step": 1, "role": "assistant", "content": "", "tool_calls": [{"name": "look", "result": "8.4%"}]}
    """
    lines = enumerate(map(_line, steps), start=1)
    return json_lines({"step": number, **line} if numbered else line for number, line in lines)


def _note(omitted: int) -> str:
    return f"\n... [{omitted:,} characters omitted] ...\n"


def _line(step: Step) -> dict[str, Any]:
    author = {"name": step.name} if step.name else {}
    calls = {"tool_calls": [_call(call) for call in step.calls]} if step.calls else {}
    return {"role": step.role, "content": step.text, **calls, **author}


def _call(call: ToolCall) -> dict[str, Any]:
    """Return what a judge reads of a call; that a call did not fail is not written, since not every trace tells it."""
    optional = {"arguments": call.arguments, "result": call.result, "is_error": call.is_error or None}
    # A field of its own: a result can contain a text like the note.
    omitted = {"omitted_characters": call.omitted} if call.omitted else {}
    return {"name": call.name, **{name: value for name, value in optional.items() if value is not None}, **omitted}
