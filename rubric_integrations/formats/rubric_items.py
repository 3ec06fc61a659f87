"""Reads the rubric items of AgentV, which also occur in the assertions of promptfoo.

A string is a binary criterion. In an object, `expected_outcome` (or `outcome`, or `criteria`) is the requirement and
`id` is the name. `weight` is 1 by default. By default, `required` is true in files of AgentV's current version and
false in older files. `score_ranges` make a scale of whole numbers from 0 to 10, on which x has the value x / 10. An
`operator` is `correctness` or `contradiction`. With `contradiction`, the response must not contradict the text,
but need not state it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rubric_integrations.formats.items import read_criterion
from rubric_integrations.formats.parsing import short, unknown_key
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault

_OUTCOME_KEYS = ("expected_outcome", "outcome", "criteria")
_ITEM_KEYS = {"id", *_OUTCOME_KEYS, "weight", "required", "min_score", "score_ranges", "operator"}
_OPERATORS = {
    "correctness": "",
    "contradiction": "Makes no claim that contradicts this statement, which it need not mention: ",
}
_REMOVED_KEY = "required_min_score"
_MAX_SCORE = 10


def read_items(items: Any, where: str, faults: list[Fault], required: bool | None = None) -> list[Criterion]:
    """Read a list of rubric items.

    Args:
        items: The list, as parsed.
        where: Its place in the document.
        faults: The list to which faults are appended.
        required: Whether items are required by default, for a file of AgentV's current version. None for an older file.
            In a current file, an item with `score_ranges` is never required, and an item without an `id` has no name.

    Returns:
        The criteria of the items without faults.
    """
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        faults.append(Fault(where, "", f"must be a list of rubric items, got {short(items)}"))
        return []
    criteria: list[Criterion] = []
    for index, item in enumerate(items):
        place = f"{where}[{index}]"
        fields = _native_fields(item, index, place, faults)
        if fields is not None:
            if required is not None:
                fields = _with_current_defaults(fields, item, required)
            criteria += read_criterion(fields, place, faults)
    return criteria


def as_text(value: Any) -> str:
    """Return a text unchanged, an empty string for None, and other scalars as text."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def _native_fields(item: Any, index: int, where: str, faults: list[Fault]) -> dict[str, Any] | None:
    """Return the fields of a native criterion for an item. None if the item has faults.

    This checks only the keys that AgentV names differently. `Criterion` itself reports the other faults, such as a
    wrong type of `weight`.
    """
    if isinstance(item, str):
        return {"name": f"rubric-{index + 1}", "requirement": item, "weight": 1.0}
    if not isinstance(item, Mapping):
        message = f"must be a text or an object with `id` and `expected_outcome`, got {short(item)}"
        faults.append(Fault(where, "", message))
        return None
    data = {str(key): value for key, value in item.items()}
    faults_before = len(faults)
    if _REMOVED_KEY in data:
        message = "was removed from AgentV: use `min_score` in (0, 1], which is a tenth of it"
        faults.append(Fault(where, _REMOVED_KEY, message))
    faults += [unknown_key(where, key, _ITEM_KEYS) for key in sorted(data.keys() - _ITEM_KEYS - {_REMOVED_KEY})]
    outcomes = {key: data[key] for key in _OUTCOME_KEYS if data.get(key)}
    if not outcomes and data.get("score_ranges") and isinstance(data.get("id"), str):
        outcomes = {"id": data["id"].replace("_", " ").replace("-", " ")}
    elif not outcomes:
        faults.append(Fault(where, "expected_outcome", "is missing: write what to look for"))
    elif len(set(map(str, outcomes.values()))) > 1:
        message = f"contradicts {' and '.join(f'`{key}`' for key in list(outcomes)[1:])}: keep only one of them"
        faults.append(Fault(where, next(iter(outcomes)), message))
    least: Any = data.get("min_score")
    if least is not None and not (_is_number(least) and 0 < least <= 1):
        faults.append(Fault(where, "min_score", f"must be in (0, 1], got {short(least)}"))
    operator: Any = data.get("operator") or "correctness"
    if not isinstance(operator, str) or operator not in _OPERATORS:
        faults.append(Fault(where, "operator", f"is {short(operator)}: use correctness or contradiction"))
    levels = _levels(data["score_ranges"], where, faults) if "score_ranges" in data else None
    if len(faults) > faults_before:
        return None
    fields: dict[str, Any] = {
        "name": data.get("id", f"rubric-{index + 1}"),
        "requirement": _with_operator(next(iter(outcomes.values())), operator),
        "weight": data.get("weight", 1.0),
    }
    fields |= {key: data[key] for key in ("required", "min_score") if data.get(key) is not None}
    if levels is not None:
        fields["scale"] = {"min": 0.0, "max": float(_MAX_SCORE), "integer": True, "levels": levels}
    return fields


