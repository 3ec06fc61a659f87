"""Decides which servers may get a key of the environment. `keys.py` has the rules for models that DSPy calls.

This module imports no DSPy, because decision judges use it without DSPy.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from rubric_integrations._util.text import url_without_secrets

OWN_KEY = "RUBRIC_INTEGRATIONS_API_KEY"
"""The environment variable with the key for the user's own server: a gateway, or a model server."""

KEY_ENDING = re.compile(r"(_API)?_(KEY|TOKEN)\Z")
"""The end of the name of an environment variable with a key. The rest of the name is the provider."""

_URL_ENDINGS = ("_BASE_URL", "_API_BASE", "_ENDPOINT")
# Clients disagree about the host in such a URL.
_AMBIGUOUS = re.compile(r"[\\\s\x00-\x1f]")


class ModelServer(NamedTuple):
    """The URL of a server, and the name of the setting that has this URL, for messages."""

    url: str
    source: str

    @property
    def host(self) -> str:
        """The name of the host. Empty if clients could disagree about it."""
        return "" if _AMBIGUOUS.search(self.url) else urlsplit(self.url).hostname or ""

    @property
    def is_this_machine(self) -> bool:
        """Whether the server runs on this machine."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_local(self) -> bool:
        """Whether the server runs on this machine, or has an address of a private network."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_private
        except ValueError:
            return False

    @property
    def is_encrypted(self) -> bool:
        """Whether nobody can read a key on its way to the server."""
        return self.is_this_machine or urlsplit(self.url).scheme.lower() == "https"


def check_url(url: str, source: str) -> None:
    """Check that the base URL of a model's server begins with http:// or https://.

    Args:
        url: The URL.
        source: The name of the setting with this URL, for the message.

    Raises:
        ValueError: The URL begins in another way.
    """
    if not re.match(r"https?://[^/]", url, re.IGNORECASE):
        rest = url_without_secrets(f"//{re.sub(r'^[a-z]*:?/+', '', url)}").removeprefix("://")
        raise ValueError(
            f"{source} is {rest!r}, which does not begin with http:// or https://: write 'http://{rest}', or https; "
            "otherwise no request could be sent"
        )
    try:
        parts = urlsplit(url)
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise ValueError(
            f"{source} is {url_without_secrets(url)!r}, which is no address of a server ({error}): correct its host or "
            "port; otherwise no request could be sent"
        ) from None


def hosts_of_environment(stems: Iterable[str]) -> set[str]:
    """Return the hosts that the environment names for a provider, such as the host of OPENAI_BASE_URL.

    Args:
        stems: The beginnings of the provider's variables, such as `OPENAI`.
    """
    urls = [os.environ.get(f"{stem}{ending}") for stem in stems for ending in _URL_ENDINGS]
    return {host for url in urls if (host := host_of(url))}


def host_of(url: str | None) -> str:
    """Return the host of a URL. Empty if there is none."""
    return ModelServer(url, "").host if url else ""


def own_key_for(
    server: ModelServer,
    default: ModelServer,
    variables: Sequence[str],
    hosts: Collection[str],
    others: Sequence[str] = (),
) -> str | None:
    """Return the key in `OWN_KEY` if the server gets it. Otherwise check that it may get the provider's key.

    Args:
        server: The server.
        default: The default endpoint of the provider, which never gets the user's own key.
        variables: The environment variables with keys of the provider.
        hosts: The hosts that may get these keys.
        others: Variables with other keys that may be sent to any host, but not over http.

    Raises:
        ValueError: A key would be sent over http, or the provider's key to another host.
    """
    own_key = os.environ.get(OWN_KEY)
    if own_key and (server.is_this_machine or server.host != default.host):
        require_encryption(server, [OWN_KEY])
        return own_key
    if not server.is_this_machine:
        require_encryption(server, [*variables, *others])
        if server.host not in hosts and (name := first_set(variables)):
            raise refusal(server, name)
    return None


def key_for_server(server: ModelServer, default_url: str, variable: str) -> str | None:
    """Return the key of the environment to send to a server. None if no key is set.

    Args:
        server: The server.
        default_url: The default endpoint of the provider.
        variable: The environment variable with the provider's key.

    Raises:
        ValueError: The key would be sent over http, or to a host that is neither the provider's nor named by the
            environment.
    """
    default = ModelServer(default_url, "the default endpoint")
    hosts = {default.host, *hosts_of_environment([KEY_ENDING.sub("", variable)])}
    return own_key_for(server, default, [variable], hosts) or os.environ.get(variable) or None


def refusal(server: ModelServer, name: str) -> ValueError:
    """Return the error for a key of the environment that a server must not get.

    Args:
        server: The server.
        name: The environment variable with the key.
    """
    variable = f"{KEY_ENDING.sub('', name)}_BASE_URL"
    return ValueError(
        f"{server.source} is a server on {server.host!r}, which is neither the default endpoint of the provider of "
        f"{name} nor named by the environment: that key is not sent, or whoever runs the server could use it. Pass "
        "the server's own key as `api_key` (`--api-key` in the shell; 'none' if it has no keys), or set "
        f"{OWN_KEY} to it; if the server is to have the key of {name}, set {variable} to its URL"
    )


def require_encryption(server: ModelServer, variables: Sequence[str]) -> None:
    """Check that no key of the environment is sent over http to another machine.

    Raises:
        ValueError: One of the variables is set, and the server is on another machine and has no https.
    """
    if not server.is_encrypted and (name := first_set(variables)):
        raise ValueError(
            f"{server.source} is a server on {server.host!r} without https: {name} is not sent over http, where it "
            "could be read on the way. Use an https URL, or pass the server's own key as `api_key` (`--api-key` in the "
            f"shell; 'none' if it has no keys); {OWN_KEY} is not sent over http either"
        )


def first_set(variables: Sequence[str]) -> str | None:
    """Return the first environment variable that is set and not empty."""
    return next((name for name in variables if os.environ.get(name)), None)
