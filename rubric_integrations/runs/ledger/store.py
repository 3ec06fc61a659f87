"""`Ledger`: a store of judgments in one SQLite file, with leases on keys.

A lease allows one caller at a time to request a key, over all tasks, threads and processes. If a process unpickles a
ledger several times, it always gets the same object.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary, ref

from rubric_integrations._util.records import encodable
from rubric_integrations.judges.exploration import KEY_PREFIX
from rubric_integrations.judges.spend import Allowance, Claim, Shares
from rubric_integrations.runs.ledger.base import (
    MAX_MESSAGE,
    Acquired,
    FailureRecord,
    KeyLeases,
    LedgerBase,
    LedgerError,
    Owner,
    ProcessState,
    StoreJudgments,
    SubmissionRecord,
    SubmissionRow,
    acquired_keys,
    join_batch,
)
from rubric_integrations.runs.ledger.sqlite import Batcher, LedgerFile, in_transaction, store_rows
from rubric_integrations.scoring.judgment import JudgeFailure, Judgment

# Seconds without a heartbeat after which the leases of an owner expire.
LEASE_SECONDS = 5.0
# Seconds between two attempts to lease a key that another caller has leased. The pause grows from the first value to
# the second.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.05

_INSERT_LEASE = "INSERT OR IGNORE INTO judgments VALUES (?, 'leased', NULL, ?, ?)"
# A contested key (`Acquired.is_contested`) is stored as a lease from the time 0. Its owner is NULL while no caller has
# leased it.
_LEASE_CONTESTED = "UPDATE judgments SET owner = ? WHERE key = ? AND status = 'leased' AND owner IS NULL"
_RELEASE = (
    "DELETE FROM judgments WHERE status = 'leased' AND key = ? AND owner = ? AND at > 0",
    "UPDATE judgments SET owner = NULL WHERE status = 'leased' AND key = ? AND owner = ?",
)
_REMOVE_LEASES = (
    "UPDATE judgments SET owner = NULL, at = 0 WHERE status = 'leased' AND owner = ?1"
    " AND NOT EXISTS (SELECT 1 FROM owners WHERE owner = ?1)"
)
_BEAT = "UPDATE owners SET heartbeat = heartbeat + 1 WHERE owner = ?"
_SELECT_KEYS = (
    "SELECT key, judgment, judgments.owner, host, pid, heartbeat FROM judgments LEFT JOIN owners USING (owner)"
    " WHERE key IN (SELECT value FROM json_each(?)) AND (status = 'stored' OR judgments.owner IS NOT NULL)"
)
_REMOVE_IDLE = (
    "DELETE FROM owners WHERE owner NOT IN (SELECT owner FROM judgments WHERE status = 'leased' AND owner IS NOT NULL)"
)
_SELECT_LEASED = (
    "SELECT count(*) FROM judgments WHERE status = 'leased' AND owner = ? AND key IN (SELECT value FROM json_each(?))"
)

_KeyState = str | Owner | Acquired
"""The state of a key for one caller: the stored judgment as JSON, the other owner, or the caller's acquisition."""


