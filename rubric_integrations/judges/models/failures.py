"""Sorts the errors of model clients and of DSPy into the kinds of `JudgeFailure`."""

from __future__ import annotations

from typing import Any

from dspy import lm15
from dspy.utils.exceptions import (
    AdapterParseError,
    DSPyError,
    LMProviderError,
    LMRateLimitError,
    is_retryable_lm_error,
)

from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.usage import Spend


def failure_from_error(error: DSPyError, spend: Spend) -> JudgeFailure:
    """Make a `JudgeFailure` of a DSPy error, with what the call cost although it failed."""
    if isinstance(error, AdapterParseError):
        return JudgeFailure("parse", first_line(error), retryable=True, spend=spend)
    if is_retryable_lm_error(error):
        limited = isinstance(error, LMRateLimitError)
        return JudgeFailure(
            "transport", first_line(error), retryable=True, retry_after=error.retry_after, rate_limited=limited,
            spend=spend,
        )  # fmt: skip
    kind = "transport" if type(error) is LMProviderError else "config"
    return JudgeFailure(kind, first_line(error), spend=spend)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def to_lm_error(error: Exception) -> Exception:
    """Sort a client's exception, by its HTTP status or the name of its class, into the kinds that DSPy knows.

    Every SDK has classes of its own; what they share is `status_code` and names such as RateLimitError or
    APITimeoutError. An exception that fits none of the kinds is returned unchanged, and is not retried.
    """
    if isinstance(error, lm15.LM15Error):
        return error
    status, name = getattr(error, "status_code", None), type(error).__name__.lower()
    message = f"{type(error).__name__}: {error}"
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    retry_after = _seconds(getattr(error, "retry_after", None) or headers.get("retry-after"))
    if status == 429 or "ratelimit" in name:
        return lm15.RateLimitError(message, retry_after=retry_after)
    if isinstance(error, TimeoutError) or "timeout" in name or status == 408:
        return lm15.TimeoutError(message)
    if isinstance(error, OSError) or "connection" in name:
        return lm15.TransportError(message)
    if isinstance(status, int):
        if status >= 500:
            return lm15.ServerError(message, retry_after=retry_after)
        return lm15.AuthError(message) if status in (401, 403) else lm15.InvalidRequestError(message)
    return error


def _seconds(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None
