"""Conditions on JSON in a response: `json_schema` (draft 2020-12) and `fields`. Also a parser of fenced code blocks.

The response determines how long its validation takes. Therefore, the work is limited. The limit counts comparisons
instead of seconds, because a response must have the same result on every machine. Only the patterns of a schema have a
time limit.
"""

from __future__ import annotations

import json
import re
import reprlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from rubric_integrations._util.json import parse_json, value_at
from rubric_integrations._util.text import read_date
from rubric_integrations.checks.registry import decides, measures
from rubric_integrations.checks.text import PATTERN_SECONDS, search
from rubric_integrations.rubric.check import Check, FieldCheck, FieldsCheck
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.submission.submission import Submission

_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)")


class FencedBlock(NamedTuple):
    """A fenced code block of Markdown that has a closing fence.

    Attributes:
        language: The first word after the opening fence, in lower case. Empty if there is no word.
        first_line: The line number of the block's first line of content in the response, from 1.
        lines: The lines between the fences.
    """

    language: str
    first_line: int
    lines: tuple[str, ...]


def fenced_blocks(text: str) -> Iterator[FencedBlock]:
    r"""Yield the fenced code blocks of a text. A block without a closing fence is left out, because it was cut off.

    Example:
        >>> [block.lines for block in fenced_blocks("Here:\n```python\nx = 1\n```")]
        [('x = 1',)]
    """
    opening: re.Match[str] | None = None
    start = 0
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if opening is None:
            # Three backticks and text with another one in the same line are code within a sentence.
            if fence and not (fence["marks"][0] == "`" and "`" in line[fence.end("marks") :]):
                opening, start = fence, number
        elif fence and fence["marks"].startswith(opening["marks"]) and line.strip() == fence["marks"]:
            yield FencedBlock(opening["language"].lower(), start + 1, tuple(lines[start : number - 1]))
            opening = None


# The most characters of a reason in a report.
MAX_FIELDS_REASON = 500
# The most characters of a parser's error, which may quote the text.
_MAX_ERROR = 120


@decides("fields")
def has_fields(check: Check, submission: Submission) -> str:
    """Return a message if a field of `check.fields` lacks its expected value, otherwise an empty string."""
    _, reason = field_share(check, submission)
    return reason


@measures("fields")
def field_share(check: Check, submission: Submission) -> tuple[float, str]:
    """Return the weighted share of the fields that have their expected values, and a reason.

    The reason lists the fields that do not have their expected values.

    The response must be JSON, or contain exactly one fenced block of JSON. Otherwise, the share is 0.

    Raises:
        JudgeFailure: Of kind `check`, if a field has no `equals`, and the submission's reference is missing, is not
            JSON or lacks the field.
    """
    fields = cast("FieldsCheck", check.fields).expected
    expected = list(_expected_values(fields, submission.reference))
    try:
        answer = _parse_answer(submission.response)
    except ValueError as error:
        return 0.0, str(error)[:_MAX_ERROR]
    faults = [_fault(field, value, answer) for field, value in zip(fields, expected, strict=True)]
    total = sum(field.weight for field in fields)
    equal = sum(field.weight for field, fault in zip(fields, faults, strict=True) if not fault)
    reasons = [f"`{field.path}` {fault}" for field, fault in zip(fields, faults, strict=True) if fault]
    return min(1.0, equal / total), "; ".join(reasons)[:MAX_FIELDS_REASON]


def _parse_answer(text: str) -> Any:
    """Parse a response as JSON, or the JSON in its single fenced block.

    Raises:
        ValueError: The response is not JSON, has a key twice in one object, or has several fenced blocks.
    """
    try:
        return _parse(text)
    except ValueError:
        blocks = [block for block in fenced_blocks(text) if block.language in ("", "json")]
        if not blocks:
            raise
    if len(blocks) > 1:
        raise ValueError(f"is not JSON: it has {len(blocks)} fenced blocks, any of which may be the answer")
    return _parse("\n".join(blocks[0].lines))


def _parse(text: str) -> Any:
    value = parse_json(text.strip())
    # Python reads NaN and infinite numbers, which JSON does not have.
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON: it has a number that is not finite, or nests too deeply") from None
    return value


def _expected_values(fields: tuple[FieldCheck, ...], reference: str | None) -> Iterator[Any]:
    parsed: Any = None
    for field in fields:
        if field.has_expected:
            yield field.equals
            continue
        if parsed is None:
            parsed = (_parse_reference(reference, field),)
        try:
            yield value_at(parsed[0], field.keys)
        except LookupError as error:
            problem = f"the submission's `reference` lacks the field `{field.path}` ({error.args[0]})"
            raise JudgeFailure("check", f"{problem}: add it, or write `equals`") from None


