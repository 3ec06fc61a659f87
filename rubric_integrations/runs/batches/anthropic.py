"""The batch API of Anthropic: one request with all lines, and one stream of results."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import aiohttp

from rubric_integrations.runs.batches.http import BatchServer
from rubric_integrations.runs.batches.lines import checked_id, read_results
from rubric_integrations.runs.batches.provider import BatchStatus, Framing, LineReply, Unclear
from rubric_integrations.runs.batches.records import Batch, BatchError

_PATH = "/messages/batches"
# Seconds by which the provider's clock may differ from ours, and the most pages of its list.
_SKEW, _MAX_PAGES = 86_400, 200
_MAX_RESULTS = 2_000_000_000
# The status of an error, which the results do not have. Whatever is not here may succeed when it is sent again.
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

    Its batches have no names: one of ours is recognized by the number of its requests and by the keys of its results,
    which are there when it has ended.

    Args:
        server: The server.
    """

    framing = Framing(b'{"requests": [', b",\n", b"]}", max_lines=100_000, max_bytes=256_000_000)

    def __init__(self, server: BatchServer):
        self._server = server

    def line(self, key: str, body: bytes) -> bytes:
        """Return the line of a request."""
        return b'{"custom_id": ' + json.dumps(key).encode() + b', "params": ' + body + b"}"

    async def create(self, batch: Batch, file: Path) -> str:
        """Submit the lines."""

        def body() -> aiohttp.Payload:
            return aiohttp.payload.BufferedReaderPayload(file.open("rb"), content_type="application/json")

        return checked_id((await self._server.create(_PATH, body)).get("id"))

    async def find(self, batch: Batch, others: Collection[str]) -> str | None:
        """Look for the batch among those of the provider, by its size and its results."""
        after, is_unclear = "", False
        for _ in range(_MAX_PAGES):
            page = await self._server.get(f"{_PATH}?limit=100{after}")
            data: object = page.get("data")
            entries = cast("list[Mapping[str, Any]]", data) if isinstance(data, list) else []
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
        """Return how far a batch is."""
        state = await self._server.get(f"{_PATH}/{ticket}")
        word, counts = str(state.get("processing_status")), _counts(state)
        done = sum(counts.values()) - counts.get("processing", 0)
        if word != "ended":
            return BatchStatus(word, is_over=False, done=done)
        # Not `results_url`, which could name another server, and that would get the key.
        return BatchStatus(word, True, (f"{_PATH}/{ticket}/results",), done=done)

    async def download(self, path: str, file: Path, max_bytes: int) -> None:
        """Append the results at a path to a file."""
        await self._server.download(path, file, max_bytes)

    def read_line(self, line: Mapping[str, Any]) -> LineReply:
        """Return the response in a line of the results."""
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
    items = cast("Mapping[str, object]", counts).items() if isinstance(counts, Mapping) else ()
    return {name: value for name, value in items if isinstance(value, int)}


def _created_at(entry: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(entry.get("created_at"))).timestamp()
    except ValueError:
        raise BatchError(f"the provider lists a batch without the time of its creation: {entry.get('id')!r}") from None
