"""Which model answered: whether the name of a judge's model names a version, and the models that the replies name.

A provider may replace the model behind a name such as `gpt-5` or `claude-sonnet-4-5`. The scores then change, although
no setting of the run has changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from rubric_integrations._util.text import one_line
from rubric_integrations.judges.models.servers import host_of
from rubric_integrations.scoring.report import EXPENSIVE, ReplyModels

FINGERPRINT_PARTS = ("model", "server", "settings", "client", "other settings", "prompts or examples")
"""The parts of a language model's fingerprint, in their order."""

NameState = Literal["names a version", "names no version", "not known"]
"""Whether the name of a model names a version. `not known` if the server decides which model has the name."""

NO_VERSION = "names no version: its provider may replace the model behind it; name a dated version if there is one"
"""The text about a model's name without a version."""

DESCRIPTIONS: Mapping[NameState, str] = {
    "names a version": "names a version",
    "names no version": NO_VERSION,
    "not known": "is not known to name a version: its server decides which model has this name, and may replace it",
}
"""The text about the name of a model, by its state."""

# The prefixes of the companies that make the models they serve. A name without a version is an alias there.
_MAKERS = frozenset({
    "openai", "anthropic", "gemini", "mistral", "xai", "cohere", "cohere_chat", "deepseek", "perplexity", "moonshot",
    "typesafe", "openai-decisions",
})  # fmt: skip
# The user, and not the provider, chooses the names of these deployments.
_DEPLOYMENTS = frozenset({"azure", "azure_ai", "azure_text", "azure-ai", "sagemaker", "sagemaker_chat"})
_OLLAMA = frozenset({"ollama", "ollama_chat"})
# The ends of the hosts of providers, with the prefix of their models. Other hosts are servers of users.
_HOSTS = {
    "openai.azure.com": "azure", "services.ai.azure.com": "azure", "cognitiveservices.azure.com": "azure",
    "api.openai.com": "openai", "api.anthropic.com": "anthropic", "generativelanguage.googleapis.com": "gemini",
    "aiplatform.googleapis.com": "vertex_ai", "api.mistral.ai": "mistral", "api.x.ai": "xai",
    "api.cohere.com": "cohere", "api.cohere.ai": "cohere", "api.deepseek.com": "deepseek",
    "api.perplexity.ai": "perplexity", "api.moonshot.ai": "moonshot", "api.moonshot.cn": "moonshot",
    "openrouter.ai": "openrouter", "amazonaws.com": "bedrock", "api.groq.com": "groq",
    "api.together.xyz": "together_ai", "api.fireworks.ai": "fireworks_ai", "api.deepinfra.com": "deepinfra",
    "api.cerebras.ai": "cerebras",
}  # fmt: skip
# Families whose names without a version are aliases, whoever serves them. All other families are open weights.
_ALIASES = re.compile(
    r"(?:[a-z]+\.)*(?:gpt-(?!oss)|chatgpt-|o[1-9](?:-|$)|codex-|claude-|gemini-|grok-|command(?:-|$)|sonar(?:-|$)"
    r"|deepseek-(?:chat|reasoner)$|(?:mistral-(?:large|medium|small|tiny)|ministral-\d+b|codestral|magistral-[a-z]+)$"
    r"|auto$)"
)
_YEAR, _MONTH, _DAY = r"20\d\d", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
# A number of parameters (`8x22b`, `120b`) or a length of context (`32k`) is followed by a letter and is not a date.
_VERSION = re.compile(
    rf"(?<![0-9a-z.])(?:{_YEAR}-?{_MONTH}-?{_DAY}|{_MONTH}-{_YEAR}|2[2-9]{_MONTH}{_DAY}|{_MONTH}-{_DAY}"  # dates
    rf"|{_MONTH}{_DAY}|2[2-9]{_MONTH}"  # 0613 and 2407
    r"|0\d\d)(?![0-9a-z.])"  # the revision 002
    r"|\d+\.\d+\.\d+"  # 1.13.0
    r"|^ft:|@(?:sha256:)?[0-9a-f]*\d"  # a model that was fine-tuned, and the revision of Vertex AI
)
# Since Claude 4.6, a name without a date is one version: platform.claude.com/docs, "Model IDs and versioning".
_CLAUDE = re.compile(r"claude-[a-z]+-(\d{1,2})(?:[-.](\d{1,2}))?(?![0-9])")
_FIRST_PINNED_CLAUDE = (4, 6)
# The end of an identifier of Bedrock, such as `-v1:0`, which stands for one version.
_BEDROCK_VERSION = re.compile(r"(?:[a-z]+|ai21)\..*-(?:v\d+(?::\d+)*|\d+:\d+)(?::\d+k)?$")
# What a router does with the request, and not which model answers.
_ROUTING = re.compile(r":(?:free|nitro|floor|online|exacto|beta|extended|thinking)$")