def _parse_reference(reference: str | None, field: FieldCheck) -> Any:
    remedy = f"the field `{field.path}` has no `equals`: write it, or pass a `reference` that is JSON"
    if not reference:
        raise JudgeFailure("check", f"the submission has no `reference`, and {remedy}")
    try:
        return _parse_answer(reference)
    except ValueError as error:
        message = f"the submission's `reference` {str(error)[:_MAX_ERROR]}, and {remedy}"
        raise JudgeFailure("check", message) from None


def _fault(field: FieldCheck, expected: Any, answer: Any) -> str:
    """Return why a field of an answer does not have its expected value, or an empty string."""
    try:
        value = value_at(answer, field.keys)
    except LookupError as error:
        return f"is missing ({error.args[0]})"
    if field.date:
        return _date_fault(value, expected)
    within = f" within {field.tolerance:g}" if field.tolerance else ""
    if _is_equal(value, expected, field.tolerance):
        return ""
    return f"is {reprlib.repr(value)}, not {reprlib.repr(expected)}{within}"


def _date_fault(value: Any, expected: Any) -> str:
    try:
        expected_date = read_date(str(expected))
    except ValueError as error:
        message = f"the expected date {reprlib.repr(expected)} of the submission's `reference` {error}"
        raise JudgeFailure("check", message) from None
    if not isinstance(value, str):
        return f"is {reprlib.repr(value)}, not the text of a date"
    try:
        is_equal = read_date(value) == expected_date
    except ValueError as error:
        return f"is {reprlib.repr(value)}, which {error}"
    return "" if is_equal else f"is {reprlib.repr(value)}, not {expected_date.isoformat()}"


def _is_equal(value: Any, expected: Any, tolerance: float | None) -> bool:
    """Return whether two JSON values are equal. `true` and 1 are not equal."""
    if isinstance(expected, dict) and isinstance(value, dict):
        return value.keys() == expected.keys() and all(_is_equal(value[key], expected[key], tolerance) for key in value)
    if isinstance(expected, list) and isinstance(value, list):
        return len(value) == len(expected) and all(map(_is_equal, value, expected, [tolerance] * len(expected)))
    if isinstance(expected, bool) or isinstance(value, bool) or not isinstance(expected, int | float):
        return type(value) is type(expected) and value == expected
    return isinstance(value, int | float) and _is_near(value, expected, tolerance)


def _is_near(value: float, expected: float, tolerance: float | None) -> bool:
    if value == expected:
        return True
    if isinstance(value, int) and isinstance(expected, int) and not tolerance:
        return False  # long numbers that identify something are compared digit by digit
    try:
        # 0.1 + 0.2 and 0.3 are the same number.
        return abs(value - expected) <= (tolerance or 0.0) + 1e-12 * abs(expected)
    except OverflowError:  # an integer that is too large for a float
        return False


MAX_SCHEMA_REASON = 300
# A response of 50,000 characters has a few thousand values, and a schema has a few keywords for each of them. This
# number of comparisons takes less than a second.
MAX_COMPARISONS = 30_000
# The deepest nesting of references. Otherwise, a schema that refers to itself would recurse until Python's limit, where
# a library that jsonschema uses fails with an error that is not an `Exception`.
MAX_REFERENCES = 30


# The number of characters of a list or an object that take about as long as one comparison, for comparing or quoting
# them and for sorting them.
_CHARS_OF_COMPARISON, _CHARS_OF_SORTING = 1_000, 100


class _Work:
    """The remaining work that one check may do: comparisons and seconds for searching patterns."""

    def __init__(self, instance: Any) -> None:
        self._comparisons, self._seconds = MAX_COMPARISONS, PATTERN_SECONDS
        self._sizes = _sizes_of(instance)
        self.references = 0

    def compare(self, count: int, instance: Any = None, chars_at_once: int = _CHARS_OF_COMPARISON) -> None:
        """Count comparisons. Long lists count more, because the library quotes the list in each error."""
        size = len(instance) if isinstance(instance, str) else self._sizes.get(id(instance), 0)
        self._comparisons -= count + size // chars_at_once
        if self._comparisons < 0:
            raise JudgeFailure(
                "check",
                f"the condition `json_schema` needs more than {MAX_COMPARISONS:,} comparisons of this response with "
                "the schema: ask for a shorter response, or for a simpler schema",
            )

    def search(self, pattern: str, text: str) -> bool:
        self.compare(1)
        start = time.monotonic()
        try:
            return search(pattern, text, seconds=max(0.001, self._seconds))
        finally:
            self._seconds -= time.monotonic() - start


