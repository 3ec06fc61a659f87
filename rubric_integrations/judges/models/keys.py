"""Which API key goes to which server.

DSPy and LiteLLM find the key of the model's provider in an environment variable, and send it to whatever server
`api_base`, or a variable such as OPENAI_BASE_URL, names. A key of the environment is meant for its provider, so it goes
to no other host, unless that is this machine, and never over http to another machine. Decided here:

- The server is unknown: the key of `OWN_KEY`, which is for exactly that; otherwise an error if a key would be sent.
- The server belongs to another provider than the model's: the key of that provider, or an error.
- A local server requires no key: a placeholder, without which DSPy would refuse to send the request.
- A server such as vLLM was started with a key, whose variable only LiteLLM reads: that variable.

A key that is passed as an argument goes where the user sends it. A chat model does not tell such a key from one that it
read itself: one that equals a variable of a provider is taken for the variable's, unless `OWN_KEY` has it, too.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import dspy
from dspy import lm15

OWN_KEY = "RUBRIC_INTEGRATIONS_API_KEY"
"""The environment variable of the key for a server of the user's own: a gateway, or a model server."""

PLACEHOLDER = "none"
"""The key that is sent where none is set."""

PROVIDER_KEYS: dict[str, tuple[str, ...]] = {
    "openai.com": ("OPENAI_API_KEY",),
    "anthropic.com": ("ANTHROPIC_API_KEY",),
    "generativelanguage.googleapis.com": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "openai.azure.com": ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
    "cognitiveservices.azure.com": ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
    "ai.azure.com": ("AZURE_AI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
    "amazonaws.com": ("AWS_BEARER_TOKEN_BEDROCK",),
    "azuredatabricks.net": ("DATABRICKS_TOKEN", "DATABRICKS_API_KEY"),
    "cerebras.ai": ("CEREBRAS_API_KEY",),
    "cohere.ai": ("COHERE_API_KEY",),
    "cohere.com": ("COHERE_API_KEY",),
    "databricks.com": ("DATABRICKS_TOKEN", "DATABRICKS_API_KEY"),
    "deepseek.com": ("DEEPSEEK_API_KEY",),
    "fireworks.ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
    "groq.com": ("GROQ_API_KEY",),
    "huggingface.co": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "meta.ai": ("META_API_KEY",),
    "mistral.ai": ("MISTRAL_API_KEY",),
    "moonshot.ai": ("MOONSHOTAI_API_KEY", "MOONSHOT_API_KEY"),
    "moonshot.cn": ("MOONSHOTAI_API_KEY", "MOONSHOT_API_KEY"),
    "openrouter.ai": ("OPENROUTER_API_KEY",),
    "perplexity.ai": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "together.ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    "together.xyz": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    "x.ai": ("XAI_API_KEY",),
    "z.ai": ("ZAI_API_KEY",),
}
"""The environment variables of a provider's key, by the domain of its servers."""

_SERVER_KEYS = {"hosted_vllm": "HOSTED_VLLM_API_KEY", "ollama": "OLLAMA_API_KEY", "ollama_chat": "OLLAMA_API_KEY"}
_CLOUD_KEYS = {"bedrock": "AWS_BEARER_TOKEN_BEDROCK"}
_KEY_NAME = re.compile(r"KEY|TOKEN")
# Clients differ in the host that they read from such a URL.
_AMBIGUOUS = re.compile(r"[\\\s\x00-\x1f]")


class _Server(NamedTuple):
    """A server, and where its URL was found, for messages."""

    url: str
    source: str

    @property
    def host(self) -> str:
        return "" if _AMBIGUOUS.search(self.url) else urlsplit(self.url).hostname or ""

    @property
    def is_this_machine(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def provider_keys(self) -> tuple[str, ...]:
        """The variables of the provider whose server this is; empty where it is unknown."""
        domains = (names for domain, names in PROVIDER_KEYS.items() if f".{self.host}".endswith(f".{domain}"))
        return next(domains, ())

    @property
    def is_encrypted(self) -> bool:
        return self.is_this_machine or urlsplit(self.url).scheme.lower() == "https"


def key_for_endpoint(model: str, api_base: str | None = None) -> str | None:
    """Return the key to send to a server, or None where DSPy finds the right one itself.

    Args:
        model: The model's name, as DSPy and LiteLLM spell it.
        api_base: The base URL of its server; None for that of the environment, or of its provider.

    Raises:
        ValueError: A key of the environment would be sent to another host than its provider's, or over http; or the
            server belongs to another provider than the model's, and no key of that provider is set.

    Example:
        >>> key_for_endpoint("hosted_vllm/qwen3", "http://localhost:8000/v1") is None
        True
    """
    route = _route(model)
    server = _Server(api_base, "`api_base`") if api_base else _server_of_environment(model)
    if server is None:
        return None
    own = _own_variables(model, route)
    if server.provider_keys:
        if not set(own).isdisjoint(server.provider_keys):
            _require_encryption(server, own)
            return PLACEHOLDER if api_base and _needs_placeholder(route) else None
        return _key_of_other_provider(server, route)
    if key := os.environ.get(OWN_KEY):
        _require_encryption(server, [OWN_KEY])
        return key
    if not server.is_this_machine:
        _require_encryption(server, [*own, _SERVER_KEYS.get(_prefix(model), "")])
        if name := _first_set(own):
            raise _refusal(server, name)
    if route and route.credential_policy == "key" and route.env_key is None:
        return os.environ.get(_SERVER_KEYS.get(_prefix(model), "")) or None
    return PLACEHOLDER if api_base and _needs_placeholder(route) else None


def with_key_for_its_server(lm: dspy.LM) -> dspy.LM:
    """Return an LM that sends its server the right key: a copy with that key where DSPy would not find it.

    An LM with an engine of its own, or with a key of its own, is returned as it is.

    Raises:
        ValueError: See `key_for_endpoint`.
    """
    if not isinstance(getattr(lm, "engine", None) or "", str) or lm.kwargs.get("api_key"):
        return lm
    api_base = lm.kwargs.get("api_base") or lm.kwargs.get("base_url")
    model = lm.model if api_base else with_provider(lm.model)
    key = key_for_endpoint(model, api_base)
    changes = ({"api_key": key} if key else {}) | ({"model": model} if model != lm.model else {})
    return lm.copy(**changes) if changes else lm


def with_provider(model: str) -> str:
    """Write the provider before a bare model name if the environment sets the provider's server; else return the name.

    Otherwise DSPy would send some requests to that server, and others to the provider.
    """
    if _prefix(model) or (route := _route(model)) is None:
        return model
    name = f"{route.provider.removesuffix('-chat')}/{model}"
    return name if _server_of_environment(name) else model


def require_keys_for_server(keys: Iterable[str], url: str) -> None:
    """Check that a chat model sends no key of the environment to a server that it is not meant for.

    Args:
        keys: The keys that the model has.
        url: The base URL of its server.

    Raises:
        ValueError: One is that of a provider, and the server belongs to another one, or would get it over http.
    """
    server = _Server(url, "`base_url`")
    known = {name for names in PROVIDER_KEYS.values() for name in names}
    for key in keys:
        own = sorted(name for name in known if os.environ.get(name) == key)
        if not own or server.is_this_machine:
            continue
        _require_encryption(server, own)
        if set(own).isdisjoint(server.provider_keys) and os.environ.get(OWN_KEY) != key:
            raise _refusal(server, own[0])


def _refusal(server: _Server, name: str) -> ValueError:
    return ValueError(
        f"{server.source} is a server on {server.host!r}, which is not known to belong to the provider of "
        f"{name}: that key is not sent, or whoever runs the server could use it. Pass the server's own key as "
        f"`api_key` (`--api-key` in the shell; 'none' if it has no keys), or set {OWN_KEY} to it"
    )


def _key_of_other_provider(server: _Server, route: lm15.Resolution | None) -> str | None:
    _require_encryption(server, server.provider_keys)
    key = os.environ.get(_first_set(server.provider_keys) or "")
    if key is None and route and route.env_key:
        raise ValueError(
            f"{server.source} is {server.host!r}, a server of the provider whose key is in "
            f"{' or '.join(server.provider_keys)}: set it, or pass `api_key`; otherwise the server would receive "
            f"{route.env_key}, the key of another provider"
        )
    return key


def _require_encryption(server: _Server, variables: Sequence[str]) -> None:
    if not server.is_encrypted and (name := _first_set(variables)):
        raise ValueError(
            f"{server.source} is a server on {server.host!r} without https: {name} is not sent over http, where it "
            "could be read on the way. Use an https URL, or pass the server's own key as `api_key` (`--api-key` in the "
            f"shell; 'none' if it has no keys); {OWN_KEY} is not sent over http either"
        )


def _needs_placeholder(route: lm15.Resolution | None) -> bool:
    """Whether DSPy would find no key; LiteLLM looks for others, and cloud providers have other kinds of credentials."""
    if route is None or route.credential_policy != "key" or route.env_key is None:
        return False
    return not os.environ.get(route.env_key)


def _own_variables(model: str, route: lm15.Resolution | None) -> list[str]:
    """Return the variables in which DSPy and LiteLLM may find the key of a model's provider."""
    prefix = _prefix(model)
    if prefix in _SERVER_KEYS:
        return []
    spellings = {prefix.upper(), prefix.upper().replace("_", "")} - {""}
    names = {f"{spelling}_API_KEY" for spelling in spellings}
    names |= {name for name in (route and route.env_key, _CLOUD_KEYS.get(prefix)) if name}
    shared = [name for group in PROVIDER_KEYS.values() if not names.isdisjoint(group) for name in group]
    starts = tuple(f"{spelling}_" for spelling in spellings)
    others = [name for name in os.environ if name.startswith(starts) and _KEY_NAME.search(name)]
    return sorted({*names, *shared, *others})


def _first_set(variables: Sequence[str]) -> str | None:
    return next((name for name in variables if os.environ.get(name)), None)


def server_url_of_environment(model: str) -> str | None:
    """Return the base URL that the environment sets for a model's provider, such as OPENAI_BASE_URL; None without."""
    server = _server_of_environment(model)
    return server.url if server else None


def _server_of_environment(model: str) -> _Server | None:
    """Return the server that DSPy and LiteLLM take from the environment for models with this prefix."""
    prefix = _prefix(model).upper()
    names = (f"{prefix}_BASE_URL", f"{prefix}_API_BASE") if prefix else ()
    return next((_Server(url, name) for name in names if (url := os.environ.get(name))), None)


def _prefix(model: str) -> str:
    prefix, separator, _ = model.partition("/")
    return prefix if separator else ""


def _route(model: str) -> lm15.Resolution | None:
    """Return where DSPy's own engine would send the model's requests; None for a model that it leaves to LiteLLM."""
    declared = tuple(provider.definition for provider in lm15.registered_providers())
    try:
        return lm15.LMRouter(lm15.RouterConfig(providers=declared)).resolve_openai_chat(model)
    except lm15.LM15Error:
        return None
