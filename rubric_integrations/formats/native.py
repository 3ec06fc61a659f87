"""The native format, which `rubric` and `autorubric` use too: a list of criteria, alone, in an object, or nested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from rubric_integrations.formats.faults import faults_from_error, short, unknown_key
from rubric_integrations.formats.native_nodes import Item, list_items, read_node
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.errors import Fault, RubricError
from rubric_integrations.rubric.importance import ImportanceWeights
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.rubric.tree import Node

_WRAPPERS = ("criteria", "sections", "rubric")
_WEIGHTS: TypeAdapter[ImportanceWeights | None] = TypeAdapter(ImportanceWeights | None)
# The reader makes these fields from the nesting of the criteria; as keys of a file they are unknown.
_DERIVED = {"tree"}


def matches(_document: Any) -> bool:
    """Return True: data of no other format is read as native, so that its faults are reported in native terms."""
    return True


def read(document: Any, source: str) -> Rubric:
    """Make a rubric from parsed data, in any native shape.

    Raises:
        RubricError: With every fault: its place, its field, and what to write instead.
    """
    faults: list[Fault] = []
    fields, items = _unwrap(document, faults)
    faults += [unknown_key("", key, set(Rubric.model_fields) - _DERIVED) for key in sorted(_DERIVED & fields.keys())]
    criteria: list[Criterion] = []
    weights = _importance_weights(fields)
    nodes = [read_node(item, 1.0, weights, criteria, faults) for item in items]
    if not faults:
        if any(node.children for node in nodes) or len(nodes) != len(criteria):
            fields["tree"] = tuple(nodes)
        try:
            return Rubric.model_validate({**fields, "criteria": criteria})
        except ValidationError as error:
            faults += faults_from_error("", Rubric, error)
    raise RubricError(source, faults)


def losses(_document: Any) -> list[str]:
    """Return an empty list: a rubric holds everything that its native document has."""
    return []


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as plain data: the fields that are set, and the weights. Nothing is lost."""
    document = rubric.model_dump(mode="json", exclude_unset=True, exclude={"criteria", "tree"})
    leaves = [_write_criterion(criterion) for criterion in rubric.criteria]
    written: set[int] = set()
    document["criteria"] = leaves if rubric.tree is None else [_write_node(n, leaves, written) for n in rubric.tree]
    return document, []


def _write_criterion(criterion: Criterion) -> dict[str, Any]:
    return {
        **({"name": criterion.name} if criterion.name is not None else {}),
        **({} if criterion.has_derived_weight else {"weight": criterion.weight}),
        "requirement": criterion.requirement,
        **criterion.model_dump(mode="json", exclude_unset=True, exclude={"name", "weight", "requirement"}),
    }


def _write_node(node: Node, leaves: Sequence[dict[str, Any]], written: set[int]) -> dict[str, Any]:
    """Write a node; a leaf whose criterion is already `written` becomes a reference to it."""
    if node.leaf in written:
        return {"ref": leaves[node.leaf]["name"], "weight": node.weight}
    if node.leaf is not None:
        written.add(node.leaf)
        leaf = leaves[node.leaf]
        # The weight of such a leaf, which stands in no group, is not that of the node.
        is_own = "weight" not in leaf or "per" in leaf
        return leaf if is_own else {**leaf, "weight": node.weight}
    name = {"name": node.name} if node.name is not None else {}
    cap = {"penalty_cap": node.penalty_cap} if node.penalty_cap is not None else {}
    children = [_write_node(child, leaves, written) for child in node.children]
    return {**name, "weight": node.weight, **cap, "requirement": node.requirement, "criteria": children}


def _importance_weights(fields: Mapping[str, Any]) -> ImportanceWeights | None:
    """Return a document's `importance_weights`; None if they are invalid, which `Rubric` reports."""
    try:
        return _WEIGHTS.validate_python(fields.get("importance_weights"))
    except ValidationError:
        return None


def _unwrap(document: Any, faults: list[Fault]) -> tuple[dict[str, Any], list[Item]]:
    """Return the rubric's own fields, and each criterion with its place in the document."""
    if not isinstance(document, Mapping):
        return {}, list(list_items(document, "criteria", faults))
    fields = {str(key): value for key, value in cast("Mapping[object, Any]", document).items()}
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
