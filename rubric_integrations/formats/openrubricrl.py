"""OpenRubricRL's schema: criteria on one scale whose weights sum to 1, with examples, sub-criteria and metrics."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, ValidationError, model_validator

from rubric_integrations._util.records import Record, UnitScore
from rubric_integrations.formats.faults import faults_from_error
from rubric_integrations.rubric.check import HybridMetric
from rubric_integrations.rubric.criterion import Aspect, Criterion, Scale, WorkedExample
from rubric_integrations.rubric.errors import Fault, RubricError
from rubric_integrations.rubric.rubric import Rubric

Domain = Literal["code", "dialogue", "creative_writing", "reasoning", "general"]
SCALE_TOLERANCE = 1e-6

_Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _Scale(Record):
    min: _Number
    max: _Number
    type: Literal["continuous", "discrete"] = "continuous"


class _Example(Record):
    input: str
    output: str
    score: _Number
    explanation: str


class _Criterion(Record):
    name: str = Field(min_length=1)
    description: str = Field(min_length=1)
    weight: UnitScore
    examples: dict[str, list[_Example]] = Field(default_factory=dict[str, list[_Example]])
    subcriteria: list[Aspect] = Field(default_factory=list[Aspect])


class _Document(Record):
    name: str = Field(min_length=1)
    version: _Version
    description: str | None = None
    domain: Domain | None = None
    scale: _Scale
    criteria: list[_Criterion] = Field(min_length=1)
    hybrid_metrics: list[HybridMetric] = Field(default_factory=list[HybridMetric])
    metadata: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        total = math.fsum(criterion.weight for criterion in self.criteria)
        if abs(total - 1.0) > SCALE_TOLERANCE:
            raise ValueError(f"has criterion weights that sum to {total:.10g}: they must sum to 1")
        return self


def is_openrubricrl(document: Any) -> bool:
    """Whether parsed data is shaped like OpenRubricRL's schema: criteria with a `description`, on a scale."""
    if not isinstance(document, Mapping):
        return False
    data = cast("Mapping[str, Any]", document)
    criteria: Any = data.get("criteria")
    described = isinstance(criteria, list) and any(
        isinstance(c, Mapping) and "description" in c and "requirement" not in c for c in cast("list[Any]", criteria)
    )
    return described or (
        "scale" in data and "version" in data and "pass_mark" not in data and not _has_native(criteria)
    )


def _has_native(criteria: Any) -> bool:
    return isinstance(criteria, list) and any(
        isinstance(c, Mapping) and "requirement" in c for c in cast("list[Any]", criteria)
    )


def read(document: Any, source: str) -> Rubric:
    """Make a rubric of parsed data in OpenRubricRL's schema; every field of it is kept.

    Raises:
        RubricError: With every fault found.
    """
    try:
        data = _Document.model_validate(document)
    except ValidationError as error:
        faults = faults_from_error("", _Document, error)
        faults += [
            Fault("", "version", "was added to the schema later: run `rubric-integrations migrate` on the file")
            for fault in faults
            if fault.field == "version" and "missing" in fault.message
        ]
        raise RubricError(source, faults) from None
    fields: dict[str, Any] = {
        "name": data.name,
        "version": data.version,
        "description": data.description,
        "domain": data.domain,
        "hybrid_metrics": tuple(data.hybrid_metrics),
        "metadata": data.metadata,
    }
    try:
        scale = Scale(min=data.scale.min, max=data.scale.max, integer=data.scale.type == "discrete")
        criteria = [_native(criterion, scale) for criterion in data.criteria]
        set_fields = {key: value for key, value in fields.items() if key in data.model_fields_set}
        return Rubric(criteria, scale=scale, **set_fields)
    except ValidationError as error:
        raise RubricError(source, faults_from_error("", Rubric, error)) from None
    except ValueError as error:
        raise RubricError(source, [Fault("criteria", "examples", str(error))]) from None


