"""The trajectory of an agent: the numbered steps that led to its answer."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

from pydantic import Field

from rubric_integrations._util.records import Record
from rubric_integrations.submission.dialects.registry import read_conversation
from rubric_integrations.submission.steps import Step, ToolCall, render_steps


class Trajectory(Record):
    """The numbered steps of an agent's run.

    Attributes:
        steps: The steps, at least one. Their numbers are their positions, from 1.

    Example:
        >>> question = Step(role="user", text="What was the margin?")
        >>> look = Step(role="assistant", calls=(ToolCall(name="look", arguments={"year": 2024}, result="8.4%"),))
        >>> trajectory = Trajectory(steps=(question, look, Step(role="assistant", text="It was 8.4%.")))
        >>> [call.name for call in trajectory.calls]
        ['look']
    """

    steps: tuple[Step, ...] = Field(min_length=1)

    @classmethod
    def from_messages(cls, messages: Any) -> Self:
        """Read the steps of a conversation or of an agent's run.

        Calls are joined with their results. A file is `[attachment 1]` in the text of its step: to have the file
        itself, pass the messages to `Submission`, as its `trajectory` or by `Submission.from_messages`.

        Args:
            messages: Messages of OpenAI (chat, or items of the Responses API), Anthropic, LangChain, Gemini,
                OpenTelemetry, Inspect or AgentV; the state of a LangGraph agent; a document of Harbor (ATIF); a sample
                of Inspect; a `dspy.History`; or the `trajectory` of a `dspy.ReAct` prediction.

        Raises:
            TypeError: `messages` is none of these.
            ValueError: It is empty, or a message or a block in it cannot be read; the message names its place.

        Example:
            >>> prediction = {"thought_0": "Look it up.", "tool_name_0": "look", "tool_args_0": {"year": 2024},
            ...               "observation_0": "17.2%"}
            >>> Trajectory.from_messages(prediction).calls[0].result
            '17.2%'
        """
        return cls(steps=read_conversation(messages).steps)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of tools, in their order."""
        return tuple(call for step in self.steps for call in step.calls)

    @property
    def omitted(self) -> int:
        """The number of characters that were cut out of the results of calls; 0 if nothing was cut."""
        return sum(call.omitted for call in self.calls)

    def shortened(self, step_limit: int) -> Trajectory:
        """Cut long results of calls: the beginning and the end stay, and a note between them says what is missing.

        Nothing else is cut. Each cut is also counted in `ToolCall.omitted`, which a judge sees beside the result.

        Args:
            step_limit: The most characters of a result, at least 1, without the note.

        Returns:
            The trajectory with shorter results; this object if all results are short enough.

        Raises:
            ValueError: `step_limit` is less than 1.

        Example:
            >>> page = ToolCall(name="open", result="The report. " + "x" * 12_000 + " The margin was 8.4%.")
            >>> short = Trajectory(steps=(Step(role="assistant", calls=(page,)),)).shortened(40)
            >>> print(short.calls[0].result)
            The report. xxxxxxxx
            ... [11,993 characters omitted] ...
            The margin was 8.4%.
        """
        if step_limit < 1:
            raise ValueError(f"`step_limit` must be at least 1, got {step_limit!r}: it is a number of characters")
        steps = tuple(_shorten(step, step_limit) for step in self.steps)
        is_same = all(step is original for step, original in zip(steps, self.steps, strict=True))
        # Not a copy, which would keep the text of the longer steps.
        return self if is_same else Trajectory(steps=steps)

    def text(self) -> str:
        """Return what a judge reads: one JSON object per step, with its number."""
        return self._text

    # Every question about a submission reads it, and it may be long.
    @cached_property
    def _text(self) -> str:
        return render_steps(self.steps, numbered=True)


def _shorten(step: Step, step_limit: int) -> Step:
    calls = tuple(call.shortened(step_limit) for call in step.calls)
    is_same = all(call is original for call, original in zip(calls, step.calls, strict=True))
    return step if is_same else step.model_copy(update={"calls": calls})
