"""Keeps secrets out of what is written: which settings of a model may hold one, and messages without them.

A setting may hold a secret under any name, so that fingerprints show only the sampling settings listed here.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

SAMPLING_SETTINGS = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "seed", "reasoning_effort",
     "verbosity", "frequency_penalty", "presence_penalty", "repetition_penalty", "logprobs", "top_logprobs", "n"}
)  # fmt: skip
"""Settings that hold no secret; their values can be read in a fingerprint."""

_CREDENTIAL = re.compile(r"key|secret|passw|credential|auth|cookie|session|signature|token(?!s)", re.IGNORECASE)
# What holds no secret in spite of its depth or its length, and may occur in a message that a user must understand.
_NEVER_SECRET = SAMPLING_SETTINGS | {"model", "model_name", "response_format", "tools", "stop", "api_version"}
# A shorter value is no secret, and may be a part of ordinary words. That of a setting without a telling name must be
# longer, since it may be a word.
_SHORTEST, _SHORTEST_UNNAMED = 5, 8


def is_credential(name: str) -> bool:
    """Whether a setting, a header or a parameter of a URL is a credential by its name.

    Example:
        >>> is_credential("X-Api-Key"), is_credential("max_tokens"), is_credential("x-model")
        (True, False, False)
    """
    return bool(_CREDENTIAL.search(name))


def redact(message: str, settings: Mapping[str, Any]) -> str:
    """Replace secrets in a message, which may quote what a server wrote.

    These are the values of a model's settings that may be secret, and the credentials of the environment: plain, as in
    a URL, and in Base64.

    Example:
        >>> redact("bad key: sk-123", {"api_key": "sk-123"})
        'bad key: ***'
    """
    secrets = {form for secret in {*_secrets(settings), *_environment_secrets()} for form in _forms(secret)}
    for secret in sorted(secrets, key=len, reverse=True):
        pattern = re.escape(secret)
        message = re.sub(pattern if len(secret) >= _SHORTEST_UNNAMED else rf"(?<!\w){pattern}(?!\w)", "***", message)
    return message


def _secrets(settings: Mapping[str, Any], *, nested: bool = False) -> Iterator[str]:
    for name, value in settings.items():
        if name not in _NEVER_SECRET:
            yield from _secrets_in(value, _SHORTEST if is_credential(name) else _SHORTEST_UNNAMED, nested=nested)


def _secrets_in(value: object, shortest: int, *, nested: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _secrets({str(name): item for name, item in cast("Mapping[Any, Any]", value).items()}, nested=True)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in cast("list[object]", value):
            yield from _secrets_in(item, shortest, nested=nested)
    elif isinstance(value, str) and "://" in value:
        yield from _url_secrets(value)
    elif isinstance(value, str) and len(value) >= shortest:
        yield value
        scheme, separator, credential = value.partition(" ")  # such as `Bearer KEY`
        if separator and scheme.isalpha() and len(credential) >= shortest:
            yield credential


def _url_secrets(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    values = [unquote(user), unquote(password), *(value for _, value in parse_qsl(parts.query))]
    yield from (value for value in values if len(value) >= _SHORTEST)
    if password:
        yield f"{unquote(user)}:{unquote(password)}"  # what Basic authentication encodes
    # A part of a path that is as long as a key, and no word.
    yield from (part for part in parts.path.split("/") if len(part) >= 20 and re.search(r"\d", part))


def _environment_secrets() -> Iterator[str]:
    for name, value in os.environ.items():
        if is_credential(name) and len(value) >= _SHORTEST_UNNAMED:
            yield value
        elif "://" in value and "@" in value:
            yield from _url_secrets(value)


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(secret.encode(errors="replace")).decode().rstrip("=")
