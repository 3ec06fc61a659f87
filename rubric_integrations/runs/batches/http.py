"""The HTTP requests to a batch API, which are repeated after rate limits and outages if they change nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import aiohttp

from rubric_integrations.judges.models.error_responses import MAX_REPLY_BYTES, server_message
from rubric_integrations.runs.batches.records import BatchError

MAX_ATTEMPTS = 6
# Seconds: the wait after the first refused or lost request, which doubles, and the longest that a server can request.
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
# Seconds to wait for a connection, and for more of a response.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=300)
_LOST = (aiohttp.ClientError, OSError, TimeoutError)


class Uncertain(Exception):  # noqa: N818 -- it may have succeeded
    """A request was lost, or its server failed: nobody knows whether it was executed."""


class BatchServer:
    """A provider's API, below a base URL. Redirects are not followed, so that no other server gets the key.

    Args:
        base_url: The base URL.
        headers: The headers of each request, with the key.
        redact: Removes secrets from a message of the server.
    """

    def __init__(self, base_url: str, headers: Sequence[tuple[str, str]], redact: Callable[[str], str]):
        self.base_url, self._redact = base_url, redact
        self._headers = {name: value for name, value in headers if name.lower() != "content-type"}

    async def __aenter__(self) -> Self:
        # Unlike the judge's own requests, these use the proxies of the environment.
        self._session = aiohttp.ClientSession(
            headers=self._headers, timeout=_TIMEOUT, trust_env=True, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at a path.

        Raises:
            BatchError: There is none, or the server does not reply.
        """
        return await self._repeat("GET", path, lambda: None)

    async def upload(self, path: str, make_body: Callable[[], Any]) -> dict[str, Any]:
        """Send a body whose arrival costs nothing, so that it may arrive twice; raises as `get` does."""
        return await self._repeat("POST", path, make_body)

    async def create(self, path: str, make_body: Callable[[], Any]) -> dict[str, Any]:
        """Send a body that must not arrive twice: again only after a rate limit, which refuses it.

        Raises:
            BatchError: The server refuses it.
            Uncertain: Nobody knows whether it arrived.
        """
        for attempt in range(MAX_ATTEMPTS):
            try:
                status, content, wait = await self._send("POST", path, make_body())
            except _LOST as error:
                raise Uncertain(f"{type(error).__name__}: {error}") from None
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise Uncertain(self._describe(status, content))
            if status != HTTPStatus.TOO_MANY_REQUESTS:
                return self._parse(path, status, content)
            await self._wait_or_raise(path, attempt, status, content, wait)
        raise AssertionError  # the last attempt has returned or raised

    async def download(self, path: str, file: Path, max_bytes: int) -> None:
        """Append what is at a path to a file; raises as `get` does, and if it is larger."""
        start = await asyncio.to_thread(_size, file)
        for attempt in range(MAX_ATTEMPTS):
            status, body, wait = 0, b"", None
            try:
                async with self._session.get(self.base_url + path, allow_redirects=False) as response:
                    status, wait = response.status, response.headers.get("Retry-After")
                    if status != HTTPStatus.OK:
                        body = await _read(response)
                    else:
                        await _save(response, file, start, max_bytes)
                        return
            except _LOST as error:
                body = f"{type(error).__name__}: {error}".encode()
            await self._wait_or_raise(path, attempt, status, body, wait)

    async def _repeat(self, method: str, path: str, make_body: Callable[[], Any]) -> dict[str, Any]:
        for attempt in range(MAX_ATTEMPTS):
            try:
                status, content, wait = await self._send(method, path, make_body())
            except _LOST as error:
                status, content, wait = 0, f"{type(error).__name__}: {error}".encode(), None
            if 0 < status < HTTPStatus.BAD_REQUEST:
                return self._parse(path, status, content)
            await self._wait_or_raise(path, attempt, status, content, wait)
        raise AssertionError  # the last attempt has returned or raised

    async def _send(self, method: str, path: str, body: Any) -> tuple[int, bytes, str | None]:
        is_json = isinstance(body, dict)
        async with self._session.request(
            method, self.base_url + path, json=body if is_json else None, data=None if is_json else body,
            allow_redirects=False,
        ) as response:  # fmt: skip
            return response.status, await _read(response), response.headers.get("Retry-After")

    async def _wait_or_raise(self, path: str, attempt: int, status: int, content: bytes, wait: str | None) -> None:
        is_temporary = status in (0, HTTPStatus.TOO_MANY_REQUESTS) or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if not is_temporary or attempt == MAX_ATTEMPTS - 1:
            raise BatchError(f"{self.base_url + path}: {self._describe(status, content)}")
        seconds = FIRST_WAIT * 2**attempt
        with suppress(TypeError, ValueError):
            seconds = float(cast("str", wait))
        await asyncio.sleep(min(LONGEST_WAIT, max(0.0, seconds)))

    def _parse(self, path: str, status: int, content: bytes) -> dict[str, Any]:
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise BatchError(f"{self.base_url + path}: {self._describe(status, content)}")
        try:
            value: object = json.loads(content)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise BatchError(f"{self.base_url + path}: the server has no batch API: its reply is no JSON object")
        return cast("dict[str, Any]", value)

    def _describe(self, status: int, content: bytes) -> str:
        message = self._redact(server_message(content))
        return f"HTTP {status}: {message}" if status else message


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for part in response.content.iter_any():
        content += part
        if len(content) > MAX_REPLY_BYTES:
            raise aiohttp.ClientPayloadError(f"the reply is larger than {MAX_REPLY_BYTES:,} bytes")
    return bytes(content)


def _size(file: Path) -> int:
    file.touch()
    return file.stat().st_size


async def _save(response: aiohttp.ClientResponse, file: Path, start: int, max_bytes: int) -> None:
    output = await asyncio.to_thread(file.open, "r+b")
    with output:
        # An earlier attempt may have been cut off.
        output.truncate(start)
        output.seek(start)
        async for part in response.content.iter_any():
            output.write(part)
            if output.tell() > max_bytes:
                raise BatchError(f"the results are larger than {max_bytes:,} bytes: no batch of ours has so many")
