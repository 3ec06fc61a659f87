"""The batch API of OpenAI: a file of lines, a batch that names it, and files of results."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp

from rubric_integrations.runs.batches.http import BatchServer
from rubric_integrations.runs.batches.lines import checked_id
from rubric_integrations.runs.batches.provider import BatchStatus, Framing, LineReply
from rubric_integrations.runs.batches.records import Batch, BatchError

_ENDPOINT = "/v1/chat/completions"
# The name under which the provider stores our id of a batch.
_METADATA = "rubric_integrations"
_OVER = ("completed", "failed", "expired", "cancelled")
# Seconds by which the provider's clock may differ from ours, and the most pages of its list.
_SKEW, _MAX_PAGES = 86_400, 200


class OpenAIBatches:
    """The batch API of OpenAI, and of servers that have the same.

    Args:
        server: The server.
    """

    framing = Framing(b"", b"\n", b"\n", max_lines=50_000, max_bytes=200_000_000)

    def __init__(self, server: BatchServer):
        self._server = server

    def line(self, key: str, body: bytes) -> bytes:
        """Return the line of a request."""
        head = json.dumps({"custom_id": key, "method": "POST", "url": _ENDPOINT})
        return head[:-1].encode() + b', "body": ' + body + b"}"

    async def create(self, batch: Batch, file: Path) -> str:
        """Upload the lines, and make a batch of them."""

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
        """Look for the id of the batch among those of the provider."""
        after = ""
        for _ in range(_MAX_PAGES):
            page = await self._server.get(f"/batches?limit=100{after}")
            entries = list(_entries(page))
            for entry in entries:
                metadata = entry.get("metadata")
                if isinstance(metadata, Mapping) and cast("Mapping[str, object]", metadata).get(_METADATA) == batch.id:
                    return checked_id(entry.get("id"))
            is_older = entries and float(entries[-1].get("created_at") or 0) < batch.created_at - _SKEW
            if not entries or not page.get("has_more") or is_older:
                return None
            after = f"&after={checked_id(entries[-1].get('id'))}"
        raise BatchError("the provider lists too many batches to find one of ours: try again later")

    async def status(self, ticket: str) -> BatchStatus:
        """Return how far a batch is."""
        state = await self._server.get(f"/batches/{ticket}")
        word = str(state.get("status"))
        counts = state.get("request_counts")
        numbers = cast("Mapping[str, Any]", counts) if isinstance(counts, Mapping) else {}
        done = sum(value for name in ("completed", "failed") if isinstance(value := numbers.get(name), int))
        if word not in _OVER:
            return BatchStatus(word, is_over=False, done=done)
        ids = [state.get(name) for name in ("output_file_id", "error_file_id")]
        files = tuple(f"/files/{checked_id(name)}/content" for name in ids if name)
        return BatchStatus(word, True, files, _problem(word, state), done)

    async def download(self, path: str, file: Path, max_bytes: int) -> None:
        """Append the results at a path to a file."""
        await self._server.download(path, file, max_bytes)

    def read_line(self, line: Mapping[str, Any]) -> LineReply:
        """Return the response in a line of the results."""
        response: Any = line.get("response")
        if response is not None:
            return LineReply(int(response["status_code"]), json.dumps(response["body"]).encode())
        error: Any = line["error"]
        return LineReply(0, b"", f"{error.get('code')}: {error.get('message')}")


def _entries(page: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    data: object = page.get("data")
    for entry in cast("list[object]", data) if isinstance(data, list) else []:
        if isinstance(entry, Mapping):
            yield cast("Mapping[str, Any]", entry)


def _problem(word: str, state: Mapping[str, Any]) -> str:
    if word == "completed":
        return ""
    errors: Any = state.get("errors")
    entries = list(_entries(errors)) if isinstance(errors, Mapping) else []
    reasons = [str(entry.get("message")) for entry in entries[:3]]
    return ": ".join([f"the batch is {word}", *reasons])
