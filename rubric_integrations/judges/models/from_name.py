"""A `dspy.LM` from a model name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import dspy
from dspy.utils.exceptions import DSPyError, LMConfigurationError

from rubric_integrations.judges.credentials import redact
from rubric_integrations.judges.models.keys import key_for_endpoint, with_provider


@dataclass(frozen=True)
class ModelOptions:
    """How a model that is given by its name is called; None leaves a setting to the provider.

    Attributes:
        api_base: The base URL of an OpenAI-compatible server (vLLM, Ollama, llama.cpp), such as `http://host:port/v1`.
        api_key: The key; by default that of the provider's environment variable, which is sent to the provider and to
            this machine only. The key for another server is this argument or RUBRIC_INTEGRATIONS_API_KEY; where no key
            is set, a placeholder is sent, since local servers require none.
        temperature: The sampling temperature, at least 0; by default that of `default_temperature`.
        max_tokens: The most tokens of a reply, at least 1.
        seed: The sampling seed, for providers that take one.
        reasoning_effort: The effort of a reasoning model, such as `low`.
        service_tier: The tier that prices and schedules a request, such as `flex`, for providers that have them.
        headers: HTTP headers that each request has in addition, by name, such as those that a gateway requires. Their
            values may be secrets, and are not shown anywhere.
    """

    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def chosen(self) -> dict[str, Any]:
        """Return the options that are not None, by name."""
        options = {option.name: getattr(self, option.name) for option in fields(self)}
        return {name: value for name, value in options.items() if value is not None}


NO_OPTIONS = ModelOptions()


def lm_from_name(model: str, options: ModelOptions = NO_OPTIONS) -> dspy.LM:
    """Make a `dspy.LM` from a model name such as `openai/gpt-5-mini` or `ollama_chat/llama3.2`.

    DSPy's response cache is off: its key contains neither the endpoint nor the engine, so that another server's verdict
    could be returned for the same model name. Retries are the grader's.

    Args:
        model: `provider/model`, as DSPy and LiteLLM spell it.
        options: How it is called.

    Raises:
        ValueError: The name is empty, an option is out of range, DSPy refuses it for this model, or a key of the
            environment would be sent to a server that it is not meant for.
    """
    if not model.strip():
        raise ValueError("`judge` is an empty model name: write one such as 'openai/gpt-5-mini', or 'offline'")
    if options.temperature is not None and not options.temperature >= 0:
        raise ValueError(f"`temperature` must be at least 0, got {options.temperature!r}")
    if options.max_tokens is not None and options.max_tokens < 1:
        raise ValueError(f"`max_tokens` must be at least 1, got {options.max_tokens!r}")
    model, settings = model if options.api_base else with_provider(model), options.chosen()
    if headers := settings.pop("headers", None):
        _check_headers(headers)
        settings["extra_headers"] = dict(headers)
    if not options.api_key and (key := key_for_endpoint(model, options.api_base)):
        settings["api_key"] = key
    if options.temperature is None:
        settings["temperature"] = default_temperature(model, options.reasoning_effort)
    else:
        settings["temperature"] = float(options.temperature)  # in the fingerprint, 0 and 0.0 must be the same
    try:
        return dspy.LM(model, cache=False, num_retries=0, **settings)
    except DSPyError as error:
        message = redact(str(error), settings)
        cause = error if message == str(error) else None
        raise ValueError(f"DSPy does not make the model {model!r} with these settings: {message}") from cause


def default_temperature(model: str, reasoning_effort: str | None = None) -> float | None:
    """Return the sampling temperature for a model without a configured one: 0, or None for a reasoning model.

    OpenAI's reasoning models refuse any temperature but 1, and DSPy knows their names. Models of other providers do
    not have to take a `reasoning_effort` with a temperature. A model that refuses 0 for a reason that its name does not
    show gets none after its first refusal (see `judges/step_down.py`).

    Example:
        >>> default_temperature("openai/gpt-4.1"), default_temperature("openai/gpt-5-mini")
        (0.0, None)
    """
    if reasoning_effort is not None:
        return None
    try:
        dspy.LM(model, temperature=0.5)
    except LMConfigurationError:
        return None
    return 0.0


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(
                f"`headers` has the name {name!r}: a name has letters, digits and hyphens, such as 'X-Team'"
            )
        if not _HEADER_VALUE.fullmatch(value):
            raise ValueError(
                f"`headers`: the value of {name!r} must be printable ASCII without line breaks, and not empty: the "
                "request would be refused, or another one be sent (the value is not shown, since it may be a secret)"
            )
