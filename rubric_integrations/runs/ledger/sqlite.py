"""The file of a ledger: SQLite that is ours, or refused unchanged; one connection, which crosses no fork."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from rubric_integrations.judges.stored import StoreError

# "rubr" in the file's header: no other program's database is taken for a ledger.
APPLICATION_ID = 0x72756272
SCHEMA_VERSION = 1
SCHEMA = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
    # A row is `asked`, without a judgment, while its owner holds the key, and then `kept` for good.
    "CREATE TABLE judgments (key TEXT PRIMARY KEY, status TEXT NOT NULL, judgment TEXT, at REAL NOT NULL, owner TEXT)",
    "CREATE INDEX asked ON judgments (owner) WHERE status = 'asked'",
    "CREATE TABLE owners (owner TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, beat INTEGER NOT NULL)",
    # What was graded, and how: to score it anew when weights change.
    "CREATE TABLE submissions"
    " (number INTEGER PRIMARY KEY, hash TEXT UNIQUE, id TEXT NOT NULL, submission TEXT NOT NULL)",
    "CREATE TABLE graders (hash TEXT PRIMARY KEY, grader TEXT NOT NULL, at REAL NOT NULL)",
    "CREATE TABLE failures"
    " (key TEXT PRIMARY KEY, kind TEXT NOT NULL, message TEXT NOT NULL, at REAL NOT NULL, times INTEGER NOT NULL)",
)

# Seconds to wait for another process's transaction, which takes microseconds.
BUSY = 30.0


class LedgerError(StoreError, ValueError):
    """A file that is no ledger, or cannot be used as one any more; what was kept in it stays."""


class LedgerFile:
    """One connection for all threads of a process, one at a time."""

    def __init__(self, path: Path):
        """Open a file, or make it.

        Raises:
            LedgerError: It is not a ledger, is one of a newer version, or cannot be written.
        """
        # Opened again after a fork, when the working folder may be another.
        self._name, self._path = str(path), path.absolute()
        # Reentrant: a garbage collection inside an operation may end an abandoned claim.
        self.lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._closed = False
        _files.add(self)
        with self.working():
            pass

    @contextmanager
    def working(self) -> Generator[sqlite3.Connection]:
        """The connection, for this thread alone. Each statement is a transaction of its own.

        Raises:
            LedgerError: The file cannot be used any more, or is closed.
        """
        with self.lock:
            if self._closed:
                raise LedgerError(f"the ledger {self._name!r} is closed: keep it open until all grades are done")
            try:
                if self._db is None:
                    self._db = self._connect()
                yield self._db
            except sqlite3.OperationalError as error:
                raise LedgerError(
                    f"`path` {self._name!r} cannot be used ({error}): what was bought until now is kept; see that its "
                    "folder exists, may be written and has room, and start again: only the rest is bought"
                ) from None
            except sqlite3.DatabaseError as error:
                raise LedgerError(
                    f"`path` {self._name!r} is damaged ({error}): move it away and start with a new file, or save "
                    "what can be saved with `.recover` in the `sqlite3` shell"
                ) from None

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """The connection in one transaction, which is undone if the body raises.

        Raises:
            LedgerError: As `working`.
        """
        with self.working() as db, db:
            # A transaction that begins as a reader fails at once when another writer was between.
            db.execute("BEGIN IMMEDIATE")
            yield db

    def close(self) -> None:
        """Close the file for good."""
        with self.lock:
            self._closed = True
            self._disconnect()

    def before_fork(self) -> None:
        """Close the connection, and let nobody open it again until the fork is done."""
        self.lock.acquire()
        self._disconnect()

    def after_fork(self, in_child: bool) -> None:
        """Go on, with a new connection when it is next needed."""
        if in_child:
            self.lock = threading.RLock()
        else:
            self.lock.release()

    def _disconnect(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _connect(self) -> sqlite3.Connection:
        self._check_ours()
        db = sqlite3.connect(self._path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        until = time.monotonic() + BUSY
        while True:
            try:
                with db:
                    db.execute("BEGIN IMMEDIATE")
                    if not db.execute("PRAGMA user_version").fetchone()[0]:
                        for statement in SCHEMA:
                            db.execute(statement)
                # After the schema: a file in WAL mode that is not yet marked as ours would look like a stranger's.
                mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                # Where several make one file at once, SQLite does not wait for the change of mode.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise LedgerError(f"`path` {self._name!r} is on a disk that several cannot share: name a local one")
        db.execute("PRAGMA synchronous = NORMAL")

    def _check_ours(self) -> None:
        """Refuse what is no ledger, without a write."""
        name = self._name
        try:
            state = self._path.stat()
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise LedgerError(f"`path` {name!r} cannot be opened ({reason}): name another") from None
        if not stat.S_ISREG(state.st_mode):
            raise LedgerError(f"`path` {name!r} is no file: name one, such as 'run.sqlite'")
        if not state.st_size:
            return
        # The first look takes no lock, so a process may be just writing what it sees; the second waits for that one.
        header = self._header(locked=False) or self._header(locked=True)
        if header is None:
            raise LedgerError(
                f"`path` {name!r} is no SQLite file, so no ledger: name another or a new one; it is unchanged"
            )
        application, version = header
        if application != APPLICATION_ID:
            raise LedgerError(
                f"`path` {name!r} is another program's SQLite file, no ledger: name another or a new one; it is "
                "unchanged"
            )
        if version > SCHEMA_VERSION:
            raise LedgerError(
                f"`path` {name!r} is a ledger of version {version!r}, and this library knows {SCHEMA_VERSION}: update "
                "the library, or name a new file; it is unchanged"
            )

    def _header(self, locked: bool) -> tuple[int, int] | None:
        """Whose the file is, and of which version; None if it is not SQLite.

        Not with `open`: to close a file drops all locks on it that this process has through other connections.
        """
        uri = f"{self._path.as_uri()}?mode=ro&immutable={int(not locked)}"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY)) as db:
            try:
                application = db.execute("PRAGMA application_id").fetchone()[0]
                return application, db.execute("PRAGMA user_version").fetchone()[0]
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB or not locked:
                    return None
                raise


# SQLite counts its locks by process: with a connection that crossed a fork, the child would believe in locks that
# only the parent has, and lose what it writes when the parent closes. So none crosses.
_files: WeakSet[LedgerFile] = WeakSet()
_stopped: list[LedgerFile] = []
_forking = threading.RLock()


def _before_fork() -> None:
    _forking.acquire()
    for file in sorted(_files, key=id):
        file.before_fork()
        _stopped.append(file)


def _after_fork(in_child: bool) -> None:
    while _stopped:
        _stopped.pop().after_fork(in_child)
    # The thread that forked is the one that lives on in the child: it holds the lock there too.
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )
