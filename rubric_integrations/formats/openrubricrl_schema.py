"""OpenRubricRL's schema as records: the shape of its files, and its rules."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.rubric.check import HybridMetric
from rubric_integrations.rubric.criterion import Aspect

WEIGHT_TOLERANCE = 1e-6
"""The largest accepted difference between the sum of the criterion weights and 1."""

Domain = Literal["code", "dialogue", "creative_writing", "reasoning", "general"]
"""The subject areas of the schema."""

Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class ScaleFields(Record):
    """The scale on which all criteria are rated."""

    min: Number
    max: Number
    type: Literal["continuous", "discrete"] = "continuous"


class ExampleFields(Record):
    """A response with its score and the reason for it."""

    input: str
    output: str
    score: Number
    explanation: str


class CriterionFields(Record):
    """A criterion; its examples are grouped by the author's names for their quality."""

    name: str = Field(min_length=1)
    description: str = Field(min_length=1)
    weight: UnitScore
    examples: dict[str, list[ExampleFields]] = Field(default_factory=dict[str, list[ExampleFields]])
    subcriteria: list[Aspect] = Field(default_factory=list[Aspect])


class DocumentFields(Record):
    """A whole file."""

    name: str = Field(min_length=1)
    version: Version
    description: str | None = None
    domain: Domain | None = None
    scale: ScaleFields
    criteria: list[CriterionFields] = Field(min_length=1)
    hybrid_metrics: list[HybridMetric] = Field(default_factory=list[HybridMetric])
    metadata: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _weights_sum_to_one(self) -> Self:
        total = math.fsum(criterion.weight for criterion in self.criteria)
        if abs(total - 1.0) > WEIGHT_TOLERANCE:
            raise ValueError(f"has criterion weights that sum to {total:.10g}: they must sum to 1")
        return self