def _with_operator(outcome: Any, operator: str) -> Any:
    return _OPERATORS[operator] + outcome if isinstance(outcome, str) and outcome.strip() else outcome


def _with_current_defaults(fields: dict[str, Any], item: Any, required: bool) -> dict[str, Any]:
    """Return the fields of a criterion with the defaults of AgentV's current version.

    For items with score ranges, only `min_score` is a gate. `required` has no effect on them.
    """
    own: Mapping[str, Any] = item if isinstance(item, Mapping) else {}
    fields = {key: value for key, value in fields.items() if key != "name" or own.get("id") is not None}
    if "scale" in fields:
        return {key: value for key, value in fields.items() if key != "required"}
    return {**({"required": True} if required else {}), **fields}


def _levels(score_ranges: Any, where: str, faults: list[Fault]) -> dict[int, str]:
    """Return the lower bound of each score range with its text.

    The ranges are a map by lower bounds, or a list of objects with a `score_range`. They must cover the whole numbers
    from 0 to 10 without gaps or overlaps.
    """
    if isinstance(score_ranges, Mapping):
        ranges = _ranges_of_map(score_ranges)
    elif isinstance(score_ranges, Sequence) and not isinstance(score_ranges, str):
        ranges = _ranges_of_list(score_ranges)
    else:
        ranges = []
    covered = [score for low, high, _ in sorted(ranges) for score in range(low, high + 1)]
    if covered != list(range(_MAX_SCORE + 1)) or not all(text.strip() for *_, text in ranges):
        message = (
            "must give every whole score from 0 to 10 one text: a map of lower bounds that starts at 0, or a list of "
            "{score_range: [low, high], expected_outcome: ...}"
        )
        faults.append(Fault(where, "score_ranges", message))
    return {low: text for low, _, text in ranges}


def _ranges_of_map(texts: Mapping[Any, Any]) -> list[tuple[int, int, str]]:
    """Return the low score, the high score and the text of each range. An empty list if a key is not a whole number."""
    try:
        starts = sorted((int(str(key)), as_text(text)) for key, text in texts.items())
    except ValueError:
        return []
    next_starts = [*(start for start, _ in starts[1:]), _MAX_SCORE + 1]
    return [(start, end - 1, text) for (start, text), end in zip(starts, next_starts, strict=False)]


def _ranges_of_list(entries: Sequence[Any]) -> list[tuple[int, int, str]]:
    """Return the low score, the high score and the text of each range. An empty list if a range is invalid."""
    ranges: list[tuple[int, int, str]] = []
    for entry in entries:
        data: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {}
        pair: Any = data.get("score_range")
        if not (isinstance(pair, Sequence) and len(pair) == 2 and all(map(_is_score, pair))):
            return []
        text = next((data[key] for key in _OUTCOME_KEYS if data.get(key)), None)
        ranges.append((int(pair[0]), int(pair[1]), as_text(text)))
    return ranges


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_score(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_SCORE
