"""Compares the arguments of two tool calls. The agent chooses one of them, so that the work has a limit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rubric_integrations._util.json_paths import split_path, value_at
from rubric_integrations.checks.json_schema import with_plain_numbers
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.trajectory_checks import ArgumentsMode

Arguments = Mapping[str, Any] | str
"""The arguments of a call: an object, or the text of arguments that are no JSON object."""

# Two hundred expected calls and two thousand calls are 400,000 pairs, with a few values each. It takes about a second.
MAX_COMPARISONS = 2_000_000

_MISSING = object()


class ComparisonLimit:
    """Counts the values that one check compares, because the agent decides how many there are."""

    def __init__(self) -> None:
        self._left = MAX_COMPARISONS

    def count(self, values: int = 1) -> None:
        """Count values.

        Raises:
            JudgeFailure: Of kind `check`: there are more than 2,000,000.
        """
        self._left -= values
        if self._left < 0:
            raise JudgeFailure(
                "check",
                f"the condition `tool_calls` needs more than {MAX_COMPARISONS:,} comparisons of values: expect fewer "
                "calls, or compare fewer arguments with `match`",
            )


def same_arguments(
    expected: Arguments,
    made: Arguments,
    match: ArgumentsMode | Sequence[str],
    tolerance: float,
    limit: ComparisonLimit,
) -> bool:
    """Return whether the arguments that an agent passed are the expected ones.

    Args:
        expected: The expected arguments.
        made: The arguments that the agent passed.
        match: How they are compared: a mode, or dotted paths whose values must be in both, and equal.
        tolerance: The largest accepted difference between two numbers.
        limit: Counts the compared values.

    Raises:
        JudgeFailure: Of kind `check`: too many values were compared.

    Example:
        >>> same_arguments({"year": 2024}, {"year": 2024.0, "unit": "%"}, "superset", 0.0, ComparisonLimit())
        True
    """
    if match == "ignore":
        return True
    limit.count()
    if isinstance(expected, str) or isinstance(made, str):
        return expected == made
    if match == "exact":
        return _is_equal(expected, made, tolerance, limit)
    if not isinstance(match, str):
        limit.count(len(match))
        pairs = [(_field(expected, path), _field(made, path)) for path in match]
        # A path that is missing in both was not compared, such as one with a typing error.
        return all(one is not _MISSING and _is_equal(one, other, tolerance, limit) for one, other in pairs)
    smaller, larger = (expected, made) if match == "superset" else (made, expected)
    if len(smaller) > len(larger):
        return False
    limit.count(len(smaller))
    return all(key in larger and _is_equal(expected[key], made[key], tolerance, limit) for key in smaller)


def arguments_key(arguments: Arguments | None) -> str:
    """Return a text that only equal arguments share.

    Example:
        >>> arguments_key({"a": 1, "b": [True]}) == arguments_key({"b": [True], "a": 1.0})
        True
    """
    return json.dumps(with_plain_numbers(arguments), sort_keys=True, default=repr)


def _field(arguments: object, path: str) -> object:
    try:
        return value_at(arguments, split_path(path))
    except LookupError:
        return _MISSING


def _is_equal(expected: object, made: object, tolerance: float, limit: ComparisonLimit) -> bool:
    """Return whether two JSON values are equal, without recursion, since the agent decides how deep they are."""
    pairs = [(expected, made)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            first, second = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
            if first.keys() != second.keys():
                return False
            items = [(value, second[key]) for key, value in first.items()]
        elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
            values, others = cast("Sequence[Any]", one), cast("Sequence[Any]", other)
            if len(values) != len(others):
                return False
            items = list(zip(values, others, strict=True))
        elif _is_equal_scalar(one, other, tolerance):
            continue
        else:
            return False
        limit.count(len(items))
        for item in items:
            # Scalars are compared first, because they are the cheapest.
            if isinstance(item[0], dict | list | tuple):
                pairs.append(item)
            elif not _is_equal_scalar(*item, tolerance):
                return False
    return True


def _is_equal_scalar(expected: object, made: object, tolerance: float) -> bool:
    # True and 1 are equal in Python, and different in JSON.
    if isinstance(expected, bool) or isinstance(made, bool):
        return expected is made
    if expected == made:
        return True
    if not tolerance or not isinstance(expected, int | float) or not isinstance(made, int | float):
        return False
    try:
        # 0.1 + 0.2 and 0.3 are the same number.
        return abs(expected - made) <= tolerance + 1e-12 * abs(expected)
    except OverflowError:  # an integer that no float can hold
        return False
