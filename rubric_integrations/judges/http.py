"""The HTTP side of the fast path: captures DSPy's request, sends it on pooled connections, and parses the reply.

Capturing and parsing rely on DSPy internals. Requests go through DSPy itself if an import or a capture fails,
or if this module and DSPy parse a specimen reply in different ways. This is a separate module from
`judges/fast_path.py` because it does the I/O.

Each event loop has one pool of aiohttp connections. httpx, which most SDKs use, searches all its connections for every
request. With 64 connections, this takes ten times the CPU time.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import math
import os
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from operator import mul
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import dspy
from dspy import lm15
from dspy._vendor.lm15.providers.anthropic import AnthropicLM
from dspy._vendor.lm15.providers.base import HttpResponse
from dspy._vendor.lm15.providers.openai_chat import OpenAIChatLM
from dspy.clients.call_result import CallResult
from dspy.clients.costs import estimate_cost
from dspy.clients.engines.lm15_engine import AsyncLM15Engine, LM15Engine
from dspy.clients.errors import wrap_error
from dspy.clients.execution import _engine, prepare
from dspy.utils.exceptions import LMUnexpectedError
from pydantic_core import from_json

from rubric_integrations.judges.models.errors import (
    MAX_REPLY_BYTES,
    Completion,
    completion_from_history,
    finish_reason_of,
    refusal_of,
    token_usage,
    usage_from_mapping,
)
from rubric_integrations.judges.protocol import RequestProtocol
from rubric_integrations.scoring.judgment import TokenUsage


class HttpAddress:
    """The URL, headers and timeouts of requests.

    Attributes:
        url: The URL.
        headers: The headers of each request.
        timeout: The longest waits for a connection and for the next part of the response, in seconds.
    """

    def __init__(self, url: str, headers: Sequence[tuple[str, str]], *, connect: float, read: float | None):
        # aiohttp sends the user and the password in a URL, as httpx does, and refuses a second credential.
        has_user = "@" in urlsplit(url).netloc
        self.url = url
        self.headers = [pair for pair in headers if not (has_user and pair[0].lower() == "authorization")]
        self.timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=read)


class HttpReply(NamedTuple):
    """A server's HTTP response: its status, reason phrase, headers and body."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


# The largest number of requests that are prepared before the event loop runs other tasks. Without this limit, a burst
# of requests would be sent only after the last one is prepared. The replies would arrive in a burst too, and
# preparation would never overlap with waiting.
_MAX_PREPARED = 8


class _Turns:
    """Limits the number of requests that are prepared in one step of an event loop. Requests wait in a queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop, self._taken = loop, 0
        self._waiting = deque[asyncio.Future[None]]()

    def take(self) -> asyncio.Future[None] | None:
        """Take a turn in this step. If all turns are taken, return a future that must be awaited first."""
        if self._taken == _MAX_PREPARED:
            self._waiting.append(future := self._loop.create_future())
            return future
        self._taken += 1
        if self._taken == 1:
            self._loop.call_soon(self._renew)
        return None

    def _renew(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < _MAX_PREPARED:
            future = self._waiting.popleft()
            if not future.done():  # its request was cancelled
                future.set_result(None)
                self._taken += 1
        if self._taken:
            self._loop.call_soon(self._renew)


class _Pool(NamedTuple):
    session: aiohttp.ClientSession
    owner: AsyncGenerator[aiohttp.ClientSession]
    turns: _Turns


_pools: dict[asyncio.AbstractEventLoop, _Pool] = {}


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """Read and decompress a body up to the size limit.

    Raises:
        aiohttp.ClientPayloadError: The body is larger than the limit.
    """
    body, content = bytearray(), response.content
    while part := await content.readany():
        body += part
        if len(body) > MAX_REPLY_BYTES:
            response.close()
            raise aiohttp.ClientPayloadError(f"the reply is larger than {MAX_REPLY_BYTES:,} bytes")
    return bytes(body)


def needs_proxy(url: str) -> bool:
    """Whether the environment sets a proxy for this URL. `send` does not use proxies."""
    parts, proxies = urlsplit(url), getproxies()
    return bool(proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(parts.hostname or "")


async def _open_pool(loop: asyncio.AbstractEventLoop) -> _Pool:
    for other in list(_pools):
        if other.is_closed() and (closed := _pools.pop(other, None)):
            await closed.owner.aclose()
    owner = _open_session(loop)
    pool = _pools[loop] = _Pool(await anext(owner), owner, _Turns(loop))
    return pool


async def _open_session(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession]:
    # A generator, because `asyncio.run` ends all generators of its loop before it closes the loop. The pool is then
    # closed in time. The number of connections is limited by the grader.
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        try:
            yield session
        finally:
            _pools.pop(loop, None)


_pools_of_parent: list[_Pool] = []


def _forget_pools() -> None:
    """Forget the parent's connections in a forked child, which must neither use nor close them."""
    _pools_of_parent.extend(_pools.values())
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


