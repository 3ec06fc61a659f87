"""What code can decide about a response, without a judge. Data and its validation; `judges.checks` decides."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rubric_integrations._util.numbers import read_quantities
from rubric_integrations._util.records import Record, UnitScore


class NumberCheck(Record):
    """A number that the response must state.

    Attributes:
        value: The number to find.
        tolerance: How far a stated number may be from it, at least 0.
        unit: `"%"` or a currency sign that must stand with it; empty accepts any.
    """

    value: float = Field(allow_inf_nan=False)
    tolerance: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    unit: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_scalar(cls, data: Any) -> Any:
        if isinstance(data, bool):
            raise ValueError(f"must be a number, got {data!r}")
        if isinstance(data, int | float):
            return {"value": data}
        if isinstance(data, str):
            found = list(read_quantities(data))
            if len(found) != 1:
                raise ValueError(f"must hold one number such as 17.2% or 1,234.5, got {data!r}")
            return {"value": found[0].value, "unit": found[0].unit}
        return data


Texts = str | tuple[str, ...]
"""One text, or several."""


MetricType = Literal["bleu", "rouge", "accuracy", "perplexity", "custom"]
"""An automatic metric with a value in [0, 1]."""


class Metric(Record):
    """An automatic metric of a response.

    Attributes:
        type: `bleu`, `rouge` and `accuracy` compare with the submission's reference; `perplexity` needs its
            `logprobs`; `custom` is a function registered in Python, for a file can never name code to import.
        config: `variant` of rouge (`rouge1`, `rouge2`, `rougeL`); `metric_function`, the registered name, of a custom
            one. Other keys are kept and have no effect.
    """

    type: MetricType
    config: dict[str, Any] = Field(default_factory=dict[str, Any])

    @model_validator(mode="after")
    def _is_configured(self) -> Self:
        variant = self.config.get("variant", "rougeL")
        if self.type == "rouge" and variant not in ("rouge1", "rouge2", "rougeL"):
            raise ValueError(f"has the `config.variant` {variant!r}: use rouge1, rouge2 or rougeL")
        if self.type == "custom" and not isinstance(self.config.get("metric_function"), str):
            raise ValueError("is custom and has no `config.metric_function`: name a metric registered in Python")
        return self


class HybridMetric(Metric):
    """A metric that is blended with the judge's score.

    Attributes:
        name: What reports call it, unique in its rubric.
        weight: Its share of the blended score in [0, 1].
    """

    name: str = Field(min_length=1)
    weight: UnitScore


class Check(Record):
    """A criterion decided by code, without a judge: every condition given must hold.

    Attributes:
        contains: A text, or several, that must all occur in the response.
        not_contains: A text, or several, none of which may occur.
        regex: A pattern (Python syntax) that must be found somewhere in the response.
        equals: The whole response, white space around it apart.
        number: A number the response must state: `17.2%`, `1234.5`, or `{value, tolerance, unit}`.
        json_schema: A JSON Schema that the response, read as JSON, must satisfy.
        min_words: The fewest white-space separated words allowed.
        max_words: The most allowed.
        metric: An automatic metric, whose own value in [0, 1] is the criterion's; goes with no other condition.
        ignore_case: Whether `contains`, `not_contains`, `regex` and `equals` overlook case.

    Example:
        >>> Check(contains="17.2%", max_words=300).max_words
        300
    """

    contains: Texts | None = None
    not_contains: Texts | None = None
    regex: str | None = None
    equals: str | None = None
    number: NumberCheck | None = None
    json_schema: dict[str, Any] | None = None
    min_words: int | None = Field(default=None, ge=0, strict=True)
    max_words: int | None = Field(default=None, ge=0, strict=True)
    metric: Metric | None = None
    ignore_case: bool = False

    @field_validator("contains", "not_contains")
    @classmethod
    def _no_empty_text(cls, value: Texts | None) -> Texts | None:
        if value in ("", ()) or (isinstance(value, tuple) and "" in value):
            raise ValueError("holds an empty text, which every response contains: take it out")
        return value

    @field_validator("regex")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            import regex

            try:
                regex.compile(value)
            except regex.error as error:
                raise ValueError(f"is not a regular expression: {error} in {value!r}") from None
        return value

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            from jsonschema import Draft202012Validator, SchemaError

            try:
                Draft202012Validator.check_schema(value)
            except SchemaError as error:
                raise ValueError(f"is not a JSON Schema: {error.message}") from None
        return value

    @model_validator(mode="after")
    def _decides_something(self) -> Self:
        if not self.conditions:
            raise ValueError("has no condition: give one of " + ", ".join(_CONDITIONS))
        if self.metric is not None and len(self.conditions) > 1:
            raise ValueError("has `metric` beside another condition: put them in criteria of their own")
        if self.min_words is not None and self.max_words is not None and self.min_words > self.max_words:
            raise ValueError(f"`min_words` {self.min_words!r} is above `max_words` {self.max_words!r}: swap them")
        return self

    @property
    def conditions(self) -> list[str]:
        """The names of the conditions that are set."""
        return [name for name in _CONDITIONS if getattr(self, name) is not None]


_CONDITIONS = tuple(name for name in Check.model_fields if name != "ignore_case")