class FileLeases(KeyLeases[Owner]):
    """The leases of one process on keys. With a lease, only the owner requests the judgment of the key.

    A lease is a row of the ledger's file. Other processes do not remove the row while the owner is alive. While the
    process has a lease, a thread sends heartbeats.

    Args:
        file: The ledger's file.
    """

    def __init__(self, file: LedgerFile):
        super().__init__()
        self._file = file
        # A time not later than the last heartbeat in the file. None before the owner is registered there.
        self._renewed_at: float | None = None
        self._acquire = Batcher(self._acquire_batch, self._release_acquired)
        self._stop = threading.Event()
        self._heartbeat_thread: threading.Thread | None = None

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

    def _is_alive(self) -> bool:
        if self._is_fresh:
            return True
        # Another process may be about to end the leases. It does not if it sees a new heartbeat.
        self.renew()
        return self._is_fresh

    @property
    def _is_fresh(self) -> bool:
        # Others wait for `LEASE_SECONDS` after the last heartbeat before they end a lease.
        return self._renewed_at is not None and time.monotonic() - self._renewed_at <= LEASE_SECONDS / 2

    def _count_leased(self, keys: list[str]) -> int:
        with self._file.working() as db:
            return db.execute(_SELECT_LEASED, (self._owner.name, json.dumps(keys))).fetchone()[0]

    def _end(self, keys: list[str], owner: Owner) -> None:
        self._held.difference_update(keys)
        try:
            # Not in a transaction: the garbage collector may call this in the middle of another transaction.
            with self._file.working() as db:
                for statement in _RELEASE:
                    db.executemany(statement, [(key, owner.name) for key in keys])
        except LedgerError:
            # For example, the disk is full. The old owner sends no more heartbeats. Therefore its leases expire.
            self._abandon()

    def close(self) -> None:
        """End all leases and stop the heartbeats."""
        self._stop.set()
        if self._heartbeat_thread is None:
            return
        with suppress(LedgerError), self._file.writing() as db:
            db.execute("DELETE FROM owners WHERE owner = ?", (self._owner.name,))
            db.execute(_REMOVE_LEASES, (self._owner.name,))

    def renew(self) -> None:
        """Renew all leases of this process by one heartbeat. Leases without heartbeats expire."""
        if self._held:
            with suppress(LedgerError), self._file.working() as db:
                # Read before the heartbeat: the process may be suspended after it.
                now = time.monotonic()
                if db.execute(_BEAT, (self._owner.name,)).rowcount:
                    self._renewed_at = now
                else:
                    self._abandon()

    def _acquire_batch(self, requests: Sequence[Sequence[str]]) -> list[list[_KeyState]]:
        """Lease the keys of several callers that are neither stored nor leased.

        Returns:
            For each caller, the states of its keys up to the first key that has another owner. The caller waits for
            that key. It must not lease later keys in the meantime, because two callers could wait for each other.
        """
        with self._file.working() as db:
            rows = _read_rows(db, {key for keys in requests for key in keys})
            if None not in rows.values():
                return [self._acquire_keys(db, keys, rows) for keys in requests]
            now = time.monotonic()
            with in_transaction(db):
                self._register(db)
                results = [self._acquire_keys(db, keys, rows) for keys in requests]
            # Still under the lock: if the next heartbeat finds that the leases were ended, these leases must be
            # recorded by then.
            self._renewed_at = now
            for keys, states in zip(requests, results, strict=True):
                self._held.update(acquired_keys(keys, states))
        self._start_heartbeats()
        return results

    def _register(self, db: sqlite3.Connection) -> None:
        """Send a heartbeat in the caller's transaction.

        If other processes have ended the leases, register a new owner first.
        """
        if not db.execute(_BEAT, (self._owner.name,)).rowcount:
            if self._renewed_at is not None:
                self._abandon()
            db.execute("INSERT INTO owners VALUES (?, ?, ?, ?)", self._owner)

    def _abandon(self) -> None:
        super()._abandon()
        self._renewed_at = None

    def _acquire_keys(self, db: sqlite3.Connection, keys: Sequence[str], rows: dict[str, Any]) -> list[_KeyState]:
        """Lease the keys of one caller.

        Args:
            db: The connection.
            keys: The keys.
            rows: The rows of the file by key, which are updated.
        """
        states: list[_KeyState] = []
        for key in keys:
            row = rows[key]
            if row is None:
                is_new = db.execute(_INSERT_LEASE, (key, time.time(), self._owner.name)).rowcount
                if is_new or db.execute(_LEASE_CONTESTED, (self._owner.name, key)).rowcount:
                    # Another caller in the same batch, with the same key, has to wait for this one.
                    rows[key] = (None, *self._owner)
                    states.append(Acquired(self._owner, is_contested=not is_new))
                    continue
                row = rows[key] = _read_rows(db, [key])[key]
            states.append(Owner(*row[1:]) if row[0] is None else row[0])
            if row[0] is None:
                break
        return states

    def _start_heartbeats(self) -> None:
        if self._heartbeat_thread is None:
            self._heartbeat_thread = threading.Thread(
                target=_send_heartbeats, args=(ref(self), self._stop), daemon=True
            )
            self._heartbeat_thread.start()

    def _expire(self, owner: Owner) -> None:
        """End all leases of an owner, unless it has sent a heartbeat since it was read."""
        with self._file.writing() as db:
            db.execute("DELETE FROM owners WHERE owner = ? AND heartbeat = ?", (owner.name, owner.heartbeat))
            db.execute(_REMOVE_LEASES, (owner.name,))
            # Without this, the row of an owner whose process ended without a lease would stay forever.
            db.execute(_REMOVE_IDLE)


def _read_rows(db: sqlite3.Connection, keys: Iterable[str]) -> dict[str, Any]:
    """Return for each key its judgment and the fields of its owner, or None if no process has leased it."""
    keys = list(keys)
    return dict.fromkeys(keys) | {key: row for key, *row in db.execute(_SELECT_KEYS, (json.dumps(keys),))}


def _send_heartbeats(leases: ref[FileLeases], stop: threading.Event) -> None:
    # A weak reference: otherwise the thread would keep alive a ledger that was never closed.
    while not stop.wait(LEASE_SECONDS / 5):
        if (living := leases()) is None:
            return
        living.renew()
        del living


class Closable(Protocol):
    """The type of a ledger that can be closed, and opened again by its address."""

    @property
    def is_closed(self) -> bool:
        """Whether the object was closed. A closed object cannot be used."""
        ...