@atexit.register
def _close_pools() -> None:
    """Close the pools of event loops that are still open at exit: the library's own loop and the loops of scripts."""
    for loop, pool in list(_pools.items()):
        with suppress(Exception):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(pool.owner.aclose(), loop).result(2)
            else:
                (asyncio.new_event_loop() if loop.is_closed() else loop).run_until_complete(pool.owner.aclose())


# pyright: reportPrivateUsage=false


class ReplyReader:
    """Parses the replies to one request, and to all requests that differ from it only in their texts.

    Args:
        target: DSPy's object that implements the provider's protocol.
        request: The request.
        provider: The provider's name.

    Attributes:
        is_openai: Whether the protocol is OpenAI's chat completions. Otherwise, it is Anthropic's messages.
        specimen: An example of a reply in this protocol, to compare this parser with DSPy's parser.
    """

    def __init__(self, target: OpenAIChatLM | AnthropicLM, request: lm15.Request, provider: str):
        self._target, self._request, self.provider = target, request, provider
        self._price_key = (provider, request.model, request.config.service_tier)
        self.is_openai = isinstance(target, OpenAIChatLM)
        self.specimen = _SPECIMEN if self.is_openai else _ANTHROPIC_SPECIMEN
        self._reads_plain_replies = self.is_openai and not request.tools and self._specimen_is_read_alike()

    async def read(self, reply: HttpReply) -> Completion:
        """Parse a server's response.

        Raises:
            dspy.lm15.LM15Error: The response is an error, or is not the reply of a model.
        """
        plain = _parse_plain(reply.body) if self._reads_plain_replies and reply.status == 200 else None
        if plain is not None:
            key = (*self._price_key, plain.model, plain.tier)
            prices = _known_prices.get(key) or await self._prices(plain.model, plain.tier)
            if not prices.known or prices.per_token:
                return Completion(plain.text, plain.finish_reason, plain.usage, plain.cost(prices.per_token))
        response, completion = self._read_with_dspy(reply)
        tier = str((response.provider_data or {}).get("service_tier") or "")
        if completion.usage is not None and (await self._prices(response.model, tier)).known:
            return completion._replace(cost=self._estimate(response))
        return completion

    def _read_with_dspy(self, reply: HttpReply) -> tuple[lm15.Response, Completion]:
        """Parse a response as DSPy does, without the cost."""
        is_error = reply.status >= 400
        http = HttpResponse(
            status=reply.status, reason=reply.reason, headers=list(reply.headers.items()) if is_error else [],
            body=reply.body, http_version="1.1", provider=self.provider,
        )  # fmt: skip
        if is_error:
            raise self._target._http_error(http)
        response = self._parse(http)
        result = CallResult.native(response, provider=self.provider)
        output: Any = result.outputs[0]
        text = output.get("text") if isinstance(output, dict) else output
        usage, refusal = usage_from_mapping(result.usage), refusal_of(response)
        return response, Completion(text or "", finish_reason_of(response), usage, None, refusal=refusal)

    def _parse(self, http: HttpResponse) -> lm15.Response:
        """Parse a response with DSPy. If DSPy refuses its token counts, parse it without them."""
        try:
            return self._target.parse_response(self._request, http)
        except (ValueError, TypeError) as error:
            with suppress(ValueError):
                body: Any = from_json(http.body, allow_inf_nan=False)
                if isinstance(body, dict) and body.pop("usage", None):
                    http = replace(http, body=json.dumps(body).encode())
                    return self._target.parse_response(self._request, http)
            raise error

    def _specimen_is_read_alike(self) -> bool:
        plain = _parse_plain(_SPECIMEN)
        try:
            _, completion = self._read_with_dspy(HttpReply(200, "OK", {}, _SPECIMEN))
        except Exception:  # noqa: BLE001 -- the internals of another DSPy; `difference_from_dspy` reports them
            return False
        # If a schema was sent, DSPy serializes the parsed reply again, and a repeated field appears only once. The
        # model's own text is better for parsing.
        if plain is None or completion.text not in (plain.text, plain.text.strip()):
            return False
        return (completion.usage, completion.finish_reason) == (plain.usage, plain.finish_reason)

    async def _prices(self, model: str, tier: str) -> _Prices:
        key = (*self._price_key, model, tier)
        prices = _known_prices.get(key)
        if prices is None:
            if len(_known_prices) >= _MAX_PRICES:
                _known_prices.clear()
            # In a thread, because the first look-up may download DSPy's price list.
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
    """The prices of a model's tokens, as DSPy estimates them.

    Attributes:
        known: Whether the price is known.
        per_token: The price of one input token, output token, reasoning token, and input token from the provider's
            cache, in US dollars, for prompts of up to 100,000 tokens. None if the price depends on the number of tokens
            even below this size.
    """

    known: bool
    per_token: tuple[float, ...] | None


