"""Sorts the errors of model clients and of DSPy into the kinds of `JudgeFailure`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dspy import lm15
from dspy.utils.exceptions import (
    AdapterParseError,
    ContextWindowExceededError,
    DSPyError,
    LMProviderError,
    LMRateLimitError,
    is_retryable_lm_error,
)

from rubric_integrations.judges.credentials import redact
from rubric_integrations.judges.models.context_limit import REMEDY, says_too_long
from rubric_integrations.judges.models.error_responses import (
    ErrorResponse,
    describe_response,
    find_response,
    server_message,
    wrong_url_hint,
)
from rubric_integrations.judges.models.incomplete import FILTER_CODES, FILTERED
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.usage import Spend

# LiteLLM reports a key that it does not find as an error of the server, which would be retried for minutes.
_NO_KEY = re.compile(r"Missing credentials|_API_KEY is not set")

# A 429 of the tier `flex` when the provider has no capacity: fewer calls at the same time would not help.
_NO_CAPACITY = re.compile(r"resource[ _]unavailable", re.IGNORECASE)


def failure_from_error(error: DSPyError, spend: Spend, settings: Mapping[str, Any]) -> JudgeFailure:
    """Make a `JudgeFailure` of a DSPy error.

    Args:
        error: The error.
        spend: What the call cost although it failed.
        settings: The model's settings, whose credentials the message does not repeat if a server quotes them.
    """
    message, response = redact(first_line(error), settings), find_response(error)
    if isinstance(error, AdapterParseError):
        return JudgeFailure("parse", message, retryable=True, spend=spend)
    if _NO_KEY.search(message):
        return JudgeFailure("config", message, spend=spend)
    if getattr(error, "provider_code", None) in FILTER_CODES:
        return JudgeFailure("parse", f"{FILTERED}: {message}", about_text=True, spend=spend)
    if response is not None and _says_more(response, error):
        # Before the message is cut, or a part of a key could remain at its end.
        body = redact(response.body.decode(errors="replace"), settings).encode()
        description = describe_response(response._replace(body=body), settings.get("api_base"))
        message = redact(f"[{error.model}] {description}", settings)
        if response.is_unreadable:
            # A proxy that restarts shows a page for a moment; a wrong URL shows one until `max_outage` ends the run.
            return JudgeFailure("transport", message, retryable=True, spend=spend)
        if response.is_from_wrong_url:
            return JudgeFailure("config", message, spend=spend)
    if is_retryable_lm_error(error):
        code = getattr(error, "provider_code", None)
        limited = isinstance(error, LMRateLimitError) and not _NO_CAPACITY.search(f"{code} {message}")
        return JudgeFailure(
            "transport", message, retryable=True, retry_after=error.retry_after, rate_limited=limited, spend=spend
        )
    if isinstance(error, ContextWindowExceededError) or says_too_long(message):
        return _too_long(message, spend)
    kind = "transport" if type(error) is LMProviderError else "config"
    return JudgeFailure(kind, message, spend=spend)


def failure_from_client_error(error: Exception, spend: Spend, settings: Mapping[str, Any]) -> JudgeFailure:
    """Make a `JudgeFailure` of whatever an LM of a user's own raises, sorted as by `to_lm_error`."""
    sorted_error = to_lm_error(error)
    if isinstance(sorted_error, _TEMPORARY):
        limited = isinstance(sorted_error, lm15.RateLimitError) and not _NO_CAPACITY.search(str(sorted_error))
        return JudgeFailure(
            "transport", redact(first_line(sorted_error), settings), retryable=True,
            retry_after=sorted_error.retry_after, rate_limited=limited, spend=spend,
        )  # fmt: skip
    message = first_line(sorted_error) if sorted_error is not error else f"{type(error).__name__}: {first_line(error)}"
    message = redact(message, settings)
    return _too_long(message, spend) if says_too_long(message) else JudgeFailure("config", message, spend=spend)


def _too_long(message: str, spend: Spend) -> JudgeFailure:
    # About this text, so that it does not end a run whose other texts are shorter.
    return JudgeFailure("config", f"{message.rstrip('.')}: {REMEDY}", about_text=True, spend=spend)


