"""Keys and judgments, and callers that lease keys: tasks, and processes that speak in lines."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest

from rubric_integrations.judges import JudgmentStore
from rubric_integrations.runs.ledger import store
from rubric_integrations.runs.ledger.base import Owner
from rubric_integrations.runs.ledger.postgres import leases as postgres_leases
from rubric_integrations.scoring import Judgment, Spend, TokenUsage

FULL = Judgment(
    verdict="A", value=0.1 + 0.2, reason="so\x00 – 😀\n", neutralized=True, confidence=0.7, expected_value=1 / 3,
    spend=Spend(calls=2, usage=TokenUsage(prompt_tokens=30, completion_tokens=4, cached_tokens=5), cost=1e-7 / 3),
)  # fmt: skip
MET = Judgment(verdict="MET", value=1.0, spend=Spend(calls=1, cost=0.5))
KEYS = [sha256(str(number).encode()).hexdigest() for number in range(200)]
KEY = KEYS[0]

# The beginning of every script: its arguments are the address and some keys.
_PRELUDE = """
import asyncio, os, sys, time
from rubric_integrations.runs import open_ledger
from rubric_integrations.scoring import Judgment
MET = Judgment(verdict="MET", value=1.0)
ledger, keys = open_ledger(sys.argv[1]), sys.argv[2:]
async def main():
"""


def start_process(address: str | Path, code: str, *keys: str) -> subprocess.Popen[str]:
    """Run the body of an async function in another process, with a `ledger` and `keys`."""
    body = "".join(f"    {line}\n" for line in code.strip("\n").splitlines())
    script = f"{_PRELUDE}{body}asyncio.run(main())\n"
    return subprocess.Popen(
        [sys.executable, "-c", script, str(address), *keys], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


async def request(
    ledger: JudgmentStore,
    *keys: str,
    judgment: Judgment = MET,
    seconds: float = 0.0,
    is_leased: asyncio.Event | None = None,
) -> list[str]:
    """Get the judgments of some keys, as a judge with a store does, and return the keys that it had to request."""
    async with ledger.lease(keys) as lease:
        if is_leased:
            is_leased.set()
        missing = [key for key in keys if key not in lease.stored]
        for key in missing:
            await asyncio.sleep(seconds)
            await lease.store({key: judgment})
        return missing


async def stored_judgment(ledger: JudgmentStore, key: str = KEY) -> Judgment | None:
    async with ledger.lease([key]) as lease:
        return lease.stored.get(key)


def shorten_leases(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in (store, postgres_leases):
        monkeypatch.setattr(module, "LEASE_SECONDS", seconds)


def stop_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all ledgers do as in a process that is paused."""

    def send_none(_leases: object) -> None:
        pass

    monkeypatch.setattr(store.FileLeases, "renew", send_none)
    monkeypatch.setattr(postgres_leases.PostgresLeases, "due_in", send_none)


def expire_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make whoever waits for a key end the leases of its owner, as if the owner's process was suspended for long."""
    monkeypatch.setattr(Owner, "is_dead", True)


def execute(address: str, *, sqlite: str, postgres: str) -> int:
    """Run a statement in the database behind a ledger, and return how many rows it has changed."""
    if "://" in address:
        with psycopg.connect(address, autocommit=True) as server:
            return server.execute(postgres.encode()).rowcount
    file = sqlite3.connect(address, isolation_level=None)
    try:
        return file.execute(sqlite).rowcount
    finally:
        file.close()