LedgerType = TypeVar("LedgerType", bound=Closable)

_reopened: WeakValueDictionary[tuple[object, str], Any] = WeakValueDictionary()
_lock = threading.Lock()


def reopen(open_address: Callable[[str], LedgerType], address: str) -> LedgerType:
    """Return the ledger at an address, for a pickle that contains the address.

    A process opens the ledger once and returns the same object for every pickle with this address.

    Args:
        open_address: A function that opens a ledger by its address, such as the class `Ledger`.
        address: The address.
    """
    with _lock:
        ledger = _reopened.get((open_address, address))
        if ledger is None or ledger.is_closed:
            ledger = _reopened[open_address, address] = open_address(address)
        return ledger


# The rows after a number, each with its own rubric.
_PAGE = (
    "SELECT number, id, submissions.submission, rubrics.rubric FROM submissions"
    " LEFT JOIN row_rubrics ON row_rubrics.submission = submissions.hash"
    " LEFT JOIN rubrics ON rubrics.hash = row_rubrics.rubric"
    " WHERE number > ? ORDER BY number LIMIT 500"
)


class _FileState(ProcessState):
    def __init__(self, leases: FileLeases, store: Batcher[Mapping[str, Judgment], Mapping[str, Judgment]]):
        super().__init__(leases)
        self.file_leases, self.store = leases, store


