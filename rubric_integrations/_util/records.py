"""The base class of all records, and the types of weights and values."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

# Sums of much greater weights would overflow to infinity. Below 2**53, whole-number weights are represented exactly.
MAX_WEIGHT = 1e15

Weight = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-MAX_WEIGHT, le=MAX_WEIGHT)]
"""A criterion's weight: positive for a reward, negative for a penalty; booleans and strings are refused."""

UnitScore = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0.0, le=1.0)]
"""A number in [0, 1]."""


def encodable(text: str) -> str:
    r"""Write each lone surrogate of a text, such as half an emoji, as its escape, so that the text can be encoded.

    Example:
        >>> encodable("fine \ud83d")
        'fine \\ud83d'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


EncodableText = Annotated[str, AfterValidator(encodable)]
"""A text from outside, such as a judge's reason, without lone surrogates: they could not be written to any file."""


class Record(BaseModel):
    """A frozen pydantic model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SparseRecord(Record):
    """A record that leaves some fields out of its JSON while they are unused, so that files do not grow by them.

    These fields are left out while they are empty or have their default value.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _leave_out_empty_fields(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = serialize(self)
        for name in self._left_out_if_unused:
            value = data.get(name)
            # A cost of 0.0 is known, and is used unless it is the default.
            is_empty = not value and not isinstance(value, float)
            if name in data and (is_empty or value == type(self).model_fields[name].default):
                del data[name]
        return data
