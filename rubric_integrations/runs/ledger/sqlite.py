"""The SQLite file of a ledger: its schema, one connection for all threads, and rows of judgments and batches.

Reads and writes of one event-loop tick form one transaction, because a transaction with many rows takes little more
time than a transaction with one row. The first judgment of a key is kept.

The ledger itself is in `runs/ledger/store.py`, because one module with both would be too long.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar
from weakref import WeakSet

from rubric_integrations._util.text import one_line
from rubric_integrations.runs.ledger.base import LedgerError
from rubric_integrations.scoring.judgment import Judgment

# "rubr" in the header of the file distinguishes a ledger from the database of another program.
APPLICATION_ID = 0x72756272
# Raise it with every change of the schema: a ledger of another version is refused.
SCHEMA_VERSION = 2
SCHEMA = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
    # A row is `leased`, without a judgment, while its owner requests the judgment; then it is `stored`. A contested key
    # (see `store.py`) is `leased` without an owner while nobody requests its judgment.
    "CREATE TABLE judgments (key TEXT PRIMARY KEY, status TEXT NOT NULL, judgment TEXT, at REAL NOT NULL, owner TEXT)",
    "CREATE INDEX leased ON judgments (owner) WHERE status = 'leased'",
    "CREATE TABLE owners"
    " (owner TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, heartbeat INTEGER NOT NULL)",
    # The submissions and the grader of a run, from which `rescore` computes new scores.
    "CREATE TABLE submissions"
    " (number INTEGER PRIMARY KEY, hash TEXT UNIQUE, id TEXT NOT NULL, submission TEXT NOT NULL)",
    "CREATE TABLE graders (hash TEXT PRIMARY KEY, grader TEXT NOT NULL, at REAL NOT NULL)",
    "CREATE TABLE failures"
    " (key TEXT PRIMARY KEY, kind TEXT NOT NULL, message TEXT NOT NULL, at REAL NOT NULL, times INTEGER NOT NULL)",
)
# Tables that were added later, to ledgers of the same version too: earlier releases have no use for them.
ADDED = (
    # The own rubrics of rows, each stored once, and the rubric of each row.
    "CREATE TABLE IF NOT EXISTS rubrics (hash TEXT PRIMARY KEY, rubric TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS row_rubrics (submission TEXT PRIMARY KEY, rubric TEXT NOT NULL)",
    # The bytes of attachments by their SHA-256, each stored once. A submission contains the SHA-256 instead.
    "CREATE TABLE IF NOT EXISTS files (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL)",
    # The spend of each part of a named run, in all processes.
    "CREATE TABLE IF NOT EXISTS spending (run TEXT, part TEXT, calls INTEGER NOT NULL, cost REAL NOT NULL,"
    " PRIMARY KEY (run, part))",
    # The batches that were submitted to the batch APIs of providers.
    "CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, record TEXT NOT NULL)",
)

# Seconds to wait for the transaction of another process, which usually takes microseconds.
BUSY_SECONDS = 30.0


# The largest number of characters of an SQLite error in a message. The error may quote a stored judgment.
_MAX_REASON = 100
# Messages of an `OperationalError` about a damaged file: a text is not UTF-8 any more, or the schema lacks a name.
_DAMAGE = ("Could not decode", "no such table", "no such column")


class LedgerFile:
    """A ledger's file, with one connection that the threads of a process use in turn.

    Args:
        path: The file. It is created if it does not exist.

    Attributes:
        lock: The lock of the connection. The thread that uses the connection acquires it.
        is_closed: Whether `close` was called.

    Raises:
        LedgerError: The file is not a ledger, is a ledger of another version, or cannot be written.
    """

    def __init__(self, path: Path):
        # Absolute, because the file is opened again after a fork, when the working folder may have changed.
        self._name, self._path = str(path), path.absolute()
        # Reentrant: while this thread holds it, the garbage collector may run here and release an abandoned lease.
        self.lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        # The device and inode numbers of the file and, by path, of the files that SQLite keeps next to it. They show
        # whether a file was replaced by another one of the same name.
        self._identity: tuple[int, int] | None = None
        self._beside: dict[str, tuple[int, int] | None] = {}
        self.is_closed = False
        _files.add(self)
        with self.working():
            pass

    @contextmanager
    def working(self) -> Generator[sqlite3.Connection]:
        """Reserve the connection for this thread during the block. Each statement is a separate transaction.

        Raises:
            LedgerError: The file can no longer be used, or is closed.
        """
        with self.lock:
            if self.is_closed:
                raise LedgerError(f"the ledger {self._name!r} is closed: keep it open until all grades are done")
            try:
                self._refuse_other_file()
                if self._db is None:
                    self._db = self._connect()
                    self._identity = _find_identity(self._path)
                    self._beside = {path: _find_identity(path) for path in (f"{self._path}-wal", f"{self._path}-shm")}
                yield self._db
            except sqlite3.DatabaseError as error:
                reason = one_line(str(error)[:_MAX_REASON])
                if isinstance(error, sqlite3.OperationalError) and not reason.startswith(_DAMAGE):
                    raise LedgerError(
                        f"`path` {self._name!r} cannot be used ({reason}): the judgments so far are stored; make sure "
                        "that its folder exists, is writable and has free space, and start again: only the missing "
                        "judgments are requested"
                    ) from None
                raise LedgerError(
                    f"`path` {self._name!r} is damaged ({reason}): recover its contents with `.recover` in the "
                    "`sqlite3` shell, or move it away and start with a new file, which requests all judgments again"
                ) from None

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Reserve the connection for this thread, and run the block in one transaction.

        If the block raises an exception, the transaction is rolled back.

        Raises:
            LedgerError: The file can no longer be used, or is closed.
        """
        with self.working() as db, in_transaction(db):
            yield db

    def close(self) -> None:
        """Close the file permanently."""
        with self.lock:
            self.is_closed = True
            self._disconnect()

    def before_fork(self) -> None:
        """Close the connection before a fork, and acquire the lock.

        `after_fork` releases the lock. Until then, no thread can open the connection.
        """
        self.lock.acquire()
        self._disconnect()

    def after_fork(self, in_child: bool) -> None:
        """Release the lock after a fork. The connection is opened again at its next use.

        Args:
            in_child: Whether this is the child process, which gets a new lock.
        """
        if in_child:
            self.lock = threading.RLock()
        else:
            self.lock.release()

    def _disconnect(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None
            # SQLite may have deleted them.
            self._beside = {}

    def _connect(self) -> sqlite3.Connection:
        self._refuse_foreign_file()
        db = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Create or update the tables, and set the journal mode."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                with in_transaction(db):
                    if not db.execute("PRAGMA user_version").fetchone()[0]:
                        for statement in SCHEMA:
                            db.execute(statement)
                    for statement in ADDED:
                        db.execute(statement)
                # After the schema: another process would refuse a file in WAL mode that has no application id yet.
                mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                # If several processes create the file concurrently, SQLite fails without waiting when it changes the
                # mode.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise LedgerError(
                f"`path` {self._name!r} is on a disk where processes cannot share it: name a file on a local disk"
            )
        db.execute("PRAGMA synchronous = NORMAL")
        # The first read creates the two files next to a new database.
        db.execute("SELECT count(*) FROM owners").fetchone()

    def _refuse_other_file(self) -> None:
        """Raise if the opened file is no longer at its path. SQLite would continue to write to the deleted file.

        Raises:
            LedgerError: The file, or a file that SQLite keeps next to it, was deleted, renamed or replaced.
        """
        if self._identity is not None and _find_identity(self._path) != self._identity:
            raise LedgerError(
                f"`path` {self._name!r} was deleted, renamed or replaced while it was open: put the file back, if you "
                "have it, and start again; without this error, further judgments would be paid for and lost"
            )
        for path, identity in self._beside.items():
            if _find_identity(path) != identity:
                raise LedgerError(
                    f"`path` {self._name!r}: its file {path!r} was deleted, renamed or replaced while it was "
                    "open: start again; without this error, a crash would lose further judgments, and other "
                    "processes could damage the ledger"
                )

    def _refuse_foreign_file(self) -> None:
        """Raise if the file exists and is not a ledger of this version. The file is not written.

        Raises:
            LedgerError: The path is not a regular file, or the file is not a ledger of this version.
        """
        name = self._name
        try:
            state = self._path.stat()
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise LedgerError(f"`path` {name!r} cannot be opened ({reason}): name another file") from None
        if not stat.S_ISREG(state.st_mode):
            raise LedgerError(f"`path` {name!r} is not a file: name one, such as 'run.sqlite'")
        if not state.st_size:
            return
        # The first read takes no lock. Therefore it may see a file that another process is still creating. The second
        # read waits for that process.
        header = self._header(locked=False) or self._header(locked=True)
        if header is None:
            raise LedgerError(
                f"`path` {name!r} is not an SQLite file, so it is not a ledger: name another or a new file; it is "
                "unchanged"
            )
        application, version = header
        if application != APPLICATION_ID:
            raise LedgerError(
                f"`path` {name!r} is the SQLite file of another program, not a ledger: name another or a new file; it "
                "is unchanged"
            )
        if version != SCHEMA_VERSION:
            library = "update the library" if version > SCHEMA_VERSION else "use the older library that wrote it"
            raise LedgerError(
                f"`path` {name!r} is a ledger of version {version!r}, and this library reads version {SCHEMA_VERSION}: "
                f"{library}, or name a new file, for which all judgments are requested again; it is unchanged"
            )

    def _header(self, locked: bool) -> tuple[int, int] | None:
        """Return the application id and the schema version of the file, or None if it is not an SQLite file."""
        # Not read with `open`: closing a file drops all locks on it that this process has through other connections.
        uri = f"{self._path.as_uri()}?mode=ro&immutable={int(not locked)}"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as db:
            try:
                application = db.execute("PRAGMA application_id").fetchone()[0]
                return application, db.execute("PRAGMA user_version").fetchone()[0]
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB or not locked:
                    return None
                raise


