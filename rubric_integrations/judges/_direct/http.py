"""One pool of kept-alive HTTP connections for each event loop, closed with its loop.

The pool is aiohttp's: httpx, which most SDKs use, searches all its connections for every request, which costs ten
times as much CPU at 64 connections.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from rubric_integrations.judges.models.error_responses import MAX_REPLY_BYTES


class Endpoint:
    """Where requests go.

    Attributes:
        url: The URL.
        headers: The headers of each request.
        timeout: The seconds to wait for a connection, and for more of the response.
    """

    def __init__(self, url: str, headers: Sequence[tuple[str, str]], *, connect: float, read: float | None):
        # aiohttp sends the user and the password of a URL, as httpx does, and refuses another credential beside them.
        has_user = "@" in urlsplit(url).netloc
        self.url = url
        self.headers = [pair for pair in headers if not (has_user and pair[0].lower() == "authorization")]
        self.timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=read)


class HttpReply(NamedTuple):
    """A server's response."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


# The most requests that are prepared before the event loop turns to others. Otherwise a burst of requests would be sent
# only when the last one is ready and answered in a burst, and so on through the run: nothing would overlap with the
# waiting.
_MAX_PREPARED = 8


class _Pool(NamedTuple):
    session: aiohttp.ClientSession
    owner: AsyncGenerator[aiohttp.ClientSession]
    turns: asyncio.Semaphore


_pools: dict[asyncio.AbstractEventLoop, _Pool] = {}


async def post(endpoint: Endpoint, body: bytes) -> HttpReply:
    """Send a request and read the whole response, whatever its status. Redirects are not followed.

    Raises:
        aiohttp.ClientError: There was no response, or one of more than 10 MB.
        TimeoutError: The response took too long.
    """
    pool = await _pool()
    await pool.turns.acquire()
    asyncio.get_running_loop().call_soon(pool.turns.release)
    request = pool.session.post(
        endpoint.url, data=body, headers=endpoint.headers, timeout=endpoint.timeout, allow_redirects=False
    )
    async with request as response:
        return HttpReply(response.status, response.reason or "", response.headers, await _read(response))


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read a body, decompressed, up to the limit.

    Raises:
        aiohttp.ClientPayloadError: It is larger.
    """
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MAX_REPLY_BYTES:
            response.close()
            raise aiohttp.ClientPayloadError(f"the reply is larger than {MAX_REPLY_BYTES:,} bytes")
    return bytes(body)


def needs_proxy(url: str) -> bool:
    """Whether the environment wants requests to this URL to use a proxy, which `post` does not."""
    parts, proxies = urlsplit(url), getproxies()
    return bool(proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(parts.hostname or "")


async def _pool() -> _Pool:
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        for other in list(_pools):
            if other.is_closed() and (closed := _pools.pop(other, None)):
                await closed.owner.aclose()
        owner = _open_session(loop)
        pool = _pools[loop] = _Pool(await anext(owner), owner, asyncio.Semaphore(_MAX_PREPARED))
    return pool


async def _open_session(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession]:
    # A generator, because `asyncio.run` and the like end every generator of their loop before they close it: so the
    # pool is closed in time. The number of connections is limited by the grader.
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        try:
            yield session
        finally:
            _pools.pop(loop, None)


_pools_of_parent: list[_Pool] = []


def _forget_pools() -> None:
    """Leave the parent's connections alone in a forked child: they are neither to be used nor to be closed there."""
    _pools_of_parent.extend(_pools.values())
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


@atexit.register
def _close_pools() -> None:
    """Close the pools of event loops that nobody ended: the library's own, and those of scripts that just stop."""
    for loop, pool in list(_pools.items()):
        with suppress(Exception):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(pool.owner.aclose(), loop).result(2)
            else:
                (asyncio.new_event_loop() if loop.is_closed() else loop).run_until_complete(pool.owner.aclose())
