"""Messages for the faults of a rubric file: the place, the field, and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rubric_integrations.rubric.errors import Fault

# The words of other projects that come up in native files, with the native word.
_WORDS_OF_OTHERS = {
    "points": ("HealthBench", "weight"),
    "criterion": ("HealthBench", "requirement"),
    "title": ("RaR", "name"),
    "description": ("RaR", "requirement"),
    "outcome": ("AgentV", "requirement"),
    "expected_outcome": ("AgentV", "requirement"),
}


def faults_from_error(where: str, model: type[BaseModel], error: ValidationError) -> list[Fault]:
    """Convert a pydantic error to faults.

    Args:
        where: The place in the document of the data that was validated, such as `criteria[2]`.
        model: The class that validated it.
        error: The error.
    """
    return [_fault(where, model, details) for details in error.errors()]


def unknown_key(where: str, key: str, known: Collection[str]) -> Fault:
    """Make the fault for a key that the format does not have, with the most similar known key as a hint."""
    if key in _WORDS_OF_OTHERS and _WORDS_OF_OTHERS[key][1] in known:
        project, word = _WORDS_OF_OTHERS[key]
        remedy = f"it is the word of {project} for `{word}`: rename it."
        return Fault(where, key, f"is not a known key: {remedy} Ignored, it would change the score silently")
    close = difflib.get_close_matches(key, list(known), n=1)
    hint = f"did you mean `{close[0]}`?" if close else "known are " + ", ".join(f"`{name}`" for name in sorted(known))
    return Fault(where, key, f"is not a known key: {hint} Ignored, it would change the score silently")


def short(value: object) -> str:
    """Return the `repr` of a value, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fault(where: str, model: type[BaseModel], details: ErrorDetails) -> Fault:
    path = [part for part in map(str, details["loc"]) if not part.startswith("<")]
    field = ".".join(path)
    value = details["input"]
    match details["type"]:
        case "extra_forbidden":
            return unknown_key(where, path[-1], _model_at(model, path[:-1]).model_fields)._replace(field=field)
        case "missing":
            message = "is missing: add it"
        case "float_type" | "float_parsing" | "finite_number" | "int_type" | "int_parsing" | "int_from_float":
            message = f"must be a finite number, got {short(value)}: write it plainly, such as 10 or -15"
        case "greater_than_equal" | "less_than_equal" | "greater_than" | "less_than":
            message = f"is out of range, got {short(value)}: {details['msg'].lower()}"
        case "string_type":
            message = f"must be text, got {short(value)}: put it in quotes, because YAML converts yes, no and dates"
        case "bool_type" | "bool_parsing":
            message = f"must be true or false, got {short(value)}"
        case "value_error":
            message = details["msg"].removeprefix("Value error, ")
        case _:
            message = f"{details['msg'].lower()}, got {short(value)}"
    return Fault(where, field, message)


def _model_at(model: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """Return the class of the record at a path of field names and indexes, such as `["check", "number"]`."""
    for part in path:
        if part in model.model_fields:
            model = next(_models_in(model.model_fields[part].annotation), model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
