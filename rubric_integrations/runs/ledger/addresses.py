"""Opens a ledger by its address: the path of a file, or the URL of a database.

To add a kind of ledger, write a class with the methods of `RunLedger`, and add a line to `LEDGERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path

from rubric_integrations._util.lazy import install_command
from rubric_integrations.judges.store import JudgmentStore, LedgerLike
from rubric_integrations.runs.ledger.base import LedgerError, RunLedger
from rubric_integrations.runs.ledger.store import Ledger

# A scheme has at least two letters, because one letter and a colon are the drive of a Windows path.
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
"""Functions that open a ledger, by the scheme of its URL. An address without such a scheme is a file."""


def open_ledger(address: str | PathLike[str]) -> RunLedger:
    """Open a ledger and create it if it does not exist.

    Args:
        address: The path of a file, such as `"run.sqlite"`, for all processes of one machine, or the URL of a
            PostgreSQL database, such as `"postgresql://user@host/database"`, for any number of machines. A file can
            also be written as a URL: `"sqlite:///run.sqlite"`, or `"sqlite:////data/run.sqlite"` for an absolute path.

    Raises:
        LedgerError: The address is neither the path of a file nor the URL of a ledger, or the ledger cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, open_ledger(f"{folder}/run.sqlite") as ledger:
        ...     len(ledger)
        0
    """
    path = path_of(address)
    if path is not None:
        return Ledger(path)
    url = fspath(address)
    return LEDGERS[url.partition(":")[0]](url)


def as_store(ledger: LedgerLike) -> JudgmentStore:
    """Return the store of judgments that a caller passed as `ledger`. An open store is returned unchanged.

    An address is opened as a ledger, which stays open.

    Raises:
        LedgerError: The ledger cannot be used.
    """
    return open_ledger(ledger) if isinstance(ledger, str | PathLike) else ledger


def path_of(address: str | PathLike[str]) -> Path | None:
    """Return the path of a ledger's file, or None for the URL of a database.

    Raises:
        LedgerError: The address looks like a URL but is not the URL of a ledger.

    Example:
        >>> path_of("postgresql://host/database"), str(path_of("run.sqlite")), str(path_of("sqlite:///run.sqlite"))
        (None, 'run.sqlite', 'run.sqlite')
    """
    text = fspath(address)
    scheme, _, rest = text.partition(":")
    if isinstance(address, str) and scheme.lower() == "sqlite" and text != scheme:
        # As in SQLAlchemy, a path that begins after the third slash is relative.
        path = rest.removeprefix("///")
        if path and not path.startswith("//"):
            return Path(path)
    elif not (_URL.match(text) or scheme.lower() in LEDGERS):
        return Path(text)
    elif text.startswith(tuple(f"{known}://" for known in LEDGERS)):
        return None
    # The message leaves out the rest of the address, which may contain a password.
    raise LedgerError(
        f"`ledger` begins with {scheme + ':'!r} and is not the URL of a ledger: write it as a text such as "
        "'postgresql://user@host/database' or 'sqlite:///run.sqlite', or the path of a file, such as 'run.sqlite'; "
        "without this error, a file of this name would be made"
    )


@contextmanager
def use_ledger(ledger: LedgerLike) -> Generator[JudgmentStore]:
    """Yield, for the block, the store of judgments that a caller passed as `ledger`.

    An open store is yielded unchanged.

    An address is opened as a ledger, which is closed at the end of the block.

    Raises:
        LedgerError: The ledger cannot be used.
    """
    if isinstance(ledger, str | PathLike):
        with open_ledger(ledger) as opened:
            yield opened
    else:
        yield ledger


def address_text(address: str | PathLike[str]) -> str:
    """Return an address for messages: the path, or the URL without user, password and options."""
    text = fspath(address)
    if path_of(address) is not None:
        return text
    from rubric_integrations.runs.ledger.postgres.connection import Server

    return Server(text).address
