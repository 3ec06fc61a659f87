"""The rubric files of the package verifiers (TOML or JSON): `criteria` with `name`, `text`, `weight` and `choices`.

The `choices` are ordered from the worst to the best, and have equidistant values from 0 to 1. Without `choices`, the
answers are no and yes: a binary criterion. There, an unknown key is ignored and an answer outside of the choices raises
an error. Here, an unknown key is an error and such an answer is a failure of the judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubric_integrations.formats.items import Reading, make_rubric, read_criterion
from rubric_integrations.formats.parsing import short, unknown_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

_KEYS = ("name", "text", "weight", "choices")
_WORDS = {"requirement": "text", "options": "choices"}


def matches(document: Any) -> bool:
    """Return whether parsed data has a criterion with a `text`, and none with a `requirement`."""
    entries = _entries(document)
    return any("text" in entry for entry in entries) and not any("requirement" in entry for entry in entries)


def write(_rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Raise `RubricError`, because this format can only be read."""
    raise RubricError("verifiers", [Fault("", "", "is a format that is only read: write another one")])


def _entries(document: Any) -> list[Mapping[str, Any]]:
    listed = document.get("criteria") if isinstance(document, Mapping) else document
    return [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list | tuple) else []


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from the criteria of a file.

    Raises:
        RubricError: The file has faults. The error lists every fault.
    """
    faults: list[Fault] = []
    entries: Any = document
    if isinstance(document, Mapping):
        entries = document.get("criteria")
        others = sorted(map(str, document.keys() - {"criteria"}))
        faults += [unknown_key("", key, ["criteria"]) for key in others]
    if not isinstance(entries, list | tuple):
        faults.append(Fault("", "criteria", f"must be a list of criteria, got {short(entries)}"))
        entries = ()
    criteria: list[Criterion] = []
    for index, entry in enumerate(entries):
        where = f"criteria[{index}]"
        if not isinstance(entry, Mapping):
            faults.append(Fault(where, "", f"must be a criterion such as {{name: ..., text: ...}}, got {short(entry)}"))
            continue
        data = {str(key): value for key, value in entry.items()}
        faults += [unknown_key(where, key, _KEYS) for key in sorted(data.keys() - set(_KEYS))]
        criteria += read_criterion(_native_fields(data, where, faults), where, faults, _WORDS)
    return Reading(make_rubric(criteria, {}, source, "verifiers", faults), [])


def _native_fields(data: Mapping[str, Any], where: str, faults: list[Fault]) -> dict[str, Any]:
    """Return the fields of a criterion. The names of criteria are required there."""
    fields: dict[str, Any] = {"requirement": data.get("text"), "weight": data.get("weight", 1.0)}
    if data.get("name") is None:
        faults.append(Fault(where, "name", "is missing: add it"))
    else:
        fields["name"] = data["name"]
    weight = fields["weight"]
    if isinstance(weight, int | float) and weight < 0:
        message = f"must be at least 0, got {weight!r}: describe the opposite, with a positive weight"
        faults.append(Fault(where, "weight", message))
    choices: Any = data.get("choices", ["no", "yes"])
    if not isinstance(choices, list) or len(choices) < 2 or not all(isinstance(choice, str) for choice in choices):
        message = f"must be at least two texts, from the worst to the best, got {short(choices)}"
        faults.append(Fault(where, "choices", message))
    elif choices != ["no", "yes"]:
        last = len(choices) - 1
        fields["options"] = [{"label": choice, "value": index / last} for index, choice in enumerate(choices)]
    return fields
