"""Files of tests with assertions, as promptfoo and current AgentV write them. Assertions for a judge become criteria.

In promptfoo, every assertion must pass. Therefore each criterion is required, unless the test has a `threshold`, which
becomes the pass mark. A `metric` becomes a tag. A list of items is one assertion, and its items share its weight.

In AgentV, a string is a binary criterion. In an object, `expected_outcome` (or `outcome`, or `criteria`) is the
requirement and `id` the name. `weight` is 1 by default. `required` is false by default, but true in current files.
`score_ranges` make a scale of whole numbers from 0 to 10, on which x has the value x / 10. An `operator` is
`correctness`, or `contradiction` for a text that the response need not state and must not contradict.

Assertions that code decides in those projects become checks if the check decides every text alike. The others are
listed, and as `left_out` in the rubric: without them, no submission may pass.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError

from rubric_integrations._util.records import Weight, encodable
from rubric_integrations.formats.assertions import CODED_TYPES, check_of
from rubric_integrations.formats.items import Reading, criterion_losses, error_of, make_rubric, rubric_losses
from rubric_integrations.formats.parsing import faults_from_error, short, unknown_key
from rubric_integrations.rubric.check import Check
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric

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
        required: For a list in a file of the current version, whether its items are required by default; those with
            `score_ranges` are not. Items without an `id` have no name there. None for a list in an older file.

    Returns:
        The criteria of the items without faults.
    """
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        faults.append(Fault(where, "", f"must be a list of rubric items, got {short(items)}"))
        return []
    criteria: list[Criterion] = []
    for index, item in enumerate(cast("Sequence[Any]", items)):
        place = f"{where}[{index}]"
        fields = _native_fields(item, index, place, faults)
        if fields is not None:
            if required is not None:
                fields = _with_current_defaults(fields, item, required)
            try:
                criteria.append(Criterion.model_validate(fields))
            except ValidationError as error:
                faults += faults_from_error(place, Criterion, error)
    return criteria


def as_text(value: Any) -> str:
    """Return a text as it is, the empty string for None, and other scalars as text."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def _native_fields(item: Any, index: int, where: str, faults: list[Fault]) -> dict[str, Any] | None:
    """Return the fields of a native criterion for an item; None if it has faults that only AgentV's names can express.

    The remaining faults, such as a wrong type of `weight`, come from `Criterion` itself.
    """
    if isinstance(item, str):
        return {"name": f"rubric-{index + 1}", "requirement": item, "weight": 1.0}
    if not isinstance(item, Mapping):
        message = f"must be a text or an object with `id` and `expected_outcome`, got {short(item)}"
        faults.append(Fault(where, "", message))
        return None
    data = {str(key): value for key, value in cast("Mapping[object, Any]", item).items()}
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

    Items with score ranges are gated by `min_score` alone; `required` has no effect on them.
    """
    own: Mapping[str, Any] = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}
    fields = {key: value for key, value in fields.items() if key != "name" or own.get("id") is not None}
    if "scale" in fields:
        return {key: value for key, value in fields.items() if key != "required"}
    return {**({"required": True} if required else {}), **fields}


def _levels(score_ranges: Any, where: str, faults: list[Fault]) -> dict[int, str]:
    """Return the lower bound of each score range with its text.

    The ranges are a map of lower bounds, or a list of objects with a `score_range`. They must cover the whole numbers
    from 0 to 10 without gaps or overlaps.
    """
    if isinstance(score_ranges, Mapping):
        ranges = _ranges_of_map(cast("Mapping[Any, Any]", score_ranges))
    elif isinstance(score_ranges, Sequence) and not isinstance(score_ranges, str):
        ranges = _ranges_of_list(cast("Sequence[Any]", score_ranges))
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
    """Return the low and high score and the text of each range; an empty list if a key is not a whole number."""
    try:
        starts = sorted((int(str(key)), as_text(text)) for key, text in texts.items())
    except ValueError:
        return []
    next_starts = [*(start for start, _ in starts[1:]), _MAX_SCORE + 1]
    return [(start, end - 1, text) for (start, text), end in zip(starts, next_starts, strict=False)]


