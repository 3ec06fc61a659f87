"""The trajectory of an agent: the numbered steps that led to its answer."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from rubric_integrations._util.records import Record
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

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of tools, in their order."""
        return tuple(call for step in self.steps for call in step.calls)

    def text(self) -> str:
        """Return what a judge reads: one JSON object per step, with its number."""
        return self._text

    # Every question about a submission reads it, and it may be long.
    @cached_property
    def _text(self) -> str:
        return render_steps(self.steps, numbered=True)
