"""How much the library adds around the model: 40 submissions x 12 criteria against a mock server in its own process.

    make bench

Wall time is compared with the ideal (judgments / cap x latency), and CPU time is this process's alone.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from tests.openai_server import OpenAIServer, Reply

SUBMISSIONS, CRITERIA, CAP, LATENCY, REPEATS = 40, 12, 64, 0.050, 5


def serve(pipe: Connection) -> None:
    with OpenAIServer(lambda _call: Reply(delay=LATENCY)) as server:
        pipe.send(server.url)
        pipe.recv()


async def grade_all(url: str) -> int:
    rubric = Rubric([Criterion(requirement=f"Requirement {i} of the response") for i in range(CRITERIA)])
    grader = PerCriterionGrader("openai/mock", api_base=url, max_concurrency=CAP)
    texts = [f"{i} " + "word " * 600 for i in range(SUBMISSIONS)]
    reports = await asyncio.gather(*(rubric.grade(text, grader=grader, query="query " * 100) for text in texts))
    return sum(len(report.report) for report in reports if report.complete)


def main() -> None:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    server.start()
    url = ours.recv()
    asyncio.run(grade_all(url))  # imports and connections
    rows: list[tuple[float, float]] = []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        judgments = asyncio.run(grade_all(url))
        rows.append((time.perf_counter() - wall, (time.process_time() - cpu) / judgments))
    ours.send(None)
    server.join()
    wall, cpu = (sorted(column)[REPEATS // 2] for column in zip(*rows, strict=True))
    ideal = SUBMISSIONS * CRITERIA / CAP * LATENCY
    print("| path | wall ms | x ideal | CPU ms a judgment |\n|---|---:|---:|---:|")
    print(f"| PerCriterionGrader | {wall * 1000:.0f} | {wall / ideal:.2f} | {cpu * 1000:.2f} |")


if __name__ == "__main__":
    main()
