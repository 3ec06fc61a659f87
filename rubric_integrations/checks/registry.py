"""Runs a `Check` on a submission, by the functions that the other modules of the package register in `CHECKS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rubric_integrations._util.event_loop import WorkLimitError, counted_work
from rubric_integrations.rubric.check import Check, MeasureName
from rubric_integrations.scoring.judgment import JudgeFailure, Judgment
from rubric_integrations.submission.submission import Submission

Condition = Callable[[Check, Submission], str]
"""Decides one condition of a check on a submission.

Returns the reason why the condition does not hold, as a predicate of the response (`is not JSON`) or about a step of
the trajectory (`step 4 calls ...`), or an empty string if it holds. Raises a `JudgeFailure` of kind `check` if it
cannot be decided. It is called only if its field is set.
"""

Measure = Callable[[Check, Submission], tuple[float, str]]
"""Computes the value of a condition, in [0, 1], and the reason that reports show.

Raises a `JudgeFailure` of kind `check` if it cannot be computed. It is called if the condition is `Check.measure`.
"""

CHECKS: dict[str, Condition] = {}
"""The function of each condition field of `Check`. `metric` is not among them: it has a value, not a verdict."""

MEASURES: dict[MeasureName, Measure] = {}
"""The function of each condition that may have a value instead of a verdict."""

MAX_MESSAGE = 300
"""Characters of an error's message that a report shows. An error of a library may quote the whole response."""


def decides(field: str) -> Callable[[Condition], Condition]:
    """Register the decorated function as the one that decides a field of `Check`.

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
    """Register the decorated function as the one that computes the value of a field of `Check`."""

    def register(function: Measure) -> Measure:
        MEASURES[field] = function
        return function

    return register


Result = TypeVar("Result")


def run_check(check: Check, submission: Submission | str) -> Judgment:
    """Decide a check in code, without a model and without cost.

    Args:
        check: The conditions, which must all hold, or a metric.
        submission: The submission, or the text of its response.

    Returns:
        MET if every condition holds, else UNMET with every reason; for a metric, and for `fields` and `similarity` that
        have no verdict, a judgment with the value.

    Raises:
        JudgeFailure: Of kind `check`: a condition raised an error or is too much work, such as a pattern that takes
            too long; a schema refers to a schema outside itself; a metric lacks its input or its library; or a
            condition has no function in `CHECKS`.

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
    """Return the reason why a condition does not hold; a condition without a function is a failure, never MET."""
    if name not in CHECKS:
        raise JudgeFailure(
            "check",
            f"the condition `{name}` has no function: register one with `checks.registry.decides`",
        )
    return _run(name, CHECKS[name], check, submission)


def _run(name: str, function: Callable[[Check, Submission], Result], check: Check, submission: Submission) -> Result:
    """Call the function of a condition; whatever it raises becomes a failure that names the condition."""
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
    except Exception as error:  # whatever a library raises on such a text, it fails one criterion and not the run
        message = f"the condition `{name}` cannot be decided ({type(error).__name__}: {error})"
        raise JudgeFailure("check", message[:MAX_MESSAGE]) from error