def _ranges_of_list(entries: Sequence[Any]) -> list[tuple[int, int, str]]:
    """Return the low and high score and the text of each range; an empty list if an entry has no valid range."""
    ranges: list[tuple[int, int, str]] = []
    for entry in entries:
        data: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        pair: Any = data.get("score_range")
        if not (isinstance(pair, Sequence) and len(cast("Sequence[Any]", pair)) == 2 and all(map(_is_score, pair))):
            return []
        text = next((data[key] for key in _OUTCOME_KEYS if data.get(key)), None)
        ranges.append((int(pair[0]), int(pair[1]), as_text(text)))
    return ranges


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_score(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_SCORE


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
    "word-count": "max_words",
    "levenshtein": "similarity",
    "contains-json": "json_schema",
}
"""The condition of a `Check` that is most like an assertion that code decides."""

_LISTS = ("assert", "assertions")
_CONTENTS = ("value", "criteria", "rubrics")
_KEYS = {"type", "weight", "metric", "name", "id", "required", "min_score", *_CONTENTS}
_TEMPLATE = ("{{", "{%", "{#", "file://")
_WEIGHT: TypeAdapter[float] = TypeAdapter(Weight)
_NEGATED = "This is not true of the response: "
_VARIABLE = re.compile(r"\{\{\s*(\w{1,100})\s*\}\}")


class Context(NamedTuple):
    """What the assertions of one list have in common.

    Attributes:
        variables: The values of `{{name}}` in the texts.
        text_is_gate: Whether a text of a typed assertion must hold for the response to pass, as in promptfoo.
        item_is_gate: Whether a plain text and an item of a list must hold unless it says otherwise.
        is_promptfoo: Whether the file is promptfoo's, in which several assertions may have the same `metric`. In
            AgentV, it is a name.
        changes_output: Whether code of the file changes the response before the assertions see it.
    """

    variables: Mapping[str, Any]
    text_is_gate: bool
    item_is_gate: bool
    is_promptfoo: bool
    changes_output: bool = False


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


