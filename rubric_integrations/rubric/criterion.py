"""One thing to look for: binary, multi-choice, on a scale, or decided by a check. Data and its validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from rubric_integrations._util.records import Record, UnitScore, Weight
from rubric_integrations.rubric.check import Check

DEFAULT_WEIGHT = 10.0


class Option(Record):
    """One answer of a multi-choice criterion.

    Attributes:
        label: What the judge chooses, unique among the options.
        value: What it is worth in [0, 1]; of no account where `na` is set.
        na: Whether choosing it is an abstention.
        description: What it stands for, shown to the judge.
    """

    label: str = Field(min_length=1, max_length=500)
    value: UnitScore = 0.0
    na: bool = Field(default=False, strict=True)
    description: str | None = None

    @model_validator(mode="after")
    def _is_worth_something(self) -> Self:
        if not self.na and "value" not in self.model_fields_set:
            raise ValueError(f"the option {self.label!r} has no `value`: give it one in [0, 1], or `na: true`")
        return self


class Scale(Record):
    """The numbers that a judge may give, read as (x - min) / (max - min).

    Attributes:
        min: The least.
        max: The greatest, above `min`.
        integer: Whether only whole numbers count.
        levels: What some of the numbers stand for.
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
        """The value in [0, 1] of a number on this scale.

        Raises:
            ValueError: The number is not on the scale; it is never clamped, since a judge that says 11 of 10 has
                not understood the question.
        """
        if not self.min <= number <= self.max:
            raise ValueError(f"{number:g} is not between {self.min:g} and {self.max:g}")
        if self.integer and number != int(number):
            raise ValueError(f"{number:g} is not a whole number")
        return (number - self.min) / (self.max - self.min)

    def number_at(self, value: float) -> float:
        """The number at a value in [0, 1]: the inverse of `value_of`."""
        return self.min + value * (self.max - self.min)


Kind = Literal["binary", "ordinal", "nominal", "scaled"]
"""What a criterion asks for: MET or UNMET, one of ordered or unordered options, or a number."""

VOTE_STRATEGIES: dict[Kind, tuple[str, ...]] = {
    "binary": ("majority", "weighted", "unanimous", "any", "worst_case", "best_case"),
    "ordinal": ("mean", "median", "weighted_mean", "mode", "min", "max", "worst_case", "best_case"),
    "scaled": ("mean", "median", "weighted_mean", "mode", "min", "max", "worst_case", "best_case"),
    "nominal": ("mode", "weighted_mode", "unanimous"),
}
"""How the votes of several judges become one answer, by the criterion's kind."""


class Aspect(Record):
    """One side of a criterion that the judge should consider."""

    name: str = Field(min_length=1)
    description: str = ""


class WorkedExample(Record):
    """A response with its right answer to one criterion, shown to a judge that is asked this criterion alone.

    Attributes:
        output: The response.
        score: The answer: a number on the criterion's scale, an option's label, or a verdict.
        explanation: Why.
        input: The task.
        level: What the author calls such a response, as `excellent`.
    """

    output: str = Field(min_length=1)
    score: float | str
    explanation: str = ""
    input: str | None = None
    level: str | None = None


class Criterion(Record):
    """One thing to look for, and what it is worth.

    Attributes:
        requirement: What to look for, in words that a judge can answer with MET or UNMET.
        weight: Its worth; negative for a penalty, where MET means that the error is present. Default 10.
        name: A short unique name for reports, feedback keys and overrides.
        required: Whether the whole grade fails when this criterion does.
        min_score: The least value in [0, 1] (for a penalty: 1 - value) that counts as holding; implies `required`.
        check: Decides the criterion in code, without a judge.
        options: Makes the criterion multi-choice: at least two options that are not `na`.
        scale_type: Whether the options are in order (`ordinal`, the default) or not (`nominal`).
        scale: Makes the criterion a number on a scale.
        aspects: What to consider, shown to the judge.
        examples: Responses with their right answers, shown to the judge.
        aggregation: How a panel's votes on this criterion are joined, in place of the grader's strategy.

    Example:
        >>> Criterion(requirement="States the margin as 17.2%", weight=10, name="margin").weight
        10.0
    """

    name: str | None = Field(default=None, min_length=1, max_length=200)
    weight: Weight = DEFAULT_WEIGHT
    requirement: str
    required: bool = Field(default=False, strict=True)
    min_score: UnitScore | None = None
    check: Check | None = None
    options: Sequence[Option] | None = None
    scale_type: Literal["ordinal", "nominal"] = "ordinal"
    scale: Scale | None = None
    aspects: tuple[Aspect, ...] = ()
    examples: tuple[WorkedExample, ...] = ()
    aggregation: str | None = None

    @field_validator("options")
    @classmethod
    def _can_be_chosen(cls, options: Sequence[Option] | None) -> tuple[Option, ...] | None:
        if options is not None:
            if sum(not option.na for option in options) < 2:
                raise ValueError("must have at least two options that are not `na`")
            labels = [_plain(option.label) for option in options]
            if twice := next((label for label in labels if labels.count(label) > 1), None):
                raise ValueError(f"has the label {twice!r} twice: rename one of them")
        return None if options is None else tuple(options)

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        given = [name for name in ("check", "options", "scale") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"has {' and '.join(f'`{name}`' for name in given)}: keep one")
        if self.aggregation is not None and self.aggregation not in VOTE_STRATEGIES[self.kind]:
            known = ", ".join(VOTE_STRATEGIES[self.kind])
            raise ValueError(f"has the `aggregation` {self.aggregation!r}: for a {self.kind} criterion use {known}")
        return self

    @field_validator("requirement")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty: say what the judge should look for")
        return value

    @property
    def is_penalty(self) -> bool:
        """Whether MET costs points."""
        return self.weight < 0

    @property
    def is_gate(self) -> bool:
        """Whether `passed` depends on this criterion alone."""
        return self.required or self.min_score is not None

    @property
    def kind(self) -> Kind:
        """What the criterion asks for; a check is binary."""
        if self.options is not None:
            return self.scale_type
        return "binary" if self.scale is None else "scaled"

    @property
    def na_option(self) -> Option | None:
        """The author's own way to abstain, where there is one."""
        return next((option for option in self.options or () if option.na), None)

    @property
    def choices(self) -> tuple[Option, ...]:
        """The options that are not abstentions."""
        return tuple(option for option in self.options or () if not option.na)

    @property
    def worst_option(self) -> Option:
        """The option that scores least: the lowest value, for a penalty the highest; the first of equals."""
        return max(self.choices, key=lambda o: o.value) if self.is_penalty else min(self.choices, key=lambda o: o.value)

    @property
    def worst_value(self) -> float:
        """The value in [0, 1] that this criterion can have and that scores least."""
        if self.options is not None:
            return self.worst_option.value
        return 1.0 if self.is_penalty else 0.0

    def find_option(self, label: str) -> Option | None:
        """The option of this label, whatever its case and the white space around it."""
        return next((option for option in self.options or () if _plain(option.label) == _plain(label)), None)


def _plain(label: str) -> str:
    return label.strip().casefold()
