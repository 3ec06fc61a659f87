"""Checks and metrics as data: conditions on a submission that are decided by code, without a judge.

The package `checks` contains the code that decides them.
"""

from __future__ import annotations

import json
from datetime import date
from typing import Any, Literal, Self, cast, get_args

from pydantic import Field, field_validator, model_validator

from rubric_integrations._util.event_loop import WorkLimitError, counted_work
from rubric_integrations._util.json import has_more_values, split_path, value_at
from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations._util.text import read_date, read_quantities

MAX_SCHEMA_VALUES = 10_000
"""The largest number of values in a `json_schema`. Checking a schema of a few thousand values takes about a second."""


class FieldCheck(Record):
    """The expected value of one field of an answer in JSON.

    Attributes:
        path: The path of the field: keys and indices from 0, joined by points, such as `invoice.total` or
            `items.0.name`. You can also write `items[0].name`. A key that contains a point cannot be used.
        equals: The expected value, of any JSON type. Texts are compared exactly, numbers by their value, and objects
            and lists as a whole. By default, the expected value is read from the submission's `reference`, which must
            then be JSON, at the same path.
        tolerance: The largest accepted absolute difference of a number from the expected number, at least 0.
        date: Whether the two texts are compared as dates. Accepted forms: `2024-12-31`, `31.12.2024`, `31 Dec 2024`,
            `December 31, 2024` and `12/31/2024`. An ambiguous date in the answer, such as `03/04/2024`, never equals
            the expected date.
        weight: The weight of the field, relative to the other fields of its check. Above 0.
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
        """Check that `equals`, `tolerance` and `date` fit together."""
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
        """Whether the author wrote `equals`, even as `null`.

        If False, the expected value is read from the submission's reference.
        """
        return "equals" in self.model_fields_set

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys and indices of the path, starting with the outermost."""
        return split_path(self.path)


class FieldsCheck(Record):
    """The expected fields of an answer in JSON.

    In a file, you can write the list of fields without `expected:`.

    Attributes:
        expected: The fields, at least one.
        require: With `share`, the value of the criterion is the weighted share of the fields that have their expected
            values. With `all`, the criterion is MET if all fields have them, and UNMET otherwise.
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


class SimilarityCheck(Record):
    """The similarity of an answer to a text: 1 - (Levenshtein distance / length of the longer text).

    Attributes:
        to: The text to compare with. Default: the submission's `reference`.
        min_ratio: The smallest similarity in [0, 1] at which the criterion is MET. By default, the similarity itself is
            the value of the criterion.
    """

    to: str | None = Field(default=None, min_length=1)
    min_ratio: UnitScore | None = None


Order = Literal["strict", "in_order", "superset", "subset", "unordered"]
"""How the agent's tool calls are compared with the expected calls.

- `strict`: the agent makes the expected calls in the expected order, and no other calls.
- `in_order`: the agent makes the expected calls in the expected order. Other calls are allowed anywhere.
- `superset`: each expected call is matched by a different call of the agent. The agent may make other calls.
- `subset`: each call of the agent is matched by a different expected call. Expected calls may be missing.
- `unordered`: the agent makes the expected calls in any order, and no other calls (both `superset` and `subset`).

The last three modes pair the agent's calls with expected calls. The condition is satisfied if any possible pairing
satisfies it.
"""

ArgumentsMode = Literal["exact", "ignore", "subset", "superset"]
"""How the arguments of an agent's tool call are compared with the expected arguments.

- `exact`: the agent's arguments have the same keys as the expected arguments, with equal values.
- `superset`: the agent's arguments contain every expected key with an equal value. They may contain other keys.
- `subset`: every key of the agent's arguments is expected and has an equal value. Expected keys may be missing.
- `ignore`: only the name of the tool is compared.

