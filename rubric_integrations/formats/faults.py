"""Faults of a rubric file in its author's words: the place, the field, and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rubric_integrations.rubric.check import Check, HybridMetric, Metric, NumberCheck
from rubric_integrations.rubric.criterion import Aspect, Option, Scale, WorkedExample
from rubric_integrations.rubric.errors import Fault

_MODELS: Mapping[str, type[BaseModel]] = {
    "aspects": Aspect,
    "check": Check,
    "examples": WorkedExample,
    "hybrid_metrics": HybridMetric,
    "metric": Metric,
    "number": NumberCheck,
    "options": Option,
    "scale": Scale,
}


def faults_from_error(where: str, model: type[BaseModel], error: ValidationError) -> list[Fault]:
    """A pydantic error as faults of the thing at `where`."""
    return [_fault(where, model, details) for details in error.errors()]


def unknown_key(where: str, key: str, known: Mapping[str, Any] | set[str]) -> Fault:
    """A key that the format does not have."""
    close = difflib.get_close_matches(key, list(known), n=1)
    hint = f"did you mean `{close[0]}`?" if close else "known are " + ", ".join(f"`{name}`" for name in sorted(known))
    return Fault(where, key, f"is not a known key: {hint} Ignored, it would change the score in silence")


def short(value: object) -> str:
    """A value for a message, in one short line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fault(where: str, model: type[BaseModel], details: ErrorDetails) -> Fault:
    path = [str(part) for part in details["loc"]]
    field = ".".join(path)
    value = details["input"]
    match details["type"]:
        case "extra_forbidden":
            for part in path[:-1]:
                model = _MODELS.get(part, model)
            return unknown_key(where, path[-1], set(model.model_fields))._replace(field=field)
        case "missing":
            message = "is missing: give one"
        case "float_type" | "float_parsing" | "finite_number" | "int_type" | "int_parsing" | "int_from_float":
            message = f"must be a finite number, got {short(value)}: write it plainly, such as 10 or -15"
        case "greater_than_equal" | "less_than_equal" | "greater_than" | "less_than":
            message = f"is out of range, got {short(value)}: {details['msg'].lower()}"
        case "string_type":
            message = f"must be text, got {short(value)}: put it in quotes, or YAML reads yes, no and dates as such"
        case "bool_type" | "bool_parsing":
            message = f"must be true or false, got {short(value)}"
        case "value_error":
            message = details["msg"].removeprefix("Value error, ")
        case _:
            message = f"{details['msg'].lower()}, got {short(value)}"
    return Fault(where, field, message)
