"""The native format, which the packages `rubric` and `autorubric` also use, and its JSON Schema for editors.

A document is a list of criteria, or an object with such a list. Criteria can be nested in groups and sections.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from rubric_integrations._util.records import Weight
from rubric_integrations.formats.items import Reading
from rubric_integrations.formats.parsing import faults_from_error, short, unknown_key
from rubric_integrations.rubric.criterion import Criterion, ImportanceWeights, weight_of
from rubric_integrations.rubric.rubric import (
    Fault,
    Node,
    PenaltyCap,
    Rubric,
    RubricError,
    group_fault,
    only_penalties,
    weigh,
    with_weight,
)
from rubric_integrations.scoring.judgment import to_judgment

_SECTION_NOTES = {"name", "title", "description"}
_ROW_KEYS = {"rubric", "rubrics", "response"}
_GROUP_WEIGHTS = {"weight", "penalty_cap"}
Share = tuple[float, float]
_NODE_KEYS = {"name", "requirement", "criteria"} | _GROUP_WEIGHTS
_WEIGHT: TypeAdapter[float] = TypeAdapter(Weight)
_CAP: TypeAdapter[float] = TypeAdapter(PenaltyCap)


class Item(NamedTuple):
    """One entry of a list of criteria, with its place in the document."""

    where: str
    data: Any


def _is_row(entry: Any) -> bool:
    return isinstance(entry, Mapping) and "requirement" not in entry and bool(_ROW_KEYS & set(entry))


def list_items(items: Any, where: str, faults: list[Fault]) -> Iterator[Item]:
    """Yield the criteria and groups of a list.

    A section is an entry with `criteria` but without a `requirement`. Instead of a section, its criteria are yielded. A
    section with a weight is yielded as a group.

    Args:
        items: The list, as parsed.
        where: The place of the list in the document.
        faults: The list to which faults are appended.
    """
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        actual = "empty" if items is None else f"{type(items).__name__} {short(items)}"
        faults.append(Fault("", "", f"must be a list of criteria, got {actual}"))
        return
    if rows := sum(map(_is_row, items)):
        message = (
            f"is a list of rows, of which {rows} have a response or their own rubric: it is not a rubric, but a file "
            "of responses"
        )
        faults.append(Fault("", "", f"{message} for `rubric-integrations grade`, which has its place after the rubric"))
        return
    for index, item in enumerate(items):
        place = f"{where}[{index}]"
        if isinstance(item, Mapping) and "criteria" in item and "requirement" not in item:
            unknown = sorted(map(str, set(item) - _SECTION_NOTES - _GROUP_WEIGHTS - {"criteria"}))
            message = (
                "is not a key of a section: give the section a `requirement`, which makes it a group that shares its "
                "weight among its criteria. Ignored, it could change the score silently"
            )
            faults += [Fault(place, key, message) for key in unknown]
            if _GROUP_WEIGHTS & set(item):
                yield Item(place, _as_group(item, place))
                continue
            if any(isinstance(other, Mapping) and _is_weighted_section(other) for other in items):
                message = "is missing, and another section has one: give each section a weight, or none"
                faults.append(Fault(place, "weight", message))
            yield from list_items(item["criteria"], f"{place}.criteria", faults)
        elif isinstance(item, Criterion | Mapping):
            yield Item(place, item)
        else:
            message = f"must be a criterion such as {{weight: 10, requirement: ...}}, got {short(item)}"
            faults.append(Fault(place, "", message))


def _is_weighted_section(entry: Mapping[Any, Any]) -> bool:
    return "criteria" in entry and "requirement" not in entry and bool(_GROUP_WEIGHTS & set(entry))


def _as_group(section: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return a section with a weight as a group with the same name."""
    titles = [section[key] for key in ("title", "name", "description") if section.get(key)]
    kept = {key: value for key, value in section.items() if key in _NODE_KEYS}
    return {**kept, "requirement": titles[0] if titles else place}


def read_node(
    item: Item, share: Share, weights: ImportanceWeights | None, criteria: list[Criterion], faults: list[Fault]
) -> Node:
    """Read an entry of a list of criteria and the entries below it, and return it as a node of the rubric's tree.

    Args:
        item: The entry.
        share: A pair: the effective weight of the group of the entry and the sum of the weights in this group.
        weights: The document's `importance_weights`.
        criteria: The list to which the leaves are appended, with their effective weights.
        faults: The list to which faults are appended.
    """
    leaf, data = len(criteria), item.data
    if isinstance(data, Mapping) and "ref" in data:
        return _read_reference(item, share, weights, criteria, faults)
    is_group = isinstance(data, Mapping) and "criteria" in data
    if is_group:
        own_keys = {key: value for key, value in data.items() if key not in ("criteria", "penalty_cap")}
        data = {**_weight_of_penalties(data, weights), **own_keys}
    try:
        own = weigh(Criterion.model_validate(data), weights)
    except ValidationError as error:
        faults += faults_from_error(item.where, Criterion, error)
        return Node(requirement="", weight=0.0, leaf=leaf)
    if is_group:
        return _read_group(item, own, share, weights, criteria, faults)
    faults += [Fault(item.where, f"examples.{index}.score", message) for index, message in _bad_examples(own)]
    criteria.append(with_weight(own, _effective_weight(own.weight, share)))
    return Node(requirement=own.requirement, name=own.name, weight=own.full_weight, leaf=leaf)


