# pyright: reportPrivateUsage=false
"""Reads replies of OpenAI-compatible servers; beside `capture`, the other module that relies on DSPy internals.

DSPy can read every reply of every provider. Nearly all replies are one text and a few token counts, and those are read
here at a tenth of the cost, with the same result: a specimen is read both ways before a reader uses the short way.
"""

from __future__ import annotations

import asyncio
import json
import math
import warnings
from typing import Any, NamedTuple

from dspy import lm15
from dspy._vendor.lm15.providers.anthropic import AnthropicLM
from dspy._vendor.lm15.providers.base import HttpResponse
from dspy._vendor.lm15.providers.openai_chat import OpenAIChatLM
from dspy.clients.call_result import CallResult
from dspy.clients.costs import estimate_cost

from rubric_integrations.judges._direct.http import HttpReply
from rubric_integrations.judges.models.completion import Completion, finish_reason_of, refusal_of, usage_from_mapping
from rubric_integrations.results.usage import TokenUsage


class ReplyReader:
    """Reads the replies to one request, and to all requests that differ from it in their texts alone.

    Args:
        target: DSPy's reader of the provider's protocol.
        request: The request.
        provider: The provider's name.

    Attributes:
        is_openai: Whether the protocol is that of OpenAI's chat completions; otherwise it is that of Anthropic.
    """

    def __init__(self, target: OpenAIChatLM | AnthropicLM, request: lm15.Request, provider: str):
        self._target, self._request, self.provider = target, request, provider
        self.is_openai = isinstance(target, OpenAIChatLM)
        self._reads_plain_replies = self.is_openai and not request.tools and self._specimen_is_read_alike()

    async def read(self, reply: HttpReply) -> Completion:
        """Read a server's response.

        Raises:
            dspy.lm15.LM15Error: It is an error, or not a reply.
        """
        plain = _parse_plain(reply.body) if self._reads_plain_replies and reply.status == 200 else None
        if plain is not None:
            prices = await self._prices(plain.model, plain.tier)
            if not prices.known or prices.per_token:
                return Completion(plain.text, plain.finish_reason, plain.usage, plain.cost(prices.per_token))
        response, completion = self._read_with_dspy(reply)
        tier = str((response.provider_data or {}).get("service_tier") or "")
        if (await self._prices(response.model, tier)).known:
            return completion._replace(cost=self._estimate(response))
        return completion

    def _read_with_dspy(self, reply: HttpReply) -> tuple[lm15.Response, Completion]:
        """Read a response as DSPy does; without the cost."""
        is_error = reply.status >= 400
        http = HttpResponse(
            status=reply.status, reason=reply.reason, headers=list(reply.headers.items()) if is_error else [],
            body=reply.body, http_version="1.1", provider=self.provider,
        )  # fmt: skip
        if is_error:
            raise self._target._http_error(http)
        response = self._target.parse_response(self._request, http)
        result = CallResult.native(response, provider=self.provider)
        output: Any = result.outputs[0]
        text = output.get("text") if isinstance(output, dict) else output
        usage, refusal = usage_from_mapping(result.usage), refusal_of(response)
        return response, Completion(text or "", finish_reason_of(response), usage, None, refusal=refusal)

    def _specimen_is_read_alike(self) -> bool:
        plain = _parse_plain(_SPECIMEN)
        try:
            _, completion = self._read_with_dspy(HttpReply(200, "OK", {}, _SPECIMEN))
        except lm15.LM15Error:
            return False  # a provider whose replies have another form
        except Exception as error:  # noqa: BLE001 -- the internals of another DSPy; the slow way may still work
            warnings.warn(f"replies are read by DSPy, which is slower: {error!r}", RuntimeWarning, stacklevel=2)
            return False
        # Where a schema was sent, DSPy serializes the parsed reply again, so that a repeated field appears once: the
        # model's own text is the better one to parse.
        if plain is None or completion.text not in (plain.text, plain.text.strip()):
            return False
        return (completion.usage, completion.finish_reason) == (plain.usage, plain.finish_reason)

    async def _prices(self, model: str, tier: str) -> _Prices:
        key = (self.provider, self._request.model, self._request.config.service_tier, model, tier)
        prices = _known_prices.get(key)
        if prices is None:
            if len(_known_prices) >= _MAX_PRICES:
                _known_prices.clear()
            # In a thread, since the first look may fetch DSPy's price list.
            prices = _known_prices[key] = await asyncio.to_thread(self._look_up_prices, model, tier)
        return prices

    def _look_up_prices(self, model: str, tier: str) -> _Prices:
        def cost(*, sent: int = 0, received: int = 0, cached: int = 0, reasoning: int = 0) -> float | None:
            usage = lm15.Usage(
                input_tokens=sent, output_tokens=received, cache_read_tokens=cached, reasoning_tokens=reasoning
            )
            message = lm15.Message(role="assistant", parts=(lm15.TextPart(text=""),))
            data: Any = {"service_tier": tier} if tier else None
            return self._estimate(
                lm15.Response(None, model, message, finish_reason="stop", usage=usage, provider_data=data)
            )

        costs = (cost(sent=1), cost(received=1), cost(received=1, reasoning=1), cost(sent=1, cached=1))
        per_token = tuple(price for price in costs if price is not None)
        many = cost(sent=_MAX_FLAT_TOKENS, received=_MAX_FLAT_TOKENS)
        if many is None or len(per_token) < len(costs):
            return _Prices(bool(per_token), None)
        is_flat = math.isclose(many, _MAX_FLAT_TOKENS * (per_token[0] + per_token[1]))
        return _Prices(True, per_token if is_flat else None)

    def _estimate(self, response: lm15.Response) -> float | None:
        model = self._request.model
        return estimate_cost(response, provider=self.provider, requested_model=model, request=self._request)[0]


