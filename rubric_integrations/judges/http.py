"""Sends HTTP requests on pooled connections.

Each event loop has one pool of aiohttp connections. httpx, which most SDKs use, searches all its connections for every
request. With 64 connections, this takes ten times the CPU time.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from rubric_integrations.judges.spend import NOT_SENT

MAX_REPLY_BYTES = 10_000_000
"""The largest size of a decompressed reply, in bytes. A judgment has a few thousand bytes. Without a limit, a
compressed reply could fill the memory."""


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


class _Connector(aiohttp.TCPConnector):
    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 -- as in the base class
    ) -> aiohttp.connector.Connection:
        """Return a connection for a request. The request is sent afterwards."""
        try:
            return await super().connect(req, traces, timeout)
        except asyncio.CancelledError as error:
            error.add_note(NOT_SENT)
            raise


async def _open_session(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession]:
    # A generator, because `asyncio.run` ends all generators of its loop before it closes the loop. The pool is then
    # closed in time. The number of connections is limited by the grader.
    async with aiohttp.ClientSession(connector=_Connector(limit=0), cookie_jar=aiohttp.DummyCookieJar()) as session:
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


async def send(address: HttpAddress, data: bytes) -> HttpReply:
    """Send a request once, as soon as the event loop has time to prepare it. Redirects are not followed.

    Args:
        address: The URL, the headers and the timeouts.
        data: The body of the request.

    Raises:
        aiohttp.ClientError: The connection failed, or the decompressed response has more than 10 MB.
        OSError: The connection failed.
    """
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop) or await _open_pool(loop)
    if (turn := pool.turns.take()) is not None:
        try:
            await turn
        except asyncio.CancelledError as error:
            error.add_note(NOT_SENT)
            raise
    async with pool.session.post(
        address.url, data=data, headers=address.headers, timeout=address.timeout, allow_redirects=False
    ) as response:
        body = bytearray()
        while part := await response.content.readany():
            body += part
            if len(body) > MAX_REPLY_BYTES:
                response.close()
                raise aiohttp.ClientPayloadError(f"the reply is larger than {MAX_REPLY_BYTES:,} bytes")
        return HttpReply(response.status, response.reason or "", response.headers, bytes(body))
