"""The price of a model's tokens, and the longest prompt that it reads.

Prices come from DSPy's price list, which the first look-up may download. A prompt that certainly exceeds the limit
fails before a request.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import dspy
from dspy import lm15
from dspy.clients import costs, model_metadata

from rubric_integrations._util.event_loop import run_on_texts
from rubric_integrations.judges.models.responses import REMEDY
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.scoring.labels import LabelledJudgment


def is_priced(lm: dspy.BaseLM) -> bool:
    """Whether the price list may contain an LM's model. False if the LM calls a function or a LangChain chat model."""
    # The engines of functions and chat models are objects. DSPy's own engines are named by a text.
    return isinstance(getattr(lm, "engine", None), str)


def provider_and_model(name: str) -> tuple[str, str]:
    """Return the provider and the model name for the price list. A name without a prefix is a model of OpenAI."""
    provider, slash, model = name.partition("/")
    return (provider, model) if slash else ("openai", name)


class TokenPrices(NamedTuple):
    """The prices of a model's tokens, as DSPy estimates them.

    Attributes:
        known: Whether the price is known.
        per_token: The price of one input token, output token, reasoning token, and input token from the provider's
            cache, in US dollars, for prompts of up to 100,000 tokens. None if the price depends on the number of tokens
            even below this size.
    """

    known: bool
    per_token: tuple[float, ...] | None


MAX_FLAT_TOKENS = 100_000
"""Some models are more expensive for prompts beyond some length, which is at least this number of tokens."""

PriceKey = tuple[str, str, str | None, str, str]
"""What prices depend on: the provider, the requested model and tier, and the model and tier that the reply names."""

# The names of models come from the servers' replies. Therefore their number must be limited.
_MAX_PRICES = 256
known_prices: dict[PriceKey, TokenPrices] = {}
"""The prices that `look_up_prices` has found."""


def estimate_cost(
    response: lm15.Response, provider: str, model: str, request: lm15.Request | None = None
) -> float | None:
    """Return the cost of a reply in US dollars. None if it is unknown.

    Args:
        response: The reply, with its token usage.
        provider: The provider's name.
        model: The requested model, whose price is used if the list does not have the reply's model.
        request: The request.
    """
    return costs.estimate_cost(response, provider=provider, requested_model=model, request=request)[0]


async def look_up_prices(key: PriceKey, estimate: Callable[[lm15.Response], float | None]) -> TokenPrices:
    """Return the prices of a model's tokens from the price list, and keep them in `known_prices`.

    Args:
        key: Everything on which the prices depend.
        estimate: A function that returns the cost of a reply.
    """
    # In a thread, because the first look-up may download DSPy's price list.
    prices = await asyncio.to_thread(_prices_of, key, estimate)
    if len(known_prices) >= _MAX_PRICES:
        known_prices.clear()
    known_prices[key] = prices
    return prices


def _prices_of(key: PriceKey, estimate: Callable[[lm15.Response], float | None]) -> TokenPrices:
    """Derive the prices of a token from the estimated costs of replies with different counts of tokens."""
    *_, model, tier = key

    def cost(*, sent: int = 0, received: int = 0, cached: int = 0, reasoning: int = 0) -> float | None:
        usage = lm15.Usage(
            input_tokens=sent, output_tokens=received, cache_read_tokens=cached, reasoning_tokens=reasoning
        )
        return estimate(_reply_of(model, tier, usage))

    amounts = (cost(sent=1), cost(received=1), cost(received=1, reasoning=1), cost(sent=1, cached=1))
    per_token = tuple(price for price in amounts if price is not None)
    many = cost(sent=MAX_FLAT_TOKENS, received=MAX_FLAT_TOKENS)
    if many is None or len(per_token) < len(amounts):
        return TokenPrices(bool(per_token), None)
    is_flat = math.isclose(many, MAX_FLAT_TOKENS * (per_token[0] + per_token[1]))
    return TokenPrices(True, per_token if is_flat else None)


def _reply_of(model: str, tier: str | None, usage: lm15.Usage) -> lm15.Response:
    message = lm15.Message(role="assistant", parts=(lm15.TextPart(text=""),))
    data: Any = {"service_tier": tier} if tier else None
    return lm15.Response(None, model, message, finish_reason="stop", usage=usage, provider_data=data)


# Set by the first `load_prices`. Until then, a look-up could download the list on the event loop.
_list_is_loaded = False


async def load_prices(lm: dspy.BaseLM) -> None:
    """Load the price list once, in a thread, if the list may contain the LM's model.

    Otherwise DSPy would load the list after the first reply. The time for loading would then count against the timeout
    of the first call.
    """
    global _list_is_loaded  # noqa: PLW0603 -- one price list per process
    if is_priced(lm):
        await model_metadata.apreload()
        _list_is_loaded = True


