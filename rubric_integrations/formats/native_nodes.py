"""The entries of the native format: criteria, and the groups and sections that nest them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError

from rubric_integrations._util.records import Weight
from rubric_integrations.formats.faults import faults_from_error, short, unknown_key
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.errors import Fault
from rubric_integrations.rubric.importance import ImportanceWeights, weight_of
from rubric_integrations.rubric.rules import weigh, with_weight
from rubric_integrations.rubric.tree import Node, PenaltyCap, group_fault, only_penalties

_SECTION_NOTES = {"name", "title", "description"}
_ROW_KEYS = {"rubric", "rubrics"}
_GROUP_WEIGHTS = {"weight", "penalty_cap"}
_NODE_KEYS = {"name", "requirement", "criteria"} | _GROUP_WEIGHTS
_WEIGHT: TypeAdapter[float] = TypeAdapter(Weight)
_CAP: TypeAdapter[float] = TypeAdapter(PenaltyCap)


class Item(NamedTuple):
    """One entry of a list of criteria, with its place in the document."""

    where: str
    data: Any


def _is_row(entry: Any) -> bool:
    return isinstance(entry, Mapping) and "requirement" not in entry and bool(_ROW_KEYS & set(cast("Any", entry)))


def list_items(items: Any, where: str, faults: list[Fault]) -> Iterator[Item]:
    """Yield the criteria of a list and of its sections."""
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        actual = "empty" if items is None else f"{type(items).__name__} {short(items)}"
        faults.append(Fault("", "", f"must be a list of criteria, got {actual}"))
        return
    if rows := sum(map(_is_row, cast("Sequence[Any]", items))):
        message = (
            f"is a list of rows, of which {rows} have a rubric of their own: it is no rubric, but a file of responses"
        )
        faults.append(Fault("", "", f"{message} for `rubric-integrations grade`"))
        return
    for index, item in enumerate(cast("Sequence[Any]", items)):
        place = f"{where}[{index}]"
        if isinstance(item, Mapping) and "criteria" in item and "requirement" not in item:
            section = cast("Mapping[str, Any]", item)
            unknown = sorted(map(str, set(section) - _SECTION_NOTES - _GROUP_WEIGHTS - {"criteria"}))
            message = (
                "is not a key of a section: give the section a `requirement`, which makes it a group that shares its "
                "weight among its criteria. Ignored, it could change the score silently"
            )
            faults += [Fault(place, key, message) for key in unknown]
            if _GROUP_WEIGHTS & set(section):
                yield Item(place, _as_group(section, place))
                continue
            if any(isinstance(other, Mapping) and _is_weighted_section(other) for other in items):
                message = "is missing, and another section has one: give each section a weight, or none"
                faults.append(Fault(place, "weight", message))
            yield from list_items(section["criteria"], f"{place}.criteria", faults)
        elif isinstance(item, Criterion | Mapping):
            yield Item(place, item)
        else:
            message = f"must be a criterion such as {{weight: 10, requirement: ...}}, got {short(item)}"
            faults.append(Fault(place, "", message))


def _is_weighted_section(entry: Mapping[Any, Any]) -> bool:
    return "criteria" in entry and "requirement" not in entry and bool(_GROUP_WEIGHTS & set(entry))


def _as_group(section: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return a section with a weight as a group, which is called as the section is."""
    titles = [section[key] for key in ("title", "name", "description") if section.get(key)]
    kept = {key: value for key, value in section.items() if key in _NODE_KEYS}
    return {**kept, "requirement": titles[0] if titles else place}


def read_node(
    item: Item, share: float, weights: ImportanceWeights | None, criteria: list[Criterion], faults: list[Fault]
) -> Node:
    """Read an entry and the entries below it.

    Args:
        item: The entry.
        share: The factor from the entry's own weight to its effective weight in the score.
        weights: The document's `importance_weights`.
        criteria: The list to which the leaves are appended, with their effective weights.
        faults: The list to which faults are appended.
    """
    leaf, data = len(criteria), item.data
    if isinstance(data, Mapping) and "ref" in data:
        return _read_reference(item, share, weights, criteria, faults)
    is_group = isinstance(data, Mapping) and "criteria" in data
    if is_group:
        entry = cast("Mapping[Any, Any]", data)
        own_keys = {key: value for key, value in entry.items() if key not in ("criteria", "penalty_cap")}
        data = {**_weight_of_penalties(entry, weights), **own_keys}
    try:
        own = weigh(Criterion.model_validate(data), weights)
    except ValidationError as error:
        faults += faults_from_error(item.where, Criterion, error)
        return Node(requirement="", weight=0.0, leaf=leaf)
    if is_group:
        return _read_group(item, own, share, weights, criteria, faults)
    faults += [Fault(item.where, f"examples.{index}.score", message) for index, message in _bad_examples(own)]
    criteria.append(with_weight(own, own.weight * share))
    return Node(requirement=own.requirement, name=own.name, weight=own.full_weight, leaf=leaf)


