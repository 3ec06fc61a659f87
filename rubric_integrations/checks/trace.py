"""What the conditions on a trajectory read of it. What it lacks is a failure of the check, never a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.submission.steps import ToolCall
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory

# Longer lists are cut: a reason is to be read.
_MAX_STEPS_SHOWN = 5
_MAX_REASONS = 3


class NumberedCall(NamedTuple):
    """A call of a tool.

    Attributes:
        step: The number, from 1, of the step that makes it.
        call: The call.
    """

    step: int
    call: ToolCall


def trajectory_of(submission: Submission, condition: str) -> Trajectory:
    """Return the trajectory of a submission.

    Args:
        submission: The submission.
        condition: The condition that needs the trajectory, for the message.

    Raises:
        JudgeFailure: Of kind `check`: there is no trajectory, or it has more results of tools than calls, so that
            calls are missing.
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
    """Return all calls of a submission's trajectory, with the numbers of their steps.

    Raises:
        JudgeFailure: Of kind `check`: there is no trajectory, or it is incomplete.
    """
    steps = enumerate(trajectory_of(submission, condition).steps, start=1)
    return [NumberedCall(number, call) for number, step in steps for call in step.calls]


def steps_text(numbers: Iterable[int]) -> str:
    """Return the numbers of steps as text, each once.

    Example:
        >>> steps_text([2, 4, 4]), steps_text([7])
        ('steps 2, 4', 'step 7')
    """
    distinct = sorted(set(numbers))
    more = f" and {len(distinct) - _MAX_STEPS_SHOWN} more" if len(distinct) > _MAX_STEPS_SHOWN else ""
    shown = ", ".join(map(str, distinct[:_MAX_STEPS_SHOWN]))
    return f"step{'s' if len(distinct) > 1 else ''} {shown}{more}"


def joined(reasons: Sequence[str]) -> str:
    """Return several reasons as one text, with the number of those that are left out."""
    more = [f"and {len(reasons) - _MAX_REASONS} more"] if len(reasons) > _MAX_REASONS else []
    return "; ".join([*reasons[:_MAX_REASONS], *more])
