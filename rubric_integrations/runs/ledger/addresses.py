"""Opens ledgers by their address: the path of a file, or the URL of a database.

To add a kind of ledger, write a class with the methods of `RunLedger`, and add a line to `LEDGERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from os import PathLike, fspath

from rubric_integrations._util.extras import install_command
from rubric_integrations.judges.stored import JudgmentStore
from rubric_integrations.runs.ledger.errors import LedgerError
from rubric_integrations.runs.ledger.protocol import LedgerLike, RunLedger
from rubric_integrations.runs.ledger.store import Ledger

# A letter and a colon are the drive of a Windows path.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def _open_postgres(url: str) -> RunLedger:
    try:
        from rubric_integrations.runs.ledger.postgres import PostgresLedger
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("psycopg", "psycopg_binary", "psycopg_c") and error.name:
            raise
        raise LedgerError(f"a ledger in PostgreSQL needs psycopg: {install_command('postgres')}") from None
    return PostgresLedger(url)


LEDGERS: dict[str, Callable[[str], RunLedger]] = {
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
}
"""How to open a ledger, by the scheme of its URL; whatever has none is a file."""


def open_ledger(address: str | PathLike[str]) -> RunLedger:
    """Open a ledger, or make it.

    Args:
        address: The path of a file, such as `"run.sqlite"`, for all processes of one machine; or the URL of a
            PostgreSQL database, such as `"postgresql://user@host/database"`, for any number of machines.

    Raises:
        LedgerError: The address is neither, or the ledger cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, open_ledger(f"{folder}/run.sqlite") as ledger:
        ...     len(ledger)
        0
    """
    text = fspath(address)
    if scheme := scheme_of(text):
        return LEDGERS[scheme](text)
    return Ledger(address)


def as_store(ledger: LedgerLike) -> JudgmentStore:
    """Return a store as it is; open that of an address, which stays open.

    Raises:
        LedgerError: The ledger cannot be used.
    """
    return open_ledger(ledger) if isinstance(ledger, str | PathLike) else ledger


def scheme_of(address: str) -> str | None:
    """Return the scheme of a ledger's URL; None for the path of a file.

    Raises:
        LedgerError: It looks like a URL, and is not that of a ledger.

    Example:
        >>> scheme_of("postgresql://host/database"), scheme_of("run.sqlite"), scheme_of("C:/run.sqlite")
        ('postgresql', None, None)
    """
    scheme = address.partition(":")[0]
    if not (_URL.match(address) or scheme.lower() in LEDGERS):
        return None
    if address.startswith(tuple(f"{known}://" for known in LEDGERS)):
        return scheme
    # Without the rest, which may hold a password.
    raise LedgerError(
        f"`ledger` begins with {scheme + ':'!r} and is not the URL of a ledger: write it as a text such as "
        "'postgresql://user@host/database', or the path of a file, such as 'run.sqlite'; without this error, a file of "
        "this name would be made"
    )


@contextmanager
def use_ledger(ledger: LedgerLike) -> Generator[JudgmentStore]:
    """Return a ledger or another store as it is; open that of an address, and close it at the end.

    Raises:
        LedgerError: The ledger cannot be used.
    """
    if isinstance(ledger, str | PathLike):
        with open_ledger(ledger) as opened:
            yield opened
    else:
        yield ledger


def address_text(address: str | PathLike[str]) -> str:
    """Return an address for a message: a path, or a URL without user, password and options."""
    text = fspath(address)
    if scheme_of(text) is None:
        return text
    from rubric_integrations.runs.ledger.postgres.server import Server

    return Server(text).address
