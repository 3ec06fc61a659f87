"""Who asks about which key: claims that others wait for, and that end with the process that made them."""

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
from uuid import uuid4
from weakref import ref

from rubric_integrations.runs.ledger.batching import Batcher
from rubric_integrations.runs.ledger.sqlite import LedgerError, LedgerFile

# Seconds without a sign of life after which an owner's claims are taken over.
LEASE = 5.0
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.05

_CLAIM = "INSERT OR IGNORE INTO judgments VALUES (?, 'asked', NULL, ?, ?)"
_FIND = "SELECT judgment, judgments.owner, host, pid, beat FROM judgments LEFT JOIN owners USING (owner) WHERE key = ?"


class Owner(NamedTuple):
    """Who claims: a name that nobody else has, and where it runs; None where nobody knows it any more."""

    name: str
    host: str | None
    pid: int | None
    beat: int | None = 0

    @classmethod
    def new(cls) -> Owner:
        """One for this process."""
        return cls(uuid4().hex, _host(), os.getpid())

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to be gone; where another has its number now, the lease decides."""
        if self.host is None or self.pid is None:
            return True
        # On Windows `kill` would not ask but end the process.
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
        # Containers may have the name of their host, but not the numbers of its processes.
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}"


_Answer = str | Owner | None
"""Of a key that was asked for: its judgment, who else has it, or None for the asker's own."""


class Leases:
    """The claims of one process, as rows of the file that only their owner releases while it lives."""

    def __init__(self, file: LedgerFile):
        """Lease in a file; a thread shows that the owner lives while it holds any key."""
        self._file, self._owner = file, Owner.new()
        self._held: set[str] = set()
        self._ask = Batcher(self._ask_all, self._drop)
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None

    async def obtain(self, keys: Sequence[str]) -> list[str | None]:
        """Wait until nobody else asks about the first of some keys.

        Returns:
            For it, and for those after it up to one that somebody else has: the judgment, or None if the caller holds
            the key from now on.

        Raises:
            LedgerError: The file cannot be used any more.
        """
        last, silence, pause = None, 0.0, SHORTEST_PAUSE
        while isinstance(found := (answers := await self._ask(keys))[0], Owner):
            silence = silence if found == last else 0.0
            if found.is_dead or silence >= LEASE:
                self._bury(found)
                continue
            await asyncio.sleep(pause)
            # Pauses and not the clock: while we were stopped ourselves, the other's silence means nothing.
            last, silence, pause = found, silence + pause, min(pause * 1.5, LONGEST_PAUSE)
        return [answer for answer in answers if not isinstance(answer, Owner)]

    def done(self, keys: Iterable[str]) -> None:
        """Note that keys were kept."""
        self._held.difference_update(keys)

    def release(self, keys: Iterable[str]) -> None:
        """Let others ask about keys that were not kept."""
        # The child of a fork drops what its parent's tasks had, and must not end their claims.
        if self._owner.pid != os.getpid():
            return
        keys = list(keys)
        self._held.difference_update(keys)
        try:
            # Not one transaction: the garbage collector may end an abandoned claim in the middle of another's.
            with self._file.working() as db:
                db.executemany(
                    "DELETE FROM judgments WHERE status = 'asked' AND key = ? AND owner = ?",
                    [(key, self._owner.name) for key in keys],
                )
        except LedgerError:
            # A full disk, say. Under a new name we leave the old one silent, so that its claims expire.
            self._owner = Owner.new()

    def close(self) -> None:
        """Release everything."""
        self._stop.set()
        if self._heart is None:
            return
        with suppress(LedgerError), self._file.writing() as db:
            db.execute("DELETE FROM judgments WHERE status = 'asked' AND owner = ?", (self._owner.name,))
            db.execute("DELETE FROM owners WHERE owner = ?", (self._owner.name,))

    def show_life(self) -> None:
        """Renew the lease."""
        if self._held:
            with suppress(LedgerError), self._file.working() as db:
                db.execute("UPDATE owners SET beat = beat + 1 WHERE owner = ?", (self._owner.name,))

    def _ask_all(self, askers: Sequence[Sequence[str]]) -> list[list[_Answer]]:
        """For each asker, key by key: the judgment, None where the asker holds the key from now on, or who else has it.

        An owner ends an answer: who waits for a key must not hold later ones, or two askers could wait for each other.
        """
        with self._file.working() as db:
            rows = {key: db.execute(_FIND, (key,)).fetchone() for keys in askers for key in keys}
            if None not in rows.values():
                return [self._answer(db, keys, rows) for keys in askers]
        with self._file.writing() as db:
            db.execute("INSERT OR IGNORE INTO owners VALUES (?, ?, ?, ?)", self._owner)
            answers = [self._answer(db, keys, rows) for keys in askers]
        self._hold(key for keys, answer in zip(askers, answers, strict=True) for key in _claimed(keys, answer))
        return answers

    def _answer(self, db: sqlite3.Connection, keys: Sequence[str], rows: dict[str, Any]) -> list[_Answer]:
        """One asker's answer; `rows` are what the file has by key, and are kept up to date."""
        answer: list[_Answer] = []
        for key in keys:
            row = rows[key]
            if row is None:
                if db.execute(_CLAIM, (key, time.time(), self._owner.name)).rowcount:
                    # Who asks for it in the same turn waits, too.
                    rows[key] = (None, *self._owner)
                    answer.append(None)
                    continue
                row = rows[key] = db.execute(_FIND, (key,)).fetchone()
            answer.append(Owner(*row[1:]) if row[0] is None else row[0])
            if row[0] is None:
                break
        return answer

    def _drop(self, keys: Sequence[str], answer: list[_Answer]) -> None:
        """Release the keys of an asker who was cancelled in the meantime."""
        if claimed := _claimed(keys, answer):
            self.release(claimed)

    def _hold(self, keys: Iterable[str]) -> None:
        self._held.update(keys)
        if self._heart is None:
            self._heart = threading.Thread(target=_beat, args=(ref(self), self._stop), daemon=True)
            self._heart.start()

    def _bury(self, owner: Owner) -> None:
        """Release all claims of an owner, unless it has shown life meanwhile."""
        with self._file.writing() as db:
            db.execute("DELETE FROM owners WHERE owner = ? AND beat = ?", (owner.name, owner.beat))
            db.execute(
                "DELETE FROM judgments WHERE status = 'asked' AND owner = ?1"
                " AND NOT EXISTS (SELECT 1 FROM owners WHERE owner = ?1)",
                (owner.name,),
            )
            # Those who died without any claim left a row behind.
            db.execute("DELETE FROM owners WHERE owner NOT IN (SELECT owner FROM judgments WHERE status = 'asked')")


def _claimed(keys: Sequence[str], answer: Sequence[_Answer]) -> list[str]:
    return [key for key, found in zip(keys, answer, strict=False) if found is None]


def _beat(claims: ref[Leases], stop: threading.Event) -> None:
    # Not the object itself: a ledger that was left open and forgotten should be collected.
    while not stop.wait(LEASE / 5):
        if (living := claims()) is None:
            return
        living.show_life()
        del living