def read_assertions(
    entries: Any, where: str, context: Context, faults: list[Fault], losses: list[str], left_out: list[str]
) -> list[Group]:
    """Read the assertions of one test.

    Args:
        entries: The list, as parsed.
        where: Its place in the document.
        context: What the assertions have in common.
        faults: The list to which faults are appended.
        losses: The list to which one message is appended for everything that is not read.
        left_out: The list to which the same messages are appended if a pass depends on what they are about.
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
            groups.append(_read_judged(cast("Mapping[str, Any]", entry), place, context, faults, losses, left_out))
        elif _type_of(cast("Mapping[str, Any]", entry)) == "assert-set":
            groups.append(_read_set(cast("Mapping[str, Any]", entry), place, context, faults, losses, left_out))
        else:
            groups.append(_read_coded(cast("Mapping[str, Any]", entry), place, context, faults, losses, left_out))
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


def _read_coded(
    entry: Mapping[str, Any],
    where: str,
    context: Context,
    faults: list[Fault],
    losses: list[str],
    left_out: list[str],
) -> Group:
    """Read an assertion that code decides: a criterion with a check, or nothing."""
    kind = _type_of(entry)
    try:
        check = _check_of(entry, context)
    except ValueError as error:
        condition = f"`check` with `{_CONDITIONS[kind]}`" if kind in _CONDITIONS else "`check`"
        message = (
            f"`{where}`: `{kind or 'an assertion without a type'}` {error}, so that the score leaves it out; a "
            f"{condition} may decide the same"
        )
        losses.append(message)
        # promptfoo passes an assertion of weight 0 whatever its score.
        if not (context.is_promptfoo and entry.get("weight") == 0):
            left_out.append(message)
        return Group([])
    negation = "not-" if entry.get("negate") is True else ""
    value = f": {short(entry['value'])}" if entry.get("value") is not None else ""
    fields = {"requirement": f"{negation}{kind}{value}", "check": check, "weight": entry.get("weight", 1.0)}
    return Group(_criterion({**fields, **_gate(entry, context), **_name(entry, context)}, where, faults))


def _check_of(entry: Mapping[str, Any], context: Context) -> Check:
    """Return the check of an assertion.

    Raises:
        ValueError: None decides every text alike.
    """
    kind = _type_of(entry)
    is_negated = kind.startswith("not-")
    kind = kind.removeprefix("not-")
    # `not-` is promptfoo's, which in turn has no `ends-with`.
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
        ValueError: It names a file, or has a template that code of the file must fill in.
    """
    if isinstance(value, Mapping | list | tuple):
        if any(mark in repr(cast("object", value)) for mark in _TEMPLATE):
            raise ValueError("has a template or a file in its value")
        return cast("Any", value)
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
    faults: list[Fault],
    losses: list[str],
    left_out: list[str],
) -> Group:
    """Read a set of assertions, which share its weight. With a threshold, none of them must hold."""
    if entry.get("threshold") is not None:
        losses.append(f"`{where}`: `threshold` of a set has no place in a rubric")
        left_out.append(losses[-1])
        context = context._replace(text_is_gate=False, item_is_gate=False)
    key, inner = assertions_of(entry)
    groups = read_assertions(inner, f"{where}.{key}", context, faults, losses, left_out)
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
    entry: Mapping[str, Any],
    where: str,
    context: Context,
    faults: list[Fault],
    losses: list[str],
    left_out: list[str],
) -> Group:
    """Read an assertion that a judge decides."""
    key = next((key for key in _CONTENTS if entry.get(key) is not None), _CONTENTS[0])
    content: Any = entry.get(key)
    if content is None and (entry.get("prompt") or not context.is_promptfoo):
        prompt = "a `prompt` and " if entry.get("prompt") else ""
        losses.append(f"`{where}`: has {prompt}no `value`, which names nothing to look for, and is left out")
        left_out.append(losses[-1])
        return Group([])
    negates = not context.is_promptfoo and entry.get("negate") is True
    others = sorted(map(str, set(entry) - _KEYS - ({"negate"} if negates else set())))
    losses += [f"`{where}`: `{name}` has no place in a rubric" for name in others]
    weight: Any = entry.get("weight", 1.0)
    is_negated = negates or _type_of(entry).startswith("not-")
    if isinstance(content, str):
        if content.startswith("file://"):
            message = f"names the file {short(content)}, which is not read: write its text here"
            faults.append(Fault(where, key, message))
            return Group([])
        text = _filled(content, where, context, losses)
        fields = {
            "requirement": _NEGATED + text if is_negated and text.strip() else text,
            "weight": weight,
            **_gate(entry, context),
        }
        return Group(_criterion({**fields, **_name(entry, context)}, where, faults))
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


Dialect = Literal["agentv", "promptfoo"]

_DEFAULTS = ("default_test", "defaultTest")
_SUITE_KEYS = {"tests", "assert", "assertions", *_DEFAULTS}
_AGENTV_TEST_KEYS = {"id", "input", "criteria", "assertions", "expected_output"}


class Suite(NamedTuple):
    """A file of tests.

    Attributes:
        dialect: The project that reads the file.
        document: The file, as parsed.
        tests: Its tests, as parsed.
    """

    dialect: Dialect
    document: Mapping[str, Any]
    tests: list[Mapping[str, Any]]

    def has_own(self, index: int) -> bool:
        """Whether a test has assertions of its own."""
        return bool(assertions_of(self.tests[index])[1])


