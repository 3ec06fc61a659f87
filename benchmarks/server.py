"""A mock model that answers MET after a fixed latency, with so little CPU that it does not affect what is measured.

The latency in milliseconds is the first part of the path: `http://127.0.0.1:1234/50/v1/chat/completions`.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import cast

REASON = "It says so in the second paragraph."
# One object with the fields that the different libraries read: `verdict`, `criterion_status`, `score`.
VERDICT = {
    "explanation": REASON,
    "verdict": "MET",
    "criterion_status": "MET",
    "reason": REASON,
    "reasoning": REASON,
    "score": True,
}


def _http(content: str) -> bytes:
    reply = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "mock",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 1500, "completion_tokens": 40, "total_tokens": 1540},
    }
    body = json.dumps(reply).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


ANSWER = _http(json.dumps(VERDICT))
# DSPy's default adapter requests sections instead of JSON.
SECTIONS = _http("".join(f"[[ ## {name} ## ]]\n{text}\n\n" for name, text in {**VERDICT, "completed": ""}.items()))
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class _Model(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._unread = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while (end := self._unread.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._unread, 0, end)
            whole = end + 4 + int(length[1] if length else 0)
            if len(self._unread) < whole:
                return
            latency = float(self._unread[:40].split(b"/", 2)[1])
            answer = SECTIONS if self._unread.find(b"[[ ## completed ## ]]", end, whole) >= 0 else ANSWER
            self._unread = self._unread[whole:]
            asyncio.get_running_loop().call_later(latency / 1000, self._transport.write, answer)


def _serve(pipe: Connection) -> None:
    async def forever() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Model, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await loop.run_in_executor(None, pipe.recv)

    asyncio.run(forever())


@contextmanager
def mock_model() -> Iterator[str]:
    """Run the server in a process of its own; yields its address, to which you append `/<milliseconds>/v1`."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs,))
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        ours.send(None)
        process.join()
