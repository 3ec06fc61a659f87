"""Running a check: the conditions or the metric of a `Check`, decided on one submission."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rubric_integrations.checks.metrics import MAX_MESSAGE
from rubric_integrations.checks.registry import CHECKS, MEASURES
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.rubric.check import Check
from rubric_integrations.submission.submission import Submission

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
            "check", f"the condition `{name}` has no function: add one to `rubric_integrations.checks.registry.CHECKS`"
        )
    return _run(name, CHECKS[name], check, submission)


def _run(name: str, function: Callable[[Check, Submission], Result], check: Check, submission: Submission) -> Result:
    """Call the function of a condition; whatever it raises becomes a failure that names the condition."""
    try:
        return function(check, submission)
    except JudgeFailure:
        raise
    except RecursionError:
        message = f"the condition `{name}` nests too deeply, or refers to itself without an end"
        raise JudgeFailure("check", message) from None
    except Exception as error:  # whatever a library raises on such a text, it fails one criterion and not the run
        message = f"the condition `{name}` cannot be decided ({type(error).__name__}: {error})"
        raise JudgeFailure("check", message[:MAX_MESSAGE]) from error
