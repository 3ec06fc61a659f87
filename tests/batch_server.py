"""A local server that speaks the batch endpoints of OpenAI and of Anthropic, and answers single requests, too.

with BatchServer(lambda call: Reply(verdict="MET")) as server:
    judge = LMJudge("openai/gpt-4o", api_base=server.url)
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.openai_server import Call, Reply, Script

# What to do with a request in place of its response: close the connection before, or after, it was executed.
Fault = Callable[[str, str], str | int | None]


@dataclass
class BatchServer:
    """The server, which runs between `__enter__` and `__exit__`.

    Attributes:
        script: Makes the response to each request of a batch.
        status: The status of batches: the provider's word for being over, or for not.
        change_results: Changes the lines of results.
        fault: For a method and a path: "before" or "after" to drop the connection, or an HTTP status; None for none.
        requests: Every request that was answered, in batches or alone, by its `custom_id` ("" alone), in order.
        batches: The batches.
        log: The method and the path of each HTTP request.
        keys: The keys that were sent as credentials.
        page_size: The number of batches in a page of the list.
    """

    script: Script = lambda _call: Reply()
    status: str = "completed"
    change_results: Callable[[list[bytes]], list[bytes]] = lambda lines: lines
    fault: Fault = lambda _method, _path: None
    requests: list[str] = field(default_factory=list[str])
    batches: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    bodies: list[bytes] = field(default_factory=list[bytes])
    log: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    keys: set[str] = field(default_factory=set[str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    page_size: int = 100

    def __enter__(self) -> Self:
        owner = self

        class Handler(_Handler):
            server_of = owner

        self._http = _HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        """The base URL, for `api_base`."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def handle(self, method: str, path: str, content: bytes) -> tuple[int, bytes]:
        """Return the response to a request."""
        path, _, query = path.partition("?")
        if path.endswith("/chat/completions"):
            return 200, json.dumps(self._openai(content, "")).encode()
        if path.endswith("/files"):
            name = f"file-{len(self.files)}"
            self.files[name] = re.split(rb"\r\n\r\n", content)[-1].rpartition(b"\r\n--")[0]
            return 200, json.dumps({"id": name}).encode()
        if match := re.search(r"/files/([\w-]+)/content$", path):
            return 200, self.files[match[1]]
        if path.endswith("/batches"):
            if method == "POST":
                is_openai = "/messages" not in path
                batch = self._openai_batch(json.loads(content)) if is_openai else self._anthropic_batch(content)
                self.batches.append(batch)
                return 200, json.dumps(batch).encode()
            return 200, json.dumps(self._page(query)).encode()
        if match := re.search(r"/batches/([\w-]+)/results$", path):
            return 200, self.files[match[1]]
        if match := re.search(r"/batches/([\w-]+)$", path):
            return 200, json.dumps(self._state(next(b for b in self.batches if b["id"] == match[1]))).encode()
        return 404, b'{"error": {"message": "no such path"}}'

    def _page(self, query: str) -> dict[str, Any]:
        batches, after = list(reversed(self.batches)), re.search(r"after(?:_id)?=([\w-]+)", query)
        first = next((i + 1 for i, batch in enumerate(batches) if after and batch["id"] == after[1]), 0)
        page = batches[first : first + self.page_size]
        return {"data": [self._state(b) for b in page], "has_more": first + len(page) < len(batches)}

    def _openai_batch(self, request: dict[str, Any]) -> dict[str, Any]:
        number, content, results = len(self.batches), self.files[request["input_file_id"]], list[bytes]()
        for text in content.splitlines():
            line = json.loads(text)
            body = text[text.index(b'"body": ') + 8 : -1]
            response = {"status_code": 200, "request_id": "r", "body": self._openai(body, line["custom_id"])}
            results.append(json.dumps({"custom_id": line["custom_id"], "response": response, "error": None}).encode())
        self.files[f"file-out-{number}"] = b"\n".join(self.change_results(results))
        return {
            "id": f"batch_{number}", "metadata": request["metadata"], "created_at": int(time.time()),
            "output_file_id": f"file-out-{number}", "request_counts": {"completed": len(results), "failed": 0},
        }  # fmt: skip

    def _anthropic_batch(self, content: bytes) -> dict[str, Any]:
        ticket, results = f"msgbatch_{len(self.batches)}", list[bytes]()
        requests = json.loads(content)["requests"]
        for line in requests:
            call, key = Call(len(self.requests), line["params"]), line["custom_id"]
            self.requests.append(key)
            message = {
                "type": "message", "role": "assistant", "model": line["params"]["model"], "stop_reason": "end_turn",
                "content": [{"type": "text", "text": self.script(call).content}],
                "usage": {"input_tokens": 1_000, "output_tokens": 100},
            }  # fmt: skip
            results.append(json.dumps({"custom_id": key, "result": {"type": "succeeded", "message": message}}).encode())
        self.files[ticket] = b"\n".join(self.change_results(results))
        created = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return {"id": ticket, "created_at": created, "type": "message_batch", "count": len(requests)}

    def _openai(self, content: bytes, key: str) -> dict[str, Any]:
        call = Call(len(self.requests), json.loads(content), content)
        self.requests.append(key)
        self.bodies.append(content)
        message = {"role": "assistant", "content": self.script(call).content}
        return {
            "model": call.body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 1_000, "completion_tokens": 100},
        }

    def _state(self, batch: dict[str, Any]) -> dict[str, Any]:
        if batch.get("type") == "message_batch":
            is_over = self.status == "completed"
            counts = {"succeeded" if is_over else "processing": batch["count"]}
            return {**batch, "processing_status": "ended" if is_over else self.status, "request_counts": counts}
        state = {**batch, "status": self.status}
        if self.status in ("failed", "expired", "cancelled"):
            state["errors"] = {"data": [{"message": "as scripted"}]}
        if self.status == "failed":
            state["output_file_id"] = None
        return state


class _HTTPServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing to stderr: the client was killed."""


class _Handler(BaseHTTPRequestHandler):
    server_of: BatchServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._respond("GET", b"")

    def do_POST(self) -> None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            content = self.rfile.read(int(self.headers["Content-Length"]))
        self._respond("POST", content)

    def _respond(self, method: str, content: bytes) -> None:
        owner = self.server_of
        owner.log.append((method, self.path))
        owner.keys.add(self.headers.get("x-api-key") or self.headers.get("Authorization") or "")
        fault = owner.fault(method, self.path)
        if fault == "before":
            self.close_connection = True
            return
        status, reply = (fault, b"{}") if isinstance(fault, int) else owner.handle(method, self.path, content)
        if fault == "after":
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
        """Write nothing to stderr."""
