"""Reads the assertions of promptfoo and of current AgentV. Assertions for a judge become criteria.

In promptfoo, every assertion must pass. Therefore, each criterion is required, unless the test has a `threshold`, which
becomes the pass mark. A `metric` becomes a tag. A list of items is one assertion, and its items share its weight.

Assertions that those projects evaluate in code become checks, if a check has the same result for every text. All other
assertions are listed in the messages and in `left_out` of the rubric. Because they are not evaluated, no submission
can pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from rubric_integrations._util.records import Weight
from rubric_integrations.formats.assertion_checks import CODED_TYPES, check_of
from rubric_integrations.formats.items import read_criterion
from rubric_integrations.formats.parsing import short
from rubric_integrations.formats.rubric_items import read_items
from rubric_integrations.formats.suite_files import ASSERTION_LISTS
from rubric_integrations.rubric.check import Check
from rubric_integrations.rubric.criterion import Criterion, TagName
from rubric_integrations.rubric.rubric import Fault

JUDGED_TYPES = frozenset(
    {"llm-rubric", "agent-rubric", "rubric", "rubrics", "llm-grader", "llm-judge", "g-eval", "model-graded-closedqa"}
)
"""The types of assertions that a judge decides, written with hyphens."""

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
    "word-count": "max_words",
    "levenshtein": "similarity",
    "contains-json": "json_schema",
}
"""The most similar condition of a `Check` for each type of assertion that code decides."""

_CONTENTS = ("value", "criteria", "rubrics")
_KEYS = {"type", "weight", "metric", "name", "id", "required", "min_score", *_CONTENTS}
_TEMPLATE = ("{{", "{%", "{#", "file://")
_WEIGHT: TypeAdapter[float] = TypeAdapter(Weight)
_TAG: TypeAdapter[str] = TypeAdapter(TagName)

NEGATED = "This is not true of the response: "
"""The beginning of the requirement of a negated assertion."""

_VARIABLE = re.compile(r"\{\{\s*(\w{1,100})\s*\}\}")


class Context(NamedTuple):
    """The common settings of the assertions of one list.

    Attributes:
        variables: The values of `{{name}}` in the texts.
        text_is_gate: Whether an assertion with a type and a text is required for a pass, as in promptfoo.
        item_is_gate: Whether a plain text or an item of a list is required for a pass by default.
        is_promptfoo: Whether the file is promptfoo's. In promptfoo, several assertions may have the same `metric`. In
            AgentV, `metric` is a unique name.
        changes_output: Whether code of the file changes the response before the assertions are evaluated.
    """

    variables: Mapping[str, Any]
    text_is_gate: bool
    item_is_gate: bool
    is_promptfoo: bool
    changes_output: bool = False


@dataclass
class Notes:
    """The faults of a file, and the parts of the file that are left out of its rubric or changed.

    Attributes:
        faults: The reasons to refuse the file.
        losses: One message for each part of the file that is left out of the rubric or changed.
        left_out: The messages about parts that are not graded, although the file requires them for a pass.
    """

    faults: list[Fault] = field(default_factory=list[Fault])
    losses: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])

    def leave_out(self, message: str) -> None:
        """Record a part that is not graded, although the file requires it for a pass."""
        self.losses.append(message)
        self.left_out.append(message)


class Group(NamedTuple):
    """The criteria of one assertion.

    Attributes:
        criteria: The criteria.
        weight: The weight of the assertion if it is a list or a set. Its criteria share this weight. None for an
            assertion with a single text, because its criterion has its own weight.
    """

    criteria: list[Criterion]
    weight: float | None = None


def assertions_of(holder: Any) -> tuple[str, Any]:
    """Return the key and the value of the assertions of a test or a file. The value is empty if there are none."""
    data = holder if isinstance(holder, Mapping) else {}
    key = next((key for key in ASSERTION_LISTS if data.get(key)), ASSERTION_LISTS[0])
    return key, data.get(key) or []


def is_judged(entry: Any) -> bool:
    """Return whether an entry of a list is an assertion that a judge decides."""
    return isinstance(entry, Mapping) and _type_of(entry).removeprefix("not-") in JUDGED_TYPES


def read_assertions(entries: Any, where: str, context: Context, notes: Notes) -> list[Group]:
    """Read the assertions of one test.

    Args:
        entries: The list, as parsed.
        where: Its place in the document.
        context: The common settings of the assertions.
        notes: The record to which faults and losses are added.
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
        notes.faults.append(Fault(where, "", f"must be a list of assertions, got {short(entries)}"))
        return []
    groups: list[Group] = []
    for index, entry in enumerate(entries):
        place = f"{where}[{index}]"
        if isinstance(entry, str):
            text = {"requirement": _filled(entry, place, context, notes), "weight": 1.0}
            gate = {"required": True} if context.item_is_gate else {}
            groups.append(Group(read_criterion({**text, **gate}, place, notes.faults)))
        elif not isinstance(entry, Mapping):
            notes.faults.append(
                Fault(place, "", f"must be an assertion such as {{type: llm-rubric, value: ...}}, got {short(entry)}")
            )
        elif "$ref" in entry:
            message = "names no assertion of this file: write its path, such as `#/assertionTemplates/tone`"
            notes.faults.append(Fault(place, "$ref", message))
        elif is_judged(entry):
            groups.append(_read_judged(entry, place, context, notes))
        elif _type_of(entry) == "assert-set":
            groups.append(_read_set(entry, place, context, notes))
        else:
            groups.append(_read_coded(entry, place, context, notes))
    return groups


