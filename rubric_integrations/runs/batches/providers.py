"""The batch APIs of OpenAI and Anthropic: their HTTP requests and their files of lines and results.

After an outage, a request is sent again only if the provider may safely receive it twice. Files are written up to the
provider's limits. Results are read one by one.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

import aiohttp

from rubric_integrations.judges.http import MAX_REPLY_BYTES
from rubric_integrations.judges.models.responses import server_message
from rubric_integrations.runs.batches.base import Batch, BatchError, BatchStatus, Framing, LineReply, Unclear

MAX_ATTEMPTS = 6
# Seconds to wait after the first refused or lost request (the wait doubles each time), and the longest wait.
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
# The timeouts for a connection and for the next part of a response, in seconds.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=300)
_LOST = (aiohttp.ClientError, OSError, TimeoutError)


class Uncertain(Exception):  # noqa: N818 -- it may have succeeded
    """Raised if the connection was lost or the server failed, and it is unknown whether the request was executed."""


class BatchServer:
    """A provider's API, below a base URL. Redirects are not followed, because another server would get the API key.

    Args:
        base_url: The base URL.
        headers: The headers of each request, with the API key.
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
        """Request a path with GET, and return the JSON object in the response.

        Raises:
            BatchError: The server returns an HTTP error or no JSON object, or does not reply.
        """
        return await self._repeat("GET", path, lambda: None)

    async def upload(self, path: str, make_body: Callable[[], Any]) -> dict[str, Any]:
        """Send a body with POST, and send it again after an outage. A body that arrives twice costs nothing.

        Raises:
            BatchError: The server refuses the body, or does not reply.
        """
        return await self._repeat("POST", path, make_body)

    async def create(self, path: str, make_body: Callable[[], Any]) -> dict[str, Any]:
        """Send a body with POST that must not arrive twice.

        The body is sent again only if the server refused it because of a rate limit.

        Raises:
            BatchError: The server refuses the body.
            Uncertain: It is unknown whether the body arrived.
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
        """Append the content at a path to a file.

        Raises:
            BatchError: The path does not exist, the file would be larger than `max_bytes`, or the server does not
                reply.
        """
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
        return value

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


_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")


def checked_id(value: object) -> str:
    """Return an id that the provider has sent, after a check that it is safe as a part of a URL.

    Raises:
        BatchError: The value is not a valid id.
    """
    if not isinstance(value, str) or not _ID.fullmatch(value) or set(value) == {"."}:
        raise BatchError(f"the provider's reply has no valid id: {str(value)[:80]!r}")
    return value


class LineFile:
    """A file of lines, to be submitted as a batch. It is complete after `finish`.

    Args:
        path: The file.
        framing: The format of the file and its limits.

    Attributes:
        keys: The key of each line.
    """

    def __init__(self, path: Path, framing: Framing):
        self.path, self._framing, self.keys = path, framing, list[str]()
        self._file = path.open("wb")
        self._file.write(framing.before)

    def has_room_for(self, line: bytes) -> bool:
        """Whether another line fits into the file.

        The first line always fits. If this line is too long, the provider refuses the batch.
        """
        if not self.keys:
            return True
        size = self._file.tell() + len(self._framing.between) + len(line) + len(self._framing.after)
        return len(self.keys) < self._framing.max_lines and size <= self._framing.max_bytes

    def add(self, key: str, line: bytes) -> None:
        """Write the line of a request, and record its key."""
        self._file.write((self._framing.between if self.keys else b"") + line)
        self.keys.append(key)

    def finish(self) -> None:
        """Write the bytes after the last line and close the file."""
        self._file.write(self._framing.after)
        self._file.close()


class Results(Mapping[str, Mapping[str, Any]]):
    """The lines of a file of results, by the key of the judgment that each line answers.

    Only the positions of the lines are in memory. The lines are read from the file.

    Attributes:
        unreadable: The number of lines that are not results.
        ambiguous: The keys that have several different lines. For such a key, the first line is returned.
    """

    def __init__(self, file: BinaryIO):
        self._file, self._places = file, dict[str, int]()
        self.unreadable, self.ambiguous = 0, set[str]()
        place = 0
        while line := file.readline(MAX_REPLY_BYTES):
            self._add(place, line)
            place = file.tell()

    def _add(self, place: int, line: bytes) -> None:
        if not line.strip():
            return
        parsed = _parse(line)
        if parsed is None:
            self.unreadable += 1
            return
        key = parsed["custom_id"]
        if key not in self._places:
            self._places[key] = place
        elif parsed != self._read(self._places[key]):
            self.ambiguous.add(key)

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        return self._read(self._places[key])

    def __iter__(self) -> Any:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _read(self, place: int) -> Mapping[str, Any]:
        end = self._file.tell()
        self._file.seek(place)
        parsed = _parse(self._file.readline(MAX_REPLY_BYTES))
        self._file.seek(end)
        return parsed or {}


@contextmanager
def read_results(path: Path) -> Generator[Results]:
    """Open a file of results for the block. The file may lack results, and a missing file counts as empty."""
    path.touch()
    with path.open("rb") as file:
        yield Results(file)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value if isinstance(value.get("custom_id"), str) else None


_PATH = "/messages/batches"
# Seconds by which the provider's clock may differ from ours, and the most pages of its list.
_SKEW, _MAX_PAGES = 86_400, 200
_MAX_RESULTS = 2_000_000_000
# The status of an error, which the results do not have. A request with any other error may succeed if it is sent again.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}


class AnthropicBatches:
    """The batch API of Anthropic.

    Anthropic's batches have no names. Therefore, `find` recognizes a batch by the number of its requests and by the
    keys of its results. The results exist only after a batch has ended. If `find` recognizes no batch, but a batch with
    this number of requests is still running, it raises `Unclear`.

    Args:
        server: The server of the batch API, to which all requests are sent.
    """

    framing = Framing(b'{"requests": [', b",\n", b"]}", max_lines=100_000, max_bytes=256_000_000)

    def __init__(self, server: BatchServer):
        self._server = server

    def line(self, key: str, body: bytes) -> bytes:
        """Return a request as one line of a batch file."""
        return b'{"custom_id": ' + json.dumps(key).encode() + b', "params": ' + body + b"}"

    async def create(self, batch: Batch, file: Path) -> str:
        """Submit a file of lines as a batch, and return the provider's id of the batch."""

        def body() -> aiohttp.Payload:
            return aiohttp.payload.BufferedReaderPayload(file.open("rb"), content_type="application/json")

        return checked_id((await self._server.create(_PATH, body)).get("id"))

    async def find(self, batch: Batch, others: Collection[str]) -> str | None:
        """Find a batch in the provider's list by the number of its requests and the keys of its results.

        Returns:
            The provider's id of the batch, or None if the batch is not in the list.

        Raises:
            Unclear: No batch was recognized, but a batch with the same number of requests has not ended.
        """
        after, is_unclear = "", False
        for _ in range(_MAX_PAGES):
            page = await self._server.get(f"{_PATH}?limit=100{after}")
            data: object = page.get("data")
            entries = data if isinstance(data, list) else []
            for entry in entries:
                ticket = checked_id(entry.get("id"))
                if ticket in others or _created_at(entry) < batch.created_at - _SKEW:
                    continue
                if sum(_counts(entry).values()) != len(batch.keys):
                    continue
                if entry.get("processing_status") != "ended":
                    is_unclear = True
                elif await self._has_key_of(ticket, batch):
                    return ticket
            if not entries or not page.get("has_more") or _created_at(entries[-1]) < batch.created_at - _SKEW:
                if is_unclear:
                    raise Unclear
                return None
            after = f"&after_id={checked_id(entries[-1].get('id'))}"
        raise BatchError("the provider lists too many batches to find one of ours: try again later")

    async def _has_key_of(self, ticket: str, batch: Batch) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "results"
            await self.download(f"{_PATH}/{ticket}/results", file, _MAX_RESULTS)
            with read_results(file) as results:
                return not results.keys().isdisjoint(batch.keys)

    async def status(self, ticket: str) -> BatchStatus:
        """Return the progress of a batch, by its ticket (the provider's id of the batch)."""
        state = await self._server.get(f"{_PATH}/{ticket}")
        word, counts = str(state.get("processing_status")), _counts(state)
        done = sum(counts.values()) - counts.get("processing", 0)
        if word != "ended":
            return BatchStatus(word, is_over=False, done=done)
        # Not `results_url`: it could name another server, which would get the API key.
        return BatchStatus(word, True, (f"{_PATH}/{ticket}/results",), done=done)

    async def download(self, path: str, file: Path, max_bytes: int) -> None:
        """Append the results of a batch to a file."""
        await self._server.download(path, file, max_bytes)

    def read_line(self, line: Mapping[str, Any]) -> LineReply:
        """Return the response that one line of a result file contains."""
        result: Any = line["result"]
        kind = result["type"]
        if kind == "succeeded":
            return LineReply(200, json.dumps(result["message"]).encode())
        if kind != "errored":
            return LineReply(0, b"", f"the request is {kind}")
        error: Any = result["error"]
        inner: Any = error.get("error", error)
        return LineReply(_STATUS.get(inner.get("type"), 500), json.dumps({"type": "error", "error": inner}).encode())


