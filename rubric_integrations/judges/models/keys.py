"""Decides which API key is sent to which server.

DSPy and LiteLLM read the key of the model's provider from an environment variable, and send it to any server that
`api_base` or a variable such as OPENAI_BASE_URL names. Here, a key from the environment is sent only to three kinds of
hosts: its provider's default endpoint, a host that the environment names for the provider (OPENAI_BASE_URL or
OPENAI_API_BASE for OPENAI_API_KEY), and this machine. It is never sent over http to another machine.

Some servers get another key:

- Any server except the provider's default endpoint gets the key in the environment variable `OWN_KEY`, if it is set. If
  it is not set, a request that would send the provider's key to a host of none of the three kinds is an error.
- A server that requires no key gets a placeholder, because DSPy refuses to send a request without a key.
- If a model of another provider than OpenAI has no key and DSPy leaves its requests to LiteLLM, its server also gets
  the placeholder. Otherwise, LiteLLM would send OPENAI_API_KEY.
- A vLLM or Ollama server that requires a key gets the key in HOSTED_VLLM_API_KEY or OLLAMA_API_KEY. LiteLLM reads these
  variables, but DSPy does not.

A key that is passed as an argument is sent to the server that the user names. A LangChain chat model does
not record whether its key was an argument or was read from the environment. Therefore, a key that equals the value of
an environment variable counts as read from the environment, unless `OWN_KEY` has the same value.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import dspy
from dspy import lm15

from rubric_integrations._util.lazy import install_command
from rubric_integrations.judges.credentials import is_credential
from rubric_integrations.judges.models.servers import (
    KEY_ENDING,
    OWN_KEY,
    ModelServer,
    check_url,
    first_set,
    host_of,
    hosts_of_environment,
    own_key_for,
    refusal,
    require_encryption,
)

PLACEHOLDER = "none"
"""The key that is sent if no key is set."""

_SERVER_KEYS = {"hosted_vllm": "HOSTED_VLLM_API_KEY", "ollama": "OLLAMA_API_KEY", "ollama_chat": "OLLAMA_API_KEY"}
# Variables whose names do not begin with the prefix of the models.
_OTHER_KEYS = {"bedrock": "AWS_BEARER_TOKEN_BEDROCK", "gemini": "GOOGLE_API_KEY", "huggingface": "HF_TOKEN"}
CLOUD_CREDENTIALS = {
    "bedrock": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or AWS_BEARER_TOKEN_BEDROCK",
    "vertex_ai": "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file",
}
"""What to do about the credentials of clouds whose models need no API key, by the prefix of the models."""

_TEXT_COMPLETION = "text-completion-openai"  # LiteLLM's prefix for OpenAI's older protocol
_KEY_NAME = re.compile(r"KEY|TOKEN")
_OLLAMA = ("ollama", "ollama_chat")
_OLLAMA_PATH = re.compile(r"(?:/v1(?:/chat/completions)?|/api(?:/chat|/generate)?)?/*\Z")


CONNECTION_SETTINGS = frozenset({
    "api_key", "api_base", "base_url", "timeout", "headers", "extra_headers", "api_version", "azure_ad_token_provider",
    "organization", "project", "extra_query", "custom_llm_provider",
})  # fmt: skip
"""The settings of a `dspy.LM` that are about its connection, and not about its requests."""

# The settings of a connection that DSPy's own engine supports. It leaves requests with any other to LiteLLM.
_OWN_SETTINGS = frozenset({"api_key", "api_base", "base_url", "timeout"})


def check_provider(model: str) -> None:
    """Check that the provider of a model is known: from a prefix of the name, or because DSPy knows the name.

    Raises:
        ValueError: The provider is unknown.
    """
    if not _prefix(model) and route_of(model) is None:
        raise ValueError(
            f"the model name {model!r} has no provider: write it before the name, such as 'openai/{model}' for a "
            f"server that speaks OpenAI's protocol, 'hosted_vllm/{model}' or 'ollama_chat/{model}'"
        )


def speaks_openai(lm: dspy.BaseLM) -> bool:
    """Whether DSPy sends a model's requests in OpenAI's chat protocol.

    Example:
        >>> [speaks_openai(dspy.LM(name)) for name in ("hosted_vllm/qwen3", "anthropic/claude-sonnet-4-5")]
        [True, False]
    """
    if type(lm) is not dspy.LM:
        return False
    if not isinstance(lm.engine, str):
        return bool(getattr(lm.engine, "speaks_openai", False))
    route = route_of(lm.model)
    return route is not None and route.adapter == "OpenAIChatLM" and is_called_by_chat(lm, route)


def is_called_by_chat(lm: dspy.LM, route: lm15.Resolution) -> bool:
    """Whether a model is called by chat completions or Anthropic's messages, and not by OpenAI's Responses API."""
    # With "auto", which is the default of DSPy 3.5, models of OpenAI may be called by either.
    return lm.model_type == "chat" or (str(lm.model_type) == "auto" and route.provider != "openai-chat")


def connection_settings(lm: dspy.LM) -> dict[str, Any]:
    """Return the settings of a model's connection that are set, by name. They contain credentials."""
    return {name: lm.kwargs[name] for name in CONNECTION_SETTINGS & lm.kwargs.keys() if lm.kwargs[name] is not None}


