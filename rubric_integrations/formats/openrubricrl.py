"""OpenRubricRL's format: criteria on one scale, with weights that sum to 1, examples, sub-criteria and metrics.

The module also has OpenRubricRL's methods to convert a number on a scale to a reward, and migrates older files.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, ValidationError, model_validator

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.formats.items import Reading
from rubric_integrations.formats.parsing import faults_from_error
from rubric_integrations.rubric.answers import Scale
from rubric_integrations.rubric.check import HybridMetric
from rubric_integrations.rubric.criterion import Aspect, Criterion, WorkedExample
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

WEIGHT_TOLERANCE = 1e-6
"""The largest accepted difference between the sum of the criterion weights and 1."""

Domain = Literal["code", "dialogue", "creative_writing", "reasoning", "general"]
"""The subject areas of the schema."""

Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class ScaleFields(Record):
    """The scale of a file of OpenRubricRL, on which all criteria are rated."""

    min: Number
    max: Number
    type: Literal["continuous", "discrete"] = "continuous"


class ExampleFields(Record):
    """A sample response in a file of OpenRubricRL, with its score and the reason for the score."""

    input: str
    output: str
    score: Number
    explanation: str


class CriterionFields(Record):
    """A criterion in a file of OpenRubricRL. The keys of `examples` are levels of quality, such as `excellent`."""

    name: str = Field(min_length=1)
    description: str = Field(min_length=1)
    weight: UnitScore
    examples: dict[str, list[ExampleFields]] = Field(default_factory=dict[str, list[ExampleFields]])
    subcriteria: list[Aspect] = Field(default_factory=list[Aspect])


class DocumentFields(Record):
    """All fields of a file of OpenRubricRL."""

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


# Fields that the format cannot express, but that do not change how a criterion is rated.
_NOTES = ("tags", "importance", "metadata", "per", "context", "needs", "operator", "judge", "sensitive_to")


def matches(document: Any) -> bool:
    """Return whether parsed data looks like OpenRubricRL's schema: criteria with a `description`, on a scale."""
    if not isinstance(document, Mapping):
        return False
    criteria: Any = document.get("criteria")
    rows = [c for c in criteria if isinstance(c, Mapping)] if isinstance(criteria, list) else []
    if any("description" in row and "requirement" not in row for row in rows):
        return True
    is_native = "pass_mark" in document or any("requirement" in row for row in rows)
    return "scale" in document and "version" in document and not is_native


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from parsed data in OpenRubricRL's schema. No field is lost.

    Raises:
        RubricError: The data has faults. The error lists every fault.
    """
    try:
        data = DocumentFields.model_validate(document)
    except ValidationError as error:
        faults = faults_from_error("", DocumentFields, error)
        if isinstance(document, Mapping) and "version" not in document:
            message = "was added to the schema later: run `rubric-integrations migrate` on the file"
            faults.append(Fault("", "version", message))
        raise RubricError(source, faults) from None
    try:
        scale = Scale(min=data.scale.min, max=data.scale.max, integer=data.scale.type == "discrete")
        criteria = [_read_criterion(criterion, scale) for criterion in data.criteria]
        fields = {field: getattr(data, field) for field in data.model_fields_set - {"scale", "criteria"}}
        return Reading(Rubric.model_validate({"criteria": criteria, "scale": scale, **fields}), [])
    except ValidationError as error:
        raise RubricError(source, faults_from_error("", Rubric, error)) from None
    except ValueError as error:
        raise RubricError(source, [Fault("criteria", "examples", str(error))]) from None


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric in OpenRubricRL's schema, with one message for each part that the schema cannot express.

    Raises:
        RubricError: All criteria are penalties, which the schema cannot express.
    """
    losses = [
        f"`{field}` has no place in the schema"
        for field in (
            "guidelines",
            "pass_mark",
            "min_coverage",
            "blend",
            "tree",
            "importance_weights",
            "left_out",
            "cases",
        )
        if field in rubric.model_fields_set and getattr(rubric, field) not in (None, ())
    ]
    scale = rubric.scale or next((c.scale for c in rubric.criteria if c.scale and not c.per), None) or Scale()
    pairs = list(zip(rubric.keys, rubric.criteria, strict=True))
    losses += [f"`{key}`: the penalty is omitted: the schema has none" for key, c in pairs if c.is_penalty]
    pairs = [(key, criterion) for key, criterion in pairs if not criterion.is_penalty]
    total = math.fsum(criterion.full_weight for _, criterion in pairs)
    if not total:
        message = "are all penalties, which the schema cannot express"
        raise RubricError(rubric.name or "rubric", [Fault("", "criteria", message)])
    if abs(total - 1.0) > WEIGHT_TOLERANCE:
        losses.append(f"weights are divided by their sum, {total:g}")
    else:
        total = 1.0  # weights whose sum differs from 1 only by rounding are written unchanged
    document: dict[str, Any] = {
        "name": rubric.name or "rubric",
        "version": rubric.version or "1.0.0",
        "description": rubric.description,
        "domain": rubric.domain,
        "scale": {"min": scale.min, "max": scale.max, "type": "discrete" if scale.integer else "continuous"},
        "criteria": [_write_criterion(key, c, c.full_weight / total, scale, losses) for key, c in pairs],
        "hybrid_metrics": [metric.model_dump(mode="json", exclude_unset=True) for metric in rubric.hybrid_metrics],
        "metadata": rubric.metadata,
    }
    losses += [
        f"`{field}` is invented, because the schema requires one"
        for field in ("name", "version")
        if not getattr(rubric, field)
    ]
    return {key: value for key, value in document.items() if value not in (None, [])}, losses


