"""The penalty for long responses, which is subtracted from the score after everything else.

The penalty depends on n, the length of the response in units of `count_fn`:

n <= free_budget   0
n >= max_cap       penalty_at_cap
between            penalty_at_cap * ((n - free_budget) / (max_cap - free_budget)) ** exponent

The module also computes the lowest possible score of a rubric, for responses without text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, Self, cast

from pydantic import Field, model_validator

from rubric_integrations._util.records import Record
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.formula import root_weights
from rubric_integrations.submission.inputs import ThinkingOutputDict, ToGradeInput, normalize_to_grade_input
from rubric_integrations.submission.submission import Submission

CountFn = Callable[[str], int]
"""A function that returns the length of a text, for example in words or tokens."""

PenaltyType = Literal["ALL", "OUTPUT_ONLY", "THINKING_ONLY"]
"""The part of a response that is counted: thinking and output, only the output, or only the thinking."""


def word_count(text: str) -> int:
    """Return the number of words, separated by white space.

    Example:
        >>> word_count("two words")
        2
    """
    return len(text.split())


class LengthPenalty(Record):
    """Settings of the penalty for long responses.

    Attributes:
        free_budget: The largest length without a penalty, in units of `count_fn`. Default 6000.
        max_cap: The length from which the full `penalty_at_cap` is subtracted. Above `free_budget`. Default 8000.
        penalty_at_cap: The highest penalty, at least 0, in the unit of the score: 0.5 is half of the range of a
            normalized score, or 0.5 points of a raw score. Default 0.5.
        exponent: The exponent of the increase between the two lengths, above 0. With a higher exponent, the penalty
            shortly above `free_budget` is smaller. Default 1.6.
        count_fn: A function that returns the length of a text. Default: the number of words. Pass your tokenizer's
            count to count tokens.
        penalty_type: The part of the response that is counted: `ALL` (the default), `OUTPUT_ONLY` or `THINKING_ONLY`.

    Raises:
        pydantic.ValidationError: (a ValueError) `max_cap` is not above `free_budget`, or a number is out of range.

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
    def _require_cap_above_budget(self) -> Self:
        if self.max_cap <= self.free_budget:
            raise ValueError(f"`max_cap` {self.max_cap!r} must be above `free_budget` {self.free_budget!r}")
        return self

    def penalty_for(self, count: int) -> float:
        """Return the penalty for a response of this length, in [0, `penalty_at_cap`]."""
        if count <= self.free_budget:
            return 0.0
        if count >= self.max_cap:
            return self.penalty_at_cap
        share = (count - self.free_budget) / (self.max_cap - self.free_budget)
        return self.penalty_at_cap * share**self.exponent


def describe_length_penalty(penalty: LengthPenalty) -> dict[str, Any]:
    """Describe a length penalty as JSON, with the name of its `count_fn`: an empty text for the number of words."""
    count_fn = penalty.count_fn
    is_own = count_fn is not None and count_fn is not word_count
    name = getattr(count_fn, "__qualname__", type(count_fn).__qualname__) if is_own else ""
    return {**penalty.model_dump(mode="json"), "count_fn": name}


def compute_length_penalty(text: ToGradeInput, config: LengthPenalty) -> float:
    """Compute the length penalty of a response.

    Args:
        text: The response, in any form that can be graded.
        config: The settings of the penalty.

    Raises:
        ValueError: `count_fn` did not return an integer of at least 0.

    Example:
        >>> compute_length_penalty("five words are too many", LengthPenalty(free_budget=2, max_cap=4))
        0.5
    """
    parts: ThinkingOutputDict | dict[str, Any]
    if isinstance(text, Submission):
        parts = {"thinking": text.thinking or "", "output": text.response}
    else:
        parts = normalize_to_grade_input(text)
    thinking, output = parts.get("thinking", ""), parts.get("output", "")
    texts = {"ALL": f"{thinking} {output}" if thinking else output, "OUTPUT_ONLY": output, "THINKING_ONLY": thinking}
    count = cast("object", (config.count_fn or word_count)(texts[config.penalty_type]))
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"`count_fn` must return a length of at least 0, got {count!r}")
    return config.penalty_for(count)


def least_score(rubric: Rubric, *, normalize: bool = True, length_penalty: LengthPenalty | None = None) -> float:
    """Return the lowest possible score of a rubric.

    It is 0 for normalized scores. For weighted sums, it is the sum of the negative weights, minus the highest length
    penalty.

    Example:
        >>> from rubric_integrations import Criterion
        >>> rubric = Rubric([Criterion(requirement="Says 42", weight=3), Criterion(requirement="Is rude", weight=-2)])
        >>> least_score(rubric), least_score(rubric, normalize=False)
        (0.0, -2.0)
    """
    if normalize:
        return 0.0
    penalty = length_penalty.penalty_at_cap if length_penalty else 0.0
    return math.fsum(min(0.0, weight) for weight in root_weights(rubric)) - penalty