def suite_of(document: Any) -> Suite | None:
    """Return the file of tests that parsed data is, or a list of assertions as one; None for other data."""
    if isinstance(document, list | tuple) and any(is_judged(entry) for entry in cast("Sequence[Any]", document)):
        document = {"assert": document}
    if not isinstance(document, Mapping) or not _SUITE_KEYS & set(cast("Mapping[str, Any]", document)):
        return None
    data = cast("Mapping[str, Any]", document)
    tests_in_file: Any = data.get("tests")
    is_list = isinstance(tests_in_file, Sequence) and not isinstance(tests_in_file, str)
    entries = cast("Sequence[Any]", tests_in_file) if is_list else ()
    tests = [cast("Mapping[str, Any]", entry) for entry in entries if isinstance(entry, Mapping)]
    lists = [assertions_of(holder)[1] for holder in (data, *tests)]
    entries = [entry for entries in lists if isinstance(entries, list | tuple) for entry in entries]
    is_agentv = (
        "assertions" in data
        or any(_AGENTV_TEST_KEYS & set(test) for test in tests)
        or any(isinstance(entry, str) or _has_objects(entry) for entry in entries)
    )
    return Suite("agentv" if is_agentv else "promptfoo", data, tests)


NOTHING_READ = "has no assertion that is read"
"""The beginning of the fault of a test without a criterion."""


def has_shared(suite: Suite) -> bool:
    """Whether a file has assertions that all its tests share."""
    return any(assertions_of(holder)[1] for _, holder in _holders(suite, None, []))


def read_test(suite: Suite, index: int | None, source: str) -> Reading:
    """Make the rubric of one test: the assertions that all tests share, and its own.

    Args:
        suite: The file.
        index: The position of the test; None for the shared assertions alone.
        source: The name of the file, for errors.

    Raises:
        RubricError: With every fault.
    """
    faults: list[Fault] = []
    losses: list[str] = []
    left_out: list[str] = []
    holders = _holders(suite, index, losses)
    left_out += losses
    is_promptfoo = suite.dialect == "promptfoo"
    thresholds = [holder["threshold"] for _, holder in holders[1:] if holder.get("threshold") is not None]
    threshold: Any = thresholds[-1] if is_promptfoo and thresholds else None
    context = Context(
        variables={name: value for _, holder in holders[1:] for name, value in _mapping(holder, "vars").items()},
        text_is_gate=is_promptfoo and threshold is None,
        item_is_gate=suite.dialect == "agentv" or threshold is None,
        is_promptfoo=is_promptfoo,
        changes_output=_changes_output(suite, [holder for _, holder in holders]),
    )
    groups: list[Group] = []
    for where, holder in holders:
        key, entries = assertions_of(holder)
        place = f"{where}.{key}" if where else key
        groups += read_assertions(entries, place, context, faults, losses, left_out)
        if holder.get("assertScoringFunction") is not None:
            losses.append(f"`{where or 'the file'}`: `assertScoringFunction` is code, and is not read")
            left_out.append(losses[-1])
    criteria = join([group for group in groups if group.criteria])
    if not criteria and not faults:
        faults.append(Fault("", "", f"{NOTHING_READ}, such as `llm-rubric` or `contains`"))
    fields: dict[str, Any] = {"pass_mark": threshold} if threshold is not None else {}
    fields |= {"left_out": tuple(left_out)} if left_out else {}
    name: Any = suite.document.get("name")
    fields |= {"name": name} if isinstance(name, str) and name else {}
    return Reading(make_rubric(criteria, fields, source, suite.dialect, faults), losses)


def read_only_test(suite: Suite, source: str) -> Reading:
    """Make the one rubric of a file.

    Raises:
        RubricError: With every fault; one of them may be that several tests have assertions of their own.
    """
    own = [index for index in range(len(suite.tests)) if suite.has_own(index)]
    if len(suite.tests) > 1 and own:
        message = "differ from case to case: read the file with `load_eval_cases`, which returns a rubric for each"
        make_rubric([], {}, source, suite.dialect, [Fault("tests", "assert", message)])
    return read_test(suite, own[0] if own else None, source)


def warn_of_losses(messages: list[str], source: str) -> None:
    """Warn that parts of a file are not graded."""
    if messages:
        parts = "1 part of the file is" if len(messages) == 1 else f"{len(messages)} parts of the file are"
        message = f"{source}: {parts} not graded, or not as there: {'; '.join(messages[:3])}"
        # Whoever prints or sends it must be able to, also where a file has half an emoji.
        warnings.warn(encodable(f"{message}. `rubric-integrations convert` lists each"), stacklevel=4)


