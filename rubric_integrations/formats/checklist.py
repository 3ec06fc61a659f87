"""Plain checklists `{checklist: [texts]}`, checklists of tau2, InfoBench and WildBench, and WritingBench's criteria.

Each text becomes a binary criterion of weight 1. In a file with several tasks or rows, each task or row has its own
rubric. The formats have these keys:

- tau2: `nl_assertions`. They are required criteria if the task's `reward_basis` contains them. The other parts of the
  `reward_basis`, such as the state of a database, are in `left_out` of the rubric.
- InfoBench: `decomposed_questions`.
- WildBench: a `checklist` next to a conversation. WildBench's own judge uses it as hints for one score.
- WritingBench: a `criteria_description`, and one text for each band of scores, such as `1-2`. It becomes one criterion
  with a scale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rubric_integrations.formats.items import (
    ItemList,
    Reading,
    criterion_losses,
    each_has_its_rubric,
    error_of,
    make_rubric,
    objects_in,
    read_criterion,
    rubric_losses,
)
from rubric_integrations.formats.parsing import short, unknown_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric

_KEYS = ("checklist", "nl_assertions", "decomposed_questions")
_TASK_KEY, _ASSERTIONS = "evaluation_criteria", "nl_assertions"
# For parts of the reward of a tau2 task: the field that the part depends on. Without this field, the part is 1.
_PARTS = {"ACTION": "actions", "COMMUNICATE": "communicate_info", "ENV_ASSERTION": "env_assertions"}
# tau2's default for a task without `reward_basis`.
_DEFAULT_BASIS = ("DB", "COMMUNICATE")
# The key of the conversation in a row of WildBench.
_CONVERSATION = "conversation_input"
_BAND = re.compile(r"\s*(\d{1,3})\s*-\s*(\d{1,3})\s*")
_TEXT_KEY = "criteria_description"


def matches(document: Any) -> bool:
    """Return whether parsed data has a checklist, or is a list of tasks, of rows or of WritingBench's criteria."""
    return (
        _find(document) is not None
        or bool(rows_of(document))
        or any(_TEXT_KEY in entry for entry in objects_in(document))
    )


def rows_of(document: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the tasks or rows of tau2, InfoBench or WildBench with their ids. The list is empty for other data."""
    entries = document if isinstance(document, list | tuple) else ()
    rows = (_TASK_KEY, "decomposed_questions", _CONVERSATION)
    if not all(isinstance(entry, Mapping) and any(key in entry for key in rows) for entry in entries):
        return []
    return [
        (str(entry.get("id") or entry.get("session_id") or number), entry)
        for number, entry in enumerate(entries, start=1)
    ]


def has_texts(row: Any) -> bool:
    """Return whether a task or row has at least one text that becomes a criterion. Many tasks of tau2 have none."""
    items = _find(row)
    return items is not None and bool(items.entries)


def input_of(row: Mapping[str, Any]) -> str:
    """Return the task of a row.

    In InfoBench, the task is the instruction and its input. In WildBench, it is the conversation. In tau2, it is the
    ticket, or the reason for the simulated user's call if there is no ticket.
    """
    turns: Any = row.get(_CONVERSATION)
    if isinstance(turns, list | tuple):
        messages = [turn for turn in turns if isinstance(turn, Mapping)]
        lines = [f"{message.get('role', 'user')}: {message.get('content', '')}" for message in messages]
        return str(messages[0].get("content", "")) if len(messages) == 1 else "\n".join(lines)
    scenario: Any = row.get("user_scenario")
    instructions: Any = scenario.get("instructions") if isinstance(scenario, Mapping) else None
    reason = instructions.get("reason_for_call") if isinstance(instructions, Mapping) else None
    texts = (
        [row.get("instruction"), row.get("input")] if "decomposed_questions" in row else [row.get("ticket") or reason]
    )
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as a checklist, with one message for each part that a checklist cannot express."""
    messages = rubric_losses(rubric, kept=())
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        if criterion.weight != 1:
            messages.append(f"`{key}`: `weight` {criterion.weight:g} becomes 1")
        messages += criterion_losses(key, criterion, kept=("weight",))
    return {"checklist": [criterion.full_requirement for criterion in rubric.criteria]}, messages


def _find(document: Any) -> ItemList | None:
    """Return the checklist of an object. Its `entries` are not validated yet."""
    if not isinstance(document, Mapping):
        return None
    task = document.get(_TASK_KEY)
    if isinstance(task, Mapping) and _ASSERTIONS in task:
        others = [f"{_TASK_KEY}.{key}" for key in sorted(map(str, task)) if key != _ASSERTIONS]
        left_out = _other_parts(task)
        fields = {"left_out": left_out} if left_out else {}
        return ItemList(f"{_TASK_KEY}.{_ASSERTIONS}", task[_ASSERTIONS], fields, others)
    for key in _KEYS:
        if key in document:
            fields = {"name": document["name"]} if document.get("name") is not None else {}
            return ItemList(key, document[key], fields, sorted(set(map(str, document)) - {key, "name"}))
    return None


def _basis(task: Mapping[str, Any]) -> list[str]:
    basis: Any = task.get("reward_basis", _DEFAULT_BASIS)
    return [str(part) for part in basis] if isinstance(basis, list | tuple) else []


def _other_parts(task: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of a task's reward that do not depend on assertions in words."""
    parts = [part for part in _basis(task) if part != "NL_ASSERTION" and (part not in _PARTS or task.get(_PARTS[part]))]
    return tuple(f"`{_TASK_KEY}.reward_basis`: {part}" for part in parts)


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from a checklist.

    Raises:
        RubricError: The document has faults. The error lists every fault.
    """
    rows = rows_of(document)
    if len(rows) > 1:
        raise error_of(source, "checklist", [Fault("rows", "", each_has_its_rubric(len(rows)))])
    document = rows[0][1] if rows else document
    task: Any = document.get(_TASK_KEY) if isinstance(document, Mapping) else None
    basis = _basis(task) if isinstance(task, Mapping) else []
    items = _find(document) or ItemList("criteria", cast("Sequence[Any]", document), {}, ())
    entries: Any = items.entries
    faults: list[Fault] = []
    if not isinstance(entries, list | tuple):
        raise error_of(source, "checklist", [Fault("", items.where, f"must be a list of texts, got {short(entries)}")])
    criteria: list[Criterion] = []
    for index, entry in enumerate(entries):
        where = f"{items.where}[{index}]"
        fields = _native_fields(entry, where, faults)
        if fields is None:
            continue
        fields |= {"required": True} if "NL_ASSERTION" in basis else {}
        criteria += read_criterion(fields, where, faults)
    messages = [f"`{key}` beside the checklist is left out" for key in items.others]
    if isinstance(document, Mapping) and _CONVERSATION in document:
        messages.append(f"`{items.where}` of WildBench are hints for one score from 1 to 10: here each is a criterion")
    if basis and "NL_ASSERTION" not in basis:
        messages.append(
            f"`{_TASK_KEY}.{_ASSERTIONS}` are not in the `reward_basis`: tau2 reports, and does not count them"
        )
    return Reading(make_rubric(criteria, items.fields, source, "checklist", faults), messages)


def _native_fields(entry: Any, where: str, faults: list[Fault]) -> dict[str, Any] | None:
    """Convert an entry to the fields of a criterion. Append what is wrong to `faults`, and then return None."""
    if isinstance(entry, str):
        return {"requirement": entry, "weight": 1.0}
    if not isinstance(entry, Mapping):
        faults.append(Fault(where, "", f"must be a text, got {short(entry)}"))
        return None
    data = {str(key): value for key, value in entry.items()}
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
