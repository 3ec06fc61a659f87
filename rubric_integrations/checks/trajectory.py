"""Conditions on the trajectory of an agent: its tool calls, steps, tokens, cost, time, errors and repetitions.

If the trajectory lacks the data that a condition needs, the result is a failure of kind `check` and never a verdict,
unless the verdict is certain without these data.

`compare_calls` decides the condition `tool_calls`. It works with any function that compares two calls. `docs/agents.md`
describes the values of `order`. The number of compared values is limited, because the agent determines the size of the
arguments.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, cast

from rubric_integrations._util.json import split_path, value_at
from rubric_integrations.checks.registry import decides
from rubric_integrations.checks.structure import with_plain_numbers
from rubric_integrations.rubric.check import ArgumentsMode, Check, ExpectedCall, Order, Texts, ToolUse
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.submission.steps import ToolCall
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory

Arguments = Mapping[str, Any] | str
"""The arguments of a call: an object, or a text if they are not a JSON object."""

# 200 expected calls and 2,000 calls are 400,000 pairs, each with a few values. Comparing them takes about a second.
MAX_COMPARISONS = 2_000_000

_MISSING = object()


class ComparisonLimit:
    """Counts and limits the values that one check compares, because the agent determines their number."""

    def __init__(self) -> None:
        self._left = MAX_COMPARISONS

    def count(self, values: int = 1) -> None:
        """Count compared values.

        Raises:
            JudgeFailure: Of kind `check`, if more than 2,000,000 values were compared.
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
    """Return whether the arguments of an agent's call match the expected arguments.

    Args:
        expected: The expected arguments.
        made: The arguments that the agent passed.
        match: How the arguments are compared: a mode, or dotted paths. The values at these paths must exist in both and
            be equal.
        tolerance: The largest accepted difference between two numbers.
        limit: Counts and limits the compared values.

    Raises:
        JudgeFailure: Of kind `check`, if too many values were compared.

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
        # A path that is missing in both does not match. It may be misspelled.
        return all(one is not _MISSING and _is_equal(one, other, tolerance, limit) for one, other in pairs)
    smaller, larger = (expected, made) if match == "superset" else (made, expected)
    if len(smaller) > len(larger):
        return False
    limit.count(len(smaller))
    return all(key in larger and _is_equal(expected[key], made[key], tolerance, limit) for key in smaller)


def arguments_key(arguments: Arguments | None) -> str:
    """Return a key for comparing arguments: equal arguments have the same key, and other arguments have another key.

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
    """Return whether two JSON values are equal, without recursion, because the agent determines their depth."""
    pairs = [(expected, made)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            if one.keys() != other.keys():
                return False
            items = [(value, other[key]) for key, value in one.items()]
        elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
            if len(one) != len(other):
                return False
            items = list(zip(one, other, strict=True))
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
    except OverflowError:  # an integer that is too large for a float
        return False


def maximum_matching(edges: Sequence[int]) -> dict[int, int]:
    """Pair as many items of a first list as possible with items of a second list (maximum bipartite matching).

    Each item is in at most one pair. The function uses Kuhn's algorithm, which searches augmenting paths, here breadth
    first. The possible partners of an item are stored as the bits of one integer. Therefore, one operation can exclude
    all items that the search has already visited.

    Args:
        edges: An integer for each item of the first list. Its bit `j` is set if the item may be paired with item `j` of
            the second list.

    Returns:
        For the index of each paired item of the second list, the index of its partner in the first list.

    Example:
        >>> maximum_matching([0b11, 0b01])  # item 0 gives way to item 1, which has no other partner
        {0: 1, 1: 0}
    """
    partners: dict[int, int] = {}
    taken = 0
    for start in range(len(edges)):
        end, came_from = _search(edges, start, partners, taken)
        if end is not None:
            taken |= 1 << end
            _augment(end, came_from, partners)
    return dict(sorted(partners.items()))


def _search(
    edges: Sequence[int], start: int, partners: dict[int, int], taken: int
) -> tuple[int | None, dict[int, int]]:
    """Search a free item of the second list along paths that alternate between possible and current pairs.

    Returns:
        The free item or None, and for each visited item of the second list, the previous item of the first list on the
        path.
    """
    came_from: dict[int, int] = {}
    seen = 0
    queue = [start]
    for item in queue:
        free = edges[item] & ~taken
        if free:
            end = (free & -free).bit_length() - 1
            came_from[end] = item
            return end, came_from
        for other in _bits(edges[item] & ~seen):
            came_from[other] = item
            queue.append(partners[other])
        seen |= edges[item]
    return None, came_from


def _augment(end: int, came_from: dict[int, int], partners: dict[int, int]) -> None:
    """Exchange the pairs along a path to a free item. Afterwards, one more item is paired."""
    previous = {item: other for other, item in partners.items()}
    other: int | None = end
    # The first item of the path has no pair yet.
    while other is not None:
        item = came_from[other]
        partners[other] = item
        other = previous.get(item)


def _bits(number: int) -> Iterator[int]:
    """Yield the positions of the bits that are set."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


# Longer lists are shortened to keep a reason readable.
_MAX_STEPS_SHOWN = 5
_MAX_REASONS = 3


class NumberedCall(NamedTuple):
    """A call of a tool with the number of its step.

    Attributes:
        step: The number of the step that makes the call, from 1.
        call: The call.
    """

    step: int
    call: ToolCall


def trajectory_of(submission: Submission, condition: str) -> Trajectory:
    """Return the trajectory of a submission.

    Args:
        submission: The submission.
        condition: The name of the condition that needs the trajectory, for the error message.

    Raises:
        JudgeFailure: Of kind `check`, if there is no trajectory, or if it has tool results without their calls. Calls
            are missing if there are more steps with a tool result than calls that lack a result.
    """
    trajectory = submission.trajectory
    if trajectory is None:
        raise JudgeFailure(
            "check",
            f"the condition `{condition}` needs the submission's `trajectory`, which is missing: pass the agent's "
            "messages, or `Submission(trajectory=...)`",
        )
    results = [number for number, step in enumerate(trajectory.steps, start=1) if step.role == "tool"]
    if len(results) > sum(call.result is None for call in trajectory.calls):
        raise JudgeFailure(
            "check",
            f"the condition `{condition}` needs all calls, and some of those whose results are in "
            f"{steps_text(results)} are not in the trajectory: pass the whole run",
        )
    return trajectory


def calls_of(submission: Submission, condition: str) -> list[NumberedCall]:
    """Return the agent's calls in a submission's trajectory, with the numbers of their steps.

    Calls of a simulated user are left out.

    Raises:
        JudgeFailure: Of kind `check`, if there is no trajectory, or if it is incomplete.
    """
    steps = enumerate(trajectory_of(submission, condition).steps, start=1)
    return [NumberedCall(number, call) for number, step in steps if step.role != "user" for call in step.calls]


def steps_text(numbers: Iterable[int]) -> str:
    """Return step numbers as text, without duplicates.

    Example:
        >>> steps_text([2, 4, 4]), steps_text([7])
        ('steps 2, 4', 'step 7')
    """
    distinct = sorted(set(numbers))
    more = f" and {len(distinct) - _MAX_STEPS_SHOWN} more" if len(distinct) > _MAX_STEPS_SHOWN else ""
    shown = ", ".join(map(str, distinct[:_MAX_STEPS_SHOWN]))
    return f"step{'s' if len(distinct) > 1 else ''} {shown}{more}"


def joined(reasons: Sequence[str]) -> str:
    """Return the first three reasons as one text. If there are more, the text ends with the number of the others."""
    more = [f"and {len(reasons) - _MAX_REASONS} more"] if len(reasons) > _MAX_REASONS else []
    return "; ".join([*reasons[:_MAX_REASONS], *more])


MAX_EXPECTED = 200
MAX_MADE = 2_000
"""The largest numbers of expected calls (`MAX_EXPECTED`) and actual calls (`MAX_MADE`) that are paired in any order.
Comparing all pairs takes a second or two.
"""

_MAX_ARGUMENTS_SHOWN = 100

Comparison = Callable[[ExpectedCall, ToolCall], bool | None]
"""A function that returns whether an agent's call matches an expected call.

It returns None if the trajectory does not record the arguments of the agent's call.
"""

_Decision = Callable[[ExpectedCall, ToolCall], bool]
_Decide = Callable[[Sequence[ExpectedCall], Sequence[NumberedCall], _Decision], str]


@decides("tool_calls")
def makes_calls(check: Check, submission: Submission) -> str:
    """Return a message if the agent's calls do not match `check.tool_calls`, otherwise an empty string.

    Raises:
        JudgeFailure: Of kind `check`, in these cases: there is no trajectory, the trajectory lacks arguments that the
            answer depends on, there are too many calls to pair, or the arguments are too large to compare.
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
    """Return a message if calls do not match the expected calls, otherwise an empty string.

    The result of a comparison is unknown if the arguments of the call are missing. In this case, the lists are compared
    twice: as if all unknown comparisons matched, and as if none matched. The answer is certain if both results agree.

    Args:
        expected: The expected calls.
        made: The calls that the agent made.
        order: How the lists are compared.
        compare: Compares two calls.

    Raises:
        JudgeFailure: Of kind `check`, if the answer depends on unknown comparisons, or if there are too many calls to
            pair.
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
    # Taking the earliest match is enough, because it leaves the most calls for the later expected calls.
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
    """Pair as many calls as possible. Return the index of each expected call by the index of its actual call."""
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
    """Return a text with the expected calls that have no partner."""
    partners = set(pairs.values())
    reasons: list[str] = []
    for position, one in enumerate(expected):
        if position not in partners:
            steps = [other.step for other in made if other.call.name == one.name]
            calls = f" (`{one.name}` is called in {steps_text(steps)})" if steps else ""
            reasons.append(f"makes no call that is the expected call {position + 1}, {_described(one)}{calls}")
    return joined(reasons)


def _extra(made: Sequence[NumberedCall], pairs: Mapping[int, int]) -> str:
    """Return a text with the actual calls that have no partner."""
    extra = [one for position, one in enumerate(made) if position not in pairs]
    return joined([f"step {one.step} calls `{one.call.name}`, which matches no expected call left" for one in extra])


def _described(expected: ExpectedCall) -> str:
    if expected.arguments is None:
        return f"`{expected.name}`"
    text = json.dumps(expected.arguments, ensure_ascii=False)
    shown = text if len(text) <= _MAX_ARGUMENTS_SHOWN else text[: _MAX_ARGUMENTS_SHOWN - 3] + "..."
    return f"`{expected.name}` with {shown}"


@decides("tool_used")
def uses_tools(check: Check, submission: Submission) -> str:
    """Return a message if a tool of `check.tool_used` is used too rarely or too often, otherwise an empty string."""
    calls = calls_of(submission, "tool_used")
    uses = (check.tool_used,) if isinstance(check.tool_used, ToolUse) else check.tool_used or ()
    return "; ".join(reason for use in uses if (reason := _count_fault(use, calls)))


@decides("tool_forbidden")
def uses_no_forbidden_tool(check: Check, submission: Submission) -> str:
    """Return a message if any step calls a tool of `check.tool_forbidden`, otherwise an empty string."""
    forbidden = cast("Texts", check.tool_forbidden)
    patterns = (forbidden,) if isinstance(forbidden, str) else forbidden
    calls = [
        one
        for one in calls_of(submission, "tool_forbidden")
        if any(fnmatchcase(one.call.name, pattern) for pattern in patterns)
    ]
    return _listed(calls, "which is forbidden")


@decides("max_steps")
def has_max_steps(check: Check, submission: Submission) -> str:
    """Return a message if the assistant makes more steps than `check.max_steps`, otherwise an empty string.

    Raises:
        JudgeFailure: Of kind `check`, if there is no trajectory, or if it is incomplete.
    """
    steps = sum(step.role == "assistant" for step in trajectory_of(submission, "max_steps").steps)
    most = cast("int", check.max_steps)
    return f"makes {steps} steps, more than {most}" if steps > most else ""


@decides("max_tokens")
def has_max_tokens(check: Check, submission: Submission) -> str:
    """Return a message if the steps take more tokens than `check.max_tokens`, otherwise an empty string.

    Raises:
        JudgeFailure: Of kind `check`, if the trajectory or a number of tokens on which the answer depends is missing.
    """
    total, most = _total("tokens", "max_tokens", cast("int", check.max_tokens), submission), check.max_tokens
    return "" if total is None else f"takes {total:,} tokens, more than {most:,}"


@decides("max_cost")
def has_max_cost(check: Check, submission: Submission) -> str:
    """Return a message if the steps cost more than `check.max_cost`, otherwise an empty string.

    Raises:
        JudgeFailure: Of kind `check`, if the trajectory or a cost on which the answer depends is missing.
    """
    total, most = _total("cost", "max_cost", cast("float", check.max_cost), submission), check.max_cost
    return "" if total is None else f"costs ${total:g}, more than ${most:g}"


@decides("max_seconds")
def has_max_seconds(check: Check, submission: Submission) -> str:
    """Return a message if the steps take longer than `check.max_seconds`, otherwise an empty string.

    Raises:
        JudgeFailure: Of kind `check`, if the trajectory or a duration on which the answer depends is missing.
    """
    most = cast("float", check.max_seconds)
    total = _total("milliseconds", "max_seconds", most * 1000, submission)
    return "" if total is None else f"takes {total / 1000:g} s, more than {most:g} s"


@decides("no_errors")
def has_no_errors(_check: Check, submission: Submission) -> str:
    """Return a message if any tool call fails, otherwise an empty string.

    Raises:
        JudgeFailure: Of kind `check`, if no call is known to fail, and it is unknown whether one of them failed.
    """
    calls = calls_of(submission, "no_errors")
    if failed := [one for one in calls if one.call.is_error]:
        return _listed(failed, "which fails")
    if unknown := [one.step for one in calls if one.call.is_error is None]:
        raise JudgeFailure(
            "check",
            f"the condition `no_errors` needs to know whether the calls in {steps_text(unknown)} failed, which the "
            "trajectory does not tell: set `is_error` of each `ToolCall`",
        )
    return ""


@decides("no_repeated_calls")
def has_no_repeated_calls(_check: Check, submission: Submission) -> str:
    """Return a message if any call repeats an earlier call with equal arguments, otherwise an empty string.

    Raises:
        JudgeFailure: Of kind `check`, if no call is known to be repeated, and the arguments of a call are
            missing.
    """
    first_steps: dict[tuple[str, str], int] = {}
    repeated: list[str] = []
    calls = calls_of(submission, "no_repeated_calls")
    for one in calls:
        if one.call.arguments is not None:
            key = one.call.name, arguments_key(one.call.arguments)
            if key in first_steps:
                repeated.append(f"step {one.step} repeats the call of `{one.call.name}` in step {first_steps[key]}")
            first_steps.setdefault(key, one.step)
    if repeated:
        return joined(repeated)
    counts = Counter(one.call.name for one in calls)
    unknown = [one.step for one in calls if one.call.arguments is None and counts[one.call.name] > 1]
    if unknown:
        raise JudgeFailure(
            "check",
            f"the condition `no_repeated_calls` needs the arguments of the calls in {steps_text(unknown)}, which the "
            "trajectory does not tell: record them as `arguments` of each `ToolCall`",
        )
    return ""


def _total(
    field: Literal["tokens", "cost", "milliseconds"], condition: str, most: float, submission: Submission
) -> float | None:
    """Return the sum of a field over all steps if it is above a limit, or else None.

    Raises:
        JudgeFailure: Of kind `check`, if the sum of the known values is not above the limit, and a step of the
            assistant lacks its value.
    """
    steps = trajectory_of(submission, condition).steps
    values: list[float | None] = [getattr(step, field) for step in steps]
    known = [value for value in values if value is not None]
    total = sum(known)
    # 0.1 + 0.2 does not exceed 0.3.
    if total > most * (1 + 1e-12):
        return total
    pairs = enumerate(zip(steps, values, strict=True), start=1)
    unknown = [number for number, (step, value) in pairs if step.role == "assistant" and value is None]
    if unknown or not known:
        where = steps_text(unknown) if unknown else "any step"
        raise JudgeFailure(
            "check",
            f"the condition `{condition}` needs the {field} of {where}, which the trajectory does not tell: set "
            f"`{field}` of each `Step` of the assistant",
        )
    return None


def _count_fault(use: ToolUse, calls: Sequence[NumberedCall]) -> str:
    steps = [one.step for one in calls if fnmatchcase(one.call.name, use.name)]
    if len(steps) < use.at_least:
        return f"calls `{use.name}` {_times(len(steps))}, fewer than {use.at_least}"
    if use.max is not None and len(steps) > use.max:
        return f"calls `{use.name}` {_times(len(steps))}, more than {use.max}, in {steps_text(steps)}"
    return ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _listed(calls: Sequence[NumberedCall], what: str) -> str:
    return joined([f"step {one.step} calls `{one.call.name}`, {what}" for one in calls])
