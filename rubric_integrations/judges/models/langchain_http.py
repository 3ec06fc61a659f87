"""Restricts the HTTP clients of LangChain chat models: no redirects, and only JSON replies of a limited size.

A redirect would send the text to a server that the user did not name. A compressed reply of a megabyte could fill the
memory. If a gateway replies with a web page, SDKs raise the same error as for a wrong setting, and the request would
not be retried. This is a separate module because it imports httpx, which only judges with a LangChain chat
model need.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import httpx

from rubric_integrations.judges.http import MAX_REPLY_BYTES
from rubric_integrations.judges.models.errors import ErrorResponse, describe_response

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

# The attributes of chat models with their clients: `langchain-openai` uses the first two, other packages one of the
# pairs below.
_ROOTS = ("root_client", "root_async_client")
_CLIENTS = ("client", "async_client", "_client", "_async_client")
# Codings with a higher compression ratio, or two nested codings, could fill the memory with one packet of the response.
_CODINGS = ("gzip", "deflate")


def guarded(model: BaseChatModel) -> BaseChatModel:
    """Copy a chat model with restricted HTTP clients: no redirects, and only JSON of at most 10 MB after decompression.

    The copy shares the connections. A model is returned unchanged if its client is not based on httpx.
    """
    roots = {name: _guarded_client(getattr(model, name, None)) for name in _ROOTS}
    clients = {name: client for name, client in roots.items() if client is not None}
    clients |= {name.removeprefix("root_"): client.chat.completions for name, client in clients.items()}
    for name in () if clients else _CLIENTS:
        if (client := _guarded_client(getattr(model, name, None))) is not None:
            clients[name] = client
    if not clients:
        return model
    fields = type(model).model_fields
    guarded_model = model.model_copy(update={name: client for name, client in clients.items() if name in fields})
    for name, client in clients.items():
        if name not in fields:
            setattr(guarded_model, name, client)
    return guarded_model


def _guarded_client(client: Any) -> Any:
    """Copy an httpx client, an SDK's client based on httpx, or a part of such a client. None for any other object."""
    if isinstance(client, httpx.Client | httpx.AsyncClient):
        return _guarded_http(client)
    inner = getattr(client, "_client", None)
    if isinstance(inner, httpx.Client | httpx.AsyncClient):
        if hasattr(client, "with_options"):
            return client.with_options(http_client=_guarded_http(inner))
        wrapper = copy.copy(client)
        wrapper._client = _guarded_http(inner)
        return wrapper
    if hasattr(inner, "with_options"):
        return type(client)(_guarded_client(inner))
    return None


def _guarded_http(client: httpx.Client | httpx.AsyncClient) -> Any:
    is_async = isinstance(client, httpx.AsyncClient)
    kind, transport = (httpx.AsyncClient, _AsyncTransport) if is_async else (httpx.Client, _Transport)
    # Not an object of the SDK's class, because that closes the shared connections when it is garbage-collected.
    http: Any = kind.__new__(kind)
    vars(http).update(vars(client))
    http.follow_redirects = False
    http._transport = transport(http._transport)
    http._mounts = {pattern: mounted and transport(mounted) for pattern, mounted in http._mounts.items()}
    return http


class _Transport(httpx.BaseTransport):
    def __init__(self, transport: httpx.BaseTransport):
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Accept-Encoding"] = ", ".join(_CODINGS)
        response = self._transport.handle_request(request)
        body = bytearray()
        try:
            _require_known_coding(response)
            for part in response.iter_bytes():
                _append(body, part)
        finally:
            response.close()
        return _checked(response, bytes(body))


class _AsyncTransport(httpx.AsyncBaseTransport):
    def __init__(self, transport: httpx.AsyncBaseTransport):
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Accept-Encoding"] = ", ".join(_CODINGS)
        response = await self._transport.handle_async_request(request)
        body = bytearray()
        try:
            _require_known_coding(response)
            async for part in response.aiter_bytes():
                _append(body, part)
        finally:
            await response.aclose()
        return _checked(response, bytes(body))


def _require_known_coding(response: httpx.Response) -> None:
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity", *_CODINGS):
        raise httpx.DecodingError(f"the reply is in the content coding {coding!r}, which was not requested")


def _append(body: bytearray, part: bytes) -> None:
    body += part
    if len(body) > MAX_REPLY_BYTES:
        raise httpx.ReadError(f"the reply is larger than {MAX_REPLY_BYTES:,} bytes")


def _checked(response: httpx.Response, body: bytes) -> httpx.Response:
    """Return a response with the body that was read. Raise an error if its status is 200 but its body is not JSON."""
    content_type, result = response.headers.get("Content-Type", ""), ErrorResponse(response.status_code, body)
    if result.is_unreadable and "stream" not in content_type and "ndjson" not in content_type:
        raise httpx.RemoteProtocolError(describe_response(result))
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _HEADERS_OF_THE_BODY]
    return httpx.Response(response.status_code, headers=headers, content=body, extensions=response.extensions)


# Headers that describe the body before it was decompressed. httpx sets the new length.
_HEADERS_OF_THE_BODY = (b"content-encoding", b"content-length", b"transfer-encoding")
