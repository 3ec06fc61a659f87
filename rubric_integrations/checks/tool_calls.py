"""The condition `tool_calls`: the agent makes the expected calls of tools.

`compare_calls` decides it for any function that compares two calls. `docs/rubrics.md` describes the orders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from rubric_integrations.checks.arguments import ComparisonLimit, same_arguments
from rubric_integrations.checks.matching import maximum_matching
from rubric_integrations.checks.trace import NumberedCall, calls_of, joined, steps_text
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.check import Check
from rubric_integrations.rubric.trajectory_checks import ExpectedCall, Order
from rubric_integrations.submission.steps import ToolCall
from rubric_integrations.submission.submission import Submission

MAX_EXPECTED = 200
MAX_MADE = 2_000
"""The largest numbers of calls that are paired in any order. All pairs of as many take a second or two."""

_MAX_ARGUMENTS_SHOWN = 100

Comparison = Callable[[ExpectedCall, ToolCall], bool | None]
"""Whether a call is an expected one; None if the trace does not tell its arguments."""

_Decision = Callable[[ExpectedCall, ToolCall], bool]
_Decide = Callable[[Sequence[ExpectedCall], Sequence[NumberedCall], _Decision], str]


def makes_calls(check: Check, submission: Submission) -> str:
    """Return the reason why the agent does not make the calls of `check.tool_calls`, or an empty string.

    Raises:
        JudgeFailure: Of kind `check`: there is no trajectory, it lacks arguments on which the answer depends, there are
            more calls than can be paired, or their arguments are too large to compare.
    """
    limit = ComparisonLimit()
    default = check.arguments or "exact"

    def compare(expected: ExpectedCall, made: ToolCall) -> bool | None:
        match = expected.match or default
        if expected.name != made.name:
            return False
        if expected.arguments is None or match == "ignore":
            return True
        if made.arguments is None:
            return None
        return same_arguments(expected.arguments, made.arguments, match, expected.tolerance, limit)

    expected_calls = cast("tuple[ExpectedCall, ...]", check.tool_calls)
    return compare_calls(expected_calls, calls_of(submission, "tool_calls"), check.order or "strict", compare)


def compare_calls(
    expected: Sequence[ExpectedCall], made: Sequence[NumberedCall], order: Order, compare: Comparison
) -> str:
    """Return the reason why calls are not the expected ones, or an empty string.

    Calls whose comparison is unknown make a difference only if the answer depends on it: it is certain if it is the
    same when all of them match and when none does.

    Args:
        expected: The expected calls.
        made: The calls that the agent made.
        order: How the lists are compared.
        compare: Compares two calls.

    Raises:
        JudgeFailure: Of kind `check`: the answer depends on calls whose comparison is unknown, or there are more calls
            than can be paired.
    """
    decide = _ORDERS[order]
    reason = decide(expected, made, lambda one, other: compare(one, other) is True)
    unknown = [call.step for call in made if call.call.arguments is None]
    if not reason or not unknown:
        return reason
    reason = decide(expected, made, lambda one, other: compare(one, other) is not False)
    if not reason:
        raise JudgeFailure(
            "check",
            f"the condition `tool_calls` needs the arguments of the calls in {steps_text(unknown)}, which the "
            "trajectory does not tell: record them, or compare only names with `arguments: ignore`",
        )
    return reason


def _decide_strict(expected: Sequence[ExpectedCall], made: Sequence[NumberedCall], same: _Decision) -> str:
    for position, (one, other) in enumerate(zip(expected, made, strict=False), start=1):
        if not same(one, other.call):
            actual = f"`{other.call.name}`" + (" with other arguments" if one.name == other.call.name else "")
            return f"step {other.step} calls {actual} where {_described(one)} is expected as call {position}"
    if len(made) > len(expected):
        extra = made[len(expected)]
        return f"step {extra.step} calls `{extra.call.name}`, after all {len(expected)} expected calls"
    if len(expected) > len(made):
        return f"makes {len(made)} calls, and not the expected call {len(made) + 1}, {_described(expected[len(made)])}"
    return ""


def _decide_in_order(expected: Sequence[ExpectedCall], made: Sequence[NumberedCall], same: _Decision) -> str:
    # To take the earliest match is enough: it leaves the most calls for the expected ones after it.
    remaining = iter(made)
    last: NumberedCall | None = None
    for position, one in enumerate(expected, start=1):
        match = next((other for other in remaining if same(one, other.call)), None)
        if match is None:
            after = f" after the call in step {last.step}" if last else ""
            return f"makes no call{after} that is the expected call {position}, {_described(one)}"
        last = match
    return ""


def _decide_superset(expected: Sequence[ExpectedCall], made: Sequence[NumberedCall], same: _Decision) -> str:
    return _missing(expected, made, _pair(expected, made, same))


def _decide_subset(expected: Sequence[ExpectedCall], made: Sequence[NumberedCall], same: _Decision) -> str:
    return _extra(made, _pair(expected, made, same))


def _decide_unordered(expected: Sequence[ExpectedCall], made: Sequence[NumberedCall], same: _Decision) -> str:
    pairs = _pair(expected, made, same)
    return "; ".join(reason for reason in (_missing(expected, made, pairs), _extra(made, pairs)) if reason)


_ORDERS: dict[Order, _Decide] = {
    "strict": _decide_strict,
    "in_order": _decide_in_order,
    "superset": _decide_superset,
    "subset": _decide_subset,
    "unordered": _decide_unordered,
}


def _pair(expected: Sequence[ExpectedCall], made: Sequence[NumberedCall], same: _Decision) -> dict[int, int]:
    """Pair as many calls as possible; return the position of the expected call by the position of its partner."""
    if len(expected) > MAX_EXPECTED or len(made) > MAX_MADE:
        raise JudgeFailure(
            "check",
            f"the condition `tool_calls` compares {len(expected):,} expected calls with {len(made):,} calls: at most "
            f"{MAX_EXPECTED} with {MAX_MADE:,} are paired; use the order `strict` or `in_order`, or expect fewer calls",
        )
    by_name: dict[str, list[int]] = {}
    for index, other in enumerate(made):
        by_name.setdefault(other.call.name, []).append(index)
    edges = [sum(1 << index for index in by_name.get(one.name, ()) if same(one, made[index].call)) for one in expected]
    return maximum_matching(edges)


def _missing(expected: Sequence[ExpectedCall], made: Sequence[NumberedCall], pairs: Mapping[int, int]) -> str:
    """Return which expected calls have no partner."""
    partners = set(pairs.values())
    reasons: list[str] = []
    for position, one in enumerate(expected):
        if position not in partners:
            steps = [other.step for other in made if other.call.name == one.name]
            calls = f" (`{one.name}` is called in {steps_text(steps)})" if steps else ""
            reasons.append(f"makes no call that is the expected call {position + 1}, {_described(one)}{calls}")
    return joined(reasons)


def _extra(made: Sequence[NumberedCall], pairs: Mapping[int, int]) -> str:
    """Return which calls have no partner."""
    extra = [one for position, one in enumerate(made) if position not in pairs]
    return joined([f"step {one.step} calls `{one.call.name}`, which matches no expected call left" for one in extra])


def _described(expected: ExpectedCall) -> str:
    if expected.arguments is None:
        return f"`{expected.name}`"
    text = json.dumps(expected.arguments, ensure_ascii=False)
    shown = text if len(text) <= _MAX_ARGUMENTS_SHOWN else text[: _MAX_ARGUMENTS_SHOWN - 3] + "..."
    return f"`{expected.name}` with {shown}"
