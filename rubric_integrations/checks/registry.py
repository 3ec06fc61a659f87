"""Runs a `Check` on a submission, with the functions that the other modules of the package register in `CHECKS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rubric_integrations._util.event_loop import WorkLimitError, counted_work
from rubric_integrations.rubric.check import Check, MeasureName
from rubric_integrations.scoring.judgment import JudgeFailure, Judgment
from rubric_integrations.submission.submission import Submission

Condition = Callable[[Check, Submission], str]
"""Decides one condition of a check on a submission.

Returns an empty string if the condition is satisfied. Otherwise, it returns the reason: a predicate of the response
(`is not JSON`), or a statement about a step of the trajectory (`step 4 calls ...`). Raises a `JudgeFailure` of kind
`check` if the condition cannot be decided. It is called only if the field of the condition is set.
"""

Measure = Callable[[Check, Submission], tuple[float, str]]
"""Computes the value in [0, 1] of a condition, and the reason for reports.

Raises a `JudgeFailure` of kind `check` if the value cannot be computed. It is called if the property
`measure` of the check is the name of this condition.
"""

CHECKS: dict[str, Condition] = {}
"""The function of each condition, by the name of its field in `Check`. `metric` is not included, because it has a value
instead of a verdict.
"""

MEASURES: dict[MeasureName, Measure] = {}
"""The function of each condition that may have a value instead of a verdict."""

MAX_MESSAGE = 300
"""The most characters of an error message in a report. An error of a library may quote the complete response."""


def decides(field: str) -> Callable[[Condition], Condition]:
    """Register the decorated function to decide the condition of a field of `Check`.

    The function returns the reason why the condition is not met, or an empty string if the condition is met.

    Example:
        >>> @decides("max_chars")
        ... def has_max_chars(check: Check, submission: Submission) -> str:
        ...     return "is longer than ten characters" if len(submission.response) > 10 else ""
        >>> CHECKS.pop("max_chars") is has_max_chars
        True
    """

    def register(function: Condition) -> Condition:
        CHECKS[field] = function
        return function

    return register


def measures(field: MeasureName) -> Callable[[Measure], Measure]:
    """Register the decorated function to compute the value in [0, 1] of the condition of a field of `Check`.

    The function returns the value and the reason as text.
    """

    def register(function: Measure) -> Measure:
        MEASURES[field] = function
        return function

    return register


T = TypeVar("T")


def run_check(check: Check, submission: Submission | str) -> Judgment:
    """Run a check on a submission in code, without a model and without cost.

    Args:
        check: The conditions, which must all be satisfied, or a metric.
        submission: The submission, or the text of its response.

    Returns:
        A judgment. It is MET if every condition is satisfied. Otherwise, it is UNMET, and its reason lists all
        conditions that are not satisfied. If the check has a `measure`, the judgment has its value in [0, 1] instead
        (for a `metric`, and for `fields` or `similarity` without a threshold).

    Raises:
        JudgeFailure: Of kind `check`, in these cases: a condition raised an error or takes too long, a schema refers to
            a schema outside itself, a metric lacks its input or its library, or a condition has no function in
            `CHECKS`.

    Example:
        >>> run_check(Check(contains="17.2%"), "The margin was 17.2%.").verdict
        'MET'
    """
    if isinstance(submission, str):
        submission = Submission(response=submission)
    if (measure := check.measure) is not None:
        value, reason = _run(measure, MEASURES[measure], check, submission)
        return Judgment(verdict=f"{value:.4g}", value=value, reason=reason)
    reasons = [reason for name in check.conditions if (reason := _decide(name, check, submission))]
    if reasons:
        return Judgment(verdict="UNMET", value=0.0, reason="; ".join(reasons))
    return Judgment(verdict="MET", value=1.0, reason="the check holds: " + ", ".join(check.conditions))


def _decide(name: str, check: Check, submission: Submission) -> str:
    """Return the reason why a condition is not satisfied. A condition without a function is a failure, never MET."""
    if name not in CHECKS:
        raise JudgeFailure(
            "check",
            f"the condition `{name}` has no function: register one with `checks.registry.decides`",
        )
    return _run(name, CHECKS[name], check, submission)


def _run(name: str, function: Callable[[Check, Submission], T], check: Check, submission: Submission) -> T:
    """Call the function of a condition. Any exception becomes a failure that names the condition."""
    try:
        with counted_work():
            return function(check, submission)
    except JudgeFailure:
        raise
    except WorkLimitError:
        message = f"the condition `{name}` was not decided, because the checks of this rubric take too long"
        raise JudgeFailure("check", message) from None
    except RecursionError:
        message = f"the condition `{name}` nests too deeply, or refers to itself without an end"
        raise JudgeFailure("check", message) from None
    except Exception as error:  # any error of a library must fail only one criterion, not the run
        message = f"the condition `{name}` cannot be decided ({type(error).__name__}: {error})"
        raise JudgeFailure("check", message[:MAX_MESSAGE]) from error