def join(groups: Sequence[Group]) -> list[Criterion]:
    """Return the criteria of all assertions.

    If there are several assertions, the weight of a list is divided among its items in proportion to their weights. If
    there is only one assertion, its items keep their weights.
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


def _read_coded(
    entry: Mapping[str, Any],
    where: str,
    context: Context,
    notes: Notes,
) -> Group:
    """Read an assertion that code decides. The group has one criterion with a check, or no criterion."""
    kind = _type_of(entry)
    try:
        check = _check_of(entry, context)
    except ValueError as error:
        condition = f"`check` with `{_CONDITIONS[kind]}`" if kind in _CONDITIONS else "`check`"
        message = (
            f"`{where}`: `{kind or 'an assertion without a type'}` {error}, so that the score leaves it out; a "
            f"{condition} may decide the same"
        )
        # promptfoo passes an assertion of weight 0 whatever its score.
        if context.is_promptfoo and entry.get("weight") == 0:
            notes.losses.append(message)
        else:
            notes.leave_out(message)
        return Group([])
    negation = "not-" if entry.get("negate") is True else ""
    value = f": {short(entry['value'])}" if entry.get("value") is not None else ""
    fields = {"requirement": f"{negation}{kind}{value}", "check": check, "weight": entry.get("weight", 1.0)}
    return Group(read_criterion({**fields, **_gate(entry, context), **_name(entry, context)}, where, notes.faults))


def _check_of(entry: Mapping[str, Any], context: Context) -> Check:
    """Return the check of an assertion.

    Raises:
        ValueError: No check decides every text in the same way.
    """
    kind = _type_of(entry)
    is_negated = kind.startswith("not-")
    kind = kind.removeprefix("not-")
    # Only promptfoo has `not-`, and only AgentV has `ends-with`.
    if kind not in CODED_TYPES or (kind == "ends-with" if context.is_promptfoo else is_negated):
        raise ValueError("is not read")
    if context.changes_output:
        raise ValueError("is about an output that code of the file changes first")
    if not context.is_promptfoo:
        is_negated = entry.get("negate", False)
        if not isinstance(is_negated, bool):
            raise ValueError(f"has `negate` {short(is_negated)}")
    others = sorted(map(str, set(entry) - _KEYS - (set() if context.is_promptfoo else {"negate"}) - {"value"}))
    if others:
        raise ValueError(f"has `{others[0]}`, which is not read")
    value = _filled_value(entry.get("value"), context)
    return check_of(
        kind, value, is_negated=is_negated, trims=not context.is_promptfoo, reads_numbers=context.is_promptfoo
    )


def _filled_value(value: Any, context: Context) -> Any:
    """Return the value of an assertion with the variables of its test filled in.

    Raises:
        ValueError: The value names a file, or has a template that only code of the file can fill in.
    """
    if isinstance(value, Mapping | list | tuple):
        if any(mark in repr(value) for mark in _TEMPLATE):
            raise ValueError("has a template or a file in its value")
        return value
    if not isinstance(value, str):
        return value
    exact = {
        name: str(text)
        for name, text in context.variables.items()
        if context.is_promptfoo and isinstance(text, str | int) and not isinstance(text, bool)
    }
    parts = [exact.get(part, "{{") if index % 2 else part for index, part in enumerate(_VARIABLE.split(value))]
    if any(mark in part for mark in _TEMPLATE for part in parts):
        raise ValueError("has a template or a file in its value")
    return "".join(parts)


def _name(entry: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the name of an assertion, or its metric as a tag."""
    if context.is_promptfoo and entry.get("metric"):
        return {"tags": (entry["metric"],)}
    name = next((entry[field] for field in ("metric", "name", "id") if entry.get(field)), None)
    return {"name": name} if name else {}


