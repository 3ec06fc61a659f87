"""The ledger that `--ledger` names: a file, or the URL of a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations.cli.console import refuse

if TYPE_CHECKING:
    from rubric_integrations.runs.ledger import RunLedger

LedgerAddress = Path | str
"""The path of a ledger's file, or the URL of a database as a text."""


def ledger_address(text: str) -> LedgerAddress:
    """Return the address that an option or an argument names, and refuse what is neither a path nor a ledger's URL."""
    from rubric_integrations.runs.ledger.addresses import scheme_of
    from rubric_integrations.runs.ledger.errors import LedgerError

    try:
        return Path(text) if scheme_of(text) is None else text
    except LedgerError as error:
        refuse(str(error))


def ledger_exists(address: LedgerAddress | None) -> bool:
    """Whether there is a ledger: a file that exists, or a database, whose tables are made on first use."""
    return address.exists() if isinstance(address, Path) else address is not None


def open_ledger(address: LedgerAddress) -> RunLedger:
    """Open a ledger, and refuse one that cannot be used."""
    from rubric_integrations.runs.ledger import LedgerError
    from rubric_integrations.runs.ledger import open_ledger as open_by_address

    try:
        return open_by_address(address)
    except LedgerError as error:
        refuse(str(error))


def open_ledger_of_run(address: LedgerAddress | None, run_name: str | None) -> RunLedger | None:
    """Open the ledger of a run, if it has one; a run that several processes share needs one."""
    if address is None and run_name is not None:
        refuse(f"--run {run_name}: name the ledger that its processes share, with --ledger")
    return None if address is None else open_ledger(address)
