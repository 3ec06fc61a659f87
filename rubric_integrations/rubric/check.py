"""Checks and metrics as data: conditions on a submission that code decides, in the package `checks`."""

from __future__ import annotations

import json
from datetime import date
from typing import Any, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from rubric_integrations._util.event_loop import WorkLimitError, counted_work
from rubric_integrations._util.json import has_more_values, split_path, value_at
from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations._util.text import read_date, read_quantities

MAX_SCHEMA_VALUES = 10_000
"""The largest `json_schema`: its own validation takes a second for a few thousand values."""


class FieldCheck(Record):
    """The expected value of one field of an answer in JSON.

    Attributes:
        path: Where the field is: keys and indices from 0, joined by points, such as `invoice.total` or `items.0.name`;
            `items[0].name` is the same. A key that contains a point cannot be named.
        equals: The expected value, of any JSON type. Texts are compared exactly, numbers by their value, objects and
            lists as a whole. Without it, the value at the same path of the submission's `reference`, which is JSON.
        tolerance: The largest accepted difference of a number from the expected one, as an absolute number; at least 0.
        date: Whether the texts are compared as dates: `2024-12-31`, `31.12.2024`, `31 Dec 2024`, `December 31, 2024`,
            and `12/31/2024` unless day and month can be exchanged, which never equals.
        weight: The weight of the field among those of its check, above 0.
    """

    path: str = Field(min_length=1, max_length=500)
    equals: Any = None
    tolerance: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    date: bool = False
    weight: float = Field(default=1.0, gt=0.0, le=1e6, allow_inf_nan=False)

    @field_validator("path")
    @classmethod
    def _has_no_empty_part(cls, value: str) -> str:
        if "" in split_path(value):
            raise ValueError(f"is {value!r}, which has an empty part: write keys and indices such as `items.0.name`")
        return value

    @field_validator("equals", mode="before")
    @classmethod
    def _write_date(cls, value: Any) -> Any:
        # YAML reads an unquoted 2024-12-31 as a date.
        return value.isoformat() if isinstance(value, date) else value

    @model_validator(mode="after")
    def _is_comparable(self) -> Self:
        if self.date and self.tolerance is not None:
            raise ValueError("has both `date` and `tolerance`: keep one of them")
        if not self.has_expected:
            return self
        if self.tolerance is not None and (isinstance(self.equals, bool) or not isinstance(self.equals, int | float)):
            raise ValueError(f"has a `tolerance`, and `equals` is {self.equals!r}: write a number, or remove it")
        if self.date:
            if not isinstance(self.equals, str):
                raise ValueError(f"is a date, and `equals` is {self.equals!r}: write a date such as 2024-12-31")
            try:
                read_date(self.equals)
            except ValueError as error:
                raise ValueError(f"has `equals` {self.equals!r}, which {error}") from None
        return self

    @property
    def has_expected(self) -> bool:
        """Whether `equals` is written, be it null; otherwise the submission's reference has the expected value."""
        return "equals" in self.model_fields_set

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys and indices of the path, from the outside."""
        return split_path(self.path)


class FieldsCheck(Record):
    """The expected fields of an answer in JSON.

    In a file, the list of fields may be written alone.

    Attributes:
        expected: The fields, at least one.
        require: `share`: the value of the criterion is the weighted share of the fields that equal; `all`: the
            criterion is MET if all of them do, and else UNMET.
    """

    expected: tuple[FieldCheck, ...] = Field(min_length=1, max_length=1_000)
    require: Literal["share", "all"] = "share"

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, data: Any) -> Any:
        return {"expected": data} if isinstance(data, list | tuple) else data

    @field_validator("expected")
    @classmethod
    def _differ(cls, fields: tuple[FieldCheck, ...]) -> tuple[FieldCheck, ...]:
        paths = [field.keys for field in fields]
        if len(set(paths)) < len(paths):
            repeated = next(field.path for field in fields if paths.count(field.keys) > 1)
            raise ValueError(f"has the path {repeated!r} twice: remove one of them")
        return fields


class TypeCheck(Record):
    """Code in an answer that must have no type errors.

    Attributes:
        language: The language of the code.
        tool: The type checker, which must be installed: `pyright`, `basedpyright` or `mypy`.
    """

    language: Literal["python"] = "python"
    tool: Literal["pyright", "basedpyright", "mypy"] = "pyright"


class SimilarityCheck(Record):
    """The similarity of an answer to a text: 1 minus the Levenshtein distance divided by the longer text's length.

    Attributes:
        to: The text; by default the submission's `reference`.
        min_ratio: The smallest similarity in [0, 1] at which the criterion is MET. Without it, the similarity is the
            value of the criterion.
    """

    to: str | None = Field(default=None, min_length=1)
    min_ratio: UnitScore | None = None


Order = Literal["strict", "in_order", "superset", "subset", "unordered"]
"""How the calls that the agent made are compared with the expected calls.