def highest_cost(lm: dspy.BaseLM, prompt_bytes: int, reply_tokens: int | None = None) -> float | None:
    """Return the highest possible cost of one call, in US dollars. None if the price or the longest reply is unknown.

    Every token of a prompt has at least one byte. Therefore the number of bytes is an upper limit for the number of
    tokens. The longest reply has `max_tokens` tokens if this is set, otherwise as many as the model can write.

    Args:
        lm: The model.
        prompt_bytes: The largest size of the prompt, in bytes of UTF-8.
        reply_tokens: The number of tokens in the reply, if it is expected to be shorter than the longest reply.
    """
    if not is_priced(lm):
        return None
    settings: Any = lm.kwargs
    limits = (settings.get("max_completion_tokens"), settings.get("max_tokens"))
    limit = next((limit for limit in limits if isinstance(limit, int)), None)
    if reply_tokens is not None:
        limit = reply_tokens if limit is None else min(limit, reply_tokens)
    # Prices change at multiples of 1,000 tokens. Therefore the prices of a few sizes are enough for a run.
    thousands = max(1, -(-prompt_bytes // 1000))
    prices = _prices(*provider_and_model(lm.model), limit, settings.get("service_tier"), thousands)
    return None if prices is None else prompt_bytes * prices[0] + prices[1]


@lru_cache(maxsize=1024)
def _prices(
    provider: str, model: str, limit: int | None, tier: str | None, thousands: int
) -> tuple[float, float] | None:
    """Return the price of a prompt token and the price of the longest reply, in US dollars. None if one is unknown.

    Args:
        provider: The provider.
        model: The model's name without the provider.
        limit: The largest number of tokens in a reply. None for as many as the model can write.
        tier: The service tier.
        thousands: The size of the prompt in thousands of tokens, rounded up.
    """
    info: Any = model_metadata.model_info(provider, model)
    longest = info.get("max_output_tokens") if limit is None else limit
    if not isinstance(longest, int):
        return None

    def estimate(output_tokens: int) -> float | None:
        usage = lm15.Usage(input_tokens=1000 * thousands, output_tokens=output_tokens)
        return estimate_cost(_reply_of(model, tier, usage), provider, model)

    without_reply, whole = estimate(0), estimate(longest)
    if without_reply is None or whole is None:
        return None
    return without_reply / (1000 * thousands), whole - without_reply


def own_bytes(prompts: object, examples: Sequence[LabelledJudgment]) -> int:
    """Return the size of a judge's own instructions and few-shot examples, in bytes.

    Args:
        prompts: The judge's instructions and compiled few-shot examples, as JSON.
        examples: The judge's labelled examples.
    """
    return len(json.dumps(prompts, default=str)) + sum(len(example.model_dump_json()) for example in examples)


# The text between white space and ASCII punctuation. No tokenizer joins two such words into one token.
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+(?:'[^\s!-/:-@\[-`{-~]+)*")


def fewest_tokens(text: str) -> int:
    """Return a lower limit for the number of tokens in a text with any tokenizer: the number of words.

    The model's own tokenizer would count more exactly, but most tokenizers are not available without the network.

    Example:
        >>> fewest_tokens("It's 8.4%.")
        3
    """
    return sum(1 for _ in _WORD.finditer(text))


def known_limit(lm: dspy.BaseLM) -> int | None:
    """Return the largest number of prompt tokens that a model accepts, from the price list. None if it is unknown.

    The list is used only if it is already loaded (see `load_prices`).
    """
    if not _list_is_loaded or not is_priced(lm):
        return None
    return _listed_limit(lm.model)


@lru_cache(maxsize=64)
def _listed_limit(name: str) -> int | None:
    info: Any = model_metadata.model_info(*provider_and_model(name))
    limit: object = info.get("max_input_tokens")
    return limit if isinstance(limit, int) and limit > 0 else None


async def check_prompt_fits(lm: dspy.BaseLM, *texts: str) -> None:
    """Refuse a prompt that is certainly too long for a model. A long prompt is checked in a thread.

    Args:
        lm: The model.
        texts: The texts of the prompt.

    Raises:
        JudgeFailure: The prompt has more words than the model accepts tokens. The failure has the kind `config` and
            `about_text=True`.
    """
    limit = known_limit(lm)
    # A word and its separator have at least two characters. Shorter texts certainly fit.
    if limit is None or sum(map(len, texts)) < 2 * limit:
        return
    tokens = await run_on_texts(partial(_fewest_tokens, texts), *texts)
    if tokens > limit:
        message = (
            f"the prompt has at least {tokens:,} tokens, {tokens - limit:,} more than the {limit:,} that {lm.model} "
            f"reads, and was not sent: {REMEDY}"
        )
        raise JudgeFailure("config", message, about_text=True)


def _fewest_tokens(texts: tuple[str, ...]) -> int:
    return sum(map(fewest_tokens, texts))
