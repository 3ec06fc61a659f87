"""The condition `json_schema`: the response is JSON that satisfies a JSON Schema (draft 2020-12)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from rubric_integrations.checks.text import search
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.check import Check

MAX_REASON = 300


def satisfies_schema(check: Check, response: str) -> str:
    """Return the reason why the response does not satisfy `check.json_schema`, or an empty string.

    Raises:
        JudgeFailure: Of kind `check`: the schema refers to a schema outside itself, or a pattern in it took too long.
    """
    try:
        instance = json.loads(response, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return "is not JSON"
    # The empty registry keeps a `$ref` from requesting a schema from the network.
    validator = _Validator(cast("dict[str, Any]", check.json_schema), registry=Registry())
    try:
        error = best_match(validator.iter_errors(instance))
    except Unresolvable as unresolvable:
        raise JudgeFailure("check", f"the schema refers to {unresolvable.ref!r}, which is not in it") from None
    return f"at {error.json_path}: {error.message}"[:MAX_REASON] if error else ""


def _refuse(constant: str) -> float:
    """Refuse NaN and the infinities, which Python reads although JSON has no such numbers: no bound excludes NaN."""
    raise ValueError(constant)


def _match_pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not search(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


# jsonschema searches a `pattern` without a time limit; this validator uses the same limit as the condition `regex`.
_Validator: Any = extend(Draft202012Validator, {"pattern": _match_pattern})
