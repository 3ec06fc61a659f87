# pyright: reportPrivateUsage=false
"""Captures the HTTP request that DSPy would send; relies on DSPy internals, as `reply` does.

The prompt, the schema, the address and the key are DSPy's own. With a DSPy that works otherwise, importing this module
or calling `capture_request` fails, and requests go through DSPy itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import aiohttp
import dspy
from dspy import lm15
from dspy._vendor.lm15.providers.anthropic import AnthropicLM
from dspy._vendor.lm15.providers.common import json_dumps
from dspy._vendor.lm15.providers.openai_chat import OpenAIChatLM
from dspy.clients.engines.lm15_engine import LM15Engine
from dspy.clients.errors import wrap_error
from dspy.clients.execution import _engine, prepare

from rubric_integrations.judges._direct.http import Endpoint, HttpReply, needs_proxy, post
from rubric_integrations.judges._direct.reply import ReplyReader
from rubric_integrations.judges.models.completion import Completion
from rubric_integrations.judges.requests import RequestProtocol


class CapturedRequest(NamedTuple):
    """A request as DSPy would send it.

    Attributes:
        endpoint: Where it goes, with its headers and timeouts.
        body: Its JSON.
        reader: Reads the reply.
    """

    endpoint: Endpoint
    body: bytes
    reader: ReplyReader

    @property
    def protocol(self) -> RequestProtocol:
        """The protocol of the body."""
        return "openai" if self.reader.is_openai else "anthropic"


async def capture_request(
    predict: dspy.Predict,
    lm: dspy.LM,
    signature: type[dspy.Signature],
    demos: Sequence[Any],
    inputs: Mapping[str, Any],
    for_batch: bool = False,
) -> CapturedRequest | None:
    """Capture what a predictor would send to an OpenAI-compatible endpoint; for a batch, also to Anthropic's.

    Returns:
        The request; None where DSPy would send it elsewhere or in another form.
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
    # Where the LM sets no timeout, the grader's is the one that counts.
    timeouts = engine.config.timeouts
    connect, read = (timeouts.connect, timeouts.read) if timeouts else (lm15.Timeouts().connect, None)
    endpoint = Endpoint(http.url, http.headers, connect=connect, read=read)
    return CapturedRequest(endpoint, http.body, ReplyReader(target, routed, provider))


class _Rendered(Exception):  # noqa: N818 -- no error, but the way out of the predictor
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


def encode_json_text(text: str) -> bytes:
    """Encode a text as DSPy writes it between the quotation marks of a JSON string."""
    return json_dumps(text)[1:-1]


async def send(request: CapturedRequest, body: bytes, lm: dspy.LM) -> Completion:
    """Send a request once, with another body.

    Raises:
        dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises.
    """
    try:
        reply = await post(request.endpoint, body)
    except Exception as error:
        raise _as_dspy_error(error, request, lm) from error
    return await read(request, reply, lm)


async def read(request: CapturedRequest, reply: HttpReply, lm: dspy.LM) -> Completion:
    """Read the response to a request.

    Raises:
        dspy.utils.exceptions.DSPyError: The same errors as `dspy.LM` raises.
    """
    try:
        return await request.reader.read(reply)
    except Exception as error:
        raise _as_dspy_error(error, request, lm) from error


def _as_dspy_error(error: Exception, request: CapturedRequest, lm: dspy.LM) -> Exception:
    is_transport = isinstance(error, aiohttp.ClientError | OSError)
    canonical = lm15.TransportError(f"{type(error).__name__}: {error}") if is_transport else error
    return wrap_error(canonical, model=lm.model, provider=request.reader.provider)
