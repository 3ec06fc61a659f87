"""The steps of a long trajectory that judges see: which ones, with which lines, and which searches found nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from rubric_integrations._util.records import EncodableText, SparseRecord

LineRange = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
"""The first and the last line of a range of lines."""


class ShownStep(SparseRecord):
    """One step of a selection.

    Attributes:
        number: The number of the step in the complete trajectory, which begins at 1.
        lines: The ranges of lines that are shown, in order. Empty if the step is shown completely.
        line_count: The number of all lines of the step. 0 if the step is shown completely.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("lines", "line_count")

    number: int = Field(ge=1)
    lines: tuple[LineRange, ...] = ()
    line_count: int = Field(default=0, ge=0)

    def describe_lines(self) -> str | None:
        """Return the shown lines as text. None if the step is shown completely.

        Example:
            >>> ShownStep(number=3, lines=((1, 20), (90, 90)), line_count=2_000).describe_lines()
            '1-20, 90 of 2,000'
        """
        if not self.lines:
            return None
        ranges = (f"{first}" if first == last else f"{first}-{last}" for first, last in self.lines)
        return f"{', '.join(ranges)} of {self.line_count:,}"


class StepSelection(SparseRecord):
    """The part of a long trajectory that judges see, because an explorer chose it.

    Attributes:
        steps: The shown steps, in the order of the trajectory. There may be none if all searches found nothing.
        total: The number of steps of the complete trajectory.
        absent: The texts that the explorer searched for in all steps without a match.

    Raises:
        pydantic.ValidationError: (a ValueError) The numbers of the steps do not increase, or exceed `total`.

    Example:
        >>> selection = StepSelection(steps=(ShownStep(number=1), ShownStep(number=12)), total=1_000)
        >>> list(selection.gaps())
        [(2, 11), (13, 1000)]
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("absent",)

    steps: tuple[ShownStep, ...]
    total: int = Field(ge=1)
    absent: tuple[EncodableText, ...] = ()

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        numbers = [step.number for step in self.steps]
        if numbers != sorted(set(numbers)) or (numbers and numbers[-1] > self.total):
            raise ValueError(f"the numbers of the shown steps must increase from 1 to at most {self.total:,}")
        return self

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the shown steps in the complete trajectory."""
        return tuple(step.number for step in self.steps)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last number of each range of steps that are not shown."""
        for before, after in zip((0, *self.numbers), (*self.numbers, self.total + 1), strict=True):
            if after - before > 1:
                yield before + 1, after - 1

    def notes(self) -> dict[int, str]:
        """Return the line before each shown step that tells which steps are not shown, by the step's number.

        The line after the last shown step has the number `total + 1`.

        Example:
            >>> StepSelection(steps=(ShownStep(number=12),), total=12).notes()
            {12: '[steps 1 to 11 not shown]'}
        """
        return {
            last + 1: f"[step {first} not shown]" if first == last else f"[steps {first} to {last} not shown]"
            for first, last in self.gaps()
        }

    def absence_note(self) -> str | None:
        """Return the line about the searches without a match. None if there were none.

        Example:
            >>> StepSelection(steps=(), total=9, absent=("rm -rf",)).absence_note()
            '[searches in all steps without a match: "rm -rf"]'
        """
        if not self.absent:
            return None
        # JSON escapes line breaks. Therefore a search cannot imitate a step.
        return f"[searches in all steps without a match: {', '.join(map(json.dumps, self.absent))}]"
