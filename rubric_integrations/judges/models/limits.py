"""The price of a model's tokens, and the longest prompt that it reads.

Prices come from DSPy's price list, which the first look-up may download. A prompt that certainly exceeds the limit
fails before a request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import dspy
from dspy import lm15
from dspy.clients import model_metadata
from dspy.clients.costs import estimate_cost

from rubric_integrations._util.event_loop import run_on_texts
from rubric_integrations.scoring.judgment import JudgeFailure
from rubric_integrations.scoring.labels import LabelledJudgment

# The built-in instructions, the schema of the reply, the field headers and the fences together have half of this size.
_FIXED_BYTES = 12_000


def is_priced(lm: dspy.BaseLM) -> bool:
    """Whether the price list may contain an LM's model. False if the LM calls a function or a LangChain chat model."""
    # The engines of functions and chat models are objects. DSPy's own engines are named by a text.
    return isinstance(getattr(lm, "engine", None), str)


def provider_and_model(name: str) -> tuple[str, str]:
    """Return the provider and the model name for the price list. A name without a prefix is a model of OpenAI."""
    provider, slash, model = name.partition("/")
    return (provider, model) if slash else ("openai", name)


async def load_prices(lm: dspy.BaseLM) -> None:
    """Load the price list once, in a thread, if the list may contain the LM's model.

    Otherwise DSPy would load the list after the first reply. The time for loading would then count against the timeout
    of the first call.
    """
    if is_priced(lm):
        await model_metadata.apreload()


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
    message = lm15.Message(role="assistant", parts=(lm15.TextPart(text=""),))
    data: Any = {"service_tier": tier} if tier else None

    def estimate(output_tokens: int) -> float | None:
        usage = lm15.Usage(input_tokens=1000 * thousands, output_tokens=output_tokens)
        reply = lm15.Response(None, model, message, finish_reason="stop", usage=usage, provider_data=data)
        return estimate_cost(reply, provider=provider, requested_model=model)[0]

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


def prompt_bytes(text_bytes: int, own_bytes: int) -> int:
    """Return the largest possible size of a prompt, in bytes.

    Args:
        text_bytes: The size of the texts to judge and of the criteria. Sanitizing may double it.
        own_bytes: The size of the judge's own instructions and examples.
    """
    return _FIXED_BYTES + 2 * (text_bytes + own_bytes)


REMEDY = (
    "shorten the texts, cut long results of tools with `TextLimits(step_limit=...)`, judge the response in parts with "
    "`TextLimits(chunk_size=...)`, or use a model that reads more"
)

# The text between white space and ASCII punctuation. No tokenizer joins two such words into one token.
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+(?:'[^\s!-/:-@\[-`{-~]+)*")

# The messages of servers that report no error code for it, such as vLLM, llama.cpp, Gemini and Bedrock.
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|prompt is too long|available context size"
    r"|input token count \S+ exceeds|input is too long",
    re.IGNORECASE,
)


def says_too_long(message: str) -> bool:
    """Whether a server's message says that a prompt has more tokens than its model reads.

    Example:
        >>> says_too_long("This model's maximum context length is 4096 tokens. However, you requested 9000.")
        True
    """
    return bool(_TOO_LONG.search(message))


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
    if model_metadata._data is None or not is_priced(lm):  # pyright: ignore[reportPrivateUsage]
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