def _says_more(response: ErrorResponse, error: DSPyError) -> bool:
    """Whether a response says more than DSPy's message, which is empty or the source of a web page."""
    if response.is_from_wrong_url or response.is_unreadable:
        return True
    return response.status >= 400 and server_message(response.body) not in str(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# The classes by which the SDK of OpenAI reports that a reply did not end as it should.
_FINISH_REASONS = {"LengthFinishReasonError": "length", "ContentFilterFinishReasonError": "content_filter"}


def response_from_error(error: Exception, request: lm15.Request) -> lm15.Response | None:
    """Make a response of a client's exception that a reply was cut off or filtered; None of any other exception.

    The provider replied, so that the failure is about the reply and not about the client.
    """
    finish_reason: Any = _FINISH_REASONS.get(type(error).__name__)
    if finish_reason is None:
        return None
    completion: Any = getattr(error, "completion", None)
    text: object = completion.choices[0].message.content if completion else None
    usage: Any = getattr(completion, "usage", None)
    return lm15.Response(
        id=None,
        model=request.model,
        message=lm15.Message.assistant(text if isinstance(text, str) else ""),
        finish_reason=finish_reason,
        usage=lm15.Usage(
            input_tokens=getattr(usage, "prompt_tokens", None), output_tokens=getattr(usage, "completion_tokens", None)
        ),
    )


_TEMPORARY = (lm15.RateLimitError, lm15.TimeoutError, lm15.ServerError, lm15.TransportError)

# The classes by which httpx, aiohttp, requests and the SDKs on top of them report that no response arrived.
_TRANSPORT_CLASSES = frozenset(
    {"TransportError", "ClientConnectionError", "ClientPayloadError", "ConnectionError", "APIConnectionError",
     "ChunkedEncodingError", "ProtocolError"}
)  # fmt: skip


def to_lm_error(error: Exception) -> Exception:
    """Sort a client's exception, by its HTTP status or its classes, into the kinds that DSPy knows.

    Every client has classes of its own. A status is looked for first, in the places where httpx, aiohttp, requests and
    the SDKs of OpenAI and Anthropic have it: requests derives even a 401 from `OSError`. An exception that fits none of
    the kinds is returned unchanged, and is not retried.
    """
    if isinstance(error, lm15.LM15Error):
        return error
    status, retry_after = _status(error), _retry_after(error)
    message = _client_message(error, status)
    classes = {parent.__name__ for parent in type(error).__mro__}
    if status == 429 or any("ratelimit" in name.lower() for name in classes):
        return lm15.RateLimitError(message, retry_after=retry_after)
    if status == 408 or (status is None and any("timeout" in name.lower() for name in classes)):
        return lm15.TimeoutError(message)
    if status is not None and status >= 500:
        return lm15.ServerError(message, retry_after=retry_after)
    if status is not None:
        return lm15.AuthError(message) if status in (401, 403) else lm15.InvalidRequestError(message)
    if isinstance(error, OSError) or classes & _TRANSPORT_CLASSES:
        return lm15.TransportError(message)
    return error


# The whole message of the SDKs of OpenAI and Anthropic for every lost call; the reason is in its cause.
_NO_REASON = "Connection error."


def _client_message(error: Exception, status: int | None) -> str:
    """Return an exception's message, with what the server says where the client leaves it out."""
    message = f"{type(error).__name__}: {error}"
    if str(error) == _NO_REASON and error.__cause__ is not None:
        message = f"{type(error).__name__}: {first_line(_first_cause(error))}"
    body = _body(error)
    server_text = server_message(body)
    # The SDKs of OpenAI and Anthropic have the body in their message, as a Python dictionary.
    if server_text and server_text not in message and "Error code: " not in message:
        message = f"{type(error).__name__}: {first_line(error)}: {server_text}"
    if status is not None and ErrorResponse(status, body or message.encode()).is_from_wrong_url:
        message = f"{message}. {wrong_url_hint()}"
    return message


def _first_cause(error: BaseException) -> BaseException:
    return _first_cause(error.__cause__) if error.__cause__ else error


def _body(error: Exception) -> bytes:
    """Return the body of the response that a client's exception holds; empty where it was not read."""
    try:
        content: object = getattr(getattr(error, "response", None), "content", None)
    except Exception:  # noqa: BLE001 -- httpx raises an error of its own for a response that was not read
        return b""
    return content if isinstance(content, bytes) else b""


def _status(error: Exception) -> int | None:
    """Return the HTTP status of a client's exception; None where no response arrived."""
    response: Any = getattr(error, "response", None)
    places: list[Any] = [(error, "status_code"), (error, "status"), (response, "status_code"), (response, "status")]
    statuses = [getattr(holder, name, None) for holder, name in places]
    return next((status for status in statuses if isinstance(status, int) and not isinstance(status, bool)), None)


def _retry_after(error: Exception) -> float | None:
    """Return the seconds to wait that a response requests; None where it requests none."""
    response: Any = getattr(error, "response", None)
    headers: Any = getattr(response, "headers", None) or getattr(error, "headers", None) or {}
    value: Any = getattr(error, "retry_after", None)
    if value is None and hasattr(headers, "get"):
        value = headers.get("retry-after") or headers.get("Retry-After")
    try:
        return float(str(value))
    except ValueError:
        return None