def litellm_reason(lm: dspy.LM) -> str | None:
    """Return why DSPy sends the requests of a model through LiteLLM. None if it has an engine of its own for them.

    DSPy also uses LiteLLM if the environment names the server, unless this library sends the requests itself.

    Example:
        >>> litellm_reason(dspy.LM("openai/mock", extra_headers={"X-Team": "a"}))
        '`headers` are set'
    """
    if lm.engine == "litellm":
        return "`engine` is 'litellm'"
    if lm.engine not in ("auto", "lm15"):
        return None
    others = connection_settings(lm).keys() - _OWN_SETTINGS
    if others & {"headers", "extra_headers"}:
        return "`headers` are set"
    if others:
        return f"`{min(others)}` is set"
    if str(lm.model_type) == "text":
        return "`model_type` is 'text'"
    if (route := route_of(lm.model)) is None:
        return "DSPy has no client for this provider"
    return "`api_base` is set for Azure" if route.provider.startswith("azure") and server_url(lm) else None


def require_litellm(lm: dspy.LM) -> None:
    """Check that LiteLLM is installed if DSPy sends the requests of a model through it.

    Raises:
        ValueError: LiteLLM is not installed.
    """
    if not _has_litellm() and type(lm) is dspy.LM and (reason := litellm_reason(lm)):
        raise ValueError(
            f"the model {lm.model!r} needs LiteLLM, because {reason}, and LiteLLM is not installed: "
            f"{install_command('litellm')}"
        )


def _has_litellm() -> bool:
    return find_spec("litellm") is not None


def server_url(lm: dspy.LM) -> str | None:
    """Return the base URL to which a model's requests in OpenAI's protocol go. None for the provider's own.

    It is the URL that the user has set or, if there is none, the URL in the environment.
    """
    url: str | None = lm.kwargs.get("api_base") or lm.kwargs.get("base_url") or server_url_of_environment(lm.model)
    return f"{_OLLAMA_PATH.sub('', url)}/v1" if url and _prefix(lm.model) in _OLLAMA else url


