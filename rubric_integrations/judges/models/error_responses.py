"""What a server's error response says, where it is not in the form of the provider's protocol.

DSPy reads the error messages of providers. Other servers at the end of the same URL have other forms, and DSPy drops
what they say: FastAPI's `{"detail": ...}`, the web page of a proxy, the 404 of a wrong base URL.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from rubric_integrations._util.urls import url_without_secrets

MAX_REPLY_BYTES = 10_000_000
"""The most bytes of a reply, decompressed. A judgment has a few thousand; a compressed one could fill the memory."""

_LONGEST_MESSAGE = 300
# The beginning of a body in which a message is looked for.
_LONGEST_BODY = 20_000

_PAGE = re.compile(r"\s*<(?:!doctype|html|head|body)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_NO_SUCH_PATH = (404, 405)


class ErrorResponse(NamedTuple):
    """A response that is no reply of a model.

    Attributes:
        status: The HTTP status.
        body: The body.
    """

    status: int
    body: bytes

    @property
    def is_from_wrong_url(self) -> bool:
        """Whether the base URL is probably wrong: nothing is there, or a web page, and no model is named."""
        if self.status == 200:
            return _is_page(self.body)
        return self.status in _NO_SUCH_PATH and "model" not in server_message(self.body).lower()

    @property
    def is_unreadable(self) -> bool:
        """Whether it reports success without a JSON object: a page of a proxy, a reply that was cut off."""
        if self.status != 200:
            return False
        try:
            return not isinstance(json.loads(self.body), dict)
        except (ValueError, RecursionError):
            return True


def find_response(error: BaseException) -> ErrorResponse | None:
    """Return the response behind an error of DSPy; None where there was none.

    DSPy's errors carry the status, but not the body. It is still in a variable of the function that raised the error.
    The other ways to it are to replace methods of DSPy, which would change the user's program, or a second request.
    """
    raised = error.__cause__ or error
    for frame, _ in traceback.walk_tb(raised.__traceback__):
        for value in frame.f_locals.values():
            if type(value).__name__ == "HttpResponse":
                status, body = getattr(value, "status", None), getattr(value, "body", None)
                if isinstance(status, int) and isinstance(body, bytes):
                    return ErrorResponse(status, body)
    return None


def describe_response(response: ErrorResponse, api_base: object = None) -> str:
    """Describe an error response in one line: its status, what the server says, and what to do about a wrong URL.

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
    """Return the remedy for a base URL at which there is no chat API."""
    url = f"`api_base` ({url_without_secrets(api_base)!r})" if isinstance(api_base, str) else "the base URL"
    return (
        f"There is no chat API at this URL: check {url}, to which `/chat/completions` is appended; "
        "it may lack `/v1` at its end, or have it twice"
    )


def server_message(body: bytes) -> str:
    """Return what the body of an error response says, in one line of at most 300 characters; empty if it is empty.

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
    """Return the message in a JSON value, in the forms of OpenAI, Ollama, FastAPI and vLLM; empty if there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, map(_validation_error, cast("list[object]", value))))
    if not isinstance(value, Mapping):
        return ""
    fields = cast("Mapping[str, Any]", value)
    return next(filter(None, (_message_in(fields.get(name)) for name in ("error", "detail", "message"))), "")


def _validation_error(entry: object) -> str:
    """Return where a request is wrong and why, without the wrong input, which may be the whole prompt."""
    if not isinstance(entry, Mapping):
        return ""
    fields = cast("Mapping[str, Any]", entry)
    place, reason = fields.get("loc"), fields.get("msg")
    where = ".".join(map(str, cast("list[object]", place))) if isinstance(place, list) else ""
    return ": ".join(part for part in (where, reason if isinstance(reason, str) else "") if part)