def _sizes_of(instance: Any) -> dict[int, int]:
    """Return the approximate number of characters of each list and object in a value, by its `id`."""
    values = [instance]
    for value in values:
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    sizes: dict[int, int] = {}
    for value in reversed(values):  # the children of a list come after the list
        if isinstance(value, dict | list):
            children: list[Any] = [*value, *value.values()] if isinstance(value, dict) else value
            sizes[id(value)] = sum(
                len(child) if isinstance(child, str) else sizes.get(id(child), 1) + 2 for child in children
            )
    return sizes


_work: ContextVar[_Work] = ContextVar("_work")


@decides("json_schema")
def satisfies_schema(check: Check, submission: Submission) -> str:
    """Return a message if the response is not JSON or violates `check.json_schema`, otherwise an empty string.

    Raises:
        JudgeFailure: Of kind `check`, if the schema refers to a schema outside itself, a pattern takes too long, or the
            validation needs more than 30,000 comparisons.
    """
    try:
        instance = json.loads(submission.response, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return "is not JSON"
    # The empty registry keeps a `$ref` from requesting a schema from the network.
    validator = _Validator(check.json_schema, registry=Registry())
    token = _work.set(_Work(instance))
    try:
        error = best_match(validator.iter_errors(instance))
    except Unresolvable as unresolvable:
        message = f"the condition `json_schema` refers to {unresolvable.ref!r}, which is not in its schema"
        raise JudgeFailure("check", message) from None
    finally:
        _work.reset(token)
    return f"at {error.json_path}: {error.message}"[:MAX_SCHEMA_REASON] if error else ""


def _refuse(constant: str) -> float:
    """Refuse NaN and infinite numbers, which are not JSON. Python reads them, and no bound of a schema excludes NaN."""
    raise ValueError(constant)


_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _work.get().search(pattern, instance):
        yield ValidationError(f"{instance[:MAX_SCHEMA_REASON]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, schema in patterns.items():
            for key, value in instance.items():
                if _work.get().search(pattern, key):
                    yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Leave out the properties that match a pattern and let the library validate the other properties."""
    if isinstance(instance, dict):
        patterns = schema.get("patternProperties", ())
        others = {
            key: child
            for key, child in instance.items()
            if not any(_work.get().search(pattern, key) for pattern in patterns)
        }
        rest = {keyword: part for keyword, part in schema.items() if keyword != "patternProperties"}
        yield from _KEYWORDS["additionalProperties"](validator, value, others, rest) or ()


def _unique_items(_validator: Any, is_unique: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if is_unique and isinstance(instance, list):
        _work.get().compare(len(instance), instance, _CHARS_OF_SORTING)
        # Texts, because the hashes of numbers can be chosen to be equal, and a set would then compare every pair.
        items = [json.dumps(with_plain_numbers(item), sort_keys=True) for item in instance]
        if len(set(items)) < len(items):
            yield ValidationError("the list has non-unique elements")


def with_plain_numbers(value: Any) -> Any:
    """Return a value with whole floats as integers, because JSON Schema does not distinguish 1.0 from 1."""
    if isinstance(value, Mapping):
        return {key: with_plain_numbers(child) for key, child in value.items()}
    if isinstance(value, list):
        return [with_plain_numbers(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _counted(keyword: _Keyword) -> _Keyword:
    """Count the comparisons of a keyword: one for each value of a list such as `enum`, otherwise one."""

    def count(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _work.get().compare(max(1, len(value)) if isinstance(value, list) else 1, instance)
        yield from keyword(validator, value, instance, schema) or ()

    return count


def _reference(keyword: _Keyword) -> _Keyword:
    """Refuse references that are nested too deeply."""

    def refer(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        work = _work.get()
        work.references += 1
        try:
            if work.references > MAX_REFERENCES:
                raise RecursionError
            yield from keyword(validator, value, instance, schema) or ()
        finally:
            # Also if the library stops at the first error.
            work.references -= 1

    return refer


_KEYWORDS: dict[str, _Keyword] = dict(Draft202012Validator.VALIDATORS)
# jsonschema searches patterns without a time limit, and for `uniqueItems` it compares every pair of items.
_BOUNDED: dict[str, _Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "$ref": _reference(_KEYWORDS["$ref"]),
    "$dynamicRef": _reference(_KEYWORDS["$dynamicRef"]),
}
_Validator: Any = extend(
    Draft202012Validator, {name: _counted(keyword) for name, keyword in (_KEYWORDS | _BOUNDED).items()}
)
