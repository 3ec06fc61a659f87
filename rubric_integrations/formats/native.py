"""The native format, which is also that of `rubric` and `autorubric`: a list of criteria, alone or wrapped."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rubric_integrations.check import Check, NumberCheck
from rubric_integrations.criterion import Criterion, Option, Scale
from rubric_integrations.formats.documents import check_depth
from rubric_integrations.rubric import Fault, Rubric, RubricError

_WRAPPERS = ("criteria", "sections", "rubric")
_SECTION_NOTES = {"name", "title", "description"}
_MODELS: dict[str, type[BaseModel]] = {"check": Check, "number": NumberCheck, "options": Option, "scale": Scale}


def read(document: Any, source: str) -> Rubric:
    """Make a rubric of parsed data, in any native shape.

    Raises:
        RubricError: With every fault found: its place, its field, and what to write instead.
    """
    faults: list[Fault] = []
    try:
        check_depth(document)
    except (ValueError, RecursionError):
        raise RubricError(source, [Fault("", "", "nests deeper than 50 levels")]) from None
    fields, items = _unwrap(document, faults)
    criteria: list[Criterion] = []
    for where, item in items:
        try:
            criteria.append(Criterion.model_validate(item))
        except ValidationError as error:
            faults += [_fault(where, Criterion, details) for details in error.errors()]
    if not faults:
        try:
            return Rubric(criteria, **fields)
        except ValidationError as error:
            faults += [_fault("", Rubric, details) for details in error.errors()]
    raise RubricError(source, faults)


def write(rubric: Rubric) -> dict[str, Any]:
    """A rubric as plain data: what was set, and always the weight."""
    document = rubric.model_dump(mode="json", exclude_unset=True, exclude={"criteria"})
    document["criteria"] = [
        {
            **({"name": criterion.name} if criterion.name is not None else {}),
            "weight": criterion.weight,
            "requirement": criterion.requirement,
            **criterion.model_dump(mode="json", exclude_unset=True, exclude={"name", "weight", "requirement"}),
        }
        for criterion in rubric.criteria
    ]
    return document


def _unwrap(document: Any, faults: list[Fault]) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """The rubric's own fields, and each criterion with its place in the document."""
    if isinstance(document, Mapping):
        fields = dict(cast("Mapping[str, Any]", document))
        wrappers = [key for key in _WRAPPERS if key in fields]
        if len(wrappers) == 1:
            inner = fields.pop(wrappers[0])
            if wrappers[0] == "rubric" and isinstance(inner, Mapping):
                inner_fields, items = _unwrap(inner, faults)
                twice = sorted(map(str, fields.keys() & inner_fields.keys()))
                faults += [Fault("", key, "stands both beside `rubric` and in it: keep one") for key in twice]
                return fields | inner_fields, items
            return fields, list(_criteria(inner, wrappers[0], faults))
        given = f"has {' and '.join(f'`{key}`' for key in wrappers)}: keep one" if wrappers else _no_criteria(fields)
        faults.append(Fault("", "", given))
        return {}, []
    return {}, list(_criteria(document, "criteria", faults))


def _no_criteria(fields: Mapping[str, Any]) -> str:
    if "requirement" in fields:
        return "is one criterion, not a rubric: put it in a list"
    return f"has no `criteria` (its keys are {sorted(map(str, fields))!r}): put the list of criteria under `criteria`"


def _criteria(items: Any, where: str, faults: list[Fault]) -> Iterator[tuple[str, Any]]:
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        kind = "empty" if items is None else f"{type(items).__name__} {_short(items)}"
        faults.append(Fault("", "", f"must be a list of criteria, got {kind}"))
        return
    for index, item in enumerate(cast("Sequence[Any]", items)):
        place = f"{where}[{index}]"
        if isinstance(item, Mapping) and "criteria" in item and "requirement" not in item:
            section = cast("Mapping[str, Any]", item)
            unknown = sorted(map(str, set(section) - _SECTION_NOTES - {"criteria"}))
            faults += [Fault(place, key, "is not a key of a section: take it out") for key in unknown]
            yield from _criteria(section["criteria"], f"{place}.criteria", faults)
        elif isinstance(item, Criterion | Mapping):
            yield place, item
        else:
            faults.append(
                Fault(place, "", f"must be a criterion such as {{weight: 10, requirement: ...}}, got {_short(item)}")
            )


def _fault(where: str, model: type[BaseModel], details: ErrorDetails) -> Fault:
    """Say a pydantic error in the rubric author's terms."""
    path = [str(part) for part in details["loc"]]
    field = ".".join(path)
    value = details["input"]
    match details["type"]:
        case "extra_forbidden":
            for part in path[:-1]:
                model = _MODELS.get(part, model)
            close = difflib.get_close_matches(path[-1], model.model_fields, n=1)
            known = (
                f"did you mean `{close[0]}`?"
                if close
                else "known are " + ", ".join(f"`{f}`" for f in model.model_fields)
            )
            message = f"is not a known key: {known} Ignored, it would change the score in silence"
        case "missing":
            message = "is missing: give one"
        case "float_type" | "float_parsing" | "finite_number" | "int_type" | "int_parsing" | "int_from_float":
            message = f"must be a finite number, got {_short(value)}: write it plainly, such as 10 or -15"
        case "greater_than_equal" | "less_than_equal":
            message = f"is out of range, got {_short(value)}: {details['msg'].lower()}"
        case "string_type":
            message = f"must be text, got {_short(value)}: put it in quotes, or YAML reads yes, no and dates as such"
        case "bool_type" | "bool_parsing":
            message = f"must be true or false, got {_short(value)}"
        case "value_error":
            message = details["msg"].removeprefix("Value error, ")
        case _:
            message = f"{details['msg'].lower()}, got {_short(value)}"
    return Fault(where, field, message)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
