"""PaperBench's `rubric.json`: a tree of `requirements` with `weight` and `sub_tasks`. Only the leaves are judged.

The value of a parent is the weighted mean of its children, as in a native group. The `task_category` of a leaf becomes
a tag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rubric_integrations.formats import native
from rubric_integrations.formats.items import Reading, criterion_losses, error_of, rubric_losses
from rubric_integrations.formats.parsing import short
from rubric_integrations.rubric.rubric import Fault, Node, Rubric, RubricError

_TEXT, _WEIGHT, _CHILDREN, _CATEGORY = "requirements", "weight", "sub_tasks", "task_category"


def matches(document: Any) -> bool:
    """Return whether parsed data is an object with `requirements` and `sub_tasks`."""
    return isinstance(document, Mapping) and {_TEXT, _CHILDREN} <= document.keys()


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as a tree, with one message for each part that the format cannot express.

    Raises:
        RubricError: The rubric has penalties.
    """
    if rubric.negative_weight:
        raise RubricError("paperbench", [Fault("", "", "has no penalties: write another format")])
    messages = rubric_losses(rubric.model_copy(update={"tree": None}), kept=())
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        kept = ("weight", "tags") if len(criterion.tags) == 1 else ("weight",)
        messages += criterion_losses(key, criterion, kept)
    leaves = [Node(requirement=c.requirement, weight=c.full_weight, leaf=i) for i, c in enumerate(rubric.criteria)]
    nodes = [_write_node(node, rubric, messages) for node in rubric.tree or leaves]
    if len(nodes) == 1 and nodes[0][_CHILDREN]:
        return nodes[0], messages
    messages.append("the criteria are put into one task, because the format has one tree")
    return {_TEXT: rubric.name or "The task is solved.", _WEIGHT: 1, _CHILDREN: nodes}, messages


def _write_node(node: Node, rubric: Rubric, messages: list[str]) -> dict[str, Any]:
    if node.leaf is None:
        children = [_write_node(child, rubric, messages) for child in node.children]
        if node.name is not None:
            messages.append(f"the name {node.name!r} of a group has no place in the format")
        return {_TEXT: node.requirement, _WEIGHT: node.weight, _CHILDREN: children}
    criterion = rubric.criteria[node.leaf]
    category = {_CATEGORY: criterion.tags[0]} if len(criterion.tags) == 1 else {}
    return {_TEXT: criterion.full_requirement, _WEIGHT: node.weight, _CHILDREN: [], **category}


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from a tree.

    Raises:
        RubricError: The document has faults. The error lists every fault.
    """
    faults: list[Fault] = []
    left_out: Counter[str] = Counter()
    root = _native_node(document, "", faults, left_out)
    if faults:
        raise error_of(source, "paperbench", faults)
    try:
        rubric = native.parse([root], source).rubric
    except RubricError as error:
        raise error_of(source, "paperbench", [_reworded(fault) for fault in error.faults]) from None
    messages = [
        f"`{key}` of {count} {'task' if count == 1 else 'tasks'} is left out" for key, count in sorted(left_out.items())
    ]
    return Reading(rubric, messages)


def _reworded(fault: Fault) -> Fault:
    where = fault.where.replace("criteria[0]", "", 1).replace("criteria[", f"{_CHILDREN}[").lstrip(".")
    return Fault(where, _TEXT if fault.field == "requirement" else fault.field, fault.message)


def _native_node(node: Any, where: str, faults: list[Fault], left_out: Counter[str]) -> dict[str, Any]:
    """Return a task as a native group or criterion."""
    if not isinstance(node, Mapping):
        faults.append(Fault(where, "", f"must be an object with `{_TEXT}` and `{_WEIGHT}`, got {short(node)}"))
        return {}
    data = {str(key): value for key, value in node.items()}
    children: Any = data.get(_CHILDREN) or []
    weight: Any = data.get(_WEIGHT)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight >= 0:
        faults.append(Fault(where, _WEIGHT, f"must be a number of at least 0, got {short(weight)}"))
    if not isinstance(data.get(_TEXT), str):
        faults.append(Fault(where, _TEXT, f"must be a text, got {short(data.get(_TEXT))}"))
    if not isinstance(children, list | tuple):
        faults.append(Fault(where, _CHILDREN, f"must be a list of tasks, got {short(children)}"))
        return {}
    left_out.update(data.keys() - {_TEXT, _WEIGHT, _CHILDREN, _CATEGORY})
    own = {"requirement": data.get(_TEXT), "weight": weight}
    if not children:
        category: Any = data.get(_CATEGORY)
        return {**own, "tags": [category]} if isinstance(category, str) and category.strip() else own
    inner = [
        _native_node(child, f"{where}.{_CHILDREN}[{index}]".lstrip("."), faults, left_out)
        for index, child in enumerate(children)
    ]
    if all(child.get("weight") == 0 for child in inner) and weight != 0:
        message = "have only zero weights, for which PaperBench gives 0 whatever the answers are: give one a weight"
        faults.append(Fault(where, _CHILDREN, message))
    return {**own, "criteria": inner}