def _read_reference(
    item: Item, share: float, weights: ImportanceWeights | None, criteria: list[Criterion], faults: list[Fault]
) -> Node:
    """Read an entry `{ref: name}`, which scores an earlier criterion here too."""
    entry = cast("Mapping[Any, Any]", item.data)
    name, weight = entry["ref"], _weight(entry, weights)
    leaf = next((index for index, criterion in enumerate(criteria) if criterion.name == name), None)
    faults += [unknown_key(item.where, str(key), {"ref", "weight"}) for key in entry if key not in ("ref", "weight")]
    if weight is None:
        message = f"must be a finite number, got {short(entry['weight'])}: write it plainly, such as 10 or -15"
        faults.append(Fault(item.where, "weight", message))
    if leaf is None or not isinstance(name, str):
        message = f"{short(name)} is not the `name` of a criterion above: name one, and refer to it only below it"
        faults.append(Fault(item.where, "ref", message))
    if leaf is None or weight is None:
        return Node(requirement="", weight=0.0, leaf=0)
    first = criteria[leaf]
    if first.weight * weight * share < 0:
        message = f"makes {name!r} a penalty here and none elsewhere: a judge could not tell which to answer"
        faults.append(Fault(item.where, "weight", message))
    if first.per is not None:
        message = f"{name!r} has `per: occurrence`, and counts by a weight of its own: it cannot be scored here too"
        faults.append(Fault(item.where, "ref", message))
    criteria[leaf] = with_weight(first, first.weight + weight * share)
    return Node(requirement=first.requirement, name=first.name, weight=weight, leaf=leaf)


def _read_group(
    item: Item,
    own: Criterion,
    share: float,
    importance_weights: ImportanceWeights | None,
    criteria: list[Criterion],
    faults: list[Fault],
) -> Node:
    """Divide the weight of an entry, whose own fields are `own`, among its `criteria`, and read them."""
    faults += [unknown_key(item.where, key, _NODE_KEYS) for key in sorted(map(str, set(item.data) - _NODE_KEYS))]
    children = item.data["criteria"]
    entries = list(list_items([] if children is None else children, f"{item.where}.criteria", faults))
    if any(isinstance(entry.data, Mapping) and "per" in entry.data for entry in entries):
        message = "has criteria with `per: occurrence`: a group divides its own weight, so move them out of the group"
        faults.append(Fault(item.where, "criteria", message))
    weights = [weight for entry in entries if (weight := _weight(entry.data, importance_weights)) is not None]
    are_valid = len(weights) == len(entries)
    if not entries:
        faults.append(Fault(item.where, "criteria", "is empty: add criteria to the group, or remove `criteria`"))
    elif are_valid and not any(weights):
        faults.append(Fault(item.where, "criteria", "have no weight at all: a group divides its own weight among them"))
    cap, fault = _cap(item.data), None
    if cap is None and item.data.get("penalty_cap") is not None:
        message = f"must be a number above 0, got {short(item.data['penalty_cap'])}: remove it for no limit"
        faults.append(Fault(item.where, "penalty_cap", message))
    elif are_valid and (fault := group_fault(own.weight, weights, cap)):
        faults.append(Fault(item.where, "", fault))
    total = math.fsum(weight for weight in weights if weight > 0)
    if cap is not None and only_penalties(weights):
        total = -cap
    child_share = share * own.weight / total if total else 0.0
    nodes = tuple(read_node(entry, child_share, importance_weights, criteria, faults) for entry in entries)
    if faults:
        return Node(requirement="", weight=0.0, leaf=0)
    return Node(requirement=own.requirement, name=own.name, weight=own.weight, penalty_cap=cap, children=nodes)


def _cap(entry: Mapping[str, Any]) -> float | None:
    """Return a group's cap; None if it has none, or an invalid one."""
    try:
        return _CAP.validate_python(entry.get("penalty_cap"))
    except ValidationError:
        return None


def _weight_of_penalties(entry: Mapping[Any, Any], weights: ImportanceWeights | None) -> dict[str, float]:
    """Return the weight of a group of penalties alone that states none, which is minus its cap; else nothing."""
    cap, children = _cap(entry), entry["criteria"]
    if "weight" in entry or cap is None or not isinstance(children, Sequence) or isinstance(children, str | bytes):
        return {}
    child_weights = [_weight(child, weights) for child in children if isinstance(child, Mapping | Criterion)]
    return {"weight": -cap} if only_penalties([weight for weight in child_weights if weight is not None]) else {}


def _weight(data: Any, weights: ImportanceWeights | None) -> float | None:
    """Return an entry's weight relative to its siblings; None if it is invalid, which `Criterion` reports."""
    if isinstance(data, Criterion):
        return weigh(data, weights).weight
    try:
        entry: dict[Any, Any] = {**(_weight_of_penalties(data, weights) if "criteria" in data else {}), **data}
        return _WEIGHT.validate_python(
            entry["weight"] if "weight" in entry else weight_of(entry.get("importance"), weights)
        )
    except (ValidationError, KeyError, TypeError):
        return None


def _bad_examples(criterion: Criterion) -> Iterator[tuple[int, str]]:
    for index, example in enumerate(criterion.examples):
        try:
            to_judgment(criterion, example.score)
        except ValueError as error:
            yield index, f"is no answer to the criterion: {error}"
