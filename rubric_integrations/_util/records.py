"""The ground floor: what every record of the library has in common, and its number types."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Beyond this a sum of a thousand weights would leave the range of a float and score as infinity.
MAX_WEIGHT = 1e15

Weight = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-MAX_WEIGHT, le=MAX_WEIGHT)]
"""A criterion's weight: positive for what is wanted, negative for a penalty, never a boolean or a string."""

UnitScore = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0.0, le=1.0)]
"""A number in [0, 1]."""


class Record(BaseModel):
    """A frozen pydantic model that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