# Some models are more expensive for prompts beyond some length, which is 128,000 tokens or more.
_MAX_FLAT_TOKENS = 100_000
# The names of models come from the servers' replies. Therefore their number must be limited.
_MAX_PRICES = 256
_known_prices: dict[tuple[object, ...], _Prices] = {}


class _PlainReply(NamedTuple):
    """A reply that has only one text and its token counts."""

    text: str
    finish_reason: str | None
    model: str
    tier: str
    usage: TokenUsage
    counts: tuple[int, int, int, int]

    def cost(self, per_token: tuple[float, ...] | None) -> float | None:
        """Return the cost in US dollars, from the prices of one token."""
        if not per_token:
            return None
        return sum(map(mul, self.counts, per_token))


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
    if tokens is None or sent is None or received is None or sent > _MAX_FLAT_TOKENS or reasoning > received:
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

_ANTHROPIC_SPECIMEN = json.dumps(
    {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": '{"a": "b"} '}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 3},
    }
).encode()


# pyright: reportPrivateUsage=false


class CapturedRequest(NamedTuple):
    """A request as DSPy would send it.

    Attributes:
        endpoint: The URL, the headers and the timeouts.
        body: The JSON body.
        reader: The object that parses the reply.
        call: DSPy's own object for the call. With it, `difference_from_dspy` repeats the call without sending it.
    """

    endpoint: HttpAddress
    body: bytes
    reader: ReplyReader
    call: Any

    @property
    def protocol(self) -> RequestProtocol:
        """The protocol of the request's body: OpenAI's chat completions or Anthropic's messages."""
        return "openai" if self.reader.is_openai else "anthropic"

    async def send(self, body: bytes, lm: dspy.LM) -> Completion:
        """Send the request once with another body, and read the complete response. Redirects are not followed.

        Raises:
            dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises. A response of more than 10 MB counts
                as lost.
        """
        endpoint, loop = self.endpoint, asyncio.get_running_loop()
        try:
            pool = _pools.get(loop) or await _open_pool(loop)
            if (turn := pool.turns.take()) is not None:
                await turn
            async with pool.session.post(
                endpoint.url, data=body, headers=endpoint.headers, timeout=endpoint.timeout, allow_redirects=False
            ) as response:
                content = await _read_body(response)
                reply = HttpReply(response.status, response.reason or "", response.headers, content)
            return await self.reader.read(reply)
        except Exception as error:
            raise _as_dspy_error(error, self, lm) from error

    async def read(self, reply: HttpReply, lm: dspy.LM) -> Completion:
        """Parse the response to the request.

        Raises:
            dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises.
        """
        try:
            return await self.reader.read(reply)
        except Exception as error:
            raise _as_dspy_error(error, self, lm) from error


async def capture_request(
    predict: dspy.Predict,
    lm: dspy.LM,
    signature: type[dspy.Signature],
    demos: Sequence[Any],
    inputs: Mapping[str, Any],
    for_batch: bool = False,
) -> CapturedRequest | None:
    """Capture the request that DSPy would send, without sending it. This function relies on DSPy internals.

    The endpoint must be OpenAI-compatible. For a batch, it may also be Anthropic's endpoint.

    Returns:
        The request. None if DSPy would send it to another endpoint or in another form.
    """
    messages, options = await _render_messages(predict, lm, signature, demos, inputs)
    call = prepare(lm, None, messages, options)
    if call.cache or call.n != 1 or lm.model_type != "chat":
        return None
    engine, request, provider = cast("tuple[Any, lm15.Request | None, str]", _engine(lm, call, False))
    if not isinstance(engine, LM15Engine) or request is None or request.config.stop or request.config.cache:
        return None
    target, routed = cast("tuple[Any, lm15.Request]", engine._target(request))
    # A credential that is a function may differ from request to request.
    protocols = (OpenAIChatLM, AnthropicLM) if for_batch else (OpenAIChatLM,)
    if not isinstance(target, protocols) or callable(target.api_key):
        return None
    http, _ = target._build(routed, stream=False)
    if needs_proxy(http.url) and not for_batch:
        return None
    # If the LM sets no timeout, only the grader's timeout applies.
    timeouts = engine.config.timeouts
    connect, read = (timeouts.connect, timeouts.read) if timeouts else (lm15.Timeouts().connect, None)
    endpoint = HttpAddress(http.url, http.headers, connect=connect, read=read)
    return CapturedRequest(endpoint, http.body, ReplyReader(target, routed, provider), call)


