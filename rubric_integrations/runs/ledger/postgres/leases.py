"""Leases on keys in a PostgreSQL database: one caller at a time requests a key, over all machines.

The protocol is the same as in the SQLite ledger, but it uses the clock of the database. An owner is registered before
its first lease. Each transaction that leases keys sends a heartbeat. If an owner sends no heartbeats, another owner
removes it together with its leases, in one transaction. The removed owner finds at its next heartbeat that its leases
are lost. It may still store a judgment that it has paid for. Therefore its keys are contested (`Acquired.is_contested`)
until they have a judgment.

This module decides which process may request a judgment. `ledger.py` stores the judgments.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from rubric_integrations.runs.ledger.base import Acquired, KeyLeases, LedgerError, Owner
from rubric_integrations.runs.ledger.postgres.connection import Connection, Phase, Read, Worker, send_queries

# Seconds without a heartbeat after which the leases of an owner expire.
LEASE_SECONDS = 10.0
# Seconds between two attempts to lease a key that another caller has leased. The pause grows from the first value to
# the second.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5

_REGISTER = "INSERT INTO rubric_owners (owner, host, pid) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_BEAT = "UPDATE rubric_owners SET beat = clock_timestamp() WHERE owner = %s"
# The longest time, in seconds, that the event loop is blocked before a request, to read whether a contested key is
# still leased.
LONGEST_CHECK = 1.0

# The heartbeat locks the row of the owner. Therefore no other process can remove the owner during the transaction.
# Without new keys, nothing is written. A contested key is stored as a lease from the time -infinity. Its owner is NULL
# while no caller has leased it.
_LEASE = """
WITH wanted AS (
    SELECT key FROM unnest(%(keys)s::text[]) AS x (key)
    WHERE NOT EXISTS (
        SELECT FROM rubric_judgments AS j WHERE j.key = x.key AND (j.judgment IS NOT NULL OR j.owner IS NOT NULL)
    )
), beat AS (
    UPDATE rubric_owners SET beat = clock_timestamp()
    WHERE owner = %(owner)s AND EXISTS (SELECT FROM wanted) RETURNING owner
)
INSERT INTO rubric_judgments AS j (key, owner) SELECT wanted.key, beat.owner FROM wanted, beat ORDER BY 1
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner WHERE j.judgment IS NULL AND j.owner IS NULL"""
# While the server was down, no owner could send a heartbeat. Therefore the time without heartbeats begins at the start
# of the server at the earliest.
_FIND = """
SELECT x.key, j.judgment, j.owner, o.host, o.pid, o.owner IS NULL
    OR clock_timestamp() - greatest(o.beat, pg_postmaster_start_time()) > make_interval(secs => %(seconds)s),
    j.at = '-infinity'