The modes apply to the top-level keys. Nested values must be equal as a whole. The numbers 1 and 1.0 are equal, but
`true` and 1 are not. Arguments that are a text instead of a JSON object must equal the expected text.
"""


class ExpectedCall(Record):
    """One expected call of a tool. In a file, you can write just its name.

    Attributes:
        name: The exact name of the tool.
        arguments: The expected arguments: an object, or a text for arguments that are not a JSON object. `{}` is a call
            without arguments. By default, only the name is compared.
        match: How the arguments of this call are compared: an `ArgumentsMode`, or a list of dotted paths such as
            `["query", "filters.years.0"]`. With paths, the values at these paths must be equal, and all other values
            may differ. Default: the `arguments` of the check.
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
            return json.loads(json.dumps(value, allow_nan=False))
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
    """How often a tool (or all tools that match a pattern) is used. In a file, a name alone means at least one call.

    Attributes:
        name: The name of the tool, or a pattern: `*` matches any characters, `?` matches one character, and `[ab]`
            matches `a` or `b`. Case-sensitive.
        min: The smallest number of calls. Default: 1, or 0 if `max` is set.
        max: The largest number of calls. Default: no limit.

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
        """The smallest number of calls: `min`, or its default."""
        if self.min is not None:
            return self.min
        return 1 if self.max is None else 0


class NumberCheck(Record):
    """A number that the response must state.

    In a file, you can also write it as a number (`1234.5`) or a text (`17.2%`).

    Attributes:
        value: The number to look for.
        tolerance: The largest accepted difference between a stated number and `value`, at least 0.
        unit: The `"%"` or the currency sign that the response must state with the number. If empty, any unit is
            accepted.
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


ReferenceMode = Literal["equals", "differs", "contains"]
"""How a response is compared with the reference of its submission."""


Texts = str | tuple[str, ...]
"""One text or several texts."""


MeasureName = Literal["metric", "fields", "similarity"]
"""The conditions of a check that can give a criterion a value in [0, 1], instead of a verdict."""


MetricType = Literal["bleu", "rouge", "accuracy", "perplexity", "custom"]
"""The name of an automatic metric."""


class Metric(Record):
    """An automatic metric of a response, with a value in [0, 1].

    Attributes:
        type: `bleu`, `rouge` and `accuracy` compare the response with the submission's `reference`. `perplexity` reads
            the submission's `logprobs`. `custom` calls a function that you have registered in Python with
            `register_metric`, because a file must not name code to import.
        config: The settings of the metric. For `rouge`: `variant` (`rouge1`, `rouge2` or `rougeL`). For `custom`:
            `metric_function`, the registered name. Other keys are kept but have no effect.
    """

    type: MetricType
    config: dict[str, Any] = Field(default_factory=dict[str, Any])

    @model_validator(mode="before")
    @classmethod
    def _has_a_type(cls, value: Any) -> Any:
        """Refuse a name alone, or a metric without a known type, with a message that has the YAML to write."""
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {"type": value}
        name = fields.get("type", fields.get("name"))
        if isinstance(name, str) and (fields is not value or name not in get_args(MetricType)):
            raise ValueError(f"is not written as a metric, got {name[:60]!r}: {cls._remedy(name[:60])}")
        return value

    @classmethod
    def _remedy(cls, name: str) -> str:
        """Return the YAML to write for the name of a type, or of a registered function."""
        if name in get_args(MetricType) and name != "custom":
            return f"write {cls._yaml(f'type: {name}')}"
        config = f"type: custom, config: {{metric_function: {name}}}"
        return (
            f"for a function that you registered in Python with `register_metric({name!r})`, write "
            f"{cls._yaml(config)}; other types are bleu, rouge, accuracy and perplexity"
        )

    @classmethod
    def _yaml(cls, fields: str) -> str:
        return f"`check: {{metric: {{{fields}}}}}`"

    @model_validator(mode="after")
    def _is_configured(self) -> Self:
        variant = self.config.get("variant", "rougeL")
        if self.type == "rouge" and variant not in ("rouge1", "rouge2", "rougeL"):
            raise ValueError(f"has the `config.variant` {variant!r}: use rouge1, rouge2 or rougeL")
        if self.type == "custom" and not isinstance(self.config.get("metric_function"), str):
            raise ValueError(f"is custom and has no `config.metric_function`: {self._remedy('NAME')}")
        return self


class HybridMetric(Metric):
    """A metric that is blended with the judge's score.

    Attributes:
        name: The name of the metric in reports, unique in its rubric.
        weight: The metric's share of the blended score, in [0, 1].
    """

    name: str = Field(min_length=1)
    weight: UnitScore

    @classmethod
    def _yaml(cls, fields: str) -> str:
        return f"`hybrid_metrics: [{{name: NAME, weight: 0.2, {fields}}}]`"