- `strict`: they are the same calls in the same order, and no others.
- `in_order`: the expected calls are among them, in their order; others may stand before, between and after.
- `superset`: the agent's calls are a superset. Every expected call has a call of its own; others may be made.
- `subset`: the agent's calls are a subset. Every call has an expected call of its own; expected ones may be missing.
- `unordered`: both, so that they are the same calls in any order.

The last three pair calls with expected calls. Whenever any pairing satisfies the condition, it is satisfied.
"""

ArgumentsMode = Literal["exact", "ignore", "subset", "superset"]
"""How the arguments that the agent passed are compared with the expected ones.

- `exact`: they have the same keys with equal values.
- `superset`: the agent's arguments are a superset: every expected key is there, with an equal value.
- `subset`: the agent's arguments are a subset: every key that is there is expected, with an equal value.
- `ignore`: only the tool's name is compared.

Only the keys of the arguments themselves may be more or fewer; the values are compared as wholes. The numbers 1 and 1.0
are equal, and `true` and 1 are not. Arguments that are a text and no JSON object are equal to the same text alone.
"""


class ExpectedCall(Record):
    """One expected call of a tool. In a file, it may be written as the name alone.

    Attributes:
        name: The tool's name, exactly.
        arguments: The expected arguments: an object, or the text of arguments that are no JSON object. If it is left
            out, only the name is compared; `{}` is a call without arguments.
        match: How the arguments of this call are compared: an `ArgumentsMode`, or a list of dotted paths, such as
            `["query", "filters.years.0"]`, whose values must be equal while all others may differ. By default, the
            `arguments` of the check.
        tolerance: The largest accepted difference between two numbers, at least 0.

    Example:
        >>> ExpectedCall.model_validate("search") == ExpectedCall(name="search")
        True
    """

    name: str = Field(min_length=1)
    arguments: dict[str, Any] | str | None = None
    match: ArgumentsMode | tuple[str, ...] | None = None
    tolerance: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @field_validator("arguments", mode="before")
    @classmethod
    def _as_json(cls, value: Any) -> Any:
        try:
            return cast("object", json.loads(json.dumps(value, allow_nan=False)))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"are not JSON ({error}): put dates in quotes, or no call could have them") from None

    @model_validator(mode="after")
    def _compares_something(self) -> Self:
        if self.arguments is None and (self.tolerance or self.match not in (None, "ignore")):
            raise ValueError("has `match` or `tolerance` and no `arguments`, so that nothing is compared: add them")
        if isinstance(self.match, tuple):
            if not self.match:
                raise ValueError("has an empty list as `match`, which compares nothing: write `match: ignore`")
            for path in self.match:
                try:
                    value_at(self.arguments, split_path(path))
                except LookupError as error:
                    message = f"has the path {path!r} in `match`, which is not in `arguments` ({error.args[0]})"
                    raise ValueError(f"{message}: add its value") from None
        return self


class ToolUse(Record):
    """How often tools are used. In a file, it may be written as the name alone, for at least one call.

    Attributes:
        name: The name of the tool, or a pattern: `*` stands for any characters, `?` for one, `[ab]` for one of them.
            Upper and lower case are different.
        min: The smallest number of calls. By default 1, or 0 if there is a `max`.
        max: The largest number of calls; by default, any number.

    Example:
        >>> ToolUse(name="search_*").at_least, ToolUse(name="search_*", max=3).at_least
        (1, 0)
    """

    name: str = Field(min_length=1)
    min: int | None = Field(default=None, ge=0, strict=True)
    max: int | None = Field(default=None, ge=0, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _can_hold(self) -> Self:
        if self.max is not None and self.at_least > self.max:
            raise ValueError(f"`min` {self.min!r} is above `max` {self.max!r}: swap them")
        if self.at_least == 0 and self.max is None:
            raise ValueError("`min` is 0 without a `max`, which always holds: remove it, or set one of them")
        return self

    @property
    def at_least(self) -> int:
        """The smallest number of calls."""
        if self.min is not None:
            return self.min
        return 1 if self.max is None else 0


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

            if has_more_values(value, MAX_SCHEMA_VALUES):
                raise ValueError(
                    f"has more than {MAX_SCHEMA_VALUES:,} values: leave out the parts that no answer needs"
                )
            try:
                with counted_work():
                    Draft202012Validator.check_schema(value)
            except WorkLimitError:
                raise ValueError(
                    "is not read, because the schemas of this rubric take too long: shorten them"
                ) from None
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
