"""Keys and judgments, and callers that lease keys: tasks, and processes that speak in lines."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from rubric_integrations.judges.stored import JudgmentStore
from rubric_integrations.results import Judgment, Spend, TokenUsage
from rubric_integrations.runs import Ledger

FULL = Judgment(
    verdict="A", value=0.1 + 0.2, reason="so\x00 – 😀\n", neutralized=True, confidence=0.7, expected_value=1 / 3,
    spend=Spend(calls=2, usage=TokenUsage(prompt_tokens=30, completion_tokens=4, cached_tokens=5), cost=1e-7 / 3),
)  # fmt: skip
MET = Judgment(verdict="MET", value=1.0, spend=Spend(calls=1, cost=0.5))
KEYS = [sha256(str(number).encode()).hexdigest() for number in range(200)]
KEY = KEYS[0]

# The beginning of every script: its arguments are the path and some keys.
_PRELUDE = """
import asyncio, os, sys, time
from rubric_integrations.runs.ledger import Ledger
from rubric_integrations.results import Judgment
MET = Judgment(verdict="MET", value=1.0)
ledger, keys = Ledger(sys.argv[1]), sys.argv[2:]
async def main():
"""


def start_process(ledger: Path, code: str, *keys: str) -> subprocess.Popen[str]:
    """Run the body of an async function in another process, with a `ledger` and `keys`."""
    body = "".join(f"    {line}\n" for line in code.strip("\n").splitlines())
    script = f"{_PRELUDE}{body}asyncio.run(main())\n"
    return subprocess.Popen(
        [sys.executable, "-c", script, str(ledger), *keys], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


async def request(ledger: JudgmentStore, *keys: str, judgment: Judgment = MET, seconds: float = 0.0) -> list[str]:
    """Get the judgments of some keys, as a judge with a store does, and return the keys that it had to request."""
    async with ledger.lease(keys) as lease:
        missing = [key for key in keys if key not in lease.stored]
        for key in missing:
            await asyncio.sleep(seconds)
            await lease.store({key: judgment})
        return missing


async def stored_judgment(ledger: Ledger, key: str = KEY) -> Judgment | None:
    async with ledger.lease([key]) as lease:
        return lease.stored.get(key)
