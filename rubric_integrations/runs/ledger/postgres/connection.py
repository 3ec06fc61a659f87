"""Connects to PostgreSQL, creates the tables, and runs the transactions of a ledger in one thread with one connection.

Calls that arrive during a transaction form the next transaction. A transaction is sent as one pipeline and takes one
round trip, for any number of callers. If the connection is lost before the reply, it is unknown whether the transaction
was committed, and the transaction is repeated. Therefore every statement must have the same effect if it is executed
twice. Tables of another version are refused.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import IntEnum
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rubric_integrations.judges.credentials import redact
from rubric_integrations.runs.ledger.base import LedgerError

Connection = psycopg.Connection[tuple[Any, ...]]

# Raise it with every change of the schema: tables of another version are refused.
SCHEMA_VERSION = 1

# Texts from outside are stored as JSON in ASCII: PostgreSQL stores neither NUL nor half an emoji as text, and `jsonb`
# would refuse their escapes, too.
_TABLES = (
    "CREATE TABLE rubric_ledger (version int NOT NULL)",
    # A row without a judgment is a lease of its owner, or a contested key (see `leases.py`) that no process has leased.
    "CREATE TABLE rubric_judgments"
    " (key text PRIMARY KEY, owner text, judgment text, at timestamptz NOT NULL DEFAULT clock_timestamp())",
    "CREATE INDEX rubric_leases ON rubric_judgments (owner) WHERE judgment IS NULL",
    "CREATE TABLE rubric_owners (owner text PRIMARY KEY, host text NOT NULL, pid bigint NOT NULL,"
    " beat timestamptz NOT NULL DEFAULT clock_timestamp())",
    "CREATE TABLE rubric_rubrics (hash text PRIMARY KEY, rubric text NOT NULL)",
    "CREATE TABLE rubric_files (sha256 text PRIMARY KEY, content bytea NOT NULL)",
    "CREATE TABLE rubric_submissions (number bigserial PRIMARY KEY,"
    " hash text UNIQUE NOT NULL, id text NOT NULL, submission text NOT NULL, rubric text)",
    "CREATE TABLE rubric_graders (hash text PRIMARY KEY, grader text NOT NULL, at timestamptz NOT NULL)",
    "CREATE TABLE rubric_failures (key text PRIMARY KEY, kind text NOT NULL, message text NOT NULL,"
    " at timestamptz NOT NULL, times bigint NOT NULL, batch text NOT NULL)",
    "CREATE TABLE rubric_spending (run text, part text, calls bigint NOT NULL, cost double precision NOT NULL,"
    " PRIMARY KEY (run, part))",
    # The batches that were submitted to the batch APIs of providers.
    "CREATE TABLE rubric_batches (number bigserial PRIMARY KEY, id text UNIQUE NOT NULL, record text NOT NULL)",
)
# An arbitrary number that other programs are unlikely to use.
_LOCK = "SELECT pg_advisory_xact_lock(8241996540317)"
# Not `to_regclass`: after a wait for the lock, it does not see tables that other processes created in the meantime.
_EXISTS = "SELECT FROM pg_class WHERE relname = 'rubric_ledger' AND pg_table_is_visible(oid)"


def prepare(db: Connection, name: str, *, create: bool) -> None:
    """Check that the database has the tables of a ledger of this version.

    Args:
        db: The connection.
        name: The name of the ledger, for messages.
        create: Whether to create the tables if there are none.

    Raises:
        LedgerError: The tables are of another version, or there are none and `create` is False.
    """
    version = _version(db)
    if version is None and create:
        if db.execute("SELECT current_schema()").fetchone() == (None,):
            raise LedgerError(
                f"{name}: its `search_path` names no schema that exists: make it with `CREATE SCHEMA`, or name another"
            )
        with db.transaction():
            # Only one of several processes creates the tables. The lock ends with the transaction.
            db.execute(_LOCK)
            version = _version(db)
            if version is None:
                for statement in _TABLES:
                    db.execute(statement)
                db.execute("INSERT INTO rubric_ledger VALUES (%s)", (SCHEMA_VERSION,))
                return
    if version is None:
        raise LedgerError(
            f"{name}: its tables were deleted while it was open: put them back, if you have a backup, and start again; "
            "without this error, further judgments would be paid for and lost"
        )
    if version != SCHEMA_VERSION:
        remedy = "update the library" if version > SCHEMA_VERSION else "use the older library that wrote it"
        raise LedgerError(
            f"{name} is a ledger of version {version}, and this library reads version {SCHEMA_VERSION}: {remedy}, or "
            "name another database or schema, for which all judgments are requested again; it is unchanged"
        )


def _version(db: Connection) -> int | None:
    if not db.execute(_EXISTS).rowcount:
        return None
    version = db.execute("SELECT version FROM rubric_ledger").fetchone()
    return version[0] if version else 0


# Used for settings that the URL does not have. Without them, a lost machine would be noticed only after hours.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "fallback_application_name": "rubric-integrations",
}
# Codes of errors after which the same transaction may succeed: two transactions had a conflict, or the server is
# stopping or starting, has no free connection, or no longer accepts writes after a failover.
_PASSING = frozenset({"40001", "40P01", "57P01", "57P02", "57P03", "53300", "25006"})


class Server:
    """A PostgreSQL database on a server, identified by its URL.

    Args:
        url: The URL, with any settings that libpq reads from a URL, such as `sslmode`.

    Attributes:
        address: The URL without user, password and options.

    Raises:
        LedgerError: libpq cannot read the URL.
    """

    def __init__(self, url: str):
        self._url = url
        try:
            self._settings = conninfo_to_dict(url)
        except (psycopg.Error, ValueError):
            # libpq quotes the part that it cannot read, which may be the password.
            raise LedgerError(
                "`ledger` is not a URL that PostgreSQL's library can read: write "
                "'postgresql://user@host:5432/database?sslmode=require', and percent-encode special characters of "
                "user and password"
            ) from None
        self.address = _address_of(self._settings)

    def __repr__(self) -> str:
        return f"Server({self.address!r})"

    def connect(self, *, create: bool) -> Connection:
        """Connect to the server and check the tables.

        Args:
            create: Whether to create the tables if there are none.

        Raises:
            psycopg.Error: The server cannot be reached or used.
            LedgerError: The tables are of another version, or there are none and `create` is False.
        """
        defaults = {name: value for name, value in _DEFAULTS.items() if name not in self._settings}
        # Without prepared statements or other session state, because there may be a connection pool between this
        # process and the server.
        db = psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **defaults)
        try:
            prepare(db, self.address, create=create)
        except BaseException:
            db.close()
            raise
        return db

    def passes(self, error: BaseException, db: Connection | None) -> bool:
        """Whether an error is temporary, so a repeated transaction may succeed.

        Temporary errors are a conflict between transactions, a server that restarts, and a server that cannot be
        reached.

        Args:
            error: The error of a transaction, or of `connect`.
            db: The connection, or None if there was none.
        """
        if not isinstance(error, psycopg.Error):
            return False
        # An operational error without a code is not from the server: the connection is lost, or about to be.
        is_lost = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
        return db is None or db.closed or is_lost or error.sqlstate in _PASSING

    def reason(self, error: Exception) -> str:
        """Return the message of an error in one line, without secrets."""
        secrets = {"password": self._settings.get("password"), "url": self._url}
        return " ".join(redact(str(error), secrets).split())

    def error(self, error: Exception) -> LedgerError:
        """Return the `LedgerError` that a user sees instead of an error of the database. It contains no secrets."""
        if isinstance(error, LedgerError):
            return error
        return LedgerError(
            f"{self.address} cannot be used ({self.reason(error)}): the judgments so far are stored; make sure that "
            "the server runs and that the user may create and write tables, and start again: only the missing "
            "judgments are requested"
        )


def _address_of(settings: dict[str, Any]) -> str:
    host, port, database = (str(settings.get(name) or "") for name in ("host", "port", "dbname"))
    # In a malformed URL, libpq may mistake parts of the password for these.
    if "@" in host + database or not port.replace(",", "").isdigit():
        port = ""
    if "@" in host + database:
        host = database = "..."
    return f"postgresql://{host}{':' if port else ''}{port}/{database}"


_logger = logging.getLogger(__name__)

# Seconds to wait for a lost server before the callers get an error.
OUTAGE_SECONDS = 300.0
# Seconds between two attempts to reach the server. The pause grows from the first value to the second.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
# The largest number of calls in one transaction.
MAX_CALLS = 1_000

Item = TypeVar("Item")
Output = TypeVar("Output")

Read = Callable[[], Sequence[Output]]
"""The type of a function that returns one result for each item, after the transaction is committed."""
Send = Callable[[Connection, Sequence[Item]], Read[Output]]
"""The type of a function that sends the statements for some items, without waiting for their results."""


def send_queries(db: Connection, queries: Sequence[tuple[str, tuple[object, ...]]]) -> Read[list[Any]]:
    """Send queries with their values, as a part of a transaction and without waiting for the rows.

    Returns:
        A function that returns the list of rows of each query, after the transaction is committed.
    """
    cursors = [db.execute(query.encode(), values) for query, values in queries]
    return lambda: [cursor.fetchall() for cursor in cursors]


class Phase(IntEnum):
    """The position of a call within its transaction. Calls with a smaller value are executed first.

    For example, judgments are stored (`STORE`) before their leases end (`RELEASE`).
    """

    # First, because it locks an entire run. Two transactions could wait for each other if one of them had locked rows
    # before.
    CLAIM = 0
    RECORD = 1
    EXPIRE = 2
    STORE = 3
    RELEASE = 4
    ACQUIRE = 5
    READ = 6


class Upkeep(Protocol):
    """The tasks that a `Worker` does by itself: it sends heartbeats, and ends the leases when it closes."""

    def due_in(self) -> float | None:
        """Return the seconds until the next heartbeat, or None if no heartbeat is needed."""
        ...

    def send_beat(self, db: Connection) -> Callable[[], None]:
        """Send a heartbeat as a part of a transaction.

        Returns:
            A function that must be called after the commit. It notes the time of the heartbeat, or that the leases are
            lost.
        """
        ...

    def send_farewell(self, db: Connection) -> None:
        """Send the statements that end all leases."""
        ...

    def abandon_leases(self) -> None:
        """Give up all leases and continue as a new owner. The old leases expire, because they get no heartbeats.

        The worker calls this method after an error, because some leases may not have been released.
        """
        ...


class _Call:
    __slots__ = ("future", "item", "phase", "send")

    def __init__(self, phase: Phase, send: Send[Any, Any], item: object, future: Future[Any] | None):
        self.phase, self.send, self.item, self.future = phase, send, item, future


class Worker:
    """Runs the transactions of a ledger in a thread, and reconnects if the connection to the server is lost.

    Each process has one worker for each ledger.

    Args:
        server: The database.
        db: An open connection, or None if the thread has to connect.

    Attributes:
        upkeep: The object that sends heartbeats and ends leases. None until `PostgresLeases` sets it, before the first
            call.
    """

    def __init__(self, server: Server, db: Connection | None):
        self._server, self._db = server, db
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        # Reentrant: while this thread holds it, the garbage collector may run here and release an abandoned lease.
        self._lock, self._closing = threading.RLock(), threading.Event()
        self._lost_since: float | None = None
        self._gave_up = self._has_warned = False
        self._unreported: LedgerError | None = None
        self.upkeep: Upkeep | None = None
        self._thread = threading.Thread(target=self._run, name="rubric-integrations-ledger", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing.is_set()

    async def call(
        self,
        phase: Phase,
        send: Send[Item, Output],
        item: Item,
        discard: Callable[[Output], None] | None = None,
    ) -> Output:
        """Add a call to the next transaction, and wait for its result.

        Args:
            phase: The position of the call within the transaction.
            send: A function that sends the statements. The worker calls it once for all waiting calls with the same
                `phase` and `send`, with the list of their items.
            item: The data of this call, which becomes one entry of the list that `send` gets.
            discard: A function that gets the result instead of the caller, if the caller was cancelled.

        Raises:
            LedgerError: The database cannot be used, or the ledger is closed.
        """
        future = self._put(phase, send, item)
        try:
            return await asyncio.wrap_future(future)
        except BaseException:
            if discard is not None:
                # The caller was cancelled, or its coroutine was closed by the garbage collector.
                future.add_done_callback(lambda done: None if done.exception() else discard(done.result()))
            raise

    def call_sync(self, phase: Phase, send: Send[Item, Output], item: Item, timeout: float | None = None) -> Output:
        """Add a call to the next transaction, and block until its result is available.

        Args:
            phase: The position of the call within the transaction.
            send: A function that sends the statements. The worker calls it once for all waiting calls with the same
                `phase` and `send`, with the list of their items.
            item: The data of this call, which becomes one entry of the list that `send` gets.
            timeout: The longest time to wait, in seconds. None waits without a limit.

        Raises:
            TimeoutError: The result is not available after `timeout` seconds.
            LedgerError: The database cannot be used, or the ledger is closed.
        """
        return self._put(phase, send, item).result(timeout)

    def post(self, phase: Phase, send: Send[Item, Any], item: Item) -> None:
        """Add a call to the next transaction, without waiting for it.

        If the call fails, the next `call` or `call_sync` may raise its error.

        Args:
            phase: The position of the call within the transaction.
            send: A function that sends the statements. The worker calls it once for all waiting calls with the same
                `phase` and `send`, with the list of their items.
            item: The data of this call, which becomes one entry of the list that `send` gets.

        Raises:
            LedgerError: The ledger is closed.
        """
        # Without the lock, because the garbage collector may call this in any thread, including the thread of the
        # worker.
        if self._closing.is_set():
            raise self._closed_error()
        self._queue.put(_Call(phase, send, item, None))

    def close(self) -> None:
        """Run all calls made so far, end all leases, and close the connection."""
        with self._lock:
            self._closing.set()
            self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _put(self, phase: Phase, send: Send[Item, Output], item: Item) -> Future[Output]:
        """Add a call to the queue of the thread that writes."""
        future = Future[Output]()
        # The future is marked as running immediately. Otherwise a cancelled caller would cancel a call that is part of
        # a transaction.
        future.set_running_or_notify_cancel()
        call = _Call(phase, send, item, future)
        # No call may be added after the end of the queue, because the thread would not run it.
        with self._lock:
            if self._closing.is_set():
                raise self._closed_error()
            if (error := self._unreported) is not None:
                self._unreported = None
                raise error
            self._queue.put(call)
        return future

    def _closed_error(self) -> LedgerError:
        return LedgerError(f"the ledger {self._server.address!r} is closed: keep it open until all grades are done")

    def _run(self) -> None:
        while self._run_once():
            pass
        if self._db is not None and not self._db.closed:
            try:
                if self.upkeep is not None:
                    self.upkeep.send_farewell(self._db)
            except Exception as error:  # noqa: BLE001 -- the leases expire by themselves
                _logger.debug("the leases could not be ended: %s", self._server.reason(error))
            self._db.close()

    def _run_once(self) -> bool:
        # In a separate function: no call may stay alive while the thread waits, because a call keeps its ledger alive.
        calls, is_open = self._gather()
        if calls or self._is_beat_due():
            self._execute(calls)
        return is_open

    def _is_beat_due(self) -> bool:
        due_in = self.upkeep.due_in() if self.upkeep is not None else None
        return due_in is not None and due_in <= 0

    def _gather(self) -> tuple[list[_Call], bool]:
        """Wait for a call or for the next heartbeat.

        Returns:
            The calls in the queue, and whether more calls may come.
        """
        calls: list[_Call] = []
        timeout = self.upkeep.due_in() if self.upkeep is not None else None
        try:
            call = self._queue.get(timeout=None if timeout is None else max(0.0, timeout))
            while True:
                if call is None:
                    return calls, False
                calls.append(call)
                if len(calls) >= MAX_CALLS:
                    return calls, True
                call = self._queue.get_nowait()
        except Empty:
            return calls, True

    def _execute(self, calls: Sequence[_Call]) -> None:
        """Run some calls in one transaction, repeat it while the server is lost, and pass the results on."""
        pause = SHORTEST_PAUSE
        while True:
            had_connection = self._db is not None
            try:
                groups = self._transact(calls)
                break
            except Exception as error:  # noqa: BLE001 -- passed on to the callers
                if self._is_over(error, had_connection=had_connection):
                    self._fail(calls, self._server.error(error))
                    return
            self._closing.wait(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)
        if self._has_warned:
            _logger.warning("the ledger %s answers again", self._server.address)
        self._lost_since, self._gave_up, self._has_warned = None, False, False
        for group, read in groups:
            try:
                results = read()
            except Exception as error:  # noqa: BLE001 -- passed on to the callers
                self._fail(group, error)
                continue
            for call, result in zip(group, results, strict=True):
                if call.future is not None:
                    call.future.set_result(result)

    def _transact(self, calls: Sequence[_Call]) -> list[tuple[list[_Call], Read[Any]]]:
        """Send the calls in one transaction, grouped by kind and in the order of their phases."""
        if self._db is None or self._db.closed:
            self._db = self._server.connect(create=False)
        by_kind: dict[tuple[Phase, Send[Any, Any]], list[_Call]] = defaultdict(list)
        for call in calls:
            by_kind[call.phase, call.send].append(call)
        after = None
        with self._db.pipeline(), self._db.transaction():
            if self.upkeep is not None and self._is_beat_due():
                after = self.upkeep.send_beat(self._db)
            groups = [
                (group, send(self._db, [call.item for call in group]))
                for (_, send), group in sorted(by_kind.items(), key=lambda entry: entry[0][0])
            ]
        if after is not None:
            after()
        return groups

    def _is_over(self, error: Exception, *, had_connection: bool) -> bool:
        """Whether to give up after an error instead of waiting for the server."""
        passes = self._server.passes(error, self._db)
        if self._db is not None:
            # After an error in a pipeline, the state of the connection is unknown.
            self._db.close()
            self._db = None
        if not passes:
            return True
        now = time.monotonic()
        if self._lost_since is None:
            self._lost_since = now
        # No warning yet if the existing connection was lost: a new connection may succeed.
        if not had_connection and not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "the ledger %s cannot be reached (%s): the run waits for it, for up to %g seconds",
                self._server.address, self._server.reason(error), OUTAGE_SECONDS,
            )  # fmt: skip
        self._gave_up = self._gave_up or self._closing.is_set() or now - self._lost_since >= OUTAGE_SECONDS
        return self._gave_up

    def _fail(self, calls: Sequence[_Call], error: Exception) -> None:
        if self.upkeep is not None:
            self.upkeep.abandon_leases()
        waiting = [call.future for call in calls if call.future is not None]
        for future in waiting:
            future.set_exception(error)
        if not waiting and isinstance(error, LedgerError):
            # The next caller gets the error.
            self._unreported = error
