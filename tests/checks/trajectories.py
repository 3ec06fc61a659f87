"""Submissions with a trajectory, and what a check says about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubric_integrations import Check, Submission
from rubric_integrations.checks import run_check
from rubric_integrations.submission import Step, ToolCall, Trajectory

Arguments = dict[str, Any] | str | None


def call(
    name: str, arguments: Arguments = None, *, is_error: bool | None = None, result: str | None = None
) -> ToolCall:
    """Return a call of a tool."""
    return ToolCall(name=name, arguments=arguments, is_error=is_error, result=result)


def run_of(*steps: Step) -> Submission:
    """Return a submission with these steps."""
    return Submission(response="The margin was 8.4%.", trajectory=Trajectory(steps=steps))


def calling(calls: Sequence[ToolCall]) -> Submission:
    """Return a submission whose step 1 is the user's, and each of whose calls is a step of its own, from step 2."""
    question = Step(role="user", text="What was the margin?")
    return run_of(question, *(Step(role="assistant", calls=(one,)) for one in calls))


def verdict(submission: Submission, **conditions: Any) -> str:
    """Return the verdict of a check."""
    return run_check(Check.model_validate(conditions), submission).verdict


def reason(submission: Submission, **conditions: Any) -> str:
    """Return the reason of a check."""
    return run_check(Check.model_validate(conditions), submission).reason
