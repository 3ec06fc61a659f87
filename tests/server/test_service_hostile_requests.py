"""Requests that need much work: they hold no other request up, their work is limited, and it ends with their client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest

from rubric_integrations import PerCriterionGrader
from rubric_integrations.server import GradingService, service
from tests.checks.test_registry_hostile_texts import doubling
from tests.server.serving import serving

pytestmark = pytest.mark.asyncio

ONE = [{"name": "answer", "requirement": "Says 42", "check": {"number": 42}}]
BODY = {"response": "It is 42."}


def conversation(count: int) -> list[dict[str, str]]:
    return [{"role": "assistant" if number % 2 else "user", "content": "x"} for number in range(count)]


def slow_rubric(count: int) -> list[dict[str, Any]]:
    """Make a rubric of checks that take about half a second each."""
    schema = doubling({"type": "string"}, depth=14)
    return [{"name": f"c{number}", "requirement": "x", "check": {"json_schema": schema}} for number in range(count)]


@contextlib.asynccontextmanager
async def longest_block(seconds: float) -> AsyncGenerator[None]:
    """Check that the event loop, which all requests share, is never blocked for longer."""
    longest, is_running = 0.0, True

    async def watch() -> None:
        nonlocal longest
        while is_running:
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - begun)

    watching = asyncio.create_task(watch())
    yield
    is_running = False
    await watching
    assert longest < seconds


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"messages": conversation(250_000)}, 413, "more than 100,000 values"),
        ({"messages": conversation(20_000)}, 200, '"score": 0.0'),
        ({**BODY, "trajectory": conversation(20_000)}, 200, '"score": 1.0'),
        ({**BODY, "query": [{}] * 1_000_000}, 413, "more than 100,000 values"),
    ],
)
@pytest.mark.sizes
async def test_large_request_holds_no_other_request_up(body: dict[str, Any], status: int, words: str) -> None:
    content = json.dumps(body, separators=(",", ":")).encode()
    options = {"max_body": 10_000_000}
    async with serving(ONE, PerCriterionGrader("offline"), app_options=options) as server, longest_block(0.6):
        answer = await server.post("/grade", content)
    assert (answer.status, words in answer.text) == (status, True)


@pytest.mark.sizes
async def test_checks_of_a_rubric_in_a_request_have_a_limit_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    # Enough to read the rubric on a slow machine, which counts as well, and not for its checks.
    monkeypatch.setattr(service, "_CHECK_SECONDS", 3)
    body = {"response": "[1]", "rubric": slow_rubric(20)}
    async with serving(None, PerCriterionGrader("offline"), accept_rubrics=True) as server:
        begun = time.process_time()
        answer = await server.post("/grade", body)
        assert time.process_time() - begun < 8
    assert (answer.status, "needs more than 30,000 comparisons" in answer.text) == (503, True)


@pytest.mark.sizes
async def test_schemas_of_a_rubric_in_a_request_have_a_limit_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_CHECK_SECONDS", 0.2)
    schema = {"anyOf": [{"type": "string"}] * 1_000}
    rubric = [{"name": f"c{number}", "requirement": "x", "check": {"json_schema": schema}} for number in range(30)]
    async with serving(None, PerCriterionGrader("offline"), accept_rubrics=True) as server:
        answer = await server.post("/grade", {**BODY, "rubric": rubric})
    assert (answer.status, "the schemas of this rubric take too long" in answer.text) == (422, True)


async def test_checks_end_when_the_last_client_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_CHECK_SECONDS", 1_000)
    body = {"response": "[1]", "rubric": slow_rubric(200)}
    async with serving(None, PerCriterionGrader("offline"), accept_rubrics=True) as server:
        with contextlib.suppress(asyncio.TimeoutError):
            await server.post("/grade", body, timeout=aiohttp.ClientTimeout(total=2))
        begun = time.monotonic()
        while server.service.under_way and time.monotonic() - begun < 10:  # noqa: ASYNC110 -- no event says so
            await asyncio.sleep(0.05)
        assert server.service.under_way == 0


async def test_request_whose_client_is_gone_is_not_read_and_another_takes_its_place() -> None:
    grading = GradingService(ONE, PerCriterionGrader("offline"))
    read: list[int] = []

    def read_slowly(number: int) -> int:
        time.sleep(0.2)
        read.append(number)
        return number

    def reader(number: int) -> asyncio.Task[int]:
        return asyncio.create_task(grading.read(lambda: read_slowly(number), 1_000_000))

    readers = [reader(number) for number in range(12)]
    await asyncio.sleep(0.05)
    # Four are being read. Their threads cannot be ended, and still count.
    for cancelled in readers[:8]:
        cancelled.cancel()
    assert await asyncio.gather(*readers[8:]) == [8, 9, 10, 11]
    assert sorted(read) == [0, 1, 2, 3, 8, 9, 10, 11]
