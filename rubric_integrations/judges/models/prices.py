"""What a model's tokens cost, by the price list of DSPy, which the first look may fetch from the network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import dspy
from dspy import lm15
from dspy.clients import model_metadata
from dspy.clients.costs import estimate_cost

from rubric_integrations.results.labels import LabelledJudgment

# The built-in instructions, the schema of the reply, the field headers and the fences together have half as many.
_FIXED_BYTES = 12_000


def is_priced(lm: dspy.BaseLM) -> bool:
    """Whether the price list may have a model: not where a function or a chat model is called."""
    # Their engines are objects; an engine of DSPy's own is named by a text.
    return isinstance(getattr(lm, "engine", None), str)


def provider_and_model(lm: dspy.BaseLM) -> tuple[str, str]:
    """Return the names under which the price list may have a model; OpenAI is the provider of one without a prefix."""
    provider, slash, model = lm.model.partition("/")
    return (provider, model) if slash else ("openai", lm.model)


async def load_prices(lm: dspy.BaseLM) -> None:
    """Load the price list once, in a thread, if it may have this model.

    DSPy would load it after the first reply, where the time counts against the timeout of that call.
    """
    if is_priced(lm):
        await model_metadata.apreload()


def highest_cost(lm: dspy.BaseLM, prompt_bytes: int) -> float | None:
    """Return the most that one call can cost, in US dollars; None if the price or the longest reply is not known.

    Every token of a prompt is at least one byte. The longest reply has the `max_tokens` of the model's settings, or as
    many tokens as the model can write.

    Args:
        lm: The model.
        prompt_bytes: The most bytes of the prompt, in UTF-8.
    """
    if not is_priced(lm):
        return None
    provider, model = provider_and_model(lm)
    info: Any = model_metadata.model_info(provider, model)
    settings: Any = lm.kwargs
    limits = (settings.get("max_completion_tokens"), settings.get("max_tokens"), info.get("max_output_tokens"))
    longest = next((limit for limit in limits if isinstance(limit, int)), None)
    if longest is None:
        return None
    usage = lm15.Usage(input_tokens=prompt_bytes, output_tokens=longest)
    message = lm15.Message(role="assistant", parts=(lm15.TextPart(text=""),))
    tier = settings.get("service_tier")
    data: Any = {"service_tier": tier} if tier else None
    reply = lm15.Response(None, model, message, finish_reason="stop", usage=usage, provider_data=data)
    return estimate_cost(reply, provider=provider, requested_model=model)[0]


def prompt_bytes(text_bytes: int, prompts: object, examples: Sequence[LabelledJudgment]) -> int:
    """Return the most bytes that a prompt can have.

    Args:
        text_bytes: The bytes of the texts to judge and of the criteria, which sanitizing may double.
        prompts: The judge's own instructions and few-shot examples, as JSON.
        examples: Its labelled examples.
    """
    own = len(json.dumps(prompts, default=str)) + sum(len(example.model_dump_json()) for example in examples)
    return _FIXED_BYTES + 2 * (text_bytes + own)
