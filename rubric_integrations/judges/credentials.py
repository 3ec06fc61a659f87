"""Keeps secrets out of fingerprints, files and messages.

- **Credentials** are excluded from fingerprints, even as a digest. They do not change an answer. Judges with different
  keys share stored judgments. A credential is recognized by the name of its setting (`is_credential`), by a scheme such
  as `Bearer` before it, or by its position in a URL, as the user or the password.
- **Sampling settings** are readable in a fingerprint.
- **All other settings** may change an answer. Therefore the fingerprint contains a digest of them. A digest does not
  protect a short value, which can be found by trying all values. Therefore give a secret setting a name that
  `is_credential` recognizes.
- **Messages** are redacted: credentials are removed, and so are values of other settings that look like a key.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

SAMPLING_SETTINGS = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "seed", "reasoning_effort",
     "verbosity", "frequency_penalty", "presence_penalty", "repetition_penalty", "logprobs", "top_logprobs", "n"}
)  # fmt: skip
"""Settings that never contain a secret. Their values are readable in a fingerprint."""

# A part of a name, which is written in camel case, with hyphens or with underscores.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CREDENTIAL = re.compile(
    r".*(keys?|secrets?|token|password|passwd|passphrase|credentials?|auth|authorization|cookies?|signature|bearer)|sig"
)
# Amounts of tokens, which may change an answer.
_AMOUNTS = frozenset({"budget", "limit", "count"})
_SCHEME = re.compile(r"(?:basic|bearer|token) \S+", re.IGNORECASE)
# Settings whose values are nested or long but never secret. Their values may occur in messages and must stay readable.
_NEVER_SECRET = SAMPLING_SETTINGS | {"model", "model_name", "response_format", "tools", "stop", "api_version"}
# A shorter value is not treated as a secret, because it may be a part of ordinary words. If the name of the setting is
# not the name of a credential, the value must be longer and have a digit, or be as long as a key. Otherwise it may be a
# word that a judge uses in its reason.
_SHORTEST, _SHORTEST_UNNAMED, _AS_LONG_AS_A_KEY = 5, 8, 20


# Cached, because the names of all environment variables are checked for every message.
@lru_cache(maxsize=1024)
def is_credential(name: str) -> bool:
    """Whether a name of a setting, a header or a URL parameter is the name of a credential.

    Example:
        >>> is_credential("X-Api-Key"), is_credential("max_tokens"), is_credential("x-model")
        (True, False, False)
    """
    words = [word.lower() for word in _WORD.findall(name)]
    return not _AMOUNTS.intersection(words[-1:]) and any(_CREDENTIAL.fullmatch(word) for word in words)


def has_scheme(value: str) -> bool:
    """Whether a value is an authentication scheme followed by a credential, as in the header `Authorization`.

    Example:
        >>> has_scheme("Bearer sk-123"), has_scheme("evals")
        (True, False)
    """
    return bool(_SCHEME.fullmatch(value))


_DEFAULT_PORTS = {"http": 80, "https": 443}


def split_url(url: str) -> tuple[str, list[object]]:
    """Return a URL's server, and its path and parameters. They are normalized and contain no credentials."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    shown_port = f":{port}" if port and port != _DEFAULT_PORTS.get(parts.scheme) else ""
    path = parts.path.rstrip("/")
    query = sorted(pair for pair in parse_qsl(parts.query) if not is_credential(pair[0]))
    return f"{parts.scheme}://{host}{shown_port}" if host else "", [path, query] if path or query else []


def redact(message: str, settings: Mapping[str, Any]) -> str:
    """Replace secrets in a message, which may quote the reply of a server.

    The secrets are the values of a model's settings that may be secret, and the credentials in environment variables.
    They are found as plain text, URL-encoded and in Base64.

    Example:
        >>> redact("bad key: sk-123", {"api_key": "sk-123"})
        'bad key: ***'
    """
    return redactor(settings)(message)


def redactor(settings: Mapping[str, Any]) -> Callable[[str], str]:
    """Return a function that redacts messages as `redact` does, with the secrets at the time of this call.

    Use it for many messages, because collecting the secrets takes ten times as long as searching one message.
    """
    pattern = _pattern_of(frozenset({*_secrets(settings), *_environment_secrets()}))
    return partial(pattern.sub, "***") if pattern else str


# Cached, because most judges have the same secrets.
@lru_cache(maxsize=64)
def _pattern_of(secrets: frozenset[str]) -> re.Pattern[str] | None:
    forms = sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)
    patterns = [
        re.escape(form) if len(form) >= _SHORTEST_UNNAMED else rf"(?<!\w){re.escape(form)}(?!\w)" for form in forms
    ]
    return re.compile("|".join(patterns)) if patterns else None


def _secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if name not in _NEVER_SECRET:
            yield from _secrets_in(value, is_credential(name))


def _secrets_in(value: object, is_named: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _secrets({str(name): item for name, item in value.items()})
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _secrets_in(item, is_named)
    elif isinstance(value, str) and "://" in value:
        yield from _url_secrets(value)
    elif isinstance(value, str):
        scheme, separator, credential = value.partition(" ")  # such as `Bearer KEY`
        candidates = [value, credential] if separator and scheme.isalpha() else [value]
        yield from (candidate for candidate in candidates if _may_be_secret(candidate, is_named))


def _may_be_secret(value: str, is_named: bool) -> bool:
    if is_named:
        return len(value) >= _SHORTEST
    has_digit = any(character.isdigit() for character in value)
    return len(value) >= (_SHORTEST_UNNAMED if has_digit else _AS_LONG_AS_A_KEY)


def _url_secrets(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    yield from (value for value in (unquote(user), unquote(password)) if _may_be_secret(value, is_named=True))
    if password:
        yield f"{unquote(user)}:{unquote(password)}"  # what Basic authentication encodes
    yield from (value for name, value in parse_qsl(parts.query) if _may_be_secret(value, is_credential(name)))
    # A part of a path that is as long as a key and has a digit, unlike a word.
    yield from (part for part in parts.path.split("/") if len(part) >= _AS_LONG_AS_A_KEY and re.search(r"\d", part))


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
