"""The base classes of all records, the types of weights and values, and their display in notebooks and pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import CoreSchema, core_schema

from rubric_integrations._util.lazy import install_command

if TYPE_CHECKING:
    from pandas import DataFrame


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table in the default colours. All text is escaped, because it comes from models and users.

    Example:
        >>> html_table("t", ["a"], [["<b>"]]).count("&lt;b&gt;")
        1
    """

    def cells_of(values: Sequence[object], tag: str) -> str:
        texts = ("" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        return "".join(f'<{tag} style="text-align:left;vertical-align:top">{escape(text)}</{tag}>' for text in texts)

    body = "".join(f"<tr>{cells_of(row, 'td')}</tr>" for row in rows)
    head = f"<thead><tr>{cells_of(columns, 'th')}</tr></thead>"
    return f"<p><b>{escape(title)}</b></p><table>{head}<tbody>{body}</tbody></table>"


def data_frame(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> DataFrame:
    """Return rows as a pandas DataFrame.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise ImportError(f"`to_dataframe` needs pandas: {install_command('pandas')}") from None
    return pd.DataFrame([dict(row) for row in rows], columns=list(columns))


# Sums of much larger weights would overflow to infinity. Whole numbers below 2**53 are represented exactly.
MAX_WEIGHT = 1e15

Weight = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-MAX_WEIGHT, le=MAX_WEIGHT)]
"""A criterion's weight: positive for a reward, negative for a penalty. Booleans and strings are refused."""

UnitScore = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0.0, le=1.0)]
"""A number in [0, 1]."""


def encodable(text: str) -> str:
    r"""Replace each lone surrogate of a text, such as half an emoji, by its escape. The result can be encoded as UTF-8.

    Example:
        >>> encodable("fine \ud83d")
        'fine \\ud83d'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _encodable_text(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    # With a constraint, pydantic refuses a text with a lone surrogate. Therefore, our slower function is called only
    # for such a text. A report has several texts for every judgment.
    return core_schema.union_schema(
        [
            core_schema.str_schema(min_length=0),
            core_schema.no_info_after_validator_function(encodable, handler(source)),
        ],
        mode="left_to_right",
        custom_error_type="string_type",
    )


EncodableText = Annotated[str, GetPydanticSchema(_encodable_text), WithJsonSchema({"type": "string"})]
"""A text from outside, such as a judge's reason, in which lone surrogates are escaped. Otherwise it could not be
written to a file.
"""


class Record(BaseModel):
    """A frozen pydantic model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SparseRecord(Record):
    """A record that leaves unused fields out of its JSON, to keep files small.

    The fields of `_left_out_if_unused` are left out if they are empty or have their default value. A `spend` leaves out
    `is_lower_bound` if it is False. It is no such record itself, because that would cost a call for each `spend`.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _leave_out_empty_fields(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = serialize(self)
        # Without function calls, because a ledger serializes each judgment.
        for name in self._left_out_if_unused:
            if name not in data:
                continue
            value = data[name]
            # A cost of 0.0 is known, and is used unless it is the default.
            is_empty = not value and value.__class__ is not float
            if is_empty or value == self.__class__.model_fields[name].default:
                del data[name]
        if "spend" in data and not data["spend"].get("is_lower_bound", True):
            del data["spend"]["is_lower_bound"]
        return data