FROM unnest(%(keys)s::text[]) AS x (key)
LEFT JOIN rubric_judgments AS j ON j.key = x.key LEFT JOIN rubric_owners AS o ON o.owner = j.owner"""
_IS_REGISTERED = "SELECT FROM rubric_owners WHERE owner = %s"
_COUNT_LEASED = "SELECT count(*) FROM rubric_judgments WHERE key = ANY(%s::text[]) AND owner = %s AND judgment IS NULL"
_RELEASE = (
    "DELETE FROM rubric_judgments WHERE key = ANY(%s::text[]) AND owner = %s AND judgment IS NULL AND at > '-infinity'",
    "UPDATE rubric_judgments SET owner = NULL WHERE key = ANY(%s::text[]) AND owner = %s AND judgment IS NULL",
)
_REMOVE_SILENT = """
DELETE FROM rubric_owners AS o USING unnest(%(owners)s::text[], %(dead)s::bool[]) AS x (owner, dead)
WHERE o.owner = x.owner AND (x.dead
    OR clock_timestamp() - greatest(o.beat, pg_postmaster_start_time()) > make_interval(secs => %(seconds)s))"""
_REMOVE_LEASES = """
UPDATE rubric_judgments AS j SET owner = NULL, at = '-infinity'
WHERE judgment IS NULL AND owner = ANY(%(owners)s::text[])
AND NOT EXISTS (SELECT FROM rubric_owners AS o WHERE o.owner = j.owner)"""
# Without this, the row of an owner whose process ended without a lease would stay forever.
_REMOVE_IDLE = """
DELETE FROM rubric_owners AS o WHERE beat < clock_timestamp() - interval '1 hour'
AND NOT EXISTS (SELECT FROM rubric_judgments AS j WHERE j.owner = o.owner AND j.judgment IS NULL)"""
_REMOVE_OWNER = "DELETE FROM rubric_owners WHERE owner = %s"

# A clock that does not stop while the machine sleeps, if the system has one.
_now: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class Holder(NamedTuple):
    """The other owner of a key that a caller waits for.

    Attributes:
        owner: The owner. The name of the owner is empty if no process has leased the key.
        is_silent: Whether the owner's last heartbeat is so old that its leases may be removed.
    """

    owner: Owner
    is_silent: bool


_KeyState = str | Holder | Acquired
"""The state of a key for one caller: the stored judgment as JSON, the other owner, or the caller's acquisition."""


