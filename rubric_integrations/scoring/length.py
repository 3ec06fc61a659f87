"""A penalty on long responses, subtracted from the score last.

n <= free_budget   0
n >= max_cap       penalty_at_cap
between            penalty_at_cap * ((n - free_budget) / (max_cap - free_budget)) ** exponent
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self, cast

from pydantic import Field, model_validator

from rubric_integrations._util.records import Record
from rubric_integrations.submission.submission import (
    Submission,
    ThinkingOutputDict,
    ToGradeInput,
    normalize_to_grade_input,
)

CountFn = Callable[[str], int]
"""The length of a text, in words or tokens."""

PenaltyType = Literal["ALL", "OUTPUT_ONLY", "THINKING_ONLY"]
"""Which part of a response is counted."""


def word_count(text: str) -> int:
    """The number of white-space separated words.

    Example:
        >>> word_count("two words")
        2
    """
    return len(text.split())


class LengthPenalty(Record):
    """How long a response may be, and what a longer one loses.

    Attributes:
        free_budget: Up to this length nothing is lost. Default 6000.
        max_cap: From this length on all of `penalty_at_cap` is lost; above `free_budget`. Default 8000.
        penalty_at_cap: The most that is lost, at least 0: a share for scores in [0, 1], points for raw scores.
        exponent: How the loss grows between the two, above 0; higher is milder near the budget.
        count_fn: Counts a text; by default its words. A tokenizer's count goes here.
        penalty_type: Which part is counted.

    Example:
        >>> round(LengthPenalty(free_budget=10, max_cap=20).penalty_for(15), 6)
        0.164938
    """

    free_budget: int = Field(default=6000, ge=0)
    max_cap: int = Field(default=8000, ge=0)
    penalty_at_cap: float = Field(default=0.5, ge=0.0, allow_inf_nan=False)
    exponent: float = Field(default=1.6, gt=0.0, allow_inf_nan=False)
    count_fn: CountFn | None = Field(default=None, exclude=True)
    penalty_type: PenaltyType = "ALL"

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.max_cap <= self.free_budget:
            raise ValueError(f"`max_cap` {self.max_cap!r} must be above `free_budget` {self.free_budget!r}")
        return self

    def penalty_for(self, count: int) -> float:
        """What a response of this length loses."""
        if count <= self.free_budget:
            return 0.0
        if count >= self.max_cap:
            return self.penalty_at_cap
        share = (count - self.free_budget) / (self.max_cap - self.free_budget)
        return self.penalty_at_cap * share**self.exponent


def compute_length_penalty(text: ToGradeInput, config: LengthPenalty) -> float:
    """What a response loses by its length.

    Args:
        text: The response, in any form that can be graded.
        config: How long it may be.

    Raises:
        ValueError: `count_fn` gave something that is no length.
    """
    parts: ThinkingOutputDict | dict[str, Any]
    if isinstance(text, Submission):
        parts = {"thinking": text.thinking or "", "output": text.response}
    else:
        parts = normalize_to_grade_input(text)
    thinking, output = parts.get("thinking", ""), parts.get("output", "")
    counted = {"ALL": f"{thinking} {output}" if thinking else output, "OUTPUT_ONLY": output, "THINKING_ONLY": thinking}
    count = cast("object", (config.count_fn or word_count)(counted[config.penalty_type]))
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"`count_fn` must return a length of at least 0, got {count!r}")
    return config.penalty_for(count)