def _holders(suite: Suite, index: int | None, losses: list[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the file, its default test and the test, each with its place; in AgentV, a test may skip the others."""
    holders: list[tuple[str, Mapping[str, Any]]] = [("", suite.document)]
    for key in _DEFAULTS:
        default: Any = suite.document.get(key)
        if isinstance(default, Mapping):
            holders.append((key, cast("Mapping[str, Any]", default)))
        elif default is not None:
            losses.append(f"`{key}`: the file that it names is not read")
    if index is not None:
        if suite.dialect == "agentv" and _mapping(suite.tests[index], "execution").get("skip_defaults") is True:
            holders = [("", {})]
        holders.append((f"tests[{index}]", suite.tests[index]))
    return holders


def _mapping(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value: Any = holder.get(key)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _changes_output(suite: Suite, holders: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a test, the default test or a provider has code that changes the response."""
    providers: Any = suite.document.get("providers")
    entries = cast("Sequence[Any]", providers) if isinstance(providers, list | tuple) else [providers]
    places = [
        *(_mapping(holder, "options") for holder in holders),
        *(cast("Mapping[str, Any]", entry) for entry in entries if isinstance(entry, Mapping)),
    ]
    return any(place.get(key) is not None for place in places for key in ("transform", "postprocess"))


def _has_objects(entry: Any) -> bool:
    """Whether an assertion has a list of rubric items that are objects."""
    contents = cast("Mapping[str, Any]", entry).values() if isinstance(entry, Mapping) else ()
    return any(
        isinstance(item, Mapping) for content in contents if isinstance(content, list | tuple) for item in content
    ) and is_judged(entry)


def matches(document: Any) -> bool:
    """Return whether parsed data is a file of tests or a list of assertions, and not one of AgentV."""
    suite = suite_of(document)
    return suite is not None and suite.dialect == "promptfoo"


def read(document: Any, source: str) -> Rubric:
    """Make one rubric of the assertions that a judge decides, and warn of those that are left out.

    Raises:
        RubricError: With every fault; one of them may be that several tests have assertions of their own.
    """
    reading = _read(document, source)
    warn_of_losses(reading.losses, source)
    return reading.rubric


def losses(document: Any) -> list[str]:
    """Return one message for everything that the rubric of a document does not hold."""
    return _read(document, "rubric").losses


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as one test, with one message for everything that it cannot express."""
    messages = rubric_losses(rubric, kept=("name", "pass_mark"))
    all_required = all(criterion.required and criterion.min_score is None for criterion in rubric.criteria)
    kept = ("weight", "required") if all_required else ("weight",)
    entries: list[dict[str, Any]] = []
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        has_metric = len(criterion.tags) == 1
        messages += criterion_losses(key, criterion, (*kept, "tags") if has_metric else kept)
        if criterion.is_penalty:
            messages.append(f"`{key}`: promptfoo has no penalties and reads a negative weight differently")
        if "{{" in criterion.requirement or criterion.requirement.startswith("file://"):
            messages.append(f"`{key}`: its requirement is taken for a template or a file")
        entry: dict[str, Any] = {"type": "llm-rubric", "value": criterion.full_requirement, "weight": criterion.weight}
        entries.append({**entry, **({"metric": criterion.tags[0]} if has_metric else {})})
    test: dict[str, Any] = {"assert": entries}
    if not all_required:
        test["threshold"] = rubric.pass_mark
    elif rubric.pass_mark != Rubric.model_fields["pass_mark"].default:
        messages.append(f"`pass_mark` {rubric.pass_mark:g} has no place beside required criteria")
    return {**({"name": rubric.name} if rubric.name else {}), "tests": [test]}, messages


def _read(document: Any, source: str) -> Reading:
    suite = suite_of(document)
    if suite is None:
        raise error_of(source, "promptfoo", [Fault("", "tests", "is missing: there is no test with an `assert`")])
    return read_only_test(suite._replace(dialect="promptfoo"), source)
