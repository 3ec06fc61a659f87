"""HealthBench's rubrics: a list of criteria with `criterion`, `points` and `tags`.

A criterion with negative points describes an error. HealthBench's grader answers that it is met if the response makes
this error. A native penalty works in the same way. Therefore, every text is kept unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubric_integrations.formats.items import (
    Reading,
    criterion_losses,
    error_of,
    find_list,
    objects_in,
    read_list,
    rubric_losses,
)
from rubric_integrations.formats.parsing import short
from rubric_integrations.rubric.rubric import Fault, Rubric

_WORDS = {"requirement": "criterion", "weight": "points", "tags": "tags"}
_LABEL = "criteria_met"


def matches(document: Any) -> bool:
    """Return whether parsed data has a list with an object that has `points`, but no `requirement` or `description`."""
    return any("points" in entry and "description" not in entry for entry in objects_in(document))


def labels_of(document: Any) -> dict[str, bool] | None:
    """Return the labels `criteria_met` in a list of graded criteria, by the criterion's key in the rubric.

    Args:
        document: A list of criteria, or an object with such a list under `rubrics`.

    Returns:
        The labels of the criteria that have one. None if the document has another format or no label.

    Raises:
        RubricError: A label is neither true nor false.

    Example:
        >>> labels_of([{"criterion": "Names the dose", "points": 5, "criteria_met": True}])
        {'c1': True}
    """
    items = find_list(document)
    if items is None or not matches(document):
        return None
    labels: dict[str, bool] = {}
    for index, entry in enumerate(items.entries):
        label = entry.get(_LABEL) if isinstance(entry, Mapping) else None
        if isinstance(label, bool):
            labels[f"c{index + 1}"] = label
        elif label is not None:
            fault = Fault(f"{items.where}[{index}]", _LABEL, f"must be true or false, got {short(label)}")
            raise error_of("rubric", "healthbench", [fault])
    return labels or None


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric in HealthBench's format, with one message for each part that the format cannot express."""
    messages = rubric_losses(rubric, kept=())
    entries: list[dict[str, Any]] = []
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        messages += criterion_losses(key, criterion, kept=("weight", "tags"))
        entries.append(
            {"criterion": criterion.full_requirement, "points": criterion.weight, "tags": list(criterion.tags)}
        )
    return {"rubrics": entries}, messages


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from HealthBench's criteria.

    Raises:
        RubricError: The document has faults. The error lists every fault.
    """
    notes = {_LABEL: "it is a label, and not part of the rubric"}
    return read_list(find_list(document), source, "healthbench", _WORDS, _native_fields, notes)


def _native_fields(where: str, entry: Mapping[str, Any], faults: list[Fault], _changes: list[str]) -> dict[str, Any]:
    if "points" not in entry:
        faults.append(Fault(where, "points", "is missing: add it. Without it, the weight would be 10"))
    return {field: entry[word] for field, word in _WORDS.items() if entry.get(word) not in (None, [])}
