"""The tables of a ledger in a PostgreSQL database: made on first use, and refused if they are of another version."""

from __future__ import annotations

from typing import Any

import psycopg

from rubric_integrations.runs.ledger.errors import LedgerError

Connection = psycopg.Connection[tuple[Any, ...]]

# Raise it with every change of the schema: tables of another version are refused.
SCHEMA_VERSION = 1

# Texts from outside are stored as JSON in ASCII: PostgreSQL stores neither NUL nor half an emoji as text, and `jsonb`
# would refuse their escapes, too.
_TABLES = (
    "CREATE TABLE rubric_ledger (version int NOT NULL)",
    # A row without a judgment is a lease of its owner.
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
    # What was submitted to the batch APIs of providers, and not collected yet.
    "CREATE TABLE rubric_batches (number bigserial PRIMARY KEY, id text UNIQUE NOT NULL, record text NOT NULL)",
)
# Any number that other programs are unlikely to use.
_LOCK = "SELECT pg_advisory_xact_lock(8241996540317)"
# Not `to_regclass`, which after a wait for the lock does not know yet what other processes have made meanwhile.
_EXISTS = "SELECT FROM pg_class WHERE relname = 'rubric_ledger' AND pg_table_is_visible(oid)"


def prepare(db: Connection, name: str, *, create: bool) -> None:
    """Check that the database has the tables of a ledger of this version.

    Args:
        db: The connection.
        name: The ledger, for messages.
        create: Whether to make the tables if there are none.

    Raises:
        LedgerError: The tables are of another version, or there are none and they are not to be made.
    """
    version = _version(db)
    if version is None and create:
        if db.execute("SELECT current_schema()").fetchone() == (None,):
            raise LedgerError(
                f"{name}: its `search_path` names no schema that exists: make it with `CREATE SCHEMA`, or name another"
            )
        with db.transaction():
            # Of several processes, one makes the tables; the lock ends with the transaction.
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
