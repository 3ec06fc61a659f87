"""Sends many requests to a server that is killed midway and started again: the load of a test and of a benchmark."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import aiohttp

from rubric_integrations.runs.ledger import Ledger
from tests.openai_server import Call, OpenAIServer, Reply

CRITERIA = 2
RUBRIC = "".join(
    f"- {{name: c{number}, weight: 1, requirement: Fulfils rule {number}}}\n" for number in range(CRITERIA)
)
# Seconds between two attempts of a client.
_PAUSE = 0.2


class Process(Protocol):
    """A process of the server."""

    def kill(self) -> None:
        """End it as `kill -9` does."""
        ...


class LoadResult(NamedTuple):
    """What a load has shown.

    Attributes:
        right: The requests that got the right reward.
        requests: All requests.
        seconds: The time until the last answer.
        latencies: The seconds of each request with all its attempts, in ascending order.
        attempts: All attempts of the clients.
        calls: The calls that the judge received.
        twice: The judgments that were requested more than once.
        at_kill: The calls that the judge had received at the kill; 0 without one.
        stored_at_kill: The judgments that the ledger had after the kill.
    """

    right: int
    requests: int
    seconds: float
    latencies: list[float]
    attempts: int
    calls: int
    twice: int
    at_kill: int
    stored_at_kill: int


def is_met(text: int, rule: int) -> bool:
    """Return the right verdict."""
    return (text * 7 + rule * 3) % (rule + 3) == 0


def key_of(call: Call) -> tuple[int, int]:
    """Return the number of the text and of the rule that a call is about."""
    [text] = set(re.findall(r"This is text (\d+)\.", call.prompt))
    [rule] = re.findall(r"Fulfils rule (\d+)", call.criterion)
    return int(text), int(rule)


def script(delay: float) -> Callable[[Call], Reply]:
    """Return a judge that is right, and slow."""
    return lambda call: Reply("MET" if is_met(*key_of(call)) else "UNMET", delay=delay)


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def run_load(
    start: Callable[[], Process],
    judge: OpenAIServer,
    port: int,
    ledger: Path,
    *,
    requests: int,
    at_once: int,
    kill: bool,
) -> LoadResult:
    """Send all requests, kill the server after half of their calls, start it again, and count.

    Args:
        start: Starts the server.
        judge: Its judge.
        port: The port of the server.
        ledger: The ledger of the server.
        requests: The number of requests.
        at_once: The number of clients, each of which repeats a request until it is answered.
        kill: Whether to kill the server.
    """
    process = start()
    await _until_it_listens(port)
    begun_at, numbers, results = time.monotonic(), iter(range(requests)), list[tuple[bool, float, int]]()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        clients = [asyncio.create_task(_client(session, port, numbers, results)) for _ in range(at_once)]
        at_kill = stored = 0
        if kill:
            while len(judge.calls) < requests * CRITERIA // 2:  # noqa: ASYNC110 -- the judge runs in another thread
                await asyncio.sleep(0.001)
            process.kill()
            at_kill = len(judge.calls)
            with Ledger(ledger) as opened:
                stored = len(opened)
            process = start()
        await asyncio.gather(*clients)
    seconds = time.monotonic() - begun_at
    process.kill()
    counts = Counter(map(key_of, judge.calls))
    return LoadResult(
        sum(right for right, _, _ in results), requests, seconds, sorted(taken for _, taken, _ in results),
        sum(attempts for _, _, attempts in results), len(judge.calls), sum(count > 1 for count in counts.values()),
        at_kill, stored,
    )  # fmt: skip


async def _until_it_listens(port: int) -> None:
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise TimeoutError("the server does not listen")


async def _client(
    session: aiohttp.ClientSession, port: int, numbers: Any, results: list[tuple[bool, float, int]]
) -> None:
    for number in numbers:
        begun_at, attempts = time.monotonic(), 0
        text = f"This is text {number}."
        body = {"query": [f"Q: {text}<|im_end|>"], "prompts": ["Q: "], "labels": [""]}
        while True:
            attempts += 1
            try:
                async with session.post(f"http://127.0.0.1:{port}/get_reward", json=body) as response:
                    if response.status == 200:
                        rewards = (await response.json())["rewards"]
                        break
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(_PAUSE)
        expected = sum(is_met(number, rule) for rule in range(CRITERIA)) / CRITERIA
        results.append((rewards == [expected], time.monotonic() - begun_at, attempts))
