"""Leases on keys in a PostgreSQL database: each key is requested by one caller at a time, over all machines.

The protocol is that of the SQLite ledger, with the clock of the database. An owner is registered before its first
lease, and its heartbeat is part of each transaction that leases. If it stays silent, another owner removes it together
with its leases, in one transaction. A late owner learns from its next heartbeat that it has lost them. It may still
store a judgment that it has paid for: its keys are contested (`Acquired.is_contested`) until they have a judgment.

It is a separate module as a subject: it decides who may request a judgment, and `ledger.py` stores judgments.
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
# Seconds between two attempts to obtain a key that somebody else holds; the pause grows from the first to the second.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5

_REGISTER = "INSERT INTO rubric_owners (owner, host, pid) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_BEAT = "UPDATE rubric_owners SET beat = clock_timestamp() WHERE owner = %s"
# Seconds for which the event loop waits, before a request, to read whether a contested key is still leased.
LONGEST_CHECK = 1.0

# The heartbeat locks the owner's row, so that nobody removes the owner meanwhile. Without new keys nothing is written.
# A contested key is a lease from the time -infinity, and without an owner while nobody leases it.
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
# While the server was down, nobody could send a heartbeat: silence begins at its start.
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
# An owner whose process ended while it held no lease would leave its row behind for good.
_REMOVE_IDLE = """
DELETE FROM rubric_owners AS o WHERE beat < clock_timestamp() - interval '1 hour'
AND NOT EXISTS (SELECT FROM rubric_judgments AS j WHERE j.owner = o.owner AND j.judgment IS NULL)"""
_REMOVE_OWNER = "DELETE FROM rubric_owners WHERE owner = %s"

# A clock that goes on while the machine sleeps, where there is one.
_now: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class Holder(NamedTuple):
    """Who holds a key that a caller waits for.

    Attributes:
        owner: The owner; its name is empty if nobody has leased the key.
        is_silent: Whether its leases may be removed.
    """

    owner: Owner
    is_silent: bool


_KeyState = str | Holder | Acquired
"""A key as one caller sees it: its stored judgment as JSON, who else holds it, or the caller's acquisition of it."""


class PostgresLeases(KeyLeases[Holder]):
    """The leases of one process in a database.

    Args:
        worker: Runs the transactions; all methods whose names begin with `send` run in its thread.
    """

    def __init__(self, worker: Worker):
        super().__init__()
        self._worker = worker
        self._is_registered, self._renewed_at = False, _now()
        worker.upkeep = self

    async def obtain(self, keys: Sequence[str]) -> list[str | Acquired]:
        """Wait until nobody else holds a lease on the first of some keys, and lease it unless its judgment is stored.

        Returns:
            For the first key, and for those after it up to one that somebody else holds: the stored judgment as JSON,
            or its acquisition if the caller now holds the lease.

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
            # Without an answer, the leases do not count as held. Whoever requests them again waits for the server
            # without blocking the event loop.
            return 0

    def _end(self, keys: list[str], owner: Owner) -> None:
        # A closed ledger has no leases.
        with suppress(LedgerError):
            self._worker.post(Phase.RELEASE, self._send_releases, (owner, keys))

    def due_in(self) -> float | None:
        """Return the seconds until the next heartbeat; None while no lease is held."""
        return self._renewed_at + LEASE_SECONDS / 5 - _now() if self._held else None

    def send_beat(self, db: Connection) -> Callable[[], None]:
        """Send a heartbeat; what is returned is called after it is committed."""
        sent_at, beat = _now(), db.execute(_BEAT, (self._owner.name,))

        def note() -> None:
            if beat.rowcount:
                self._renewed_at = sent_at
            else:
                self.abandon_leases()

        return note

    def send_farewell(self, db: Connection) -> None:
        """End all leases."""
        with db.transaction():
            db.execute(_REMOVE_OWNER, (self._owner.name,))
            db.execute(_REMOVE_LEASES, {"owners": [self._owner.name]})

    async def _acquire(self, keys: Sequence[str]) -> list[_KeyState]:
        return await self._worker.call(
            Phase.ACQUIRE, self._send_acquisitions, keys, partial(self._release_acquired, keys)
        )

    def _send_acquisitions(self, db: Connection, requests: Sequence[Sequence[str]]) -> Read[list[_KeyState]]:
        """Lease the keys of several callers that are neither stored nor leased, and read the others.

        The results are the states of each caller's keys, up to the first key that has another owner. The caller waits
        for that one, and must not hold later keys meanwhile: two callers could wait for each other.
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
            # What nobody needs yet: those after a key that somebody else holds.
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
                # Of the database alone one cannot tell whether a task of this process holds it.
                self._held.add(key)
                states.append(Acquired(self._owner, is_contested))
            else:
                states.append(Holder(Owner(owner or "", host, pid), is_silent and owner != self._owner.name))
                break
        return states

    def _send_releases(self, db: Connection, releases: Sequence[tuple[Owner, Sequence[str]]]) -> Read[None]:
        # Those of an earlier owner are lost: another task of this process may hold the keys now.
        keys = sorted({key for owner, released in releases if owner is self._owner for key in released})
        for statement in _RELEASE:
            db.execute(statement, (keys, self._owner.name))

        def read() -> list[None]:
            # Not earlier: another task of this process could get the lease, which this would then end.
            self._held.difference_update(keys)
            return [None] * len(releases)

        return read

    def _send_expiry(self, db: Connection, owners: Sequence[Owner]) -> Read[None]:
        """End all leases of owners that are dead, or still silent."""
        names = {owner.name: owner.is_dead and owner.pid is not None for owner in owners if owner.name}
        values = {"owners": list(names), "dead": list(names.values()), "seconds": LEASE_SECONDS}
        for statement in (_REMOVE_SILENT, _REMOVE_LEASES):
            db.execute(statement, values)
        db.execute(_REMOVE_IDLE)
        return lambda: [None] * len(owners)

    def abandon_leases(self) -> None:
        """Begin again as another owner: this one was removed because it was silent, or could not release its leases."""
        self._abandon()
        self._is_registered = False
