"""Measures the CPU time of a decision judge and of its client as a multiple of the bare request with aiohttp.

    .venv/bin/python benchmarks/decisions.py

One request asks about ten criteria, with a state of 6 KB. The client encodes the request, sends it, and checks the
reply. The judge also renders the submission and makes the judgments. The server runs in another process and always
sends the same correct bytes. Each subject keeps 16 requests in flight. Their rounds alternate, so that other load on
the machine affects all of them, and the output has the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp

from rubric_integrations import Criterion, Submission
from rubric_integrations.judges import DecisionJudge, Question
from rubric_integrations.judges.decision_mapping import question_pair, render_material
from rubric_integrations.judges.decisions import PROTOCOLS

CRITERIA = tuple(Criterion(requirement=f"States the fact with the number {number}") for number in range(10))
SUBMISSION = Submission(response="The margin was 17.2%. " * 270, query="What was the margin?")
QUESTIONS = {number: Question(SUBMISSION, criterion) for number, criterion in enumerate(CRITERIA)}
IN_FLIGHT = 16


def _serve(connection: Connection, abstains: bool) -> None:
    """Send the same reply to every request, and the port of the server through a pipe."""
    names = [f"q{number}{end}" for number in QUESTIONS for end in (("", "_sufficient") if abstains else ("",))]
    answers = {name: {"type": "noul", "noul": 0.9} for name in names}
    usage = {"input_tokens": 1900, "output_tokens": len(names)}
    body = json.dumps({"model": "jev-1.13.0", "answers": answers, "usage": usage}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            length = re.search(rb"content-length: (\d+)", request, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            writer.write(head + body)

    async def run() -> None:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        connection.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


Ask = Callable[[], Awaitable[Any]]


async def _cpu_seconds(ask: Ask, requests: int) -> float:
    """Return the CPU time of one request."""

    async def worker() -> None:
        for _ in range(requests // IN_FLIGHT):
            await ask()

    start = time.process_time()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return (time.process_time() - start) / (requests // IN_FLIGHT * IN_FLIGHT)


async def measure(url: str, abstains: bool, requests: int, rounds: int) -> dict[str, float]:
    """Return the median CPU time of one request in milliseconds, for each subject."""
    judge = DecisionJudge("jev-1.13.0", api_base=url, abstains=abstains)
    sent: list[bytes] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def bare() -> None:
            async with session.post(judge.url, data=sent[0], headers={"content-type": "application/json"}) as response:
                await response.read()

        async def decide() -> None:
            await judge.decide(state, typed)

        async def judge_all() -> None:
            batch = await judge.judge_batch(QUESTIONS)
            if len(batch.answers) != len(QUESTIONS):
                raise RuntimeError(batch.faults)

        pairs = {number: question_pair(question, abstains=abstains) for number, question in QUESTIONS.items()}
        typed = {name: text for number, pair in pairs.items() for name, text in pair.named(number).items()}
        state = render_material(QUESTIONS, reads_images=False).state
        sent.append(PROTOCOLS["system-one"].encode(judge.model, state, typed))
        subjects: dict[str, Ask] = {"aiohttp": bare, "client": decide, "judge": judge_all}
        times: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(rounds):
            for name, subject in subjects.items():
                times[name].append(await _cpu_seconds(subject, requests))
    return {name: statistics.median(values[1:]) * 1000 for name, values in times.items()}


def main() -> None:
    """Print the CPU times with and without the questions of the abstentions."""
    parser = argparse.ArgumentParser(description="CPU time of a decision judge and of bare aiohttp")
    parser.add_argument("--requests", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    for abstains in (False, True):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.Process(target=_serve, args=(sender, abstains), daemon=True)
        process.start()
        url = f"http://127.0.0.1:{receiver.recv()}"
        times = asyncio.run(measure(url, abstains, options.requests, options.rounds))
        process.terminate()
        bare = times["aiohttp"]
        shown = ", ".join(f"{name} {median:.3f} ms ({median / bare:.2f})" for name, median in times.items())
        print(f"ten answers{' with abstentions' if abstains else ''}: {shown}")


if __name__ == "__main__":
    main()
