"""Sends 1,000 requests, 64 at once, to the server with a slow judge: undisturbed, and killed midway.

python benchmarks/serve.py [REQUESTS]
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.openai_server import OpenAIServer
from tests.server.load import CRITERIA, RUBRIC, LoadResult, free_port, run_load, script

AT_ONCE, DELAY = 64, 0.2


def measure(requests: int, *, kill: bool) -> LoadResult:
    """Run the load once, with a server and a ledger of its own."""
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(script(DELAY)) as judge:
        rubric, ledger, port = Path(folder, "rubric.yaml"), Path(folder, "ledger.sqlite"), free_port()
        rubric.write_text(RUBRIC)
        command = [
            sys.executable, "-m", "rubric_integrations", "serve", str(rubric), "--judge", "openai/m", "--api-base",
            judge.url, "--ledger", str(ledger), "--port", str(port), "--max-concurrency", str(AT_ONCE * CRITERIA),
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)  # noqa: S603 -- our own

        return asyncio.run(
            run_load(start, judge, port, ledger, requests=requests, at_once=AT_ONCE, kill=kill)  # pyright: ignore[reportArgumentType]
        )


def main() -> None:
    """Print the table."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    print(f"{requests} requests, {AT_ONCE} at once, {CRITERIA} criteria, a judge of {DELAY * 1000:.0f} ms")
    print("| server | right rewards | seconds | requests/s | median | 95 % | attempts | calls | requested twice |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for kill in (False, True):
        result = measure(requests, kill=kill)
        name = "killed at half of its calls" if kill else "undisturbed"
        middle, late = (result.latencies[int(len(result.latencies) * share)] for share in (0.5, 0.95))
        print(
            f"| {name} | {result.right} of {result.requests} | {result.seconds:.1f} | "
            f"{result.requests / result.seconds:.0f} | {middle * 1000:.0f} ms | {late * 1000:.0f} ms | "
            f"{result.attempts} | {result.calls} | {result.twice} |"
        )
        if kill:
            lost = result.at_kill - result.stored_at_kill
            print(f"\nAt the kill the judge had received {result.at_kill} calls, of which {lost} were not stored yet.")


if __name__ == "__main__":
    main()
