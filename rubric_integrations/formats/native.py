"""The native format, which is also that of `rubric` and `autorubric`: a list of criteria, alone, wrapped or nested."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError

from rubric_integrations._util.records import Weight
from rubric_integrations.formats.faults import faults_from_error, short, unknown_key
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.rubric.criterion import DEFAULT_WEIGHT, Criterion
from rubric_integrations.rubric.errors import Fault, RubricError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.rubric.tree import Node

_WRAPPERS = ("criteria", "sections", "rubric")
_SECTION_NOTES = {"name", "title", "description"}
_NODE_KEYS = {"name", "weight", "requirement", "criteria"}
_WEIGHT: TypeAdapter[float] = TypeAdapter(Weight)
# What a reader makes of the file itself, and a file cannot say.
_DERIVED = {"tree"}


class _Item(NamedTuple):
    """One entry of a list of criteria, with its place in the document."""

    where: str
    data: Any


def read(document: Any, source: str) -> Rubric:
    """Make a rubric of parsed data, in any native shape.

    Raises:
        RubricError: With every fault found: its place, its field, and what to write instead.
    """
    faults: list[Fault] = []
    fields, items = _unwrap(document, faults)
    faults += [unknown_key("", key, set(Rubric.model_fields) - _DERIVED) for key in sorted(_DERIVED & fields.keys())]
    criteria: list[Criterion] = []
    nodes = [_grow(item, 1.0, criteria, faults) for item in items]
    if not faults:
        if any(node.children for node in nodes):
            fields["tree"] = tuple(nodes)
        try:
            return Rubric(criteria, **fields)
        except ValidationError as error:
            faults += faults_from_error("", Rubric, error)
    raise RubricError(source, faults)


def write(rubric: Rubric) -> dict[str, Any]:
    """A rubric as plain data: what was set, and always the weight."""
    document = rubric.model_dump(mode="json", exclude_unset=True, exclude={"criteria", "tree"})
    leaves = [_criterion(criterion) for criterion in rubric.criteria]
    document["criteria"] = leaves if rubric.tree is None else [_nested(node, leaves) for node in rubric.tree]
    return document


def _criterion(criterion: Criterion) -> dict[str, Any]:
    return {
        **({"name": criterion.name} if criterion.name is not None else {}),
        "weight": criterion.weight,
        "requirement": criterion.requirement,
        **criterion.model_dump(mode="json", exclude_unset=True, exclude={"name", "weight", "requirement"}),
    }


def _nested(node: Node, leaves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if node.leaf is not None:
        return {**leaves[node.leaf], "weight": node.weight}
    name = {"name": node.name} if node.name is not None else {}
    children = [_nested(child, leaves) for child in node.children]
    return {**name, "weight": node.weight, "requirement": node.requirement, "criteria": children}


def _grow(item: _Item, share: float, criteria: list[Criterion], faults: list[Fault]) -> Node:
    """Make the node of an entry, and its leaves' criteria with the weight that is theirs of the whole."""
    place = len(criteria)
    children = _children(item.data)
    try:
        data = {**item.data, "weight": item.data.get("weight", DEFAULT_WEIGHT)} if children is not None else item.data
        own = Criterion.model_validate(
            {key: value for key, value in data.items() if key != "criteria"} if children is not None else data
        )
    except ValidationError as error:
        faults += faults_from_error(item.where, Criterion, error)
        return Node(requirement="", weight=0.0, leaf=place)
    if children is None:
        faults += [Fault(item.where, f"examples.{i}.score", message) for i, message in _bad_examples(own)]
        # Multiplying by 1.0 keeps what was set, so that a plain criterion is written as it was read.
        criteria.append(own if share == 1.0 else own.model_copy(update={"weight": own.weight * share}))
        return Node(requirement=own.requirement, name=own.name, weight=own.weight, leaf=place)
    return _branch(item, own, children, share, criteria, faults)


