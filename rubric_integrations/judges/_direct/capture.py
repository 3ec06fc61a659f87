# pyright: reportPrivateUsage=false
"""The way of a call through DSPy, up to the socket; with `replies`, all that relies on how DSPy works inside.

The prompt, the schema, the address and the key are DSPy's own. Where a release of DSPy works otherwise, importing this
module or calling `wire` fails, and questions go the ordinary way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import aiohttp
import dspy
from dspy import lm15
from dspy._vendor.lm15.providers.common import json_dumps
from dspy._vendor.lm15.providers.openai_chat import OpenAIChatLM
from dspy.clients.engines.lm15_engine import LM15Engine
from dspy.clients.errors import wrap_error
from dspy.clients.execution import _engine, prepare

from rubric_integrations.judges._direct.http import Address, needs_proxy, post
from rubric_integrations.judges._direct.reply import Reader, Reply


class CapturedRequest(NamedTuple):
    """A request as DSPy would put it on the wire, and who reads the reply."""

    address: Address
    body: bytes
    reader: Reader


async def wire(
    predict: dspy.Predict, lm: dspy.LM, signature: type[dspy.Signature], demos: Sequence[Any], inputs: Mapping[str, str]
) -> CapturedRequest | None:
    """What a predictor would send to an OpenAI-compatible endpoint; None where it would send something else."""
    messages, options = await _rendered(predict, lm, signature, demos, inputs)
    call = prepare(lm, None, messages, options)
    if call.cache or call.n != 1 or lm.model_type != "chat":
        return None
    engine, request, provider = cast("tuple[Any, lm15.Request | None, str]", _engine(lm, call, False))
    if not isinstance(engine, LM15Engine) or request is None or request.config.stop or request.config.cache:
        return None
    target, routed = cast("tuple[Any, lm15.Request]", engine._target(request))
    # A credential that is a function may differ from request to request.
    if not isinstance(target, OpenAIChatLM) or callable(target.api_key):
        return None
    sent, _ = target._build(routed, stream=False)
    if needs_proxy(sent.url):
        return None
    # Where the LM sets none, the grader's `timeout` is the one that counts.
    timeouts = engine.config.timeouts
    connect, read = (timeouts.connect, timeouts.read) if timeouts else (lm15.Timeouts().connect, None)
    address = Address(sent.url, sent.headers, connect=connect, read=read)
    return CapturedRequest(address, sent.body, Reader(target, routed, provider))


class _Rendered(Exception):  # noqa: N818 -- no error: the way ends here
    """What an adapter would have sent to a model."""


async def _rendered(
    predict: dspy.Predict, lm: dspy.LM, signature: type[dspy.Signature], demos: Sequence[Any], inputs: Mapping[str, str]
) -> tuple[Any, Any]:
    async def render(prompt: object = None, *, messages: object = None, **options: object) -> None:
        raise _Rendered(messages, options)

    model: Any = lm.copy()
    model.acall = render
    try:
        await predict.acall(lm=model, signature=signature, demos=demos, **inputs)
    except _Rendered as rendered:
        messages, options = rendered.args
        return messages, options
    raise TypeError("the adapter called no model")


def json_text(text: str) -> bytes:
    """A text as it stands between quotation marks in a request."""
    return json_dumps(text)[1:-1]


async def send(wired: CapturedRequest, body: bytes, lm: dspy.LM) -> Reply:
    """Send a request, once.

    Raises:
        dspy.utils.exceptions.DSPyError: As `dspy.LM` does.
    """
    try:
        return await wired.reader.read(await post(wired.address, body))
    except Exception as error:
        known = isinstance(error, aiohttp.ClientError | OSError)
        canonical = lm15.TransportError(f"{type(error).__name__}: {error}") if known else error
        raise wrap_error(canonical, model=lm.model, provider=wired.reader.provider) from error
