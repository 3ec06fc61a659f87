"""Assertions of promptfoo and of current AgentV: those that a judge decides become criteria.

A text is one criterion. A list of items is one assertion, whose weight its items share. Assertions of other types,
which code decides in those projects, are left out, and are listed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError

from rubric_integrations._util.records import Weight
from rubric_integrations.formats.agentv_items import read_items
from rubric_integrations.formats.faults import faults_from_error, short
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.errors import Fault

JUDGED_TYPES = frozenset(
    {"llm-rubric", "agent-rubric", "rubric", "rubrics", "llm-grader", "llm-judge", "g-eval", "model-graded-closedqa"}
)
"""The types of assertions that a judge decides, with hyphens."""

_CONDITIONS = {
    "trajectory:tool-used": "tool_used",
    "not-trajectory:tool-used": "tool_forbidden",
    "trajectory:tool-sequence": "tool_calls",
    "trajectory:tool-args-match": "tool_calls",
    "trajectory:step-count": "max_steps",
    "tool-trajectory": "tool_calls",
    "execution-metrics": "max_tokens",
    "token-usage": "max_tokens",
    "cost": "max_cost",
    "latency": "max_seconds",
    "contains": "contains",
    "icontains": "contains",
    "not-contains": "not_contains",
    "equals": "equals",
    "regex": "regex",
    "is-json": "json_schema",
}
"""The condition of a `Check` that is most like an assertion that code decides."""

_LISTS = ("assert", "assertions")
_CONTENTS = ("value", "criteria", "rubrics")
_KEYS = {"type", "weight", "metric", "name", "id", "required", "min_score", *_CONTENTS}
_WEIGHT: TypeAdapter[float] = TypeAdapter(Weight)
_NEGATED = "This is not true of the response: "
_VARIABLE = re.compile(r"\{\{\s*(\w{1,100})\s*\}\}")


class Context(NamedTuple):
    """What the assertions of one list have in common.

    Attributes:
        variables: The values of `{{name}}` in the texts.
        text_is_gate: Whether a text of a typed assertion must hold for the response to pass, as in promptfoo.
        item_is_gate: Whether a plain text and an item of a list must hold unless it says otherwise.
        metric_is_tag: Whether several assertions may have the same `metric`, as in promptfoo; otherwise it is a name.
    """

    variables: Mapping[str, Any]
    text_is_gate: bool
    item_is_gate: bool
    metric_is_tag: bool


class Group(NamedTuple):
    """The criteria of one assertion.

    Attributes:
        criteria: The criteria.
        weight: The weight that a list of items shares; None for one text, which has its own.
    """

    criteria: list[Criterion]
    weight: float | None = None


def assertions_of(holder: Any) -> tuple[str, Any]:
    """Return the key and the value of the assertions of a test or a file; an empty list without any."""
    data = cast("Mapping[str, Any]", holder) if isinstance(holder, Mapping) else {}
    key = next((key for key in _LISTS if data.get(key)), _LISTS[0])
    return key, data.get(key) or []


def is_judged(entry: Any) -> bool:
    """Whether an entry of a list is an assertion of a type that a judge decides."""
    return (
        isinstance(entry, Mapping) and _type_of(cast("Mapping[str, Any]", entry)).removeprefix("not-") in JUDGED_TYPES
    )


def read_assertions(entries: Any, where: str, context: Context, faults: list[Fault], losses: list[str]) -> list[Group]:
    """Read the assertions of one test that a judge decides.

    Args:
        entries: The list, as parsed.
        where: Its place in the document.
        context: What the assertions have in common.
        faults: The list to which faults are appended.
        losses: The list to which one message is appended for everything that is not read.
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
        faults.append(Fault(where, "", f"must be a list of assertions, got {short(entries)}"))
        return []
    groups: list[Group] = []
    for index, entry in enumerate(cast("Sequence[Any]", entries)):
        place = f"{where}[{index}]"
        if isinstance(entry, str):
            text = {"requirement": _filled(entry, place, context, losses), "weight": 1.0}
            gate = {"required": True} if context.item_is_gate else {}
            groups.append(Group(_criterion({**text, **gate}, place, faults)))
        elif not isinstance(entry, Mapping):
            faults.append(
                Fault(place, "", f"must be an assertion such as {{type: llm-rubric, value: ...}}, got {short(entry)}")
            )
        elif is_judged(entry):
            groups.append(_read_judged(cast("Mapping[str, Any]", entry), place, context, faults, losses))
        elif _type_of(cast("Mapping[str, Any]", entry)) == "assert-set":
            groups.append(_read_set(cast("Mapping[str, Any]", entry), place, context, faults, losses))
        else:
            kind = _type_of(cast("Mapping[str, Any]", entry)) or "an assertion without a type"
            check = f"`check` with `{_CONDITIONS[kind]}`" if kind in _CONDITIONS else "`check`"
            losses.append(
                f"`{place}`: `{kind}` is not read, so that the score leaves it out; a {check} may decide the same"
            )
    return groups