class _Prices(NamedTuple):
    """What a model's tokens cost, by DSPy's estimate.

    Attributes:
        known: Whether there is a price.
        per_token: US dollars for one token sent, received, used for reasoning, and read from the provider's cache, in
            prompts of up to 100,000 tokens; None where even there the price depends on the number of tokens.
    """

    known: bool
    per_token: tuple[float, ...] | None


# Some models are more expensive for prompts beyond some length, which is 128,000 tokens or more.
_MAX_FLAT_TOKENS = 100_000
# The models' names are chosen by the servers that answer.
_MAX_PRICES = 256
_known_prices: dict[tuple[object, ...], _Prices] = {}


class _PlainReply(NamedTuple):
    """A reply that is one text and its token counts."""

    text: str
    finish_reason: str | None
    model: str
    tier: str
    usage: TokenUsage
    counts: tuple[int, int, int, int]

    def cost(self, per_token: tuple[float, ...] | None) -> float | None:
        """Return the cost in US dollars, by the prices of one token."""
        if not per_token:
            return None
        return sum(count * price for count, price in zip(self.counts, per_token, strict=True))


def _parse_plain(body: bytes) -> _PlainReply | None:
    """Parse a plain reply; None for any other reply, and for what is no reply."""
    try:
        reply = _DECODER.decode(body.decode())
        (choice,) = reply["choices"]
        text, finish_reason = choice["message"]["content"], choice.get("finish_reason")
        model, tier = reply["model"], reply.get("service_tier") or ""
        usage = reply["usage"]
        sent, received = usage["prompt_tokens"], usage["completion_tokens"]
        before, after = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
        cached, reasoning = before.get("cached_tokens") or 0, after.get("reasoning_tokens") or 0
        unusual = before.get("cache_write_tokens") or before.get("audio_tokens") or after.get("audio_tokens")
        unusual = unusual or choice["message"].get("tool_calls") or choice.get("logprobs")
        unusual = unusual or choice["message"].get("refusal")
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    if unusual or reply.get("error") is not None or not model or finish_reason not in _FINISH_REASONS:
        return None
    if not type(text) is type(model) is type(tier) is str:
        return None
    if not type(sent) is type(received) is type(cached) is type(reasoning) is int:
        return None
    if not (0 <= cached <= sent <= _MAX_FLAT_TOKENS and 0 <= reasoning <= received):
        return None
    tokens = TokenUsage(prompt_tokens=sent, completion_tokens=received, cached_tokens=cached)
    return _PlainReply(
        text, finish_reason, model, tier, tokens, (sent - cached, received - reasoning, reasoning, cached)
    )


# DSPy gives these the same names; what others mean is left to DSPy. Some servers give none.
_FINISH_REASONS = ("stop", "length", "content_filter", None)


def _refuse(constant: str) -> float:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(parse_constant=_refuse)

_SPECIMEN = json.dumps(
    {
        "id": "1",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": '{"a": "b"} '}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }
).encode()