def _read_reference(
    item: Item, share: Share, weights: ImportanceWeights | None, criteria: list[Criterion], faults: list[Fault]
) -> Node:
    """Read an entry `{ref: name}`, which scores an earlier criterion again in this group."""
    entry = item.data
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
    if first.weight * _effective_weight(weight, share) < 0:
        message = f"makes {name!r} a penalty here and none elsewhere: a judge could not tell which to answer"
        faults.append(Fault(item.where, "weight", message))
    if first.per is not None:
        message = f"{name!r} has `per: occurrence`, and counts by a weight of its own: it cannot be scored here too"
        faults.append(Fault(item.where, "ref", message))
    criteria[leaf] = with_weight(first, first.weight + _effective_weight(weight, share))
    return Node(requirement=first.requirement, name=first.name, weight=weight, leaf=leaf)


def _read_group(
    item: Item,
    own: Criterion,
    share: Share,
    importance_weights: ImportanceWeights | None,
    criteria: list[Criterion],
    faults: list[Fault],
) -> Node:
    """Read a group: divide its weight among its `criteria` and read them. `own` has its other fields."""
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
    child_share = (_effective_weight(own.weight, share), total) if total else (0.0, 1.0)
    nodes = tuple(read_node(entry, child_share, importance_weights, criteria, faults) for entry in entries)
    if faults:
        return Node(requirement="", weight=0.0, leaf=0)
    return Node(requirement=own.requirement, name=own.name, weight=own.weight, penalty_cap=cap, children=nodes)


def _effective_weight(weight: float, share: Share) -> float:
    whole, total = share
    # For weights near the smallest float, the factor is too large for a float.
    factor = whole / total
    return weight * factor if math.isfinite(factor) else weight / total * whole


def _cap(entry: Mapping[str, Any]) -> float | None:
    """Return the `penalty_cap` of a group. None if it is missing or invalid."""
    try:
        return _CAP.validate_python(entry.get("penalty_cap"))
    except ValidationError:
        return None


def _weight_of_penalties(entry: Mapping[Any, Any], weights: ImportanceWeights | None) -> dict[str, float]:
    """Return the weight (minus the cap) of a group of penalties that has no weight. An empty dict for other groups."""
    cap, children = _cap(entry), entry["criteria"]
    if "weight" in entry or cap is None or not isinstance(children, Sequence) or isinstance(children, str | bytes):
        return {}
    child_weights = [_weight(child, weights) for child in children if isinstance(child, Mapping | Criterion)]
    return {"weight": -cap} if only_penalties([weight for weight in child_weights if weight is not None]) else {}


def _weight(data: Any, weights: ImportanceWeights | None) -> float | None:
    """Return an entry's weight relative to its siblings. None if it is invalid, which `Criterion` reports."""
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


_WRAPPERS = ("criteria", "sections", "rubric")
_WEIGHTS: TypeAdapter[ImportanceWeights | None] = TypeAdapter(ImportanceWeights | None)
# The reader makes these fields from the nesting of the criteria. In a file, they are unknown keys.
_DERIVED = {"tree"}


def matches(_document: Any) -> bool:
    """Return True. If no other format matches, data is read as native, and faults refer to the native format."""
    return True


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from parsed data in any native form. No part of it is left out.

    Raises:
        RubricError: The data has faults. The error lists each fault with its place, its field and how to fix it.
    """
    faults: list[Fault] = []
    fields, items = _unwrap(document, faults)
    faults += [unknown_key("", key, set(Rubric.model_fields) - _DERIVED) for key in sorted(_DERIVED & fields.keys())]
    criteria: list[Criterion] = []
    weights = _importance_weights(fields)
    nodes = [read_node(item, (1.0, 1.0), weights, criteria, faults) for item in items]
    if not faults:
        if any(node.children for node in nodes) or len(nodes) != len(criteria):
            fields["tree"] = tuple(nodes)
        try:
            return Reading(Rubric.model_validate({**fields, "criteria": criteria}), [])
        except ValidationError as error:
            faults += faults_from_error("", Rubric, error)
    raise RubricError(source, faults)


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as lists and dictionaries, and no messages, because no part of the rubric is lost.

    Fields that are not set are left out, except weights.
    """
    document = rubric.model_dump(mode="json", exclude_unset=True, exclude={"criteria", "tree", "cases"})
    leaves = [_write_criterion(criterion) for criterion in rubric.criteria]
    written: set[int] = set()
    document["criteria"] = leaves if rubric.tree is None else [_write_node(n, leaves, written) for n in rubric.tree]
    if rubric.cases:
        document["cases"] = [case.model_dump(mode="json", exclude_unset=True) for case in rubric.cases]
    return document, []


def _write_criterion(criterion: Criterion) -> dict[str, Any]:
    return {
        **({"name": criterion.name} if criterion.name is not None else {}),
        **({} if criterion.has_derived_weight else {"weight": criterion.weight}),
        "requirement": criterion.requirement,
        **criterion.model_dump(mode="json", exclude_unset=True, exclude={"name", "weight", "requirement"}),
    }