class Ledger(LedgerBase[_FileState]):
    """A store of judgments in one SQLite file, on a local disk.

    While one caller has the lease on a key, it requests the judgment of this key, and all other callers wait. If that
    caller fails or its process dies, the next one gets the lease. One object serves any number of threads and event
    loops, and works in the parent and the child of `os.fork`. Several processes may open the same file.

    A pickle contains only the path. A process on the same machine that loads several pickles of a ledger opens the file
    once, and gets the same object from all of them. A copy of a ledger is the same object, too.

    When `Lease.store` returns, a crash of the process cannot lose the judgment. A power failure can lose the judgments
    of about the last half minute, which are then requested again. It does not damage the file.

    Args:
        path: The file, such as `run.sqlite`. It is created if it does not exist. While it is open, there are two more
            files next to it, whose names end in `-wal` and `-shm`.

    Attributes:
        path: The file.

    Raises:
        LedgerError: The file is not a ledger, is a ledger of another version, or cannot be written. A file that is not
            a ledger of this version is not changed.

    Example:
        >>> import tempfile
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "States the margin as 17.2%"}])
        >>> with tempfile.TemporaryDirectory() as folder, Ledger(f"{folder}/run.sqlite") as ledger:
        ...     grader = PerCriterionGrader("offline").with_store(ledger)
        ...     scores = [rubric.grade_sync("It was 17.2%.", grader=grader).score for _ in range(2)]
        ...     (scores, ledger.stored, ledger.reused)
        ([1.0, 1.0], 1, 1)
    """

    def __init__(self, path: str | PathLike[str]):
        self.path = Path(path)
        self._file = LedgerFile(self.path)
        self._process_state = self._new_process_state()

    def __reduce__(self) -> Any:
        return reopen, (Ledger, str(self.path.absolute()))

    def close(self) -> None:
        """End the remaining leases and close the file."""
        self._state.file_leases.close()
        self._file.close()

    @property
    def address(self) -> str:
        """The path of the file."""
        return str(self.path)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._file.is_closed

    def __len__(self) -> int:
        """Count the judgments in the file."""
        with self._file.working() as db:
            # `WHERE status = 'stored'` would read the whole file, while these two queries read indexes.
            rows = db.execute("SELECT count(*) FROM judgments").fetchone()[0]
            rows -= db.execute("SELECT count(*) FROM judgments WHERE status = 'leased'").fetchone()[0]
            # The replies of explorers are no judgments. `GLOB` with a prefix reads an index, too.
            query = "SELECT count(*) FROM judgments WHERE key GLOB ? AND status = 'stored'"
            return rows - db.execute(query, (f"{KEY_PREFIX}*",)).fetchone()[0]

    def save_batch(self, batch_id: str, record: str) -> None:
        """Store the record of a batch and replace an earlier one. The stored record survives a power failure.

        Args:
            batch_id: The id of the batch.
            record: The record of the batch, as JSON.
        """
        query = "INSERT INTO batches (id, record) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record"
        with self._file.working() as db:
            # If the intent were lost, the batch would be submitted again. Lost judgments are only requested again.
            db.execute("PRAGMA synchronous = FULL")
            try:
                db.execute(query, (batch_id, record))
            finally:
                db.execute("PRAGMA synchronous = NORMAL")

    def batches(self) -> dict[str, str]:
        """Return the records of all batches, as JSON by the id of the batch, the oldest first."""
        with self._file.working() as db:
            return dict(db.execute("SELECT id, record FROM batches ORDER BY number").fetchall())

    async def claim_spend(self, run: str, part: str, claim: Claim) -> Shares:
        """Reserve calls and cost for one part of a run, within the limits that all parts of the run share.

        The parts of a run are usually its processes. Before a part makes calls, it reserves an amount by a claim. Each
        claim of a part replaces its earlier claim.

        Args:
            run: The name of the run. It is the same for all processes that share its limits.
            part: A unique name of the part for which the amount is reserved.
            claim: The amount that the part has already spent, the total amount that it wants to be able to spend, and
                the limits of the run.

        Returns:
            The total amount that the part may spend, and the total amount that the other parts have reserved.
        """
        run = encodable(run)
        with self._file.writing() as db:
            total = "SELECT coalesce(sum(calls), 0), coalesce(sum(cost), 0.0) FROM spending WHERE run = ? AND part <> ?"
            others = Allowance(*db.execute(total, (run, part)).fetchone())
            own = claim.granted(others)
            db.execute("INSERT OR REPLACE INTO spending VALUES (?, ?, ?, ?)", (run, part, own.calls, own.cost))
        return Shares(own, others)

    @property
    def _name(self) -> str:
        return f"`path` {str(self.path)!r}"

    def _new_process_state(self) -> _FileState:
        return _FileState(FileLeases(self._file), Batcher(self._store_batch))

    def _store_function(self, state: _FileState) -> StoreJudgments:
        return state.store

    def _store_batch(self, batch: Sequence[Mapping[str, Judgment]]) -> list[Mapping[str, Judgment]]:
        """Store the judgments of several callers, and return the judgments that the ledger keeps, for each caller."""
        judgments, state = join_batch(batch), self._state
        with self._file.writing() as db:
            earlier = store_rows(db, judgments)
        return self._mark_stored(state, batch, judgments, earlier)

    def _find_judgments(self, keys: Sequence[str]) -> list[tuple[str, str]]:
        query = "SELECT key, judgment FROM judgments WHERE key = ? AND status = 'stored'"
        with self._file.working() as db:
            return [row for key in keys for row in db.execute(query, (key,))]

    def _write_submission(self, record: SubmissionRecord) -> None:
        query = "INSERT OR IGNORE INTO submissions (hash, id, submission) VALUES (?, ?, ?)"
        with self._file.working() as db:
            db.executemany("INSERT OR IGNORE INTO files VALUES (?, ?)", record.files.items())
            db.execute(query, (record.hash, encodable(record.id), record.submission))
            if record.rubric_hash is not None:
                db.execute("INSERT OR IGNORE INTO rubrics VALUES (?, ?)", (record.rubric_hash, record.rubric))
                db.execute("INSERT OR REPLACE INTO row_rubrics VALUES (?, ?)", (record.hash, record.rubric_hash))
            elif db.execute("SELECT 1 FROM row_rubrics WHERE submission = ?", (record.hash,)).fetchone():
                db.execute("DELETE FROM row_rubrics WHERE submission = ?", (record.hash,))

    def _read_submissions(self, after: int) -> list[SubmissionRow]:
        with self._file.working() as db:
            return [SubmissionRow(*row) for row in db.execute(_PAGE, (after,))]

    def _read_file(self, digest: str) -> bytes:
        with self._file.working() as db:
            return db.execute("SELECT content FROM files WHERE sha256 = ?", (digest,)).fetchone()[0]

    def _write_grader(self, digest: str, text: str) -> None:
        with self._file.working() as db:
            db.execute(
                "INSERT INTO graders VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET at = excluded.at",
                (digest, text, time.time()),
            )

    def _read_grader(self) -> str | None:
        with self._file.working() as db:
            row = db.execute("SELECT grader FROM graders ORDER BY at DESC LIMIT 1").fetchone()
        return row[0] if row else None

    def _write_failure(self, key: str, failure: JudgeFailure) -> None:
        with self._file.working() as db:
            db.execute(
                "INSERT INTO failures VALUES (?, ?, ?, ?, 1) ON CONFLICT (key) DO UPDATE"
                " SET kind = excluded.kind, message = excluded.message, at = excluded.at, times = times + 1",
                (key, failure.kind, failure.message[:MAX_MESSAGE], time.time()),
            )

    def _forget_failure(self, key: str) -> None:
        with self._file.working() as db:
            db.execute("DELETE FROM failures WHERE key = ?", (key,))

    def _read_failures(self, of_rows: bool, limit: int | None) -> list[FailureRecord]:
        query = (
            "SELECT key, kind, message, at, times FROM failures WHERE (key GLOB 'row *') = ? ORDER BY at DESC LIMIT ?"
        )
        with self._file.working() as db:
            return [FailureRecord(*row) for row in db.execute(query, (of_rows, -1 if limit is None else limit))]
