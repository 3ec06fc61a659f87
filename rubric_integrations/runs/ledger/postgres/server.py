"""Connects to a PostgreSQL server, and tells errors that pass from those that stay."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rubric_integrations.judges.credentials import redact
from rubric_integrations.runs.ledger.errors import LedgerError
from rubric_integrations.runs.ledger.postgres.schema import Connection, prepare

# Where the URL says nothing: without them, a lost machine would be noticed after hours.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "fallback_application_name": "rubric-integrations",
}
# Codes of errors after which the same transaction may succeed: two transactions were in each other's way, or the server
# is stopped, starts, has no connection left, or is no longer the one that is written to.
_PASSING = frozenset({"40001", "40P01", "57P01", "57P02", "57P03", "53300", "25006"})


class Server:
    """A PostgreSQL server and its database, by a URL.

    Args:
        url: The URL, with all that libpq reads from one, such as `sslmode`.

    Attributes:
        address: The URL without user, password and options.

    Raises:
        LedgerError: It is not a URL that libpq can read.
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
        """Connect, and check the tables; make them if there are none and `create` is True.

        Raises:
            psycopg.Error: The server cannot be reached or used.
            LedgerError: The tables are not those of this version.
        """
        defaults = {name: value for name, value in _DEFAULTS.items() if name not in self._settings}
        # Without prepared statements and any other state of a session, so that a pool of connections may stand between.
        db = psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **defaults)
        try:
            prepare(db, self.address, create=create)
        except BaseException:
            db.close()
            raise
        return db

    def passes(self, error: BaseException, db: Connection | None) -> bool:
        """Whether an error may pass: a conflict, or a server that restarts, fails over or cannot be reached.

        Args:
            error: The error of a transaction, or of `connect`.
            db: The connection; None if it was not made.
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
        """Return the error that a user sees, without secrets."""
        if isinstance(error, LedgerError):
            return error
        return LedgerError(
            f"{self.address} cannot be used ({self.reason(error)}): the judgments so far are stored; make sure that "
            "the server runs and that the user may create and write tables, and start again: only the missing "
            "judgments are requested"
        )


def _address_of(settings: dict[str, Any]) -> str:
    host, port, database = (str(settings.get(name) or "") for name in ("host", "port", "dbname"))
    # Of a malformed URL, libpq may take parts of the password for these.
    if "@" in host + database or not port.replace(",", "").isdigit():
        port = ""
    if "@" in host + database:
        host = database = "..."
    return f"postgresql://{host}{':' if port else ''}{port}/{database}"
