"""Criteria decided by code. A check never asks a model, and never costs a call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from rubric_integrations._util.numbers import read_quantities
from rubric_integrations.checks.metrics import run_metric
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.rubric.check import Check, NumberCheck, Texts
from rubric_integrations.submission.submission import Submission

# A pattern that backtracks without end is stopped after this many seconds, and reported as a failure.
PATTERN_SECONDS = 1.0


def run_check(check: Check, submission: Submission | str) -> Judgment:
    """Decide a check on a response: MET if every condition holds; of a metric, its own value.

    Raises:
        JudgeFailure: Of kind `check`: a pattern took too long, a schema refers to what is not in it, or a metric
            lacks what it needs.

    Example:
        >>> run_check(Check(contains="17.2%"), "The margin was 17.2%.").verdict
        'MET'
    """
    if isinstance(submission, str):
        submission = Submission(response=submission)
    if check.metric is not None:
        value = run_metric(check.metric, submission)
        return Judgment(verdict=f"{value:.4g}", value=value, reason=f"the metric {check.metric.type}")
    response = submission.response
    unmet = [reason for name in check.conditions if (reason := _unmet(name, check, response))]
    if unmet:
        return Judgment(verdict="UNMET", value=0.0, reason="; ".join(unmet))
    return Judgment(verdict="MET", value=1.0, reason="the check holds: " + ", ".join(check.conditions))


def _unmet(condition: str, check: Check, response: str) -> str:
    """Why a condition does not hold; empty where it does."""
    text = response.casefold() if check.ignore_case else response
    match condition:
        case "contains":
            missing = [part for part in _many(check.contains) if _case(part, check) not in text]
            return "does not contain " + ", ".join(map(repr, missing)) if missing else ""
        case "not_contains":
            found = [part for part in _many(check.not_contains) if _case(part, check) in text]
            return "contains " + ", ".join(map(repr, found)) if found else ""
        case "equals":
            return "" if text.strip() == _case(check.equals or "", check).strip() else f"is not {check.equals!r}"
        case "regex":
            flags = regex.IGNORECASE if check.ignore_case else 0
            return "" if _search(check.regex or "", response, flags) else "has no match of the pattern"
        case "number":
            return _number(cast("NumberCheck", check.number), response)
        case "json_schema":
            return _json_schema(check.json_schema or {}, response)
        case _:
            words = len(response.split())
            if check.min_words is not None and words < check.min_words:
                return f"has {words} words, fewer than {check.min_words}"
            if check.max_words is not None and words > check.max_words:
                return f"has {words} words, more than {check.max_words}"
            return ""


def _many(texts: Texts | None) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else texts or ()


def _case(part: str, check: Check) -> str:
    return part.casefold() if check.ignore_case else part


def _search(pattern: str, text: str, flags: int = 0) -> bool:
    try:
        return regex.search(pattern, text, flags, timeout=PATTERN_SECONDS, concurrent=True) is not None
    except TimeoutError:
        raise JudgeFailure(
            "check", f"the pattern {pattern!r} took longer than {PATTERN_SECONDS:g} s: make it less ambiguous"
        ) from None


def _number(wanted: NumberCheck, response: str) -> str:
    found = [number for number in read_quantities(response) if not wanted.unit or number.unit == wanted.unit]
    if any(abs(number.value - wanted.value) <= wanted.tolerance + 1e-12 * abs(wanted.value) for number in found):
        return ""
    within = f" within {wanted.tolerance:g}" if wanted.tolerance else ""
    return f"does not state the number {wanted.value:g}{wanted.unit if wanted.unit == '%' else ''}{within}"


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _search(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


# `pattern` under the same time bound as `regex`; the empty registry keeps a `$ref` from reaching the network.
_SchemaValidator: Any = extend(Draft202012Validator, {"pattern": _pattern})


def _json_schema(schema: dict[str, Any], response: str) -> str:
    try:
        instance = json.loads(response)
    except (ValueError, RecursionError):
        return "is not JSON"
    try:
        error = best_match(_SchemaValidator(schema, registry=Registry()).iter_errors(instance))
    except Unresolvable as unresolvable:
        raise JudgeFailure("check", f"the schema refers to {unresolvable.ref!r}, which is not in it") from None
    return f"at {error.json_path}: {error.message}"[:300] if error else ""
