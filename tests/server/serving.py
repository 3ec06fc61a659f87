"""A server of grades in the event loop of a test, and a client of it over real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from rubric_integrations.graders import Grader
from rubric_integrations.server import GradingService, make_app
from rubric_integrations.server.running import make_runner
from tests.hosts.six_responses import RUBRIC, make_grader


class Answer(NamedTuple):
    """An HTTP response that has been read."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)


class Server(NamedTuple):
    """A running server."""

    service: GradingService
    port: int
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def post(self, path: str, body: object, **options: Any) -> Answer:
        """Send an object as JSON, or bytes as they are, declared as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        async with self.session.post(self.url + path, data=content, headers=headers, **options) as response:
            return Answer(response.status, response.headers, await response.text())

    async def get(self, path: str, **options: Any) -> Answer:
        async with self.session.get(self.url + path, **options) as response:
            return Answer(response.status, response.headers, await response.text())

    async def reward(self, *responses: str, prompt: str = "Q: ") -> Answer:
        """Send responses as OpenRLHF does."""
        count = len(responses)
        query = [prompt + response for response in responses]
        return await self.post("/get_reward", {"query": query, "prompts": [prompt] * count, "labels": [""] * count})


@asynccontextmanager
async def serving(
    rubric: Any = RUBRIC,
    grader: Grader | None = None,
    *,
    app_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncGenerator[Server]:
    """Serve a rubric, by default that of the six responses, with the judge of those."""
    service = GradingService(rubric, grader or make_grader(), **options)
    runner = make_runner(make_app(service, **(app_options or {})))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Server(service, runner.addresses[0][1], session)
    finally:
        await service.stop(0)
        await runner.cleanup()
