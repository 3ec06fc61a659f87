"""The provider of a `dspy.LM`: turns DSPy's request into an HTTP request, sends it, and reads the reply.

DSPy renders a question as an `lm15.Request`, which has no protocol. `ProviderClient` makes the HTTP request from it and
reads the reply, with the public classes of `dspy.lm15` that DSPy's own engine uses. Requests are sent on the pooled
connections of `judges/http.py`. An error keeps the response that caused it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from operator import mul
from typing import Any, NamedTuple, Self

import aiohttp
import dspy
from dspy import lm15
from dspy.clients.errors import wrap_error
from pydantic_core import from_json

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.judges.engines import ModelCapabilities, with_engine
from rubric_integrations.judges.http import HttpAddress, HttpReply, needs_proxy, send
from rubric_integrations.judges.models.errors import (
    LONGEST_MODEL_NAME,
    Completion,
    ResponseError,
    completion_of_response,
)
from rubric_integrations.judges.models.keys import (
    connection_settings,
    declared_providers,
    is_called_by_chat,
    litellm_reason,
    route_of,
    server_url,
)
from rubric_integrations.judges.models.limits import MAX_FLAT_TOKENS, estimate_cost, known_prices, look_up_prices
from rubric_integrations.judges.models.responses import ErrorResponse, token_usage
from rubric_integrations.judges.protocol import RequestProtocol
from rubric_integrations.scoring.judgment import TokenUsage


class ProviderClient:
    """The endpoint of a model, and its protocol.

    Attributes:
        name: The provider's name.
        model: The model's name in requests, without the provider.
        url: The base URL.
        protocol: The protocol of the requests: OpenAI's chat completions or Anthropic's messages. None for another one.
    """

    def __init__(self, route: lm15.Resolution, dialect: lm15.ProviderLM, read: float | None):
        # The type of DSPy's protocol lacks some methods that all its classes have.
        self._dialect: Any = dialect
        self._read_timeout = read
        self.name, self.model, self.url = route.provider, route.model, str(self._dialect.base_url)
        self.protocol: RequestProtocol | None = None
        if isinstance(dialect, lm15.OpenAIChatLM | lm15.AnthropicLM):
            self.protocol = "openai" if isinstance(dialect, lm15.OpenAIChatLM) else "anthropic"

    def http_request(self, request: lm15.Request) -> tuple[HttpAddress, bytes]:
        """Return the address and the body of the HTTP request for a request of DSPy.

        Raises:
            dspy.lm15.LM15Error: The protocol does not support a part of the request.
        """
        routed = replace(request, model=self.model)
        self._dialect.plan(routed)
        http = self._dialect.build_request(routed, stream=False)
        # If the LM sets no timeout, only the grader's timeout applies.
        connect = lm15.Timeouts().connect
        return HttpAddress(http.url, http.headers, connect=connect, read=self._read_timeout), http.body

    def parse(self, request: lm15.Request, reply: HttpReply) -> lm15.Response:
        """Parse a response as DSPy does.

        Raises:
            dspy.lm15.LM15Error: The response is an error, or not the reply of a model.
        """
        # DSPy has no public function for this. A copy of its client gets the response from a transport of our own.
        client = copy.copy(self._dialect)
        client.transport = _ReceivedReply(reply)
        return client.complete(replace(request, model=self.model))


class _ReceivedReply:
    """A transport for DSPy's clients that sends nothing and returns a response that was received before."""

    http_version = "1.1"

    def __init__(self, reply: HttpReply):
        self.status, self.reason, self._body = reply.status, reply.reason, reply.body
        self.headers = list(reply.headers.items()) if reply.status >= 400 else []

    def stream(self, request: object) -> Self:
        """Return the response, which is also its own context manager."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> bytes:
        """Return the body."""
        return self._body


def provider_of(lm: dspy.LM) -> ProviderClient | None:
    """Return the provider to which DSPy's own engine would send a model's requests.

    Returns:
        The provider. None if DSPy leaves the requests to LiteLLM or to an engine of the user.

    Raises:
        dspy.lm15.LM15Error: No key was found.
    """
    route, connection = route_of(lm.model), connection_settings(lm)
    read = connection.get("timeout")
    # A timeout may also be an object of httpx, with a value for each phase.
    if litellm_reason(lm) or lm.engine not in ("auto", "lm15") or not isinstance(read, int | float | None):
        return None
    if route is None or not is_called_by_chat(lm, route):
        return None
    url = server_url(lm)
    key = connection.get("api_key")
    config = lm15.RouterConfig(
        api_keys={route.provider: key} if key else None,
        base_urls={route.provider: url} if url else None,
        providers=declared_providers(),
    )
    dialect: Any = lm15.LMRouter(config).lm(f"{route.provider}:{route.model}")
    # A credential that is a function may differ from request to request.
    return None if callable(dialect.api_key) else ProviderClient(route, dialect, read)


class ReplyReader:
    """Reads the replies to one request, and to all requests that differ from it only in their texts.

    Args:
        provider: The provider.
        request: The request.
    """

    def __init__(self, provider: ProviderClient, request: lm15.Request):
        self._provider = provider
        # DSPy compares the price list with the name that the provider knows.
        self._request = replace(request, model=provider.model)
        self._price_key = (provider.name, provider.model, request.config.service_tier)

    async def read(self, reply: HttpReply, lm: dspy.LM) -> Completion:
        """Parse a server's response.

        Raises:
            dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises. Its cause has the response.
        """
        try:
            plain = _parse_plain(reply.body) if self._reads_plain_replies and reply.status == 200 else None
            if plain is not None:
                key = (*self._price_key, plain.model, plain.tier)
                prices = known_prices.get(key) or await look_up_prices(key, self._estimate)
                if not prices.known or prices.per_token:
                    cost = sum(map(mul, plain.counts, prices.per_token)) if prices.per_token else None
                    model = plain.model[:LONGEST_MODEL_NAME]
                    return Completion(plain.text, plain.finish_reason, plain.usage, cost, model=model)
            return (await self.read_with_dspy(reply))[1]
        except Exception as error:  # noqa: BLE001 -- raised again as DSPy's error
            cause = ResponseError(ErrorResponse(reply.status, reply.body))
            cause.__cause__ = error
            raise wrap_error(error, model=lm.model, provider=self._provider.name) from cause

    async def read_with_dspy(self, reply: HttpReply) -> tuple[lm15.Response, Completion]:
        """Parse a server's response as DSPy does.

        Raises:
            dspy.lm15.LM15Error: The response is an error, or is not the reply of a model.
        """
        response, completion = self._parse(reply)
        tier = str((response.provider_data or {}).get("service_tier") or "")
        key = (*self._price_key, response.model, tier)
        if completion.usage is not None:
            prices = known_prices.get(key) or await look_up_prices(key, self._estimate)
            completion = completion._replace(cost=self._estimate(response) if prices.known else None)
        return response, completion

    def _parse(self, reply: HttpReply) -> tuple[lm15.Response, Completion]:
        """Parse a response as DSPy does, without the cost. If DSPy refuses its token counts, parse it without them."""
        try:
            response = self._provider.parse(self._request, reply)
        except (ValueError, TypeError) as error:
            without_counts = _without_counts(reply)
            if without_counts is None:
                raise error
            response = self._provider.parse(self._request, without_counts)
        return response, completion_of_response(response, self._provider.name)

    @cached_property
    def _reads_plain_replies(self) -> bool:
        if self._provider.protocol != "openai" or self._request.tools:
            return False
        plain = _parse_plain(_SPECIMEN)
        try:
            _, completion = self._parse(HttpReply(200, "OK", {}, _SPECIMEN))
        except Exception:  # noqa: BLE001 -- another DSPy, which then reads every reply
            return False
        # If a schema was sent, DSPy serializes the parsed reply again, and a repeated field appears only once. The
        # model's own text is better for parsing.
        if plain is None or completion.text not in (plain.text, plain.text.strip()):
            return False
        return (completion.usage, completion.finish_reason) == (plain.usage, plain.finish_reason)

    def _estimate(self, response: lm15.Response) -> float | None:
        return estimate_cost(response, self._provider.name, self._provider.model, self._request)


def _without_counts(reply: HttpReply) -> HttpReply | None:
    """Return a response without its token counts. None if it has none."""
    try:
        body: Any = from_json(reply.body, allow_inf_nan=False)
    except ValueError:
        return None
    if not isinstance(body, dict) or not body.pop("usage", None):
        return None
    return reply._replace(body=json.dumps(body).encode())


class _PlainReply(NamedTuple):
    """A reply that has only one text and its token counts.

    Attributes:
        counts: The numbers of tokens whose prices `TokenPrices.per_token` has, in the same order.
    """

    text: str
    finish_reason: str | None
    model: str
    tier: str
    usage: TokenUsage
    counts: tuple[int, int, int, int]


def _parse_plain(body: bytes) -> _PlainReply | None:
    """Parse a plain reply. None for any other body."""
    try:
        reply = from_json(body, allow_inf_nan=False)
        (choice,) = reply["choices"]
        text, finish_reason = choice["message"]["content"], choice.get("finish_reason")
        model, tier = reply["model"], reply.get("service_tier") or ""
        usage = reply["usage"]
        sent, received = usage["prompt_tokens"], usage["completion_tokens"]
        cached = reasoning = 0
        unusual = choice["message"].get("tool_calls") or choice.get("logprobs") or choice["message"].get("refusal")
        if before := usage.get("prompt_tokens_details"):
            cached = before.get("cached_tokens") or 0
            unusual = unusual or before.get("cache_write_tokens") or before.get("audio_tokens")
        if after := usage.get("completion_tokens_details"):
            reasoning = after.get("reasoning_tokens") or 0
            unusual = unusual or after.get("audio_tokens")
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    if unusual or reply.get("error") is not None or not model or finish_reason not in _FINISH_REASONS:
        return None
    if not type(text) is type(model) is type(tier) is str:
        return None
    tokens = token_usage(sent, received, cached, reasoning)
    if tokens is None or sent is None or received is None or sent > MAX_FLAT_TOKENS or reasoning > received:
        return None
    return _PlainReply(
        text, finish_reason, model, tier, tokens, (sent - cached, received - reasoning, reasoning, cached)
    )


# DSPy uses the same names for these. All other names are left to DSPy. Some servers send no finish reason.
_FINISH_REASONS = ("stop", "length", "content_filter", None)


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


class CapturedRequest(NamedTuple):
    """The HTTP request for a question.

    Attributes:
        address: The URL, the headers and the timeouts.
        body: The JSON body.
        protocol: The protocol of the body.
        provider: The provider's name.
        reader: The object that parses the reply.
    """

    address: HttpAddress
    body: bytes
    protocol: RequestProtocol
    provider: str
    reader: ReplyReader

    async def send(self, body: bytes, lm: dspy.LM) -> Completion:
        """Send the request once with another body, and read the complete response.

        Raises:
            dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises. A response of more than 10 MB counts
                as lost.
        """
        try:
            reply = await send(self.address, body)
        except Exception as error:
            raise wrap_error(_as_lost(error), model=lm.model, provider=self.provider) from error
        return await self.reader.read(reply, lm)


def provider_with_template(lm: dspy.LM, *, for_batch: bool = False) -> ProviderClient | None:
    """Return the provider of a model if its requests can be made from a template. Otherwise None.

    Args:
        lm: The model.
        for_batch: Whether somebody else sends the requests. Then the protocol may also be Anthropic's.
    """
    provider = provider_of(lm)
    protocols = ("openai", "anthropic") if for_batch else ("openai",)
    return provider if provider and provider.protocol in protocols else None


def capture_http_request(
    provider: ProviderClient, request: lm15.Request, *, for_batch: bool = False
) -> CapturedRequest | None:
    """Return the HTTP request for a request of DSPy, without sending it.

    Args:
        provider: The provider of the model, from `provider_with_template`.
        request: The request, as DSPy has rendered it.
        for_batch: Whether somebody else sends the request.

    Returns:
        The request. None if it must be sent by DSPy itself.

    Raises:
        dspy.lm15.LM15Error: The protocol does not support a part of the request.
    """
    if provider.protocol is None or request.config.stop or request.config.cache:
        return None
    address, body = provider.http_request(request)
    if needs_proxy(address.url) and not for_batch:
        return None
    return CapturedRequest(address, body, provider.protocol, provider.name, ReplyReader(provider, request))


class ProviderEngine(ModelCapabilities):
    """An engine with which DSPy makes one call of a predictor on the connections of this library.

    Attributes:
        completion: The most recent reply, with its cost. None before the first reply.
        has_sent: Whether a request was sent. If not, DSPy can make the call with its own engine.
    """

    def __init__(self, lm: dspy.LM, provider: ProviderClient):
        super().__init__(lm)
        self._lm, self._provider = lm, provider
        self.completion: Completion | None = None
        self.has_sent = False

    def model(self, record: Callable[[Mapping[str, Any]], None]) -> dspy.LM:
        """Return a copy of the model with this engine, whose history entries are passed to `record`."""
        return with_engine(self._lm, self, record)

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Send a request, and return the response."""
        return run_sync(self.acomplete(request))

    async def acomplete(self, request: lm15.Request) -> lm15.Response:
        """Send a request, and return the response.

        Raises:
            dspy.lm15.UnsupportedFeatureError: DSPy must send this request itself.
            dspy.lm15.LM15Error: No response arrived, or it is an error. The cause has the response.
        """
        address, body = self._provider.http_request(request)
        # If a server knows no stop sequences, DSPy reads a stream and cuts it off.
        if request.config.stop or needs_proxy(address.url):
            raise lm15.UnsupportedFeatureError("stop sequences and proxies need DSPy's own engine")
        self.has_sent = True
        try:
            reply = await send(address, body)
        except Exception as error:
            raise _as_lost(error) from error
        try:
            response, self.completion = await ReplyReader(self._provider, request).read_with_dspy(reply)
        except Exception as error:
            raise error from ResponseError(ErrorResponse(reply.status, reply.body))
        return response


def engine_of(lm: dspy.BaseLM) -> ProviderEngine | None:
    """Return an engine for one call of a model. None if DSPy must use its own engine or the user's."""
    if type(lm) is not dspy.LM or lm.cache:
        return None
    try:
        provider = provider_of(lm)
    except lm15.LM15Error:
        return None  # DSPy's own engine explains what is missing
    return ProviderEngine(lm, provider) if provider else None


def _as_lost(error: Exception) -> Exception:
    """Return DSPy's error for a request whose response did not arrive. Other errors are returned unchanged."""
    is_lost = isinstance(error, aiohttp.ClientError | OSError)
    return lm15.TransportError(f"{type(error).__name__}: {error}") if is_lost else error
