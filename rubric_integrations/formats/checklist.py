"""Plain checklists: `{checklist: [texts]}`, tau2's `nl_assertions`, and WritingBench's criteria with score bands.

A text is a binary criterion of weight 1. A criterion of WritingBench has `criteria_description` and one text for each
band of scores, such as `1-2`, and becomes a scale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError

from rubric_integrations.formats.items import (
    ItemList,
    Reading,
    criterion_losses,
    error_of,
    make_rubric,
    objects_in,
    rubric_losses,
)
from rubric_integrations.formats.parsing import faults_from_error, short, unknown_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric

_KEYS = ("checklist", "nl_assertions")
_BAND = re.compile(r"\s*(\d{1,3})\s*-\s*(\d{1,3})\s*")
_TEXT_KEY = "criteria_description"


def matches(document: Any) -> bool:
    """Return whether parsed data has a checklist, or is a list of WritingBench's criteria."""
    return _find(document) is not None or any(_TEXT_KEY in entry for entry in objects_in(document))


def read(document: Any, source: str) -> Rubric:
    """Make a rubric of a checklist.

    Raises:
        RubricError: With every fault.
    """
    return _read(document, source).rubric


def losses(document: Any) -> list[str]:
    """Return one message for everything that the rubric of a document does not hold."""
    return _read(document, "rubric").losses


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as a checklist, with one message for everything that it cannot express."""
    messages = rubric_losses(rubric, kept=())
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        if criterion.weight != 1:
            messages.append(f"`{key}`: `weight` {criterion.weight:g} becomes 1")
        messages += criterion_losses(key, criterion, kept=("weight",))
    return {"checklist": [criterion.full_requirement for criterion in rubric.criteria]}, messages


def _find(document: Any) -> ItemList | None:
    """Return the checklist of an object; its `entries` are anything that stands there."""
    if not isinstance(document, Mapping):
        return None
    data = cast("Mapping[str, Any]", document)
    task = data.get("evaluation_criteria")
    if isinstance(task, Mapping) and "nl_assertions" in task:
        others = [f"evaluation_criteria.{key}" for key in sorted(map(str, task)) if key != "nl_assertions"]
        return ItemList("evaluation_criteria.nl_assertions", task["nl_assertions"], {}, others)
    for key in _KEYS:
        if key in data:
            fields = {"name": data["name"]} if data.get("name") is not None else {}
            return ItemList(key, data[key], fields, sorted(set(map(str, data)) - {key, "name"}))
    return None


def _read(document: Any, source: str) -> Reading:
    items = _find(document) or ItemList("criteria", document, {}, ())
    entries: Any = items.entries
    faults: list[Fault] = []
    if not isinstance(entries, list | tuple):
        raise error_of(source, "checklist", [Fault("", items.where, f"must be a list of texts, got {short(entries)}")])
    criteria: list[Criterion] = []
    for index, entry in enumerate(cast("Sequence[Any]", entries)):
        where = f"{items.where}[{index}]"
        fields = _native_fields(entry, where, faults)
        if fields is None:
            continue
        try:
            criteria.append(Criterion.model_validate(fields))
        except ValidationError as error:
            faults += faults_from_error(where, Criterion, error)
    messages = [f"`{key}` beside the checklist is left out" for key in items.others]
    return Reading(make_rubric(criteria, items.fields, source, "checklist", faults), messages)


def _native_fields(entry: Any, where: str, faults: list[Fault]) -> dict[str, Any] | None:
    if isinstance(entry, str):
        return {"requirement": entry, "weight": 1.0}
    if not isinstance(entry, Mapping):
        faults.append(Fault(where, "", f"must be a text, got {short(entry)}"))
        return None
    data = {str(key): value for key, value in cast("Mapping[Any, Any]", entry).items()}
    bands = {key: band for key in data if (band := _BAND.fullmatch(key))}
    unknown = sorted(data.keys() - bands.keys() - {"name", _TEXT_KEY})
    faults += [unknown_key(where, key, ["name", _TEXT_KEY, "1-2"]) for key in unknown]
    ranges = sorted(
        (int(band[1]), int(band[2]), data[key]) for key, band in bands.items() if isinstance(data[key], str)
    )
    numbers = [number for low, high, _ in ranges for number in range(low, high + 1)]
    if len(ranges) != len(bands) or not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
        faults.append(
            Fault(where, "", "the bands must cover a range of whole scores, each with one text, such as `1-2`")
        )
        return None
    levels = {number: text for low, high, text in ranges for number in range(low, high + 1)}
    name = {"name": data["name"]} if data.get("name") else {}
    scale = {"min": float(numbers[0]), "max": float(numbers[-1]), "integer": True, "levels": levels}
    return {**name, "requirement": data.get(_TEXT_KEY), "weight": 1.0, "scale": scale}