def _branch(
    item: _Item, own: Criterion, children: Any, share: float, criteria: list[Criterion], faults: list[Fault]
) -> Node:
    faults += [unknown_key(item.where, str(key), _NODE_KEYS) for key in sorted(map(str, set(item.data) - _NODE_KEYS))]
    below = list(_items(children, f"{item.where}.criteria", faults))
    weights = [weight for entry in below if (weight := _weight(entry.data)) is not None]
    total = math.fsum(weights) if len(weights) == len(below) else 0.0
    if not below:
        faults.append(Fault(item.where, "criteria", "is empty: give the node its parts, or take `criteria` out"))
    elif len(weights) == len(below) and (min(weights) < 0 or total <= 0):
        message = "have a negative weight, or none at all: a node shares its own weight, whose sign is theirs"
        faults.append(Fault(item.where, "criteria", message))
    scale = share * own.weight / total if total > 0 else 0.0
    nodes = tuple(_grow(entry, scale, criteria, faults) for entry in below)
    return Node(requirement=own.requirement, name=own.name, weight=own.weight, children=nodes)


def _weight(data: Any) -> float | None:
    """An entry's weight among its siblings; None where it has none that counts, of which its own reading will tell."""
    weight = data.weight if isinstance(data, Criterion) else data.get("weight", DEFAULT_WEIGHT)
    try:
        return _WEIGHT.validate_python(weight)
    except ValidationError:
        return None


def _children(data: Any) -> Any:
    """The nested criteria of an entry; None for a leaf."""
    return cast("Any", data)["criteria"] if isinstance(data, Mapping) and "criteria" in data else None


def _bad_examples(criterion: Criterion) -> Iterator[tuple[int, str]]:
    for index, example in enumerate(criterion.examples):
        try:
            to_judgment(criterion, example.score)
        except ValueError as error:
            yield index, f"is no answer to the criterion: {error}"


def _unwrap(document: Any, faults: list[Fault]) -> tuple[dict[str, Any], list[_Item]]:
    """The rubric's own fields, and each criterion with its place in the document."""
    if isinstance(document, Mapping):
        fields = {str(key): value for key, value in cast("Mapping[object, Any]", document).items()}
        wrappers = [key for key in _WRAPPERS if key in fields]
        if len(wrappers) == 1 and not (wrappers[0] == "criteria" and "requirement" in fields):
            inner = fields.pop(wrappers[0])
            if wrappers[0] == "rubric" and isinstance(inner, Mapping):
                inner_fields, items = _unwrap(inner, faults)
                twice = sorted(map(str, fields.keys() & inner_fields.keys()))
                faults += [Fault("", key, "stands both beside `rubric` and in it: keep one") for key in twice]
                return fields | inner_fields, items
            return fields, list(_items(inner, wrappers[0], faults))
        given = f"has {' and '.join(f'`{key}`' for key in wrappers)}: keep one" if wrappers else _no_criteria(fields)
        if "requirement" in fields and wrappers == ["criteria"]:
            return {}, [_Item("criteria[0]", document)]
        faults.append(Fault("", "", given))
        return {}, []
    return {}, list(_items(document, "criteria", faults))


def _no_criteria(fields: Mapping[str, Any]) -> str:
    if "requirement" in fields:
        return "is one criterion, not a rubric: put it in a list"
    return f"has no `criteria` (its keys are {short(sorted(fields))}): put the list of criteria under `criteria`"


def _items(items: Any, where: str, faults: list[Fault]) -> Iterator[_Item]:
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        kind = "empty" if items is None else f"{type(items).__name__} {short(items)}"
        faults.append(Fault("", "", f"must be a list of criteria, got {kind}"))
        return
    for index, item in enumerate(cast("Sequence[Any]", items)):
        place = f"{where}[{index}]"
        if isinstance(item, Mapping) and "criteria" in item and "requirement" not in item:
            section = cast("Mapping[str, Any]", item)
            unknown = sorted(map(str, set(section) - _SECTION_NOTES - {"criteria"}))
            faults += [Fault(place, key, "is not a key of a section: take it out") for key in unknown]
            yield from _items(section["criteria"], f"{place}.criteria", faults)
        elif isinstance(item, Criterion | Mapping):
            yield _Item(place, item)
        else:
            message = f"must be a criterion such as {{weight: 10, requirement: ...}}, got {short(item)}"
            faults.append(Fault(place, "", message))