class Check(Record):
    """Conditions on a submission that code checks, without a judge. Every condition that is set must be satisfied.

    The conditions from `tool_calls` to `no_repeated_calls` are about the submission's trajectory. If the trajectory is
    missing, or lacks data that a condition needs, such as the cost of a step, the check is a failure: neither MET nor
    UNMET.

    Attributes:
        contains: A text, or several texts, that must all occur in the response.
        not_contains: A text that must not occur in the response, or several such texts.
        regex: A pattern (Python syntax) that must match somewhere in the response.
        equals: The expected response. White space at its start and end is ignored.
        reference: How the response is compared with the submission's `reference`, exactly, including white space: it
            `equals` the reference, `differs` from it, or `contains` it. Without a reference, the check is a failure.
        number: A number that the response must state: `17.2%`, `1234.5`, or `{value, tolerance, unit}`.
        json_schema: A JSON Schema that the response, parsed as JSON, must satisfy.
        fields: The expected values of fields of the response, which is parsed as JSON: a list of `{path, equals,
            tolerance, date, weight}`. The value of the criterion is the weighted share of the fields that have their
            expected values. With `{expected: [...], require: all}`, the criterion is MET or UNMET.
        similarity: The similarity of the response to a text, or to the submission's reference: `{to, min_ratio}`.
            Without `min_ratio`, the similarity in [0, 1] is the value of the criterion.
        min_words: The smallest number of words, separated by white space.
        max_words: The largest number of words, separated by white space.
        metric: An automatic metric whose value in [0, 1] becomes the value of the criterion. It cannot be combined with
            other conditions.
        tool_calls: The expected tool calls of the agent: a list of names, or of `{name, arguments, match, tolerance}`.
            With `order: strict`, an empty list means that the agent makes no call.
        order: How the agent's calls are compared with `tool_calls`: `strict` (the default: the same calls in the same
            order), `in_order` (the same order, with other calls in between), `superset` (all expected calls in any
            order, and possibly others), `subset` (only expected calls, but not necessarily all), or `unordered` (the
            same calls in any order).
        arguments: How the arguments of a call are compared with the expected arguments: `exact` (the default),
            `superset` (all expected arguments, and possibly others), `subset` (only expected arguments, but not
            necessarily all), or `ignore`.
        tool_used: A tool that the agent must use, or several tools. Each is a name, a pattern such as `search_*`, or
            `{name, min, max}`.
        tool_forbidden: A tool that the agent must not use, or several tools. Each is a name, or a pattern such as
            `delete_*`.
        max_steps: The largest number of steps of the assistant.
        max_tokens: The largest number of tokens, summed over all steps.
        max_cost: The largest cost in US dollars, summed over all steps.
        max_seconds: The longest duration in seconds, summed over all steps.
        no_errors: If `true`, no tool call may fail.
        no_repeated_calls: If `true`, the agent must not call a tool twice with equal arguments.
        ignore_case: Whether `contains`, `not_contains`, `regex`, `equals`, `reference` and `similarity` ignore case.

    Example:
        >>> Check(contains="17.2%", max_words=300).max_words
        300
    """

    contains: Texts | None = None
    not_contains: Texts | None = None
    regex: str | None = None
    equals: str | None = None
    reference: ReferenceMode | None = None
    number: NumberCheck | None = None
    json_schema: dict[str, Any] | None = None
    fields: FieldsCheck | None = None
    similarity: SimilarityCheck | None = None
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

    @model_validator(mode="before")
    @classmethod
    def _refuse_type_checks(cls, data: object) -> object:
        if isinstance(data, dict) and "type_checks" in data:
            raise ValueError(
                "has `type_checks`, which no longer exists: write a function that runs your type checker, register it "
                'with `register_metric("typed")`, and write `metric: {type: custom, config: {metric_function: typed}}`'
            )
        return data

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
        """Check that the value is a JSON Schema that can be checked in bounded time."""
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
        if self.ignore_case and not set(self.conditions) & set(_WITH_CASE):
            raise ValueError(f"has `ignore_case`, which has an effect only on {', '.join(_WITH_CASE)}: remove it")
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
        """The condition whose value in [0, 1] becomes the criterion's value. None if the check gives MET or UNMET."""
        if self.metric is not None:
            return "metric"
        if isinstance(self.fields, FieldsCheck) and self.fields.require == "share":
            return "fields"
        if isinstance(self.similarity, SimilarityCheck) and self.similarity.min_ratio is None:
            return "similarity"
        return None


SETTINGS = ("order", "arguments", "ignore_case")
"""The fields of `Check` that are not conditions. They change how some of the conditions compare."""

_WITH_CASE = ("contains", "not_contains", "regex", "equals", "reference", "similarity")
"""The conditions that `ignore_case` changes."""

CONDITIONS = tuple(name for name in Check.model_fields if name not in SETTINGS)
"""The fields of `Check` that are conditions."""