def key_for_endpoint(model: str, api_base: str | None = None, *, has_headers: bool = False) -> str | None:
    """Return the key to send to a model's server. None if DSPy finds the right key itself.

    Args:
        model: The model's name, as DSPy and LiteLLM spell it.
        api_base: The base URL of the server. None for the URL in the environment, or for the provider's default.
        has_headers: Whether the user has set headers for the requests. DSPy sends such requests through LiteLLM.

    Raises:
        ValueError: A key from the environment would be sent over http, or to a host that is neither its provider's
            default endpoint nor named by the environment.

    Example:
        >>> key_for_endpoint("hosted_vllm/qwen3", "http://localhost:8000/v1") is None
        True
    """
    route = route_of(model)
    default = ModelServer(_default_url(model) or "", "the default endpoint")
    server = ModelServer(api_base, "`api_base`") if api_base else _server_of_environment(model)
    own, own_key = _own_variables(model, route), os.environ.get(OWN_KEY)
    if server is None and own_key and default.is_this_machine:
        server = default
    if server is None:
        return _key_instead_of_openais(model, own) if route is None or has_headers else None
    # The default endpoint of a provider gets that provider's key. A server on this machine is not a provider's.
    others = [_SERVER_KEYS.get(_prefix(model), "")]
    if key := own_key_for(server, default, own, _own_hosts(model, own), others):
        return key
    if route and route.credential_policy == "key" and route.env_key is None:
        return os.environ.get(_SERVER_KEYS.get(_prefix(model), "")) or None
    placeholder = PLACEHOLDER if _needs_placeholder(route) else None
    if route and api_base:
        return placeholder
    # DSPy uses LiteLLM for requests with headers and, unless this library sends them, for a server of the environment.
    return _key_instead_of_openais(model, own) or (None if has_headers else placeholder)


def _key_instead_of_openais(model: str, own: Sequence[str]) -> str | None:
    """Return a key for a model of another provider if LiteLLM would send OPENAI_API_KEY with it. Otherwise None.

    LiteLLM does this if it finds no key of the provider. It is only imported if OPENAI_API_KEY is set.
    """
    if not os.environ.get("OPENAI_API_KEY") or "OPENAI_API_KEY" in own or not _has_litellm():
        return None
    litellm: Any = import_module("litellm")
    try:
        _, provider, key, _ = litellm.get_llm_provider(model)
    except litellm.BadRequestError:  # an unknown provider, or one without a default URL
        provider, key = _prefix(model), None
    # Azure AI may have other credentials than a key, and never gets the key of OpenAI.
    if key or provider == "azure_ai" or provider not in {"custom_openai", *litellm.openai_compatible_providers}:
        return None
    return os.environ[name] if (name := first_set(own)) else PLACEHOLDER


def ollama_url(model: str, api_base: str | None, *, has_headers: bool) -> str | None:
    """Return the base URL of a model on an Ollama server in the form that its client needs.

    DSPy's own engine needs `http://host:11434/v1`. LiteLLM needs `http://host:11434`. DSPy uses LiteLLM for requests
    with headers, and for all requests if a variable for the model's prefix is set, such as OLLAMA_API_BASE. Users may
    pass either form. For a model of another provider, `api_base` is returned.

    Args:
        model: The model's name.
        api_base: The base URL that the user passed. None for the URL in OLLAMA_API_BASE or OLLAMA_HOST.
        has_headers: Whether the user has set headers for the requests.

    Raises:
        ValueError: The URL of the environment does not begin with http:// or https://, or its port is not a number.

    Example:
        >>> ollama_url("ollama_chat/llama3.2", "http://localhost:11434", has_headers=False)
        'http://localhost:11434/v1'
    """
    if _prefix(model) not in _OLLAMA:
        return api_base
    leaves_to_litellm = _server_of_environment(model)
    url = api_base or os.environ.get("OLLAMA_API_BASE") or (leaves_to_litellm and leaves_to_litellm.url)
    if not (url := url or _ollama_host()):
        return None
    check_url(url, "`api_base`" if api_base else "OLLAMA_API_BASE or OLLAMA_HOST")
    root = _OLLAMA_PATH.sub("", url)
    return root if has_headers or leaves_to_litellm else f"{root}/v1"


def _ollama_host() -> str | None:
    """Return the URL of OLLAMA_HOST, which may lack the scheme and the port, or be an address to listen on."""
    host = os.environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    if not host:
        return None
    has_scheme = "://" in host
    try:
        parts = urlsplit(host if has_scheme else f"http://{host}")
        port = parts.port or (None if has_scheme else 11434)
    except ValueError as error:
        raise ValueError(f"OLLAMA_HOST is {host!r}: {error}; write it as 'host', 'host:port' or a URL") from None
    name = parts.hostname or ""
    # A server may listen on these addresses, but clients cannot connect to them on some systems.
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104
    address = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{address}{f':{port}' if port else ''}{parts.path}"