def version_in_name(model: str, server: object = None) -> NameState:
    """Decide whether the name of a model says which version answers.

    Args:
        model: The name of the model, with or without the provider's prefix.
        server: The base URL of the server, if it was set. The URL of a provider counts as no URL. On a user's own
            server, the user decides which model has which name.

    Example:
        >>> version_in_name("openai/gpt-5"), version_in_name("openai/gpt-5-2025-08-07")
        ('names no version', 'names a version')
        >>> version_in_name("hosted_vllm/qwen3-8b", "http://localhost:8000")
        'not known'
    """
    prefix, _, rest = model.strip().lower().rpartition("/")
    first = prefix.partition("/")[0]
    name = _ROUTING.sub("", rest)
    if re.search(r"[-:@](?:latest|default)$", name) or (first in _OLLAMA and ":" not in name):
        return "names no version"
    provider = _provider_of_host(host_of(server)) if isinstance(server, str) and server else first
    if provider is None or provider in _DEPLOYMENTS | _OLLAMA or ":aws:" in model:
        return "not known"
    claude = _CLAUDE.search(name)
    if claude and (int(claude[1]), int(claude[2] or 0)) >= _FIRST_PINNED_CLAUDE:
        return "names a version"
    if _VERSION.search(name) or (provider in ("bedrock", "") and _BEDROCK_VERSION.match(name)):
        return "names a version"
    return "names no version" if provider in _MAKERS or _ALIASES.match(name) else "not known"


def _provider_of_host(host: str) -> str | None:
    return next(
        (prefix for end, prefix in _HOSTS.items() if host == end or host.endswith((f".{end}", f"-{end}"))), None
    )


def fingerprints(judges: str) -> list[list[Any]]:
    """Return the fingerprints of all language models that graded a run, also of the models in cascades.

    A fingerprint identifies a model with its settings and prompts.

    Args:
        judges: The record of the run's judges, as JSON, or "" if the run has none.

    Returns:
        The parts of each fingerprint, in the order of `FINGERPRINT_PARTS`.
    """

    def find(value: Any) -> Iterator[list[Any]]:
        if isinstance(value, dict):
            for member in value.values():
                yield from find(member)
        elif isinstance(value, list):
            for member in value:
                yield from find(member)
        elif isinstance(value, str) and value.startswith("["):
            try:
                parts = json.loads(value)
            except ValueError:
                return
            if isinstance(parts, list) and len(parts) == len(FINGERPRINT_PARTS):
                yield parts
            else:  # the fingerprint of an explorer contains the fingerprint of its model
                yield from find(parts)

    return list(find(json.loads(judges) if judges else []))


def unversioned_models(judges: str) -> list[str]:
    """Return the models of a run's judges whose names name no version.

    Args:
        judges: The record of the run's judges, as JSON, or "" if the run has none.
    """
    models = [(model, server) for model, server, *_ in fingerprints(judges) if isinstance(model, str)]
    return list(
        dict.fromkeys(model for model, server in models if version_in_name(model, server) == "names no version")
    )


def replies_text(models: ReplyModels) -> str:
    """Describe the models that the replies of a run name. "" if they name none.

    Args:
        models: The models by judge, as in `RunSummary.models`.

    Example:
        >>> replies_text({"": ("gpt-5-2025-08-07",)})
        'the replies name the model gpt-5-2025-08-07'
        >>> replies_text({"": ("a", "b")})
        'the replies name 2 models: a, b: not one model judged the run'
        >>> replies_text({"": ("small-1",), EXPENSIVE: ("large-1",)})
        'the replies name the models small-1 (cheap judge) and large-1 (expensive judge)'
    """
    cheap = "cheap judge" if EXPENSIVE in models else ""
    named = {judge or cheap: [one_line(model) for model in of_judge] for judge, of_judge in models.items()}
    several = [
        f"the replies{f' of {one_line(judge)}' if judge else ''} name {len(names)} models: {', '.join(names)}: "
        f"not one model judged the run"
        for judge, names in named.items()
        if len(names) > 1
    ]
    if several or not named:
        return "; ".join(several)
    if len(named) == 1:
        return f"the replies name the model {next(iter(named.values()))[0]}"
    texts = [f"{names[0]} ({one_line(judge)})" if judge else names[0] for judge, names in named.items()]
    return f"the replies name the models {', '.join(texts[:-1])} and {texts[-1]}"


def names_other_model(models: ReplyModels, requested: Iterable[str]) -> bool:
    """Whether replies name a model whose name is not the requested one, such as the version behind an alias.

    Args:
        models: The models by judge, as in `RunSummary.models`.
        requested: The names of the models that were requested, with or without their provider's prefix.

    Example:
        >>> names_other_model({"": ("m-1",)}, ["openai/m-1"]), names_other_model({"": ("m-1",)}, ["openai/m"])
        (False, True)
    """
    known = {end for name in requested for end in (name, name.partition("/")[2], name.rpartition("/")[2])}
    return any(name not in known for names in models.values() for name in names)