class PostgresLeases(KeyLeases[Holder]):
    """The leases of one process in a database.

    Args:
        worker: The worker that runs the transactions. Methods whose names begin with `send` or `_send` run in the
            worker's thread.
    """

    def __init__(self, worker: Worker):
        super().__init__()
        self._worker = worker
        self._is_registered, self._renewed_at = False, _now()
        worker.upkeep = self

    async def obtain(self, keys: Sequence[str]) -> list[str | Acquired]:
        """Lease keys in order, up to the first key that another caller has leased. Keys with a judgment are not leased.

        If another caller has leased `keys[0]`, this method waits until that lease has ended. Therefore, the result has
        at least one entry. For the other keys, call the method again with the keys that have no entry yet.

        Args:
            keys: The keys that the caller needs, at least one.

        Returns:
            One entry for each of the first keys, in order: the stored judgment as JSON, or the acquisition if the
            caller now has the lease. The list ends before the first key that another caller has leased.

        Raises:
            LedgerError: The database cannot be used.
        """
        pause = SHORTEST_PAUSE
        while isinstance(holder := (states := await self._acquire(keys))[0], Holder):
            if not holder.owner.name:
                continue
            if holder.is_silent or holder.owner.is_dead:
                await self._worker.call(Phase.EXPIRE, self._send_expiry, holder.owner)
                continue
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)
        return [state for state in states if not isinstance(state, Holder)]

    def _is_alive(self) -> bool:
        return _now() - self._renewed_at < 0.8 * LEASE_SECONDS

    def _count_leased(self, keys: list[str]) -> int:
        query = (_COUNT_LEASED, (keys, self._owner.name))
        try:
            return self._worker.call_sync(Phase.READ, send_queries, query, LONGEST_CHECK)[0][0]
        except TimeoutError:
            # Without a reply, the leases count as lost. The next request for them waits for the server without blocking
            # the event loop.
            return 0

    def _end(self, keys: list[str], owner: Owner) -> None:
        # A closed ledger has no leases.
        with suppress(LedgerError):
            self._worker.post(Phase.RELEASE, self._send_releases, (owner, keys))

    def due_in(self) -> float | None:
        """Return the seconds until the next heartbeat, or None if this process has no lease."""
        return self._renewed_at + LEASE_SECONDS / 5 - _now() if self._held else None

    def send_beat(self, db: Connection) -> Callable[[], None]:
        """Send a heartbeat as a part of a transaction.

        Returns:
            A function that must be called after the commit. It notes the time of the heartbeat, or that the leases are
            lost.
        """
        sent_at, beat = _now(), db.execute(_BEAT, (self._owner.name,))

        def note() -> None:
            if beat.rowcount:
                self._renewed_at = sent_at
            else:
                self.abandon_leases()

        return note

    def send_farewell(self, db: Connection) -> None:
        """Send the statements that end all leases and remove the owner."""
        with db.transaction():
            db.execute(_REMOVE_OWNER, (self._owner.name,))
            db.execute(_REMOVE_LEASES, {"owners": [self._owner.name]})

    async def _acquire(self, keys: Sequence[str]) -> list[_KeyState]:
        return await self._worker.call(
            Phase.ACQUIRE, self._send_acquisitions, keys, partial(self._release_acquired, keys)
        )

    def _send_acquisitions(self, db: Connection, requests: Sequence[Sequence[str]]) -> Read[list[_KeyState]]:
        """Lease the keys of several callers that are neither stored nor leased, and read the others.

        The results are, for each caller, the states of its keys up to the first key that has another owner. The caller
        waits for that key. It must not lease later keys in the meantime, because two callers could wait for each other.
        """
        keys, sent_at = sorted({key for request in requests for key in request}), _now()
        if not self._is_registered:
            db.execute(_REGISTER, (self._owner.name, self._owner.host, self._owner.pid))
        new = db.execute(_LEASE, {"keys": keys, "owner": self._owner.name})
        rows = db.execute(_FIND, {"keys": keys, "seconds": LEASE_SECONDS})
        owner = db.execute(_IS_REGISTERED, (self._owner.name,))

        def read() -> list[list[_KeyState]]:
            self._is_registered = True
            by_key = {row[0]: row for row in rows}
            if not owner.rowcount:
                self.abandon_leases()
            if new.rowcount > 0:
                self._renewed_at = sent_at
            results = [self._grant(request, by_key) for request in requests]
            # Keys after a key that another caller has leased are not needed yet.
            excess = [key for key in keys if by_key[key][2] == self._owner.name and key not in self._held]
            self.release(dict.fromkeys(excess, Acquired(self._owner)))
            return results

        return read

    def _grant(self, keys: Sequence[str], rows: dict[str, Any]) -> list[_KeyState]:
        states: list[_KeyState] = []
        for key in keys:
            _, judgment, owner, host, pid, is_silent, is_contested = rows[key]
            if judgment is not None:
                states.append(judgment)
            elif owner == self._owner.name and key not in self._held:
                # The database does not show whether another task of this process has leased the key.
                self._held.add(key)
                states.append(Acquired(self._owner, is_contested))
            else:
                states.append(Holder(Owner(owner or "", host, pid), is_silent and owner != self._owner.name))
                break
        return states

    def _send_releases(self, db: Connection, releases: Sequence[tuple[Owner, Sequence[str]]]) -> Read[None]:
        # The leases of an earlier owner are lost: another task of this process may have leased the keys since.
        keys = sorted({key for owner, released in releases if owner is self._owner for key in released})
        for statement in _RELEASE:
            db.execute(statement, (keys, self._owner.name))

        def read() -> list[None]:
            # Not before the commit: another task of this process could get the lease, and this transaction would end
            # it.
            self._held.difference_update(keys)
            return [None] * len(releases)

        return read

    def _send_expiry(self, db: Connection, owners: Sequence[Owner]) -> Read[None]:
        """End all leases of owners whose process has ended, or that still send no heartbeats."""
        names = {owner.name: owner.is_dead and owner.pid is not None for owner in owners if owner.name}
        values = {"owners": list(names), "dead": list(names.values()), "seconds": LEASE_SECONDS}
        for statement in (_REMOVE_SILENT, _REMOVE_LEASES):
            db.execute(statement, values)
        db.execute(_REMOVE_IDLE)
        return lambda: [None] * len(owners)

    def abandon_leases(self) -> None:
        """Give up all leases and continue as a new owner.

        This is needed if another process has removed this owner, or if its leases could not be released.
        """
        self._abandon()
        self._is_registered = False