@contextmanager
def in_transaction(db: sqlite3.Connection) -> Generator[None]:
    """Run the block in one transaction. If the block raises an exception, the transaction is rolled back."""
    with db:
        # IMMEDIATE, because a transaction that begins with a read fails without waiting if another process writes
        # before its first write.
        db.execute("BEGIN IMMEDIATE")
        yield


def _find_identity(path: Path | str) -> tuple[int, int] | None:
    try:
        state = os.stat(path)  # noqa: PTH116 -- several times faster than `Path.stat`, for each batch
    except OSError:
        return None
    return state.st_dev, state.st_ino


# SQLite's locks belong to a process: with a connection that it inherited by a fork, the child would rely on locks that
# only its parent has, and lose its writes when the parent closes the file. Therefore every connection is closed before
# a fork.
_files: WeakSet[LedgerFile] = WeakSet()
_suspended: list[LedgerFile] = []
_fork_lock = threading.RLock()


def _before_fork() -> None:
    _fork_lock.acquire()
    for file in sorted(_files, key=id):
        file.before_fork()
        _suspended.append(file)


def _after_fork(in_child: bool) -> None:
    while _suspended:
        _suspended.pop().after_fork(in_child)
    # Only the thread that forked exists in the child. Therefore this thread has the lock there, too.
    _fork_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )


