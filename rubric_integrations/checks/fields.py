"""The condition `fields`: fields of the response, which is JSON, have their expected values."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from typing import Any, cast

from rubric_integrations._util.dates import read_date
from rubric_integrations._util.json_lines import parse_json
from rubric_integrations._util.json_paths import value_at
from rubric_integrations.checks.fenced import fenced_blocks
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.answer_checks import FieldCheck, FieldsCheck
from rubric_integrations.rubric.check import Check
from rubric_integrations.submission.submission import Submission

# A reason with more is not read.
MAX_REASON = 500
# Of each error of a parser, which may quote the text.
_MAX_ERROR = 120


def has_fields(check: Check, submission: Submission) -> str:
    """Return which fields of `check.fields` do not have their expected values, or an empty string."""
    _, reason = field_share(check, submission)
    return reason


def field_share(check: Check, submission: Submission) -> tuple[float, str]:
    """Return the weighted share of the fields that have their expected values, and which of them do not.

    The response is JSON, or contains one fenced block that is JSON. If it is not, no field equals.

    Raises:
        JudgeFailure: Of kind `check`: a field has no `equals`, and the submission has no reference, or one that is not
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
    return min(1.0, equal / total), "; ".join(reasons)[:MAX_REASON]


def _parse_answer(text: str) -> Any:
    """Parse a response.

    Raises:
        ValueError: It is not JSON, has a key twice in one object, or has several fenced blocks.
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
    """Whether two JSON values are equal; true and 1 are not."""
    if isinstance(expected, dict) and isinstance(value, dict):
        one, other = cast("dict[str, Any]", value), cast("dict[str, Any]", expected)
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key], tolerance) for key in other)
    if isinstance(expected, list) and isinstance(value, list):
        items, others = cast("list[Any]", value), cast("list[Any]", expected)
        return len(items) == len(others) and all(map(_is_equal, items, others, [tolerance] * len(others)))
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
    except OverflowError:  # an integer that no float can hold
        return False