def with_key_for_its_server(lm: dspy.LM) -> dspy.LM:
    """Return an LM that sends the right key to its server.

    If DSPy would not find the right key, the result is a copy of the LM with this key. An LM with its own engine or its
    own key is returned unchanged.

    Raises:
        ValueError: A key from the environment would be sent over http, or to a server for which it is not intended, or
            the LM needs LiteLLM, which is not installed.
    """
    require_litellm(lm)
    if not isinstance(getattr(lm, "engine", None) or "", str) or lm.kwargs.get("api_key"):
        return lm
    api_base = lm.kwargs.get("api_base") or lm.kwargs.get("base_url")
    if isinstance(api_base, str):
        check_url(api_base, "`api_base`")
    model = lm.model if api_base else with_provider(lm.model)
    key = key_for_endpoint(model, api_base)
    changes = ({"api_key": key} if key else {}) | ({"model": model} if model != lm.model else {})
    return lm.copy(**changes) if changes else lm


def describe_sent_key(model: str, settings: Mapping[str, Any]) -> str:
    """Describe whether a key was sent and where to set the key, for the message of a refused request.

    The description does not contain the key.

    Args:
        model: The model's name.
        settings: The model's settings, with credentials.

    Example:
        >>> describe_sent_key("openai/m", {"api_key": "sk-1"})
        "A key was sent: check that it is this server's"
    """
    every = {**settings, **(settings.get("extra_headers") or {})}
    keys = [value for name, value in every.items() if value and is_credential(name)]
    if any(key != PLACEHOLDER for key in keys):
        return "A key was sent: check that it is this server's"
    if not keys and (variable := first_set(_own_variables(model, route_of(model)))):
        return f"The key of {variable} was sent: check that it is this server's"
    if remedy := CLOUD_CREDENTIALS.get(_prefix(model)):
        return f"The credentials of the cloud were refused: check their permissions, or {remedy}"
    # Without `api_base`, the server is the provider's, which does not get the user's own key.
    variable = None if settings.get("api_base") or settings.get("base_url") else missing_key_variable(model)
    return f"No key was sent: pass it as `api_key` (`--api-key` in the shell), or set {variable or OWN_KEY} to it"


def missing_key_variable(model: str) -> str | None:
    """Return the variable in which LiteLLM looks for the key of a model's provider. None if it is set or not known.

    LiteLLM is not imported for this. It is in memory if it has sent a request.
    """
    litellm: Any = sys.modules.get("litellm")
    if litellm is None or first_set(_own_variables(model, route_of(model))):
        return None
    names: list[str] = litellm.validate_environment(model)["missing_keys"]
    return next((name for name in names if name.endswith("_API_KEY")), None)


def with_provider(model: str) -> str:
    """Add the provider to a model name without a prefix, such as `openai/` to `gpt-5-mini`.

    This is done only if the environment names a server for the provider, such as OPENAI_BASE_URL. Without the prefix,
    DSPy would send some requests to that server and others to the provider. Other names are returned unchanged.
    """
    if _prefix(model) or (route := route_of(model)) is None:
        return model
    name = f"{route.provider.removesuffix('-chat')}/{model}"
    return name if _server_of_environment(name) else model


def require_keys_for_server(keys: Iterable[str], url: str) -> None:
    """Check that a chat model sends no key from the environment to a server for which the key is not intended.

    Args:
        keys: The keys of the model.
        url: The base URL of the model's server.

    Raises:
        ValueError: A key from the environment would be sent to a server that must not have it, or over http.
    """
    server = ModelServer(url, "`base_url`")
    for key in keys:
        own = sorted(name for name, value in os.environ.items() if value == key and KEY_ENDING.search(name))
        variables = [name for name in own if name != OWN_KEY]
        if not variables or server.is_this_machine:
            continue
        require_encryption(server, variables)
        hosts = {host for name in variables for host in _own_hosts(_model_of(name), [name])}
        if server.host not in hosts and OWN_KEY not in own:
            raise refusal(server, variables[0])


