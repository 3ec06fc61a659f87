"""Keeps credentials out of fingerprints, which are written to ledgers, and out of error messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

# Names of a model's settings that hold credentials.
_CREDENTIALS = re.compile(r"key|secret|password|credential|headers|auth|token(?!s)", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/@]*@")
# A shorter value is no secret, and may be a part of ordinary words.
_MIN_SECRET = 5


def public_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's settings without credentials: of headers, only their names.

    Example:
        >>> public_settings({"api_key": "secret", "extra_headers": {"X-Team": "secret"}, "seed": 1})
        {'seed': 1, 'extra_headers': ['x-team']}
    """
    public = {name: value for name, value in settings.items() if not _CREDENTIALS.search(name)}
    for name in ("api_base", "base_url"):
        if name in public:
            public[name] = _USER_IN_URL.sub("", str(public[name]))
    headers = {
        name: value for name, value in settings.items() if name.endswith("headers") and isinstance(value, Mapping)
    }
    return public | {name: sorted(map(str.lower, value)) for name, value in headers.items()}


def redact(message: str, settings: Mapping[str, Any]) -> str:
    """Replace the credentials among a model's settings in a message, which may quote what a server wrote.

    Example:
        >>> redact("bad key: sk-123", {"api_key": "sk-123"})
        'bad key: ***'
    """
    for secret in sorted(_secrets(settings), key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", message)
    return message


def _secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if _CREDENTIALS.search(name):
            values = cast("Mapping[str, Any]", value).values() if isinstance(value, Mapping) else [value]
            yield from (secret for secret in values if isinstance(secret, str) and len(secret) >= _MIN_SECRET)
