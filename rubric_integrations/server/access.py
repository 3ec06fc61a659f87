"""Who may send requests: those with the token; without one, programs of this machine, but no web page."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re

from aiohttp import web

from rubric_integrations.server.problems import RequestProblem

MIN_TOKEN = 16
"""Characters that a token must have at least, so that nobody can guess it."""

_TOKEN = re.compile(r"[!-~]+")


def check_token(token: str) -> str:
    """Return a token as it is compared.

    Raises:
        ValueError: It is too short, or has characters that no header can hold. The message does not show it.

    Example:
        >>> check_token(" 0123456789abcdef ")
        '0123456789abcdef'
    """
    token = token.strip()
    if len(token) < MIN_TOKEN or not _TOKEN.fullmatch(token):
        raise ValueError(
            f"the token has {len(token)} characters: it needs at least {MIN_TOKEN}, all of them visible ASCII, such as "
            "those of `openssl rand -hex 32`"
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether a host name or address is reached from this machine alone.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def check_access(request: web.Request, token: str | None) -> None:
    """Check who sends a request.

    Args:
        request: The request.
        token: The token that it needs; None if the server listens on this machine alone, and needs none.

    Raises:
        RequestProblem: (403) It comes from a web page, or was sent to the name of another host; (401) it has no token,
            or another one.
    """
    if "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none":
        raise RequestProblem(403, "the request comes from a web page: only programs may use this server")
    if token is not None:
        if not _has_token(request.headers.get("Authorization", ""), token):
            raise RequestProblem(401, "the token is missing or wrong: send `Authorization: Bearer TOKEN`")
    elif not is_loopback(_host_of(request)):
        # A page could give its own name the address 127.0.0.1, and would then be of the same origin as this server.
        raise RequestProblem(
            403, "the header `Host` is not that of this machine: use http://127.0.0.1, or start the server with a token"
        )


def _has_token(header: str, token: str) -> bool:
    scheme, _, credential = header.partition(" ")
    if scheme.lower() == "basic":
        # What an HTTP client makes of http://name:TOKEN@host, where no header can be set.
        try:
            credential = base64.b64decode(credential, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(credential.strip().encode("utf-8", "surrogateescape"), token.encode())


def _host_of(request: web.Request) -> str:
    host = request.headers.get("Host", "")
    return re.sub(r":\d*\Z", "", host)