def join(groups: Sequence[Group]) -> list[Criterion]:
    """Return the criteria of all assertions.

    If there are several assertions, the items of a list share its weight, in proportion to their own weights.
    """
    criteria: list[Criterion] = []
    for group in groups:
        total = math.fsum(abs(criterion.weight) for criterion in group.criteria)
        if group.weight is None or len(groups) == 1 or total == 0:
            criteria += group.criteria
        else:
            weights = [criterion.weight / total * group.weight for criterion in group.criteria]
            pairs = zip(group.criteria, weights, strict=True)
            criteria += [criterion.model_copy(update={"weight": weight}) for criterion, weight in pairs]
    return criteria


def _read_set(entry: Mapping[str, Any], where: str, context: Context, faults: list[Fault], losses: list[str]) -> Group:
    """Read a set of assertions, which share its weight. With a threshold, none of them must hold."""
    if entry.get("threshold") is not None:
        losses.append(f"`{where}`: `threshold` of a set has no place in a rubric")
        context = context._replace(text_is_gate=False, item_is_gate=False)
    key, inner = assertions_of(entry)
    groups = read_assertions(inner, f"{where}.{key}", context, faults, losses)
    # An empty group beside them, so that the items of a list share the weight of their assertion within the set, too.
    return Group(join([*groups, Group([])]), _weight_of(entry, where, faults))


def _weight_of(entry: Mapping[str, Any], where: str, faults: list[Fault]) -> float:
    weight: Any = entry.get("weight", 1.0)
    try:
        return _WEIGHT.validate_python(weight)
    except ValidationError:
        faults.append(Fault(where, "weight", f"must be a finite number, got {short(weight)}"))
        return 1.0


def _read_judged(
    entry: Mapping[str, Any], where: str, context: Context, faults: list[Fault], losses: list[str]
) -> Group:
    """Read an assertion that a judge decides."""
    key = next((key for key in _CONTENTS if entry.get(key) is not None), _CONTENTS[0])
    content: Any = entry.get(key)
    if content is None and entry.get("prompt"):
        losses.append(f"`{where}`: has a `prompt` and no `value`, which names nothing to look for, and is left out")
        return Group([])
    left_out = sorted(map(str, set(entry) - _KEYS))
    losses += [f"`{where}`: `{name}` has no place in a rubric" for name in left_out]
    weight: Any = entry.get("weight", 1.0)
    is_negated = _type_of(entry).startswith("not-")
    if isinstance(content, str):
        if content.startswith("file://"):
            message = f"names the file {short(content)}, which is not read: write its text here"
            faults.append(Fault(where, key, message))
            return Group([])
        metric: dict[str, Any] = {"tags": (entry["metric"],)} if context.metric_is_tag and entry.get("metric") else {}
        name = next((entry[field] for field in ("metric", "name", "id") if entry.get(field)), None)
        text = _filled(content, where, context, losses)
        fields = {
            "requirement": _NEGATED + text if is_negated and text.strip() else text,
            "weight": weight,
            **_gate(entry, context),
        }
        return Group(_criterion({**fields, **(metric or ({"name": name} if name else {}))}, where, faults))
    if not isinstance(content, Sequence) or is_negated:
        message = (
            "is missing: write what to look for"
            if content is None
            else f"must be a text or a list, got {short(content)}"
        )
        faults.append(Fault(where, key, "must be a text where the type is negated" if is_negated else message))
        return Group([])
    losses += [
        f"`{where}`: `{field}` of the whole list has no place in a rubric"
        for field in ("required", "min_score")
        if field in entry
    ]
    items = read_items(content, f"{where}.{key}", faults, required=context.item_is_gate)
    criteria = [c.model_copy(update={"requirement": _filled(c.requirement, where, context, losses)}) for c in items]
    return Group(criteria, _weight_of(entry, where, faults))


def _gate(entry: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the gate of a text: `required` may be a number, the smallest score that passes."""
    required: Any = entry.get("required")
    least: Any = entry.get("min_score")
    if isinstance(required, int | float) and not isinstance(required, bool):
        required, least = None, float(required)
    # promptfoo passes an assertion of weight 0 whatever its score.
    is_gate: Any = (context.text_is_gate and entry.get("weight") != 0) if required is None else required
    return {
        **({"required": is_gate} if is_gate is not False else {}),
        **({} if least is None else {"min_score": least}),
    }


def _criterion(fields: dict[str, Any], where: str, faults: list[Fault]) -> list[Criterion]:
    """Return a list of one criterion, or an empty one if it has faults."""
    try:
        return [Criterion.model_validate(fields)]
    except ValidationError as error:
        faults += faults_from_error(where, Criterion, error)
        return []


def _filled(text: str, where: str, context: Context, losses: list[str]) -> str:
    """Replace `{{name}}` by the test's variables."""
    values = {name: str(value) for name, value in context.variables.items() if isinstance(value, str | int | float)}
    missing = sorted({name for name in _VARIABLE.findall(text) if not values.get(name, "").strip()})
    losses += [f"`{where}`: `{{{{{name}}}}}` has no value, and stays as it is" for name in missing]
    return _VARIABLE.sub(lambda m: m[0] if m[1] in missing else values[m[1]], text)


def _type_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("type", "")).replace("_", "-")