def _own_hosts(model: str, variables: Iterable[str]) -> set[str]:
    """Return the hosts that may get the keys of a model's provider: its default host and hosts in the environment."""
    stems = {*_spellings(_prefix(model)), *(KEY_ENDING.sub("", name) for name in variables)}
    return {*hosts_of_environment(stems), host_of(_default_url(model))} - {""}


def _default_url(model: str) -> str | None:
    """Return the base URL of a model's provider as DSPy knows it. None if DSPy knows no URL."""
    route = route_of(model)
    if route is None:
        return None
    # The environment is left out, because it may name another server.
    config = lm15.RouterConfig(env={}, api_keys={route.provider: PLACEHOLDER}, providers=declared_providers())
    try:
        return getattr(lm15.LMRouter(config).lm(f"{route.provider}:{route.model}"), "base_url", None)
    except lm15.LM15Error:
        return None


def _model_of(variable: str) -> str:
    """Return a model name with the prefix of the provider whose key is in a variable."""
    prefix = next((prefix for prefix, name in _OTHER_KEYS.items() if name == variable), None)
    return f"{prefix or KEY_ENDING.sub('', variable).lower()}/model"


def _needs_placeholder(route: lm15.Resolution | None) -> bool:
    """Whether DSPy would find no key. False for LiteLLM's models and for cloud providers with other credentials."""
    if route is None or route.credential_policy != "key" or route.env_key is None:
        return False
    return not os.environ.get(route.env_key)


def _own_variables(model: str, route: lm15.Resolution | None) -> list[str]:
    """Return the variables in which DSPy and LiteLLM may find the key of a model's provider."""
    prefix = _prefix(model)
    if prefix in _SERVER_KEYS:
        return []
    spellings = _spellings(prefix)
    names = {f"{spelling}_API_KEY" for spelling in spellings}
    names |= {name for name in (route and route.env_key, _OTHER_KEYS.get(prefix)) if name}
    starts = tuple(f"{spelling}_" for spelling in spellings)
    others = [name for name in os.environ if name.startswith(starts) and _KEY_NAME.search(name)]
    if prefix == _TEXT_COMPLETION:
        others.append("OPENAI_API_KEY")
    return sorted({*names, *others})


def _spellings(prefix: str) -> set[str]:
    """Return the possible beginnings of a provider's variables: TOGETHER, TOGETHERAI, TOGETHER_AI for `together_ai`."""
    name = prefix.upper()
    short = name.removesuffix("_AI")
    return {name, name.replace("_", ""), short, f"{short}AI"} if name else set()


def server_url_of_environment(model: str) -> str | None:
    """Return the base URL in a variable for a model's provider, such as OPENAI_BASE_URL. None if none is set."""
    server = _server_of_environment(model)
    return server.url if server else None


def _server_of_environment(model: str) -> ModelServer | None:
    """Return the server that the environment names for models with this prefix. DSPy and LiteLLM use this server."""
    return next((ModelServer(url, name) for name in _url_variables(model) if (url := os.environ.get(name))), None)


def _url_variables(model: str) -> tuple[str, ...]:
    """Return the environment variables with a base URL for models with this prefix. DSPy then uses LiteLLM."""
    prefix = _prefix(model).upper()
    return (f"{prefix}_BASE_URL", f"{prefix}_API_BASE") if prefix else ()


def _prefix(model: str) -> str:
    prefix, separator, _ = model.partition("/")
    return prefix if separator else ""


def route_of(model: str) -> lm15.Resolution | None:
    """Return the route of the model's requests in DSPy's own engine. None if DSPy uses LiteLLM for the model."""
    try:
        return lm15.LMRouter(lm15.RouterConfig(providers=declared_providers())).resolve_openai_chat(model)
    except lm15.LM15Error:
        return None


def declared_providers() -> tuple[lm15.ProviderDefinition, ...]:
    """Return the providers that the user has declared to DSPy."""
    return tuple(provider.definition for provider in lm15.registered_providers())
