# pyright: reportPrivateUsage=false
"""A model's replies: what they say, and what they cost; beside `wire`, the other module that knows DSPy's inside.

Any reply can be read by DSPy, which makes of it what any provider may have said. Nearly all are a text and three
counts, and those are read here, at a tenth of the cost, by what DSPy is seen to make of such a reply.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from dspy import lm15
from dspy._vendor.lm15.providers.base import HttpResponse
from dspy._vendor.lm15.providers.openai_chat import OpenAIChatLM
from dspy.clients.call_result import CallResult
from dspy.clients.costs import estimate_cost

from rubric_integrations.judges._direct.http import HttpReply
from rubric_integrations.judges.models.usage import spend_from_entry


class Reply(NamedTuple):
    """A model's reply.

    Attributes:
        text: What it says; empty if nothing.
        entry: `usage` and `cost` (US dollars or None), as in an entry of DSPy's history.
    """

    text: str
    entry: dict[str, Any]


class Reader:
    """Reads the replies to one request, and to all that differ from it in their texts alone."""

    def __init__(self, target: OpenAIChatLM, request: lm15.Request, provider: str):
        """Set up a reader.

        Args:
            target: Who reads them in DSPy.
            request: What is asked.
            provider: Who is asked.
        """
        self._target, self._request, self.provider = target, request, provider
        self._plainly = not request.tools and self._reads_plain_ones_alike()

    async def read(self, answer: HttpReply) -> Reply:
        """What a server answered.

        Raises:
            dspy.lm15.LM15Error: It is no reply.
        """
        plain = _plain(answer.body) if self._plainly and answer.status == 200 else None
        if plain is not None:
            prices = await self._prices(plain.model, plain.tier)
            if not prices.known or prices.flat:
                return Reply(plain.text, {"usage": plain.usage, "cost": plain.cost(prices.flat)})
        response, said = self._by_dspy(answer)
        tier = str((response.provider_data or {}).get("service_tier") or "")
        if (await self._prices(response.model, tier)).known:
            said.entry["cost"] = self._estimate(response)
        return said

    def _by_dspy(self, answer: HttpReply) -> tuple[lm15.Response, Reply]:
        """A reply and what it says, without what it costs."""
        told = list(answer.headers.items()) if answer.status >= 400 else []
        http = HttpResponse(
            status=answer.status, reason=answer.reason, headers=told, body=answer.body, http_version="1.1",
            provider=self.provider,
        )  # fmt: skip
        if answer.status >= 400:
            raise self._target._http_error(http)
        response = self._target.parse_response(self._request, http)
        result = CallResult.native(response, provider=self.provider)
        output: Any = result.outputs[0]
        text = output.get("text") if isinstance(output, dict) else output
        return response, Reply(text or "", {"usage": result.usage, "cost": None})

    def _reads_plain_ones_alike(self) -> bool:
        plain = _plain(_SPECIMEN)
        try:
            _, said = self._by_dspy(HttpReply(200, "OK", {}, _SPECIMEN))
        except Exception:  # noqa: BLE001 -- another DSPy, or a provider whose replies are of another form
            return False
        # Where a schema was sent, DSPy writes the JSON of the reply anew, and a field that is there twice comes out
        # once: the judge's own words are the better ones to read.
        if plain is None or said.text not in (plain.text, plain.text.strip()):
            return False
        return spend_from_entry(said.entry) == spend_from_entry({"usage": plain.usage, "cost": None})

    async def _prices(self, model: str, tier: str) -> _Prices:
        key = (self.provider, self._request.model, self._request.config.service_tier, model, tier)
        prices = _known_prices.get(key)
        if prices is None:
            if len(_known_prices) >= _MOST:
                _known_prices.clear()
            # In a thread, since the first look may fetch DSPy's price list.
            prices = _known_prices[key] = await asyncio.to_thread(self._look_up, model, tier)
        return prices

    def _look_up(self, model: str, tier: str) -> _Prices:
        def cost(*, sent: int = 0, received: int = 0, cached: int = 0, reasoning: int = 0) -> float | None:
            usage = lm15.Usage(
                input_tokens=sent, output_tokens=received, cache_read_tokens=cached, reasoning_tokens=reasoning
            )
            message = lm15.Message(role="assistant", parts=(lm15.TextPart(text=""),))
            data: Any = {"service_tier": tier} if tier else None
            return self._estimate(
                lm15.Response(None, model, message, finish_reason="stop", usage=usage, provider_data=data)
            )

        one = (cost(sent=1), cost(received=1), cost(received=1, reasoning=1), cost(sent=1, cached=1))
        all_of_many, flat = cost(sent=_LONG, received=_LONG), [price for price in one if price is not None]
        if all_of_many is None or len(flat) < len(one):
            return _Prices(bool(flat), None)
        return _Prices(True, tuple(flat) if math.isclose(all_of_many, _LONG * (flat[0] + flat[1])) else None)

    def _estimate(self, response: lm15.Response) -> float | None:
        requested = self._request.model
        return estimate_cost(response, provider=self.provider, requested_model=requested, request=self._request)[0]


class _Prices(NamedTuple):
    """What a model's tokens cost, in US dollars, by DSPy's estimate.

    Attributes:
        known: Whether there is a price.
        flat: For a token sent, received, thought and found in the provider's cache, in prompts up to `_LONG` tokens;
            None where even there it depends on how many there are.
    """

    known: bool
    flat: tuple[float, ...] | None


# Beyond some length, 128,000 tokens or more, some models are dearer.
_LONG = 100_000
# Of the names under which servers answer; it is they who choose them.
_MOST = 256
_known_prices: dict[tuple[object, ...], _Prices] = {}


class _Plain(NamedTuple):
    """A reply that is a text and its counts."""

    text: str
    model: str
    tier: str
    usage: Mapping[str, Any]
    counts: tuple[int, int, int, int]

    def cost(self, flat: tuple[float, ...] | None) -> float | None:
        """What it cost, by the prices of one token."""
        return sum(count * price for count, price in zip(self.counts, flat, strict=True)) if flat else None


def _plain(body: bytes) -> _Plain | None:
    """A plain reply; None for any other, and for what is no reply."""
    try:
        reply = _DECODER.decode(body.decode())
        (choice,) = reply["choices"]
        text, model, tier = choice["message"]["content"], reply["model"], reply.get("service_tier") or ""
        usage = reply["usage"]
        sent, received = usage["prompt_tokens"], usage["completion_tokens"]
        before, after = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
        cached, reasoning = before.get("cached_tokens") or 0, after.get("reasoning_tokens") or 0
        odd = before.get("cache_write_tokens") or before.get("audio_tokens") or after.get("audio_tokens")
        odd = odd or choice["message"].get("tool_calls") or choice.get("logprobs") or reply.get("error") is not None
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    if odd or not model or not type(text) is type(model) is type(tier) is str:
        return None
    if not type(sent) is type(received) is type(cached) is type(reasoning) is int:
        return None
    if not (0 <= cached <= sent <= _LONG and 0 <= reasoning <= received):
        return None
    return _Plain(text, model, tier, usage, (sent - cached, received - reasoning, reasoning, cached))


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
