"""Leases on keys: each key is requested by one caller at a time, over all tasks, threads and processes."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import getnode, uuid4
from weakref import ref

from rubric_integrations.runs.ledger.batching import Batcher
from rubric_integrations.runs.ledger.errors import LedgerError
from rubric_integrations.runs.ledger.sqlite import LedgerFile

# Seconds without a heartbeat after which the leases of an owner expire.
LEASE_SECONDS = 5.0
# Seconds between two attempts to obtain a key that somebody else holds; the pause grows from the first to the second.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.05

_INSERT_LEASE = "INSERT OR IGNORE INTO judgments VALUES (?, 'leased', NULL, ?, ?)"
_SELECT_KEY = (
    "SELECT judgment, judgments.owner, host, pid, heartbeat FROM judgments LEFT JOIN owners USING (owner) WHERE key = ?"
)


class Owner(NamedTuple):
    """A holder of leases: one `Leases` object in one process.

    Attributes:
        name: A unique name.
        host: The machine and the process namespace; None if the owner is no longer registered.
        pid: The process; None if the owner is no longer registered.
        heartbeat: A counter that the owner raises while it is alive and holds leases.
    """

    name: str
    host: str | None
    pid: int | None
    heartbeat: int | None = 0

    @classmethod
    def in_this_process(cls) -> Owner:
        """Make a new owner in this process."""
        return cls(uuid4().hex, _host(), os.getpid())

    @property
    def is_dead(self) -> bool:
        """Whether its process has certainly ended. If the system reused the process id, only the heartbeat tells."""
        if self.host is None or self.pid is None:
            return True
        # On Windows, `os.kill(pid, 0)` would end the process instead of looking for it.
        if os.name == "posix" and self.host == _host():
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return True
            except OSError:
                return False
        return False


@cache
def _host() -> str:
    try:
        # A container may share the name of its host, but not its process ids; and two machines may have one name.
        namespace = str(Path("/proc/self/ns/pid").readlink())
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        namespace, machine = "", f"{getnode():x}"
    return f"{socket.gethostname()} {namespace} {machine}"


_KeyState = str | Owner | None
"""A key as one caller sees it: its stored judgment as JSON, its other owner, or None if the caller now holds it."""


class Leases:
    """The leases of one process: rows of the ledger's file that nobody else removes while their owner is alive.

    While it holds any lease, a thread sends heartbeats.

    Args:
        file: The ledger's file.
    """

    def __init__(self, file: LedgerFile):
        self._file, self._owner = file, Owner.in_this_process()
        self._held: set[str] = set()
        self._renewed_at = time.monotonic()
        self._acquire = Batcher(self._acquire_batch, self._release_acquired)
        self._stop = threading.Event()
        self._heartbeat_thread: threading.Thread | None = None

    async def obtain(self, keys: Sequence[str]) -> list[str | None]:
        """Wait until nobody else holds a lease on the first of some keys, and lease it unless its judgment is stored.

        Returns:
            For the first key, and for those after it up to one that somebody else holds: the stored judgment as JSON,
            or None if the caller now holds the lease.

        Raises:
            LedgerError: The file can no longer be used.
        """
        last_owner, silence, pause = None, 0.0, SHORTEST_PAUSE
        while isinstance(owner := (states := await self._acquire(keys))[0], Owner):
            silence = silence if owner == last_owner else 0.0
            if owner.is_dead or silence >= LEASE_SECONDS:
                self._expire(owner)
                continue
            await asyncio.sleep(pause)
            # Counts pauses instead of reading the clock: if this process was suspended, time passed in which it could
            # not have seen a heartbeat.
            last_owner, silence, pause = owner, silence + pause, min(pause * 1.5, LONGEST_PAUSE)
        return [state for state in states if not isinstance(state, Owner)]

    def are_held(self, keys: Iterable[str]) -> bool:
        """Whether the leases on some keys last; those of a process that was suspended may have expired.

        Raises:
            LedgerError: The file can no longer be used.
        """
        if time.monotonic() - self._renewed_at > LEASE_SECONDS / 2:
            # Somebody may be about to expire them; whoever sees a new heartbeat does not.
            self.renew()
        query = "SELECT 1 FROM judgments WHERE key = ? AND status = 'leased' AND owner = ?"
        with self._file.working() as db:
            return all(db.execute(query, (key, self._owner.name)).fetchone() for key in keys)

    def mark_stored(self, keys: Iterable[str]) -> None:
        """Note that the judgments of some keys are stored, which ends their leases."""
        self._held.difference_update(keys)

    def release(self, keys: Iterable[str]) -> None:
        """End the leases of keys that have no judgment, so that others can lease them."""
        # After a fork, the child destroys copies of its parent's tasks; this must not end the parent's leases.
        if self._owner.pid != os.getpid():
            return
        keys = list(keys)
        self._held.difference_update(keys)
        try:
            # Not in a transaction: the garbage collector may call this in the middle of another transaction.
            with self._file.working() as db:
                db.executemany(
                    "DELETE FROM judgments WHERE status = 'leased' AND key = ? AND owner = ?",
                    [(key, self._owner.name) for key in keys],
                )
        except LedgerError:
            # For example, the disk is full. The old owner gets no more heartbeats, so its leases expire.
            self._owner = Owner.in_this_process()

    def close(self) -> None:
        """End all leases and the heartbeats."""
        self._stop.set()
        if self._heartbeat_thread is None:
            return
        with suppress(LedgerError), self._file.writing() as db:
            db.execute("DELETE FROM judgments WHERE status = 'leased' AND owner = ?", (self._owner.name,))
            db.execute("DELETE FROM owners WHERE owner = ?", (self._owner.name,))

    def renew(self) -> None:
        """Renew all leases, by one heartbeat."""
        if self._held:
            with suppress(LedgerError), self._file.working() as db:
                db.execute("UPDATE owners SET heartbeat = heartbeat + 1 WHERE owner = ?", (self._owner.name,))
                self._renewed_at = time.monotonic()

    def _acquire_batch(self, requests: Sequence[Sequence[str]]) -> list[list[_KeyState]]:
        """Lease the keys of several callers that are neither stored nor leased.

        Returns:
            The states of each caller's keys, up to the first key that has another owner. The caller waits for that one,
            and must not hold later keys meanwhile: two callers could wait for each other.
        """
        with self._file.working() as db:
            rows = {key: db.execute(_SELECT_KEY, (key,)).fetchone() for keys in requests for key in keys}
            if None not in rows.values():
                return [self._acquire_keys(db, keys, rows) for keys in requests]
        with self._file.writing() as db:
            db.execute("INSERT OR IGNORE INTO owners VALUES (?, ?, ?, ?)", self._owner)
            results = [self._acquire_keys(db, keys, rows) for keys in requests]
        self._hold(key for keys, states in zip(requests, results, strict=True) for key in _acquired(keys, states))
        return results

    def _acquire_keys(self, db: sqlite3.Connection, keys: Sequence[str], rows: dict[str, Any]) -> list[_KeyState]:
        """Lease the keys of one caller; `rows` has the rows of the file by key, and is updated."""
        states: list[_KeyState] = []
        for key in keys:
            row = rows[key]
            if row is None:
                if db.execute(_INSERT_LEASE, (key, time.time(), self._owner.name)).rowcount:
                    # Another caller in the same batch, with the same key, has to wait for this one.
                    rows[key] = (None, *self._owner)
                    states.append(None)
                    continue
                row = rows[key] = db.execute(_SELECT_KEY, (key,)).fetchone()
            states.append(Owner(*row[1:]) if row[0] is None else row[0])
            if row[0] is None:
                break
        return states

    def _release_acquired(self, keys: Sequence[str], states: list[_KeyState]) -> None:
        """Release the keys that were acquired for a caller that is gone."""
        if acquired := _acquired(keys, states):
            self.release(acquired)

    def _hold(self, keys: Iterable[str]) -> None:
        self._held.update(keys)
        if self._heartbeat_thread is None:
            self._heartbeat_thread = threading.Thread(
                target=_send_heartbeats, args=(ref(self), self._stop), daemon=True
            )
            self._heartbeat_thread.start()

    def _expire(self, owner: Owner) -> None:
        """End all leases of an owner, unless it has sent a heartbeat since it was read."""
        with self._file.writing() as db:
            db.execute("DELETE FROM owners WHERE owner = ? AND heartbeat = ?", (owner.name, owner.heartbeat))
            db.execute(
                "DELETE FROM judgments WHERE status = 'leased' AND owner = ?1"
                " AND NOT EXISTS (SELECT 1 FROM owners WHERE owner = ?1)",
                (owner.name,),
            )
            # An owner whose process ended while it held no lease would leave its row behind for good.
            db.execute("DELETE FROM owners WHERE owner NOT IN (SELECT owner FROM judgments WHERE status = 'leased')")


def _acquired(keys: Sequence[str], states: Sequence[_KeyState]) -> list[str]:
    return [key for key, state in zip(keys, states, strict=False) if state is None]


def _send_heartbeats(leases: ref[Leases], stop: threading.Event) -> None:
    # A weak reference, so that the thread does not keep alive a ledger that was never closed.
    while not stop.wait(LEASE_SECONDS / 5):
        if (living := leases()) is None:
            return
        living.renew()
        del living
