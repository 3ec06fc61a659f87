"""How much a model reads: prompts that are surely longer fail before a request, and refusals are recognized."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import Any

import dspy
from dspy.clients import model_metadata

from rubric_integrations._util.threads import run_on_texts
from rubric_integrations.judges.models.prices import is_priced, provider_and_model
from rubric_integrations.results.judgment import JudgeFailure

REMEDY = (
    "shorten the texts, cut long results of tools with `CallLimits(step_limit=...)`, judge the response in parts with "
    "`CallLimits(chunk_size=...)`, or use a model that reads more"
)

# Whatever is between white space and ASCII punctuation: no tokenizer joins two of these into one token.
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+(?:'[^\s!-/:-@\[-`{-~]+)*")

# What servers say that report no code for it, such as vLLM, llama.cpp, Gemini's and Bedrock's.
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
    """Return a number of tokens that a text has at least, whatever the tokenizer: the number of its words.

    A tokenizer of the model's own would count more exactly, but is not at hand without the network for most models.

    Example:
        >>> fewest_tokens("It's 8.4%.")
        3
    """
    return sum(1 for _ in _WORD.finditer(text))


def known_limit(lm: dspy.BaseLM) -> int | None:
    """Return the most tokens of a prompt that a model reads, by the price list; None if that is not known.

    The list is only read if it is loaded already (see `prices.load_prices`).
    """
    if not is_priced(lm) or model_metadata._data is None:  # pyright: ignore[reportPrivateUsage]
        return None
    return _listed_limit(*provider_and_model(lm))


@lru_cache(maxsize=64)
def _listed_limit(provider: str, model: str) -> int | None:
    info: Any = model_metadata.model_info(provider, model)
    limit: object = info.get("max_input_tokens")
    return limit if isinstance(limit, int) and limit > 0 else None


async def check_prompt_fits(lm: dspy.BaseLM, *texts: str) -> None:
    """Check that a prompt is not surely longer than the model reads; in a thread if it is long.

    Args:
        lm: The model.
        texts: The texts of the prompt.

    Raises:
        JudgeFailure: Of kind `config`, and about this text: it has more words than the model reads tokens.
    """
    limit = known_limit(lm)
    # A word and what separates it from the next are two characters at least: shorter texts are not read.
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