def _counts(entry: Mapping[str, Any]) -> dict[str, int]:
    counts: object = entry.get("request_counts")
    items = counts.items() if isinstance(counts, Mapping) else ()
    return {name: value for name, value in items if isinstance(value, int)}


def _created_at(entry: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(entry.get("created_at"))).timestamp()
    except ValueError:
        raise BatchError(f"the provider lists a batch without the time of its creation: {entry.get('id')!r}") from None


_ENDPOINT = "/v1/chat/completions"
# The name of the metadata field in which the provider stores the id of the `Batch`.
_METADATA = "rubric_integrations"
_OVER = ("completed", "failed", "expired", "cancelled")


class OpenAIBatches:
    """The batch API of OpenAI, and of servers with the same API.

    Args:
        server: The server of the batch API, to which all requests are sent.
    """

    framing = Framing(b"", b"\n", b"\n", max_lines=50_000, max_bytes=200_000_000)

    def __init__(self, server: BatchServer):
        self._server = server

    def line(self, key: str, body: bytes) -> bytes:
        """Return a request as one line of a batch file."""
        head = json.dumps({"custom_id": key, "method": "POST", "url": _ENDPOINT})
        return head[:-1].encode() + b', "body": ' + body + b"}"

    async def create(self, batch: Batch, file: Path) -> str:
        """Upload a file of lines, create a batch from the file, and return the provider's id of the batch."""

        def form() -> aiohttp.FormData:
            form = aiohttp.FormData({"purpose": "batch"})
            form.add_field("file", file.open("rb"), filename=f"{batch.id}.jsonl", content_type="application/jsonl")
            return form

        uploaded = await self._server.upload("/files", form)
        request = {
            "input_file_id": checked_id(uploaded.get("id")),
            "endpoint": _ENDPOINT,
            "completion_window": "24h",
            "metadata": {_METADATA: batch.id},
        }
        return checked_id((await self._server.create("/batches", lambda: request)).get("id"))

    async def find(self, batch: Batch, others: Collection[str]) -> str | None:
        """Find a batch in the provider's list by the `Batch.id` in the metadata of the listed batches.

        Returns:
            The provider's id of the batch, or None if the batch is not in the list.
        """
        after = ""
        for _ in range(_MAX_PAGES):
            page = await self._server.get(f"/batches?limit=100{after}")
            entries = list(_entries(page))
            for entry in entries:
                metadata = entry.get("metadata")
                if isinstance(metadata, Mapping) and metadata.get(_METADATA) == batch.id:
                    return checked_id(entry.get("id"))
            is_older = entries and float(entries[-1].get("created_at") or 0) < batch.created_at - _SKEW
            if not entries or not page.get("has_more") or is_older:
                return None
            after = f"&after={checked_id(entries[-1].get('id'))}"
        raise BatchError("the provider lists too many batches to find one of ours: try again later")

    async def status(self, ticket: str) -> BatchStatus:
        """Return the progress of a batch, by its ticket (the provider's id of the batch)."""
        state = await self._server.get(f"/batches/{ticket}")
        word = str(state.get("status"))
        counts = state.get("request_counts")
        numbers = counts if isinstance(counts, Mapping) else {}
        done = sum(value for name in ("completed", "failed") if isinstance(value := numbers.get(name), int))
        if word not in _OVER:
            return BatchStatus(word, is_over=False, done=done)
        ids = [state.get(name) for name in ("output_file_id", "error_file_id")]
        files = tuple(f"/files/{checked_id(name)}/content" for name in ids if name)
        return BatchStatus(word, True, files, _problem(word, state), done)

    async def download(self, path: str, file: Path, max_bytes: int) -> None:
        """Append the results of a batch to a file."""
        await self._server.download(path, file, max_bytes)

    def read_line(self, line: Mapping[str, Any]) -> LineReply:
        """Return the response that one line of a result file contains."""
        response: Any = line.get("response")
        if response is not None:
            return LineReply(int(response["status_code"]), json.dumps(response["body"]).encode())
        error: Any = line["error"]
        return LineReply(0, b"", f"{error.get('code')}: {error.get('message')}")


def _entries(page: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    data: object = page.get("data")
    for entry in data if isinstance(data, list) else []:
        if isinstance(entry, Mapping):
            yield entry


def _problem(word: str, state: Mapping[str, Any]) -> str:
    if word == "completed":
        return ""
    errors: Any = state.get("errors")
    entries = list(_entries(errors)) if isinstance(errors, Mapping) else []
    reasons = [str(entry.get("message")) for entry in entries[:3]]
    return ": ".join([f"the batch is {word}", *reasons])
