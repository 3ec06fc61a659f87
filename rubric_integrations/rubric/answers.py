"""The answers that a criterion can have instead of MET and UNMET: options, or the numbers of a scale.

`CannotAssess` is how the score counts a criterion without an answer.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, PlainValidator, field_serializer, model_validator

from rubric_integrations._util.records import Record, UnitScore

AbstentionPolicy = Literal["skip", "zero", "partial", "fail"]
CannotAssess = AbstentionPolicy | float
"""How an abstention is scored.

- `skip`: the criterion and its weight are left out. In a group, its siblings share the weight. A group without any
  answered criterion is left out, too.
- `zero`: the criterion has the value 0.
- a number in [0, 1]: the criterion has this value if its weight is positive, and 0 if it is a penalty.
- `partial`: the same as 0.5.
- `fail`: the criterion has the value that gives the lowest score.
"""


class Option(Record):
    """One answer of a multi-choice criterion.

    Attributes:
        label: The text that the judge chooses, unique among the options.
        value: The option's value in [0, 1]. It is ignored if `na` is set.
        na: Whether choosing the option is an abstention.
        description: The meaning of the option, shown to the judge.
    """

    label: str = Field(min_length=1, max_length=500)
    value: UnitScore = 0.0
    na: bool = Field(default=False, strict=True)
    description: str | None = None

    @model_validator(mode="after")
    def _is_worth_something(self) -> Self:
        if not self.na and "value" not in self.model_fields_set:
            raise ValueError(f"the option {self.label!r} has no `value`: set one in [0, 1], or `na: true`")
        return self


_BAND = re.compile(r"\s*(-?\d{1,15}(?:\.\d{1,15})?)\s*(?:-|\u2013|to)\s*(-?\d{1,15}(?:\.\d{1,15})?)\s*")


class Band(NamedTuple):
    """A range of numbers of a scale that have the same meaning. Both ends are included.

    Attributes:
        low: The smallest number.
        high: The largest number, above `low`.

    Example:
        >>> str(Band(1, 2))
        '1-2'
    """

    low: float
    high: float

    def __str__(self) -> str:
        return f"{_plain(self.low)}-{_plain(self.high)}"


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def level_text(level: float | Band) -> str:
    """Return the number or the band of a level as text, such as `3` or `1-2`, for judges and annotators."""
    return f"{level.low:g}-{level.high:g}" if isinstance(level, Band) else f"{level:g}"


def _read_level(key: object) -> float | Band:
    """Parse a key of `levels`, and return its number or band."""
    if isinstance(key, Band):
        return key
    if match := _BAND.fullmatch(str(key)):
        return Band(float(match[1]), float(match[2]))
    try:
        number = float(str(key))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key!r} is no number and no band of numbers: write a key such as 3 or 1-2")
    return number


def band_of(level: float | Band) -> Band:
    """Return a level of a scale, a number or a band, as a band. For a number, both ends are this number."""
    return level if isinstance(level, Band) else Band(level, level)


Level = Annotated[float | Band, PlainValidator(_read_level, json_schema_input_type=float | str)]


class Scale(Record):
    """The numbers that a judge may answer with. A number x has the value (x - min) / (max - min).

    Attributes:
        min: The smallest number.
        max: The largest number, above `min`.
        integer: Whether only whole numbers are accepted.
        levels: The meaning of some of the numbers, shown to the judge. A key such as `1-2` is a band: its text applies
            to each number from 1 to 2.

    Example:
        >>> Scale(min=1, max=5, integer=True, levels={"1-2": "poor", "5": "excellent"}).text_at(2)
        'poor'
    """

    min: float = Field(default=0.0, allow_inf_nan=False)
    max: float = Field(default=10.0, allow_inf_nan=False)
    integer: bool = Field(default=False, strict=True)
    levels: dict[Level, str] = Field(default_factory=dict[Level, str])

    @field_serializer("levels")
    def _plain_keys(self, levels: dict[float | Band, str]) -> dict[str, str]:
        return {str(level) if isinstance(level, Band) else _plain(level): text for level, text in levels.items()}

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.min < self.max:
            raise ValueError(f"`min` {self.min!r} must be below `max` {self.max!r}")
        for level in self.levels:
            if isinstance(level, Band) and level.low >= level.high:
                raise ValueError(f"`levels` has the band '{level}': write the smaller number first")
        bands = sorted(map(band_of, self.levels))
        outside = [end for band in bands for end in band if not self.min <= end <= self.max]
        if outside:
            raise ValueError(f"`levels` has {outside[0]:g}, which is outside {self.min:g} to {self.max:g}")
        for one, other in pairwise(bands):
            if other.low <= one.high:
                raise ValueError(f"`levels` has two texts for {other.low:g}: let each number be in one level alone")
        return self

    def text_at(self, number: float) -> str | None:
        """Return the meaning of a number: the text of its level in `levels`, or None if it has no level."""
        bands = ((band_of(level), text) for level, text in self.levels.items())
        return next((text for (low, high), text in bands if low <= number <= high), None)

    def value_of(self, number: float) -> float:
        """Return the value in [0, 1] of a number on this scale.

        Raises:
            ValueError: The number is not on the scale. It is not moved to the nearest number on the scale, because a
                judge that answers 11 on a scale from 1 to 10 has not understood the question.
        """
        if not self.min <= number <= self.max:
            raise ValueError(f"{number:g} is not between {self.min:g} and {self.max:g}")
        if self.integer and number != int(number):
            raise ValueError(f"{number:g} is not a whole number")
        return (number - self.min) / (self.max - self.min)

    def number_at(self, value: float) -> float:
        """Return the number on this scale for a value in [0, 1]. This is the inverse of `value_of`."""
        return self.min + value * (self.max - self.min)


def counting_scale(cap: int) -> Scale:
    """Return the scale for counting occurrences: whole numbers from 0 to `cap`."""
    return Scale(min=0, max=cap, integer=True)
