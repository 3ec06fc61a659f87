"""Stores of judgments, which request each judgment once for any number of tasks, threads and processes.

There are two kinds: `Ledger` is an SQLite file for the processes of one machine. `PostgresLedger` is a PostgreSQL
database for any number of machines. `open_ledger` opens either of them by its address. `runs/ledger/base.py` has their
common code.
"""

from rubric_integrations.runs.ledger.addresses import open_ledger, use_ledger
from rubric_integrations.runs.ledger.base import FailureRecord, LedgerError, LedgerLike, RunLedger
from rubric_integrations.runs.ledger.store import Ledger

__all__ = ["FailureRecord", "Ledger", "LedgerError", "LedgerLike", "RunLedger", "open_ledger", "use_ledger"]
