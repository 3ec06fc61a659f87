"""The condition `json_schema`: the response is JSON that satisfies a JSON Schema (draft 2020-12).

The response decides how much work its validation is, so that the work has a limit. It is counted and not timed, so that
the same response has the same outcome on every machine; only the patterns of a schema have a limit in time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from rubric_integrations.checks.text import PATTERN_SECONDS, search
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.check import Check
from rubric_integrations.submission.submission import Submission

MAX_REASON = 300
# An answer of 50,000 characters has a few thousand values, and a schema a few keywords for each of them. As many
# comparisons take less than a second.
MAX_COMPARISONS = 30_000
# References within references. A schema that refers to itself would otherwise recurse until Python's limit, where a
# library below this one fails with an error that is no `Exception`.
MAX_REFERENCES = 30


class _Work:
    """The work that one check may still do: comparisons, and seconds of patterns."""

    def __init__(self) -> None:
        self._comparisons, self._seconds = MAX_COMPARISONS, PATTERN_SECONDS
        self.references = 0

    def compare(self, count: int) -> None:
        self._comparisons -= count
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


_work: ContextVar[_Work] = ContextVar("_work")


def satisfies_schema(check: Check, submission: Submission) -> str:
    """Return the reason why the response does not satisfy `check.json_schema`, or an empty string.

    Raises:
        JudgeFailure: Of kind `check`: the schema refers to a schema outside itself, a pattern in it took too long, or
            the response and the schema need more than 30,000 comparisons.
    """
    try:
        instance = json.loads(submission.response, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return "is not JSON"
    # The empty registry keeps a `$ref` from requesting a schema from the network.
    validator = _Validator(cast("dict[str, Any]", check.json_schema), registry=Registry())
    token = _work.set(_Work())
    try:
        error = best_match(validator.iter_errors(instance))
    except Unresolvable as unresolvable:
        message = f"the condition `json_schema` refers to {unresolvable.ref!r}, which is not in its schema"
        raise JudgeFailure("check", message) from None
    finally:
        _work.reset(token)
    return f"at {error.json_path}: {error.message}"[:MAX_REASON] if error else ""


def _refuse(constant: str) -> float:
    """Refuse NaN and the infinities, which Python reads although JSON has no such numbers: no bound excludes NaN."""
    raise ValueError(constant)


_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _work.get().search(pattern, instance):
        yield ValidationError(f"{instance[:MAX_REASON]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, schema in patterns.items():
            for key, value in cast("dict[str, Any]", instance).items():
                if _work.get().search(pattern, key):
                    yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Leave the properties that a pattern allows out, and let the library validate the others."""
    if isinstance(instance, dict):
        properties, patterns = cast("dict[str, Any]", instance), schema.get("patternProperties", ())
        others = {
            key: child
            for key, child in properties.items()
            if not any(_work.get().search(pattern, key) for pattern in patterns)
        }
        rest = {keyword: part for keyword, part in schema.items() if keyword != "patternProperties"}
        yield from _KEYWORDS["additionalProperties"](validator, value, others, rest) or ()


def _unique_items(_validator: Any, is_unique: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if is_unique and isinstance(instance, list):
        _work.get().compare(len(cast("list[Any]", instance)))
        # Texts, because the hashes of numbers can be chosen to be equal, and a set would then compare every pair.
        items = [json.dumps(with_plain_numbers(item), sort_keys=True) for item in cast("list[Any]", instance)]
        if len(set(items)) < len(items):
            yield ValidationError("the list has non-unique elements")


def with_plain_numbers(value: Any) -> Any:
    """Return a value in which equal numbers are written alike: JSON Schema does not distinguish 1.0 from 1."""
    if isinstance(value, Mapping):
        return {key: with_plain_numbers(child) for key, child in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [with_plain_numbers(child) for child in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _counted(keyword: _Keyword) -> _Keyword:
    """Count the comparisons of a keyword: one, or as many as a list such as `enum` has values."""

    def count(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _work.get().compare(max(1, len(value)) if isinstance(value, list) else 1)
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
            # Also where the library stops at the first error.
            work.references -= 1

    return refer


_KEYWORDS: dict[str, _Keyword] = dict(Draft202012Validator.VALIDATORS)
# jsonschema searches patterns without a time limit, and compares every pair of items that are to be unique.
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
