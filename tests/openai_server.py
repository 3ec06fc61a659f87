"""A small server that speaks the OpenAI chat protocol over real sockets: scripted replies, latency and faults.

It needs the standard library only, and runs on a thread and an event loop of its own:

    with OpenAIServer(lambda call: Reply(verdict="MET")) as server:
        PerCriterionGrader(LMJudge("openai/mock", api_base=server.url))
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Call:
    """One request, as a script receives it.

    Attributes:
        number: Its number, from 0.
        body: Its JSON.
        raw: The bytes of its body.
        headers: Its headers, by lower-case name.
        client: The address of the connection.
        path: The path of its URL.
    """

    number: int
    body: dict[str, Any]
    raw: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    client: object = None
    path: str = ""

    @property
    def prompt(self) -> str:
        """The texts of all messages."""
        return "\n".join(str(message["content"]) for message in self.body["messages"])

    @property
    def criterion(self) -> str:
        """The last fenced text: the requirement, where one binary criterion is judged."""
        fenced = re.findall(r"<data \w+>\n(.*?)\n</data \w+>", self.prompt, re.DOTALL)
        return fenced[-1] if fenced else ""


@dataclass(frozen=True)
class Reply:
    """A scripted response: a verdict, any text, the bytes of a whole body, or a fault.

    Attributes:
        verdict: The verdict in the JSON object that a judge expects.
        text: The reply's text in place of that object.
        raw: The body of the response in place of a chat completion.
        head: The status line and the headers, in place of the whole response.
        status: The HTTP status.
        retry_after: The `Retry-After` header, in seconds.
        delay: Seconds to wait before the response.
        headers: Further headers.
        drop: Whether to close the connection instead of responding.
        finish_reason: Why the reply ended.
        has_usage: Whether the response reports its tokens.
        model: The model that the response names; by default the requested one.
    """

    verdict: str = "MET"
    text: str | None = None
    raw: bytes | None = None
    head: bytes | None = None
    status: int = 200
    retry_after: float | None = None
    delay: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()
    drop: bool = False
    finish_reason: str = "stop"
    has_usage: bool = True
    model: str | None = None

    @property
    def content(self) -> str:
        """The text of the reply."""
        return json.dumps({"explanation": "as scripted", "verdict": self.verdict}) if self.text is None else self.text


Script = Callable[[Call], Reply]


@dataclass
class OpenAIServer:
    """The server, which runs between `__enter__` and `__exit__`.

    Attributes:
        script: Makes the response to each request.
        port: The port to listen on; by default any that is free.
        calls: The requests so far.
        in_flight: The number of requests without a response yet.
        peak: The highest number of them at any time.
    """

    script: Script = lambda _call: Reply()
    port: int = 0
    calls: list[Call] = field(default_factory=list[Call])
    in_flight: int = 0
    peak: int = 0
    _server: asyncio.Server = field(init=False)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
            ready.set()
            self._loop.run_forever()
            self._server.close()
            # Repeated, because a connection that is being accepted becomes a task only when the loop runs again.
            while tasks := asyncio.all_tasks(self._loop):
                for task in tasks:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(tasks))
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    @property
    def url(self) -> str:
        """The base URL, for `api_base`."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the server is closing
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        raw = await reader.readexactly(int(length[1]) if length else 0)
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:])}
        path = head.split(" ", 2)[1]
        call = Call(len(self.calls), json.loads(raw), raw, headers, writer.get_extra_info("peername"), path)
        self.calls.append(call)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            reply = self.script(call)
            await asyncio.sleep(reply.delay)
            if reply.drop:
                return False
            writer.write(_http(call, reply))
            await writer.drain()
        finally:
            self.in_flight -= 1
        return True


def _http(call: Call, reply: Reply) -> bytes:
    if reply.head is not None:
        return reply.head
    if reply.status == 200:
        prompt_tokens, completion_tokens = len(call.prompt) // 4, len(reply.content) // 4
        payload: dict[str, Any] = {
            "id": f"chatcmpl-{call.number}",
            "object": "chat.completion",
            "created": 0,
            "model": reply.model or call.body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": reply.finish_reason,
                    "message": {"role": "assistant", "content": reply.content},
                }
            ],
        }
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
        if call.body.get("stream") and reply.raw is None:
            return _event_stream(payload, reply, usage if _asks_for_usage(call) and reply.has_usage else None)
        if reply.has_usage:
            payload["usage"] = usage
    else:
        payload = {"error": {"message": f"scripted status {reply.status}", "type": "scripted", "code": None}}
    data = json.dumps(payload).encode() if reply.raw is None else reply.raw
    headers = [f"HTTP/1.1 {reply.status} Scripted", "Content-Type: application/json", f"Content-Length: {len(data)}"]
    headers += [f"{name}: {value}" for name, value in reply.headers]
    if reply.retry_after is not None:
        headers.append(f"Retry-After: {reply.retry_after:g}")
    return "\r\n".join(headers).encode() + b"\r\n\r\n" + data


def _asks_for_usage(call: Call) -> bool:
    return bool((call.body.get("stream_options") or {}).get("include_usage"))


def _event_stream(payload: dict[str, Any], reply: Reply, usage: dict[str, int] | None) -> bytes:
    """Return the response to a request with `stream`: a chunk for every ten characters, and one for the usage."""

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**payload, "object": "chat.completion.chunk", "choices": [choice]}

    text = reply.content
    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": text[start : start + 10]}) for start in range(0, len(text), 10)]
    chunks += [chunk({}, reply.finish_reason), *([{**chunk({}), "choices": [], "usage": usage}] if usage else [])]
    data = "".join(f"data: {json.dumps(event)}\n\n" for event in chunks) + "data: [DONE]\n\n"
    head = f"HTTP/1.1 200 Scripted\r\nContent-Type: text/event-stream\r\nContent-Length: {len(data)}\r\n\r\n"
    return (head + data).encode()