def _read_criterion(criterion: CriterionFields, scale: Scale) -> Criterion:
    examples = tuple(
        WorkedExample(output=e.output, score=e.score, explanation=e.explanation, input=e.input, level=level)
        for level, group in criterion.examples.items()
        for e in group
    )
    for example in examples:
        scale.value_of(cast("float", example.score))
    fields: dict[str, Any] = {"examples": examples} if examples else {}
    if criterion.subcriteria:
        fields["aspects"] = tuple(criterion.subcriteria)
    return Criterion(
        name=criterion.name, requirement=criterion.description, weight=criterion.weight, scale=scale, **fields
    )


def _write_criterion(key: str, criterion: Criterion, share: float, scale: Scale, losses: list[str]) -> dict[str, Any]:
    """Convert a criterion to an entry of the schema. Append what the schema cannot express to `losses`."""
    losses.extend(
        f"`{key}`: `{field}` has no place in the schema; the criterion is rated on the scale"
        for field in ("check", "options", "applies_when", "required", "min_score", "aggregation")
        if field in criterion.model_fields_set and getattr(criterion, field) not in (None, False)
    )
    losses += [f"`{key}`: `{field}` has no place in the schema" for field in _NOTES if getattr(criterion, field)]
    if criterion.name is None:
        losses.append(f"`{key}`: the criterion gets this name, because the schema requires one")
    if criterion.scale is None or _range(criterion.scale) != _range(scale):
        losses.append(f"`{key}`: is rated on the file's scale from {scale.min:g} to {scale.max:g}")
    if criterion.scale is not None and criterion.scale.levels:
        losses.append(f"`{key}`: `scale.levels` have no place in the schema")
    examples: dict[str, list[dict[str, Any]]] = {}
    for example in criterion.examples:
        if isinstance(example.score, str):
            losses.append(f"`{key}`: an example without a number is omitted")
            continue
        group = examples.setdefault(example.level or "examples", [])
        group.append(
            {
                "input": example.input or "",
                "output": example.output,
                "score": example.score,
                "explanation": example.explanation,
            }
        )
    fields: dict[str, Any] = {
        "name": key,
        "description": criterion.full_requirement,
        "weight": share,
        "examples": examples,
        "subcriteria": [{"name": aspect.name, "description": aspect.description} for aspect in criterion.aspects],
    }
    return {name: value for name, value in fields.items() if value not in ({}, [])}


def _range(scale: Scale) -> tuple[float, float, bool]:
    return scale.min, scale.max, scale.integer


def migrate(document: Any, to_version: str = "1.0.0") -> tuple[Any, list[str]]:
    """Convert an older file to the current schema: add a `version` to the file and an `explanation` to each example.

    Args:
        document: The parsed file. It is not changed.
        to_version: The version for a file without a version.

    Returns:
        The new document and one message for each change.
    """
    if not isinstance(document, Mapping):
        return document, []
    data: dict[str, Any] = copy.deepcopy(dict(document))
    changes: list[str] = []
    if "version" not in data:
        data = {"name": data.pop("name", "rubric"), "version": to_version, **data}
        changes.append(f"`version` {to_version} added")
    for criterion in cast("list[Any]", data.get("criteria") if isinstance(data.get("criteria"), list) else []):
        groups: Any = criterion.get("examples") if isinstance(criterion, Mapping) else None
        for level, group in groups.items() if isinstance(groups, Mapping) else ():
            for example in group if isinstance(group, list) else ():
                if isinstance(example, dict) and "explanation" not in example:
                    example["explanation"] = f"An example of a response that is {level}."
                    changes.append(f"`explanation` added to an example of {level!r}")
    return data, changes


def normalize_score(score: float, scale: Scale, method: Literal["min_max", "sigmoid", "z_score"] = "min_max") -> float:
    """Convert a number on a scale to a reward in [0, 1], as OpenRubricRL does.

    Args:
        score: The number.
        scale: The scale.
        method: `min_max` is `(x - min) / (max - min)`. `sigmoid` is `1 / (1 + exp(-4 (x - mid) / (max - min)))`, where
            `mid` is the middle of the scale. `z_score` is the same function as `sigmoid`.

    Raises:
        ValueError: The method is `min_max` and the score is not on the scale.

    Example:
        >>> normalize_score(7.5, Scale(min=0, max=10))
        0.75
    """
    if method == "min_max":
        return scale.value_of(score)
    middle = (scale.min + scale.max) / 2
    return 1 / (1 + math.exp(-4 * (score - middle) / (scale.max - scale.min)))
