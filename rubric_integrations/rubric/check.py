"""Checks and metrics as data: what code decides about a submission. `rubric_integrations.checks` runs them."""

from __future__ import annotations

import json
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rubric_integrations._util.numbers import read_quantities
from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.rubric.answer_checks import FieldsCheck, SimilarityCheck, TypeCheck
from rubric_integrations.rubric.trajectory_checks import ArgumentsMode, ExpectedCall, Order, ToolUse


class NumberCheck(Record):
    """A number that the response must state.

    In a file, it may be written as a number (`1234.5`) or as a text (`17.2%`).

    Attributes:
        value: The number to look for.
        tolerance: The largest accepted difference between a stated number and `value`, at least 0.
        unit: `"%"` or a currency sign that must stand beside the number; empty accepts any.
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
            quantities = list(read_quantities(data))
            if len(quantities) != 1:
                raise ValueError(f"must hold one number such as 17.2% or 1,234.5, got {data!r}")
            return {"value": quantities[0].value, "unit": quantities[0].unit}
        return data


Texts = str | tuple[str, ...]
"""One text or several."""


MeasureName = Literal["metric", "fields", "similarity"]
"""A condition of a check that may have a value in place of a verdict."""


MetricType = Literal["bleu", "rouge", "accuracy", "perplexity", "custom"]
"""The name of an automatic metric."""


class Metric(Record):
    """An automatic metric of a response, with a value in [0, 1].

    Attributes:
        type: `bleu`, `rouge` and `accuracy` compare the response with the submission's `reference`; `perplexity` reads
            the submission's `logprobs`; `custom` calls a function that was registered in Python with `register_metric`,
            because a file must not name code to import.
        config: The settings of the metric: `variant` (`rouge1`, `rouge2` or `rougeL`) for `rouge`; `metric_function`,
            the registered name, for `custom`. Other keys are preserved but have no effect.
    """

    type: MetricType
    config: dict[str, Any] = Field(default_factory=dict[str, Any])

    @model_validator(mode="after")
    def _is_configured(self) -> Self:
        variant = self.config.get("variant", "rougeL")
        if self.type == "rouge" and variant not in ("rouge1", "rouge2", "rougeL"):
            raise ValueError(f"has the `config.variant` {variant!r}: use rouge1, rouge2 or rougeL")
        if self.type == "custom" and not isinstance(self.config.get("metric_function"), str):
            raise ValueError("is custom and has no `config.metric_function`: name a registered metric")
        return self


class HybridMetric(Metric):
    """A metric that is blended with the judge's score.

    Attributes:
        name: The name of the metric in reports, unique in its rubric.
        weight: The metric's share of the blended score, in [0, 1].
    """

    name: str = Field(min_length=1)
    weight: UnitScore


class Check(Record):
    """Conditions that code decides about a submission, without a judge. Every condition that is set must hold.

    The conditions from `tool_calls` on are about the submission's trajectory. If there is none, or if it lacks what a
    condition needs, such as the cost of a step, the check fails: the condition is neither met nor unmet.

    Attributes:
        contains: A text, or several texts, that must all occur in the response.
        not_contains: A text, or several texts, none of which may occur in the response.
        regex: A pattern (Python syntax) that must match somewhere in the response.
        equals: The expected response, without the white space around it.
        number: A number that the response must state: `17.2%`, `1234.5`, or `{value, tolerance, unit}`.
        json_schema: A JSON Schema that the response, parsed as JSON, must satisfy.
        fields: The values that fields of the response, parsed as JSON, must have: a list of `{path, equals, tolerance,
            date, weight}`. The weighted share of those that equal is the value of the criterion, unless
            `{expected: [...], require: all}` makes it MET or UNMET.
        similarity: How similar the response is to a text, or to the submission's reference: `{to, min_ratio}`. Without
            `min_ratio`, the similarity in [0, 1] is the value of the criterion.
        type_checks: The type checker that must have no error in the Python code of the response: `{tool: mypy}`.
        min_words: The smallest number of words, separated by white space.
        max_words: The largest number of words, separated by white space.
        metric: An automatic metric whose value in [0, 1] becomes the value of the criterion. It cannot be combined with
            other conditions.
        tool_calls: The tool calls that the agent is expected to make: a list of names, or of `{name, arguments, match,
            tolerance}`. With `order: strict`, an empty list means that it makes none.
        order: How its calls are compared with `tool_calls`: `strict` (the default: the same calls in the same order),
            `in_order` (others may stand in between), `superset` (it makes all of them, in any order, and may make
            others), `subset` (it makes no others), or `unordered` (both).
        arguments: How the arguments of a call are compared with the expected ones: `exact` (the default), `superset`
            (it passes all of them, and may pass others), `subset` (it passes no others), or `ignore`.
        tool_used: A tool that must be used, or several: a name, a pattern such as `search_*`, or `{name, min, max}`.
        tool_forbidden: A tool that must not be used, or several: a name, or a pattern such as `delete_*`.
        max_steps: The largest number of steps of the assistant.
        max_tokens: The largest number of tokens of all steps.
        max_cost: The largest cost of all steps, in US dollars.
        max_seconds: The longest duration of all steps, in seconds.
        no_errors: `true`: no tool call fails.
        no_repeated_calls: `true`: no tool is called twice with equal arguments.
        ignore_case: Whether `contains`, `not_contains`, `regex`, `equals` and `similarity` ignore case.

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
    fields: FieldsCheck | None = None
    similarity: SimilarityCheck | None = None
    type_checks: TypeCheck | None = None
    min_words: int | None = Field(default=None, ge=0, strict=True)
    max_words: int | None = Field(default=None, ge=0, strict=True)
    metric: Metric | None = None
    tool_calls: tuple[ExpectedCall, ...] | None = None
    order: Order | None = None
    arguments: ArgumentsMode | None = None
    tool_used: ToolUse | tuple[ToolUse, ...] | None = None
    tool_forbidden: Texts | None = None
    max_steps: int | None = Field(default=None, ge=0, strict=True)
    max_tokens: int | None = Field(default=None, ge=0, strict=True)
    max_cost: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    max_seconds: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    no_errors: Literal[True] | None = None
    no_repeated_calls: Literal[True] | None = None
    ignore_case: bool = False

    @field_validator("contains", "not_contains")
    @classmethod
    def _no_empty_text(cls, value: Texts | None) -> Texts | None:
        if value in ("", ()) or (isinstance(value, tuple) and "" in value):
            raise ValueError("holds an empty text, which every response contains: remove it")
        return value

    @field_validator("tool_used", "tool_forbidden")
    @classmethod
    def _names_a_tool(cls, value: object) -> object:
        if value in ("", ()) or (isinstance(value, tuple) and "" in value):
            raise ValueError("names no tool, so that nothing would be checked: write a name, or a pattern such as `*`")
        return value

    @field_validator("regex")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            from rubric_integrations._util.patterns import compile_pattern

            compile_pattern(value)
        return value

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            from jsonschema import Draft202012Validator, SchemaError

            try:
                Draft202012Validator.check_schema(value)
            except (SchemaError, RecursionError) as error:
                message = error.message if isinstance(error, SchemaError) else "it nests too deeply"
                raise ValueError(f"is not a JSON Schema: {message[:300]}") from None
            if '"unevaluatedProperties"' in (text := json.dumps(value)) and '"patternProperties"' in text:
                raise ValueError(
                    "has both `unevaluatedProperties` and `patternProperties`, whose search has no time limit then: "
                    "use `additionalProperties` in place of `unevaluatedProperties`"
                )
        return value

    @model_validator(mode="after")
    def _decides_something(self) -> Self:
        if self.tool_calls is None and (self.order or self.arguments):
            field = "order" if self.order else "arguments"
            raise ValueError(f"has `{field}` without `tool_calls`, so that nothing is compared: add the expected calls")
        if not self.conditions:
            raise ValueError("has no condition: set one of " + ", ".join(CONDITIONS))
        if self.measure is not None and len(self.conditions) > 1:
            raise ValueError(f"has `{self.measure}` beside another condition: put each in its own criterion")
        if self.min_words is not None and self.max_words is not None and self.min_words > self.max_words:
            raise ValueError(f"`min_words` {self.min_words!r} is above `max_words` {self.max_words!r}: swap them")
        return self

    @property
    def conditions(self) -> list[str]:
        """The names of the conditions that are set, in the order of the fields."""
        return [name for name in CONDITIONS if getattr(self, name) is not None]

    @property
    def measure(self) -> MeasureName | None:
        """The condition whose value in [0, 1] is that of the criterion; None if the check has a verdict."""
        if self.metric is not None:
            return "metric"
        if isinstance(self.fields, FieldsCheck) and self.fields.require == "share":
            return "fields"
        if isinstance(self.similarity, SimilarityCheck) and self.similarity.min_ratio is None:
            return "similarity"
        return None


SETTINGS = ("order", "arguments", "ignore_case")
"""The fields of `Check` that are no conditions, and change how some of them compare."""

CONDITIONS = tuple(name for name in Check.model_fields if name not in SETTINGS)
"""The fields of `Check` that are conditions."""