def _read_set(
    entry: Mapping[str, Any],
    where: str,
    context: Context,
    notes: Notes,
) -> Group:
    """Read a set of assertions, which share its weight. With a threshold, none of them is required."""
    if entry.get("threshold") is not None:
        notes.leave_out(f"`{where}`: `threshold` of a set has no place in a rubric")
        context = context._replace(text_is_gate=False, item_is_gate=False)
    key, inner = assertions_of(entry)
    groups = read_assertions(inner, f"{where}.{key}", context, notes)
    # With an additional empty group, the items of a list share the weight of their assertion within the set, too.
    criteria = join([*groups, Group([])])
    return Group(_with_metric(criteria, entry, where, context, notes), _weight_of(entry, where, notes))


def _with_metric(
    criteria: list[Criterion], entry: Mapping[str, Any], where: str, context: Context, notes: Notes
) -> list[Criterion]:
    """Return the criteria of a list or a set, in promptfoo with its `metric` as a further tag."""
    if not context.is_promptfoo or not entry.get("metric"):
        return criteria
    try:
        metric = _TAG.validate_python(entry["metric"])
    except ValidationError:
        notes.faults.append(Fault(where, "metric", f"must be a text, got {short(entry['metric'])}"))
        return criteria
    return [
        criterion.model_copy(update={"tags": tuple(dict.fromkeys((*criterion.tags, metric)))}) for criterion in criteria
    ]


def _weight_of(entry: Mapping[str, Any], where: str, notes: Notes) -> float:
    weight: Any = entry.get("weight", 1.0)
    try:
        return _WEIGHT.validate_python(weight)
    except ValidationError:
        notes.faults.append(Fault(where, "weight", f"must be a finite number, got {short(weight)}"))
        return 1.0


def _read_judged(
    entry: Mapping[str, Any],
    where: str,
    context: Context,
    notes: Notes,
) -> Group:
    """Read an assertion that a judge decides."""
    key = next((key for key in _CONTENTS if entry.get(key) is not None), _CONTENTS[0])
    content: Any = entry.get(key)
    if content is None and (entry.get("prompt") or not context.is_promptfoo):
        prompt = "a `prompt` and " if entry.get("prompt") else ""
        notes.leave_out(f"`{where}`: has {prompt}no `value`, which names nothing to look for, and is left out")
        return Group([])
    negates = not context.is_promptfoo and entry.get("negate") is True
    others = sorted(map(str, set(entry) - _KEYS - ({"negate"} if negates else set())))
    notes.losses += [f"`{where}`: `{name}` has no place in a rubric" for name in others]
    weight: Any = entry.get("weight", 1.0)
    is_negated = negates or _type_of(entry).startswith("not-")
    if isinstance(content, str):
        if content.startswith("file://"):
            message = f"names the file {short(content)}, which is not read: write its text here"
            notes.faults.append(Fault(where, key, message))
            return Group([])
        text = _filled(content, where, context, notes)
        fields = {
            "requirement": NEGATED + text if is_negated and text.strip() else text,
            "weight": weight,
            **_gate(entry, context),
        }
        return Group(read_criterion({**fields, **_name(entry, context)}, where, notes.faults))
    if not isinstance(content, Sequence) or is_negated:
        message = (
            "is missing: write what to look for"
            if content is None
            else f"must be a text or a list, got {short(content)}"
        )
        notes.faults.append(Fault(where, key, "must be a text where the type is negated" if is_negated else message))
        return Group([])
    notes.losses += [
        f"`{where}`: `{field}` of the whole list has no place in a rubric"
        for field in ("required", "min_score")
        if field in entry
    ]
    items = read_items(content, f"{where}.{key}", notes.faults, required=context.item_is_gate)
    criteria = [c.model_copy(update={"requirement": _filled(c.requirement, where, context, notes)}) for c in items]
    return Group(_with_metric(criteria, entry, where, context, notes), _weight_of(entry, where, notes))


def _gate(entry: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the gate of a text. `required` may also be a number, which is the smallest score that passes."""
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


def _filled(text: str, where: str, context: Context, notes: Notes) -> str:
    """Replace each `{{name}}` in a text by the variable of the test."""
    values = {name: str(value) for name, value in context.variables.items() if isinstance(value, str | int | float)}
    missing = sorted({name for name in _VARIABLE.findall(text) if not values.get(name, "").strip()})
    notes.losses += [f"`{where}`: `{{{{{name}}}}}` has no value, and stays as it is" for name in missing]
    return _VARIABLE.sub(lambda m: m[0] if m[1] in missing else values[m[1]], text)


def _type_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("type", "")).replace("_", "-")


def has_objects(entry: Any) -> bool:
    """Return whether an assertion is for a judge and has a list with at least one object (a rubric item)."""
    contents = entry.values() if isinstance(entry, Mapping) else ()
    return any(
        isinstance(item, Mapping) for content in contents if isinstance(content, list | tuple) for item in content
    ) and is_judged(entry)
