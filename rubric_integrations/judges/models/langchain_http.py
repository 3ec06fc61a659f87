"""Restricts the HTTP clients of LangChain chat models: no redirects, and only JSON replies of a limited size.

A redirect would send the text to a server that the user did not name. A compressed reply of a megabyte could fill the
memory. If a gateway replies with a web page, SDKs raise the same error as for a wrong setting, and the request would
not be retried. SDKs are based on httpx, or on its successor httpx2, which has the same classes. None of them is
imported here: all that is needed is in the client's own library.
"""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any

from rubric_integrations.judges.http import MAX_REPLY_BYTES
from rubric_integrations.judges.models.responses import ErrorResponse, describe_response

if TYPE_CHECKING:
    from types import ModuleType

    from langchain_core.language_models import BaseChatModel

# The attributes of chat models with their clients: `langchain-openai` uses the first two, other packages one of the
# pairs below.
_ROOTS = ("root_client", "root_async_client")
_CLIENTS = ("client", "async_client", "_client", "_async_client")
# Codings with a higher compression ratio, or two nested codings, could fill the memory with one packet of the response.
_CODINGS = ("gzip", "deflate")


def guarded(model: BaseChatModel) -> BaseChatModel:
    """Copy a chat model with restricted HTTP clients: no redirects, and only JSON of at most 10 MB after decompression.

    The copy shares the connections. A model is returned unchanged if its client is not based on httpx or httpx2.
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


def _guarded_client(client: Any, layers: int = 2) -> Any:
    """Copy an HTTP client, an SDK's client based on one, or a part of such a client. None for any other object.

    Args:
        client: The object.
        layers: The largest number of objects around the HTTP client. A mock has a client within each client.
    """
    if (library := _library_of(client)) is not None:
        return _guarded_http(client, library)
    inner = getattr(client, "_client", None)
    guarded_inner = _guarded_client(inner, layers - 1) if inner is not None and layers else None
    if guarded_inner is None:
        return None
    if hasattr(inner, "with_options"):
        return type(client)(guarded_inner)
    if hasattr(client, "with_options"):
        return client.with_options(http_client=guarded_inner)
    wrapper = copy.copy(client)
    wrapper._client = guarded_inner
    return wrapper


def _library_of(client: Any) -> ModuleType | None:
    """Return the HTTP library, httpx or one with its classes, that a client is of. None for any other object."""
    for parent in type(client).__mro__:
        library: Any = sys.modules.get(parent.__module__.partition(".")[0])
        if hasattr(library, "AsyncBaseTransport") and isinstance(client, library.Client | library.AsyncClient):
            return library
    return None


def _guarded_http(client: Any, library: ModuleType) -> Any:
    is_async = isinstance(client, library.AsyncClient)
    kind, guard = (library.AsyncClient, _AsyncTransport) if is_async else (library.Client, _Transport)
    # Not an object of the SDK's class, because that closes the shared connections when it is garbage-collected.
    http: Any = kind.__new__(kind)
    vars(http).update(vars(client))
    http.follow_redirects = False
    http._transport = guard(http._transport, library)
    http._mounts = {pattern: mounted and guard(mounted, library) for pattern, mounted in http._mounts.items()}
    return http


class _Transport:
    def __init__(self, transport: Any, library: ModuleType):
        self._transport, self._library = transport, library

    def handle_request(self, request: Any) -> Any:
        request.headers["Accept-Encoding"] = ", ".join(_CODINGS)
        response = self._transport.handle_request(request)
        body = bytearray()
        try:
            _require_known_coding(response, self._library)
            for part in response.iter_bytes():
                _append(body, part, self._library)
        finally:
            response.close()
        return _checked(response, bytes(body), self._library)

    def close(self) -> None:
        """Leave the connections open, which the user's own client shares."""


class _AsyncTransport:
    def __init__(self, transport: Any, library: ModuleType):
        self._transport, self._library = transport, library

    async def handle_async_request(self, request: Any) -> Any:
        request.headers["Accept-Encoding"] = ", ".join(_CODINGS)
        response = await self._transport.handle_async_request(request)
        body = bytearray()
        try:
            _require_known_coding(response, self._library)
            async for part in response.aiter_bytes():
                _append(body, part, self._library)
        finally:
            await response.aclose()
        return _checked(response, bytes(body), self._library)

    async def aclose(self) -> None:
        """Leave the connections open, which the user's own client shares."""


def _require_known_coding(response: Any, library: ModuleType) -> None:
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity", *_CODINGS):
        raise library.DecodingError(f"the reply is in the content coding {coding!r}, which was not requested")


def _append(body: bytearray, part: bytes, library: ModuleType) -> None:
    body += part
    if len(body) > MAX_REPLY_BYTES:
        raise library.ReadError(f"the reply is larger than {MAX_REPLY_BYTES:,} bytes")


def _checked(response: Any, body: bytes, library: ModuleType) -> Any:
    """Return a response with the body that was read. Raise an error if its status is 200 but its body is not JSON."""
    content_type, result = response.headers.get("Content-Type", ""), ErrorResponse(response.status_code, body)
    if result.is_unreadable and "stream" not in content_type and "ndjson" not in content_type:
        raise library.RemoteProtocolError(describe_response(result))
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _HEADERS_OF_THE_BODY]
    return library.Response(response.status_code, headers=headers, content=body, extensions=response.extensions)


# Headers that describe the body before it was decompressed. The library sets the new length.
_HEADERS_OF_THE_BODY = (b"content-encoding", b"content-length", b"transfer-encoding")
