"""The answers that a criterion can take in place of MET and UNMET: options, or the numbers of a scale."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_serializer, model_validator

from rubric_integrations._util.records import Record, UnitScore


class Option(Record):
    """One answer of a multi-choice criterion.

    Attributes:
        label: The text that the judge chooses, unique among the options.
        value: The option's value in [0, 1]; ignored if `na` is set.
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


class Scale(Record):
    """The numbers that a judge may answer with. A number x has the value (x - min) / (max - min).

    Attributes:
        min: The smallest number.
        max: The largest number, above `min`.
        integer: Whether only whole numbers are accepted.
        levels: The meaning of some of the numbers, shown to the judge.
    """

    min: float = Field(default=0.0, allow_inf_nan=False)
    max: float = Field(default=10.0, allow_inf_nan=False)
    integer: bool = Field(default=False, strict=True)
    levels: dict[float, str] = Field(default_factory=dict[float, str])

    @field_serializer("levels")
    def _plain_keys(self, levels: dict[float, str]) -> dict[str, str]:
        return {str(int(level)) if level == int(level) else repr(level): text for level, text in levels.items()}

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.min < self.max:
            raise ValueError(f"`min` {self.min!r} must be below `max` {self.max!r}")
        outside = [level for level in self.levels if not self.min <= level <= self.max]
        if outside:
            raise ValueError(f"`levels` has {outside[0]:g}, which is outside {self.min:g} to {self.max:g}")
        return self

    def value_of(self, number: float) -> float:
        """Return the value in [0, 1] of a number on this scale.

        Raises:
            ValueError: The number is not on the scale. It is never clamped, because a judge that answers 11 on a scale
                to 10 has not understood the question.
        """
        if not self.min <= number <= self.max:
            raise ValueError(f"{number:g} is not between {self.min:g} and {self.max:g}")
        if self.integer and number != int(number):
            raise ValueError(f"{number:g} is not a whole number")
        return (number - self.min) / (self.max - self.min)

    def number_at(self, value: float) -> float:
        """Return the number that has a value in [0, 1]: the inverse of `value_of`."""
        return self.min + value * (self.max - self.min)