def _write_node(node: Node, leaves: Sequence[dict[str, Any]], written: set[int]) -> dict[str, Any]:
    """Write a node. A leaf whose criterion is already `written` becomes a reference to it."""
    if node.leaf in written:
        return {"ref": leaves[node.leaf]["name"], "weight": node.weight}
    if node.leaf is not None:
        written.add(node.leaf)
        leaf = leaves[node.leaf]
        # The written weight of such a leaf is kept, because it is not in a group and its weight may differ from the
        # weight of the node.
        is_own = "weight" not in leaf or "per" in leaf
        return leaf if is_own else {**leaf, "weight": node.weight}
    name = {"name": node.name} if node.name is not None else {}
    cap = {"penalty_cap": node.penalty_cap} if node.penalty_cap is not None else {}
    children = [_write_node(child, leaves, written) for child in node.children]
    return {**name, "weight": node.weight, **cap, "requirement": node.requirement, "criteria": children}


def _importance_weights(fields: Mapping[str, Any]) -> ImportanceWeights | None:
    """Return the `importance_weights` of a document. None if they are invalid, which `Rubric` reports."""
    try:
        return _WEIGHTS.validate_python(fields.get("importance_weights"))
    except ValidationError:
        return None


def _unwrap(document: Any, faults: list[Fault]) -> tuple[dict[str, Any], list[Item]]:
    """Return the fields of the rubric and each entry of its criteria with its place in the document."""
    if not isinstance(document, Mapping):
        return {}, list(list_items(document, "criteria", faults))
    fields = {str(key): value for key, value in document.items()}
    wrappers = [key for key in _WRAPPERS if key in fields]
    if wrappers == ["criteria"] and "requirement" in fields:
        return {}, [Item("criteria[0]", document)]
    if len(wrappers) != 1:
        several = f"has {' and '.join(f'`{key}`' for key in wrappers)}: keep only one of them"
        faults.append(Fault("", "", several if wrappers else _no_criteria(fields)))
        return {}, []
    [wrapper] = wrappers
    inner = fields.pop(wrapper)
    if wrapper == "rubric" and isinstance(inner, Mapping):
        inner_fields, items = _unwrap(inner, faults)
        repeated = sorted(fields.keys() & inner_fields.keys())
        faults += [Fault("", key, "stands both beside `rubric` and in it: keep only one of them") for key in repeated]
        return fields | inner_fields, items
    return fields, list(list_items(inner, wrapper, faults))


def _no_criteria(fields: Mapping[str, Any]) -> str:
    if "requirement" in fields:
        return "is one criterion, not a rubric: put it in a list"
    return f"has no `criteria` (its keys are {short(sorted(fields))}): put the list of criteria under `criteria`"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a native rubric file: an object with `criteria`, or a list of criteria.

    Example:
        >>> json_schema()["title"]
        'Rubric'
    """
    rubric = Rubric.model_json_schema(mode="validation")
    definitions: dict[str, Any] = rubric.pop("$defs")
    definitions |= Criterion.model_json_schema().get("$defs", {})
    # The reader makes the tree from the nesting of the criteria. A file must not contain it.
    rubric["properties"].pop("tree")
    definitions.pop("Node", None)
    criterion = definitions["Criterion"]
    entry = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("Criterion", "Group", "Reference")]}
    entries = {"type": "array", "minItems": 1, "items": entry}
    definitions["Group"] = {
        "title": "Group",
        "description": "A group of criteria, which divides its weight among them.",
        "type": "object",
        "required": ["requirement", "criteria"],
        "additionalProperties": False,
        "properties": {
            **{name: criterion["properties"][name] for name in ("name", "weight", "requirement")},
            "penalty_cap": {
                "description": "The most that the penalties among the criteria take, in the unit of their weights.",
                "type": ["number", "null"],
                "exclusiveMinimum": 0,
            },
            "criteria": entries,
        },
    }
    definitions["Reference"] = {
        "title": "Reference",
        "description": "A criterion above, which is judged once and scored here too.",
        "type": "object",
        "required": ["ref"],
        "additionalProperties": False,
        "properties": {"ref": {"type": "string"}, "weight": criterion["properties"]["weight"]},
    }
    rubric["properties"]["criteria"] = entries
    number: dict[str, Any] = definitions["Check"]["properties"]["number"]
    number["anyOf"] = [*number["anyOf"], {"type": "number"}, {"type": "string"}]
    fields: dict[str, Any] = definitions["Check"]["properties"]["fields"]
    entries_of_fields = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/FieldCheck"}}
    fields["anyOf"] = [*fields["anyOf"], entries_of_fields]
    # Both can be written as just the name of the tool.
    for name in ("ExpectedCall", "ToolUse"):
        definitions[name] = {"anyOf": [definitions[name], {"type": "string", "minLength": 1}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rubric",
        "description": "A rubric of weighted criteria for rubric-integrations.",
        "anyOf": [rubric, entries],
        "$defs": definitions,
    }
