"""Checks of what an answer holds, as data: expected fields of JSON, code without type errors, and similarity."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rubric_integrations._util.dates import read_date
from rubric_integrations._util.json_paths import split_path
from rubric_integrations._util.records import Record, UnitScore


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
