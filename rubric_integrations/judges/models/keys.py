"""Which API key goes to the server of `api_base`.

DSPy finds the key of the model's provider and sends it to whatever server `api_base` names. That is right for the
provider itself and for a gateway. Three cases are decided here, because DSPy would fail, or send the key of one
provider to another:

- No key is set, since a local server requires none: a placeholder.
- A server such as vLLM was started with a key, whose variable only LiteLLM reads: that variable.
- The server belongs to another provider than the model's: the key of that provider, or an error.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from dspy import lm15

PLACEHOLDER = "none"
"""The key that is sent where none is set."""

PROVIDER_KEYS: dict[str, tuple[str, ...]] = {
    "openai.com": ("OPENAI_API_KEY",),
    "anthropic.com": ("ANTHROPIC_API_KEY",),
    "generativelanguage.googleapis.com": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "openai.azure.com": ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
    "services.ai.azure.com": ("AZURE_AI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
    "cerebras.ai": ("CEREBRAS_API_KEY",),
    "cohere.ai": ("COHERE_API_KEY",),
    "cohere.com": ("COHERE_API_KEY",),
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


def key_for_endpoint(model: str, api_base: str) -> str | None:
    """Return the key to send to a server, or None where DSPy finds the right one itself.

    Args:
        model: The model's name, as DSPy and LiteLLM spell it.
        api_base: The base URL of its server.

    Raises:
        ValueError: The server belongs to another provider than the model's, and no key of that provider is set.

    Example:
        >>> key_for_endpoint("hosted_vllm/qwen3", "http://localhost:8000/v1") is None
        True
    """
    route = _route(model)
    own = route.env_key if route else None
    host = urlsplit(api_base).hostname or ""
    variables = next((names for domain, names in PROVIDER_KEYS.items() if f".{host}".endswith(f".{domain}")), ())
    if variables and own not in variables:
        key = next((value for name in variables if (value := os.environ.get(name))), None)
        if key is None and own:
            raise ValueError(
                f"`api_base` is {host!r}, a server of the provider whose key is in {' or '.join(variables)}: set it, "
                f"or pass `api_key`; otherwise the server would receive {own}, the key of another provider"
            )
        return key
    # LiteLLM finds the keys of other providers, and cloud providers have more kinds of credentials than a key.
    if route is None or route.credential_policy != "key":
        return None
    if own is None:
        return os.environ.get(_SERVER_KEYS.get(model.partition("/")[0], "")) or None
    return None if os.environ.get(own) else PLACEHOLDER


def _route(model: str) -> lm15.Resolution | None:
    """Return where DSPy's own engine would send the model's requests; None for a model that it leaves to LiteLLM."""
    declared = tuple(provider.definition for provider in lm15.registered_providers())
    try:
        return lm15.LMRouter(lm15.RouterConfig(providers=declared)).resolve_openai_chat(model)
    except lm15.LM15Error:
        return None
