"""Conditions on a whole trajectory: the tools that are used, the number of steps, what they cost, errors, repetitions.

Each function returns the reason why its condition does not hold, or an empty string. If the trajectory lacks what a
condition needs, it raises a `JudgeFailure` of kind `check`, unless the answer is certain without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal, cast

from rubric_integrations.checks.arguments import arguments_key
from rubric_integrations.checks.trace import NumberedCall, calls_of, joined, steps_text, trajectory_of
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.rubric.check import Check, Texts
from rubric_integrations.rubric.trajectory_checks import ToolUse
from rubric_integrations.submission.submission import Submission


def uses_tools(check: Check, submission: Submission) -> str:
    """Return which tools of `check.tool_used` are used too rarely or too often, or an empty string."""
    calls = calls_of(submission, "tool_used")
    uses = (check.tool_used,) if isinstance(check.tool_used, ToolUse) else check.tool_used or ()
    return "; ".join(reason for use in uses if (reason := _count_fault(use, calls)))


def uses_no_forbidden_tool(check: Check, submission: Submission) -> str:
    """Return which steps call a tool of `check.tool_forbidden`, or an empty string."""
    forbidden = cast("Texts", check.tool_forbidden)
    patterns = (forbidden,) if isinstance(forbidden, str) else forbidden
    calls = [
        one
        for one in calls_of(submission, "tool_forbidden")
        if any(fnmatchcase(one.call.name, pattern) for pattern in patterns)
    ]
    return _listed(calls, "which is forbidden")


def has_max_steps(check: Check, submission: Submission) -> str:
    """Return the reason why the assistant makes more steps than `check.max_steps`, or an empty string."""
    steps = sum(step.role == "assistant" for step in trajectory_of(submission, "max_steps").steps)
    most = cast("int", check.max_steps)
    return f"makes {steps} steps, more than {most}" if steps > most else ""


def has_max_tokens(check: Check, submission: Submission) -> str:
    """Return the reason why the steps take more tokens than `check.max_tokens`, or an empty string."""
    total, most = _total("tokens", "max_tokens", cast("int", check.max_tokens), submission), check.max_tokens
    return "" if total is None else f"takes {total:,} tokens, more than {most:,}"


def has_max_cost(check: Check, submission: Submission) -> str:
    """Return the reason why the steps cost more than `check.max_cost`, or an empty string."""
    total, most = _total("cost", "max_cost", cast("float", check.max_cost), submission), check.max_cost
    return "" if total is None else f"costs ${total:g}, more than ${most:g}"


def has_max_seconds(check: Check, submission: Submission) -> str:
    """Return the reason why the steps take longer than `check.max_seconds`, or an empty string."""
    most = cast("float", check.max_seconds)
    total = _total("milliseconds", "max_seconds", most * 1000, submission)
    return "" if total is None else f"takes {total / 1000:g} s, more than {most:g} s"


def has_no_errors(_check: Check, submission: Submission) -> str:
    """Return which calls fail, or an empty string."""
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


def has_no_repeated_calls(_check: Check, submission: Submission) -> str:
    """Return which calls repeat an earlier one with equal arguments, or an empty string."""
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
    """Return the total of a field of all steps if it is above a limit, and None if it is not.

    Raises:
        JudgeFailure: Of kind `check`: the known values are not above the limit, and a step of the assistant lacks its
            value.
    """
    steps = trajectory_of(submission, condition).steps
    values: list[float | None] = [getattr(step, field) for step in steps]
    known = [value for value in values if value is not None]
    total = sum(known)
    # 0.1 + 0.2 is no more than 0.3.
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