class _Rendered(Exception):  # noqa: N818 -- not an error: it ends the call of the predictor
    """Raised by the stub LM to hand back the rendered messages."""


async def _render_messages(
    predict: dspy.Predict, lm: dspy.LM, signature: type[dspy.Signature], demos: Sequence[Any], inputs: Mapping[str, Any]
) -> tuple[Any, Any]:
    async def render(prompt: object = None, *, messages: object = None, **options: object) -> None:
        raise _Rendered(messages, options)

    stub: Any = lm.copy()
    stub.acall = render
    try:
        await predict.acall(lm=stub, signature=signature, demos=demos, **inputs)
    except _Rendered as rendered:
        messages, options = rendered.args
        return messages, options
    raise TypeError("the adapter called no model")


async def difference_from_dspy(
    request: CapturedRequest,
    body: bytes,
    predict: dspy.Predict,
    lm: dspy.LM,
    signature: type[dspy.Signature],
    demos: Sequence[Any],
    inputs: Mapping[str, Any],
) -> str | None:
    """Compare a request and a parsed reply of the fast path with those of a call of DSPy, without sending a request.

    Two things are compared: the bytes of the request, and the result of parsing an example of a reply.

    Args:
        request: The captured request.
        body: The body of the request with these inputs.
        predict: The predictor.
        lm: The model.
        signature: The signature.
        demos: The few-shot examples.
        inputs: The inputs.

    Returns:
        The differences. None if there are no differences.

    Raises:
        TypeError: No comparison is possible, because the installed DSPy works in another way.
    """
    transport, entries = _SpecimenTransport(request.reader.specimen), list[Mapping[str, Any]]()
    stub: Any = lm.copy(num_retries=0, update_history=entries.append)
    stub._engine_store = {}
    engine = cast("AsyncLM15Engine", _engine(stub, request.call, True)[0])
    config = replace(engine.config, transport=transport, timeouts=None, max_connections=None)
    offline = AsyncLM15Engine(config, model_type=lm.model_type)
    stub._engine_store = dict.fromkeys(stub._engine_store, offline)
    # With another engine, DSPy would send the request.
    if _engine(stub, request.call, True)[0] is not offline:
        raise TypeError("an LM does not use the engine in its store")
    try:
        await predict.acall(lm=stub, signature=signature, demos=demos, **inputs)
    except Exception as error:
        # DSPy raises an error after it has parsed the specimen, because the specimen does not answer the question.
        if not entries and (transport.requests or isinstance(error, LMUnexpectedError)):
            raise TypeError(f"a specimen of a reply cannot be read ({type(error).__name__}: {error})") from error
        if not entries:
            raise
    if not (entries and transport.requests):
        raise TypeError("a call left no entry in the history")
    sent, theirs = transport.requests[0], completion_from_history(entries[0], caches=False)
    ours = await request.reader.read(HttpReply(200, "OK", {}, request.reader.specimen))
    endpoint = HttpAddress(sent.url, sent.headers, connect=request.endpoint.timeout.sock_connect or 0, read=None)
    # DSPy strips the text of a reply to a JSON Schema.
    is_same = {
        "the URL of a request": endpoint.url == request.endpoint.url,
        "the headers of a request": endpoint.headers == request.endpoint.headers,
        "the body of a request": sent.body == body,
        "the reading of a reply": ours._replace(text=ours.text.strip()) == theirs._replace(text=theirs.text.strip()),
    }
    return " and ".join(name for name, same in is_same.items() if not same) or None


class _SpecimenTransport:
    """A transport for DSPy that sends nothing and answers each request with the specimen reply.

    Attributes:
        requests: The requests that DSPy would have sent.
    """

    def __init__(self, specimen: bytes):
        self.requests: list[Any] = []
        self._specimen = specimen

    def stream(self, request: object) -> AbstractAsyncContextManager[Any]:
        self.requests.append(request)
        return self._respond()

    @asynccontextmanager
    async def _respond(self) -> AsyncGenerator[Any]:
        yield _SpecimenResponse(self._specimen)


class _SpecimenResponse:
    """The response with the specimen reply, in the form that DSPy's transport returns."""

    status, reason, http_version = 200, "OK", "1.1"

    def __init__(self, body: bytes):
        self._body = body
        self.headers: list[tuple[str, str]] = []

    async def read(self) -> bytes:
        return self._body


def _as_dspy_error(error: Exception, request: CapturedRequest, lm: dspy.LM) -> Exception:
    is_transport = isinstance(error, aiohttp.ClientError | OSError)
    canonical = lm15.TransportError(f"{type(error).__name__}: {error}") if is_transport else error
    return wrap_error(canonical, model=lm.model, provider=request.reader.provider)
