"""Reads the HTTP responses of model servers that are not answers: their messages, and what to do about them.

DSPy parses only the error messages of providers. This module also parses the messages of other servers, such as
FastAPI's `{"detail": ...}`, the web page of a proxy, or the 404 of a wrong base URL. It imports no DSPy, because
decision judges use it without DSPy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from rubric_integrations._util.text import url_without_secrets
from rubric_integrations.scoring.judgment import TokenUsage

REMEDY = (
    "shorten the texts, cut long results of tools with `TextLimits(step_limit=...)`, judge the response in parts with "
    "`TextLimits(chunk_size=...)`, or use a model that reads more"
)

# The messages of servers that report no error code for it, such as vLLM, llama.cpp, Gemini and Bedrock.
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|prompt is too long|available context size"
    r"|input token count \S+ exceeds|input is too long",
    re.IGNORECASE,
)


def says_too_long(message: str) -> bool:
    """Whether a server's message says that a prompt has more tokens than its model reads.

    Example:
        >>> says_too_long("This model's maximum context length is 4096 tokens. However, you requested 9000.")
        True
    """
    return bool(_TOO_LONG.search(message))


_SIZE = re.compile(
    r"too (?:long|large|big|many (?:tokens|bytes))|context (?:window|size)"
    r"|(?:exceed|larger than|longer than|more than)\w*\b.*\b(?:token|byte|limit|length|size|context)",
    re.IGNORECASE,
)


def is_about_size(message: str) -> bool:
    """Whether the message of a refused request says that the request is too large.

    Example:
        >>> is_about_size("state exceeds 64 KiB limit"), is_about_size("unknown model")
        (True, False)
    """
    return says_too_long(message) or bool(_SIZE.search(message))


_LONGEST_MESSAGE = 300
# The beginning of a body in which a message is looked for.
_LONGEST_BODY = 20_000

_PAGE = re.compile(r"\s*<(?:!doctype|html|head|body)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
NO_SUCH_PATH = (404, 405)


class ErrorResponse(NamedTuple):
    """An HTTP response that is not the reply of a model.

    Attributes:
        status: The HTTP status.
        body: The body.
    """

    status: int
    body: bytes

    @property
    def is_from_wrong_url(self) -> bool:
        """Whether the base URL is probably wrong: a web page with status 200, or a 404 or 405 that names no model."""
        if self.status == 200:
            return _is_page(self.body)
        return self.status in NO_SUCH_PATH and "model" not in server_message(self.body).lower()

    @property
    def is_unreadable(self) -> bool:
        """Whether the status is 200, but the body is not a JSON object: the page of a proxy, or a cut-off reply."""
        if self.status != 200:
            return False
        try:
            return not isinstance(json.loads(self.body), dict)
        except (ValueError, RecursionError):
            return True


def describe_response(response: ErrorResponse, api_base: object = None) -> str:
    """Describe an error response in one line: its status, the server's message, and what to do about a wrong URL.

    Example:
        >>> describe_response(ErrorResponse(400, b'{"detail": "the context is full"}'))
        'HTTP 400: the context is full'
    """
    message = server_message(response.body)
    if response.is_unreadable and not _is_page(response.body):
        message = f"the body is no reply of a model ({message[:80]!r})"
    description = f"HTTP {response.status}: {message}" if message else f"HTTP {response.status}"
    return f"{description}. {wrong_url_hint(api_base)}" if response.is_from_wrong_url else description


def wrong_url_hint(api_base: object = None) -> str:
    """Return a hint for the user about a base URL at which there is no chat API."""
    url = f"`api_base` ({url_without_secrets(api_base)!r})" if isinstance(api_base, str) else "the base URL"
    return (
        f"There is no chat API at this URL: check {url}, to which `/chat/completions` is appended; "
        "it may lack `/v1` at its end, or have it twice"
    )


def server_message(body: bytes) -> str:
    """Return the message in the body of an error response, in one line of at most 300 characters.

    Example:
        >>> server_message(b'{"detail": [{"loc": ["body", "seed"], "msg": "Field required", "input": {}}]}')
        'body.seed: Field required'
    """
    text = body[:_LONGEST_BODY].decode(errors="replace")
    if _is_page(body):
        title = _TITLE.search(text)
        words = " ".join((title[1] if title else _TAG.sub(" ", text)).split())[:80]
        return f"a web page in place of JSON ({words!r})"
    with suppress(ValueError, RecursionError):
        text = _message_in(json.loads(text)) or text
    return " ".join(text.split())[:_LONGEST_MESSAGE]


def _is_page(body: bytes) -> bool:
    return bool(_PAGE.match(body[:200].decode(errors="replace")))


def _message_in(value: object) -> str:
    """Return the message in a JSON value, in the formats of OpenAI, Ollama, FastAPI and vLLM. Empty without one."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, map(_validation_error, value)))
    if not isinstance(value, Mapping):
        return ""
    return next(filter(None, (_message_in(value.get(name)) for name in ("error", "detail", "message"))), "")


def _validation_error(entry: object) -> str:
    """Return the location and the reason of a validation error, without the wrong input, which may be the prompt."""
    if not isinstance(entry, Mapping):
        return ""
    place, reason = entry.get("loc"), entry.get("msg")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    return ": ".join(part for part in (where, reason if isinstance(reason, str) else "") if part)


# A number of tokens that no model reads or writes in one call.
_MAX_TOKENS = 100_000_000


def token_usage(sent: Any, received: Any, cached: Any = None, reasoning: Any = None) -> TokenUsage | None:
    """Make the token usage of a call from the counts that a server reports.

    Args:
        sent: The number of prompt tokens. None if it is not reported.
        received: The number of completion tokens. None if it is not reported.
        cached: The number of prompt tokens from the provider's cache. None if it is not reported.
        reasoning: The number of reasoning tokens. None if it is not reported.

    Returns:
        The usage. None if the counts are impossible, such as negative counts, or 0 for both prompt and completion. The
        cost of such counts could be zero or negative, and `max_cost` would never be reached.
    """
    for count in (sent, received, cached, reasoning):
        if count is not None and (type(count) is not int or not 0 <= count <= _MAX_TOKENS):
            return None
    if (cached or 0) > (sent or 0) or not (sent or received):
        return None
    return TokenUsage(prompt_tokens=sent or 0, completion_tokens=received or 0, cached_tokens=cached or 0)
