"""Conditions on the tool calls of an agent, as data: the expected calls, and how often a tool may be used."""

from __future__ import annotations

import json
from typing import Any, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from rubric_integrations._util.json_paths import split_path, value_at
from rubric_integrations._util.records import Record

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
