"""The table of providers in `providers.md`, in which the code states who sends the requests of each model."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from rubric_integrations.judges.decisions import is_decision_model
from rubric_integrations.judges.fast_path import describe_path
from rubric_integrations.judges.models.keys import litellm_reason
from rubric_integrations.judges.models.names import ModelSettings, lm_from_name
from rubric_integrations.judges.models.servers import OWN_KEY

PAGE = Path(__file__).with_name("providers.md")


class Provider(NamedTuple):
    """A row of the table.

    Attributes:
        name: The provider.
        model: A model of it, as `--judge` takes it.
        variables: The environment variables to set, with examples of values.
        packages: The packages to install besides those of LiteLLM.
        api_base: The base URL to pass. None for the provider's own.
    """

    name: str
    model: str
    variables: dict[str, str]
    packages: tuple[str, ...] = ()
    api_base: str | None = None


KEY = "example-key"
PROVIDERS = (
    Provider("OpenAI", "openai/gpt-5-mini", {"OPENAI_API_KEY": KEY}),
    Provider(
        "Azure OpenAI",
        "azure/my-deployment",
        {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": "https://name.openai.azure.com"},
    ),
    Provider("Anthropic", "anthropic/claude-sonnet-4-5", {"ANTHROPIC_API_KEY": KEY}),
    Provider("Gemini", "gemini/gemini-2.5-flash", {"GEMINI_API_KEY": KEY}),
    Provider(
        "Vertex AI",
        "vertex_ai/gemini-2.5-flash",
        {"GOOGLE_APPLICATION_CREDENTIALS": "key.json", "VERTEXAI_PROJECT": "name", "VERTEXAI_LOCATION": "us-central1"},
        ("google-auth", "requests"),
    ),
    Provider(
        "Amazon Bedrock",
        "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
        {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY, "AWS_REGION": "us-east-1"},
        ("boto3",),
    ),
    Provider("Mistral", "mistral/mistral-large-latest", {"MISTRAL_API_KEY": KEY}),
    Provider("Groq", "groq/llama-3.3-70b-versatile", {"GROQ_API_KEY": KEY}),
    Provider("OpenRouter", "openrouter/openai/gpt-5-mini", {"OPENROUTER_API_KEY": KEY}),
    Provider("LiteLLM proxy, gateways", "openai/my-model", {OWN_KEY: KEY}, api_base="http://localhost:4000/v1"),
    Provider("vLLM", "hosted_vllm/qwen3", {}),
    Provider("Ollama", "ollama_chat/llama3.2", {}),
    Provider("TypeSafe (decision model)", "typesafe/jev-1.13.0", {"TYPESAFE_API_KEY": KEY}),
    Provider("OpenAI (decision model)", "openai-decisions/gpt-6-luna", {"OPENAI_API_KEY": KEY}),
)


def provider_table() -> str:
    """Return a Markdown table with a row for each provider."""
    heading = ["| provider | judge | variables | install | fast path |", "|---|---|---|---|---|"]
    return "\n".join([*heading, *map(_row, PROVIDERS)])


def _row(provider: Provider) -> str:
    path, needs_litellm = _path(provider)
    sender, _, reason = path.removeprefix("sent by ").partition(", ")
    if sender.startswith("this library"):
        is_fast = f"partly: {reason.removeprefix('rendered by DSPy, because ')}" if reason else "yes"
    else:
        is_fast = f"no: {sender.partition(' to ')[0]} sends the requests"
    packages = [*(["litellm"] if needs_litellm else []), *provider.packages]
    cells = [
        provider.name,
        f"`{provider.model}`" + (f" `--api-base {provider.api_base}`" if provider.api_base else ""),
        ", ".join(f"`{name}`" for name in provider.variables) or "none",
        f"`{' '.join(packages)}`" if packages else "nothing",
        is_fast,
    ]
    return f"| {' | '.join(cells)} |"


def _path(provider: Provider) -> tuple[str, bool]:
    """Return who sends a model's requests, as the command `doctor` describes it, and whether this is LiteLLM."""
    if is_decision_model(provider.model):
        return "sent by this library", False
    with patch.dict(os.environ, provider.variables, clear=True):
        lm = lm_from_name(provider.model, ModelSettings(api_base=provider.api_base))
        return describe_path(lm), litellm_reason(lm) is not None


def providers_page() -> str:
    """Return `providers.md` with the current table."""
    page = PAGE.read_text(encoding="utf-8")
    return re.sub(r"\| provider \|.*?(?=\n\n)", lambda _: provider_table(), page, count=1, flags=re.S)