Item = TypeVar("Item")
Output = TypeVar("Output")


def _ignore(_item: object, _result: object) -> None:
    pass


class Batcher(Generic[Item, Output]):
    """Makes an async function of one item from a function of many items, for example to write them in one transaction.

    Items that are passed during one tick of an event loop form one batch. Each event loop has separate batches.

    Args:
        run: A function that returns the results for some items, in the order of the items. If it raises an exception,
            every caller of the batch gets the exception.
        discard: A function that gets the item and the result of a caller that was cancelled. Once a caller has passed
            an item, the item stays in the batch, even if the caller is cancelled before the batch runs.

    Example:
        >>> async def double_two() -> list[int]:
        ...     return await asyncio.gather(double(1), double(2))
        >>> double = Batcher[int, int](lambda numbers: [2 * number for number in numbers])
        >>> asyncio.run(double_two())
        [2, 4]
    """

    def __init__(
        self, run: Callable[[Sequence[Item]], Sequence[Output]], discard: Callable[[Item, Output], None] = _ignore
    ):
        self._run, self._discard = run, discard
        self._pending: dict[asyncio.AbstractEventLoop, list[_Call[Item, Output]]] = {}

    async def __call__(self, item: Item) -> Output:
        """Return the result for one item, once the batch of this tick has run.

        Raises:
            Exception: The error that `run` raised.
        """
        loop = asyncio.get_running_loop()
        call: _Call[Item, Output] = _Call(item, loop.create_future())
        calls = self._pending.setdefault(loop, [])
        calls.append(call)
        if len(calls) == 1:
            loop.call_soon(self._run_batch, loop)
        try:
            return await call.future
        except BaseException:
            # The caller was cancelled, or its coroutine was closed by the garbage collector. Either may happen after
            # the batch has set the result and before the caller resumes.
            call.is_abandoned = True
            if call.has_result:
                self._discard(item, call.future.result())
            raise

    def _run_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = self._pending.pop(loop)
        try:
            results = self._run([call.item for call in calls])
        except Exception as error:  # noqa: BLE001 -- passed on to the callers
            for call in calls:
                if call.is_awaited:
                    call.future.set_exception(error)
            return
        for call, result in zip(calls, results, strict=True):
            if call.is_awaited:
                call.future.set_result(result)
            else:
                self._discard(call.item, result)


class _Call(Generic[Item, Output]):
    def __init__(self, item: Item, future: asyncio.Future[Output]):
        self.item, self.future, self.is_abandoned = item, future, False

    @property
    def is_awaited(self) -> bool:
        return not self.is_abandoned and not self.future.cancelled()

    @property
    def has_result(self) -> bool:
        return self.future.done() and not self.future.cancelled() and not self.future.exception()


# A judgment that is already stored is not replaced: if an owner's lease expired, another caller has requested the
# judgment since, and other callers may have read it.
_STORE = (
    "INSERT INTO judgments VALUES (?, 'stored', ?, ?, NULL) ON CONFLICT (key) DO UPDATE"
    " SET status = 'stored', judgment = excluded.judgment, at = excluded.at, owner = NULL"
    " WHERE status = 'leased'"
)


def store_rows(db: sqlite3.Connection, judgments: Mapping[str, Judgment]) -> dict[str, str]:
    """Store judgments in the caller's transaction.

    Returns:
        The earlier judgments that were already stored under the same keys and differ from the new judgments, as JSON by
        key. The ledger keeps these earlier judgments.
    """
    now, texts = time.time(), {key: judgment.model_dump_json() for key, judgment in judgments.items()}
    if db.executemany(_STORE, [(key, text, now) for key, text in texts.items()]).rowcount == len(texts):
        return {}
    query = "SELECT judgment FROM judgments WHERE key = ?"
    stored = {key: db.execute(query, (key,)).fetchone()[0] for key in texts}
    return {key: stored[key] for key, text in texts.items() if stored[key] != text}