def _native(criterion: _Criterion, scale: Scale) -> Criterion:
    examples = tuple(
        WorkedExample(output=e.output, score=e.score, explanation=e.explanation, input=e.input, level=level)
        for level, group in criterion.examples.items()
        for e in group
    )
    for example in examples:
        scale.value_of(cast("float", example.score))
    more: dict[str, Any] = {"examples": examples} if examples else {}
    if criterion.subcriteria:
        more["aspects"] = tuple(criterion.subcriteria)
    return Criterion(
        name=criterion.name, requirement=criterion.description, weight=criterion.weight, scale=scale, **more
    )


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """A rubric in OpenRubricRL's schema, and what of it the schema cannot hold.

    Raises:
        RubricError: It has nothing but penalties, for which the schema has no words.
    """
    losses = [
        f"`{field}` has no place in the schema"
        for field in ("guidelines", "pass_mark", "blend", "tree")
        if field in rubric.model_fields_set and getattr(rubric, field) is not None
    ]
    scale = rubric.scale or next((c.scale for c in rubric.criteria if c.scale), None) or Scale()
    kept = [(key, c) for key, c in zip(rubric.keys, rubric.criteria, strict=True) if c.weight >= 0]
    losses += [
        f"`{key}`: a penalty, left out: the schema has none"
        for key, c in zip(rubric.keys, rubric.criteria, strict=True)
        if c.is_penalty
    ]
    total = math.fsum(criterion.weight for _, criterion in kept)
    if not total:
        raise RubricError(
            rubric.name or "rubric", [Fault("", "criteria", "are all penalties, which the schema has not")]
        )
    if abs(total - 1.0) > SCALE_TOLERANCE:
        losses.append(f"weights are divided by their sum, {total:g}")
    shares = [c.weight if abs(total - 1.0) <= SCALE_TOLERANCE else c.weight / total for _, c in kept]
    document: dict[str, Any] = {
        "name": rubric.name or "rubric",
        "version": rubric.version or "1.0.0",
        "description": rubric.description,
        "domain": rubric.domain,
        "scale": {"min": scale.min, "max": scale.max, "type": "discrete" if scale.integer else "continuous"},
        "criteria": [_described(key, c, share, scale, losses) for (key, c), share in zip(kept, shares, strict=True)],
        "hybrid_metrics": [metric.model_dump(mode="json", exclude_unset=True) for metric in rubric.hybrid_metrics],
        "metadata": rubric.metadata,
    }
    losses += [
        f"`{field}` is made up, since the schema wants one"
        for field in ("name", "version")
        if not getattr(rubric, field)
    ]
    return {key: value for key, value in document.items() if value not in (None, [])}, losses


def _described(key: str, criterion: Criterion, share: float, scale: Scale, losses: list[str]) -> dict[str, Any]:
    losses.extend(
        f"`{key}`: `{field}` has no place in the schema; the criterion is rated on the scale"
        for field in ("check", "options", "required", "min_score", "aggregation")
        if field in criterion.model_fields_set and getattr(criterion, field) not in (None, False)
    )
    if criterion.name is None:
        losses.append(f"`{key}`: the criterion gets this name, since the schema wants one")
    if criterion.scale is None or (criterion.scale.min, criterion.scale.max, criterion.scale.integer) != (
        scale.min, scale.max, scale.integer,
    ):  # fmt: skip
        losses.append(f"`{key}`: is rated on the file's scale from {scale.min:g} to {scale.max:g}")
    if criterion.scale is not None and criterion.scale.levels:
        losses.append(f"`{key}`: `scale.levels` have no place in the schema")
    examples: dict[str, list[dict[str, Any]]] = {}
    for example in criterion.examples:
        if isinstance(example.score, str):
            losses.append(f"`{key}`: an example without a number is left out")
            continue
        given = {"input": example.input or "", "output": example.output, "score": example.score}
        examples.setdefault(example.level or "examples", []).append({**given, "explanation": example.explanation})
    described: dict[str, Any] = {
        "name": key,
        "description": criterion.requirement,
        "weight": share,
        "examples": examples,
        "subcriteria": [{"name": aspect.name, "description": aspect.description} for aspect in criterion.aspects],
    }
    return {name: value for name, value in described.items() if value not in ({}, [])}


def migrate(document: Any, to_version: str = "1.0.0") -> tuple[Any, list[str]]:
    """A file of an older schema in today's, and what was changed: a `version`, and `explanation`s in examples."""
    if not isinstance(document, Mapping):
        return document, []
    data: dict[str, Any] = copy.deepcopy(dict(cast("Mapping[str, Any]", document)))
    changes: list[str] = []
    if "version" not in data:
        data = {"name": data.pop("name", "rubric"), "version": to_version, **data}
        changes.append(f"`version` {to_version} added")
    for criterion in cast("list[Any]", data.get("criteria") if isinstance(data.get("criteria"), list) else []):
        groups: Any = cast("Any", criterion).get("examples") if isinstance(criterion, Mapping) else None
        for level, group in groups.items() if isinstance(groups, Mapping) else ():
            for example in group if isinstance(group, list) else ():
                if isinstance(example, dict) and "explanation" not in example:
                    cast("dict[str, Any]", example)["explanation"] = f"An example of a response that is {level}."
                    changes.append(f"`explanation` added to an example of {level!r}")
    return data, changes


def normalize_score(score: float, scale: Scale, method: Literal["min_max", "sigmoid", "z_score"] = "min_max") -> float:
    """A number on a scale as a reward in [0, 1].

    `min_max` is `(x - min) / (max - min)`; `sigmoid`, and `z_score`, which is the same function, are
    `1 / (1 + exp(-4 (x - mid) / (max - min)))`.

    Raises:
        ValueError: The score is not on the scale, for `min_max`.
    """
    if method == "min_max":
        return scale.value_of(score)
    middle = (scale.min + scale.max) / 2
    return 1 / (1 + math.exp(-4 * (score - middle) / (scale.max - scale.min)))
