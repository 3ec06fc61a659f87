"""Stores of judgments. Tasks, threads and processes that share a store request each judgment once.

There are two kinds: `Ledger` is an SQLite file for the processes of one machine. `PostgresLedger` is a PostgreSQL
database for any number of machines. `open_ledger` opens either of them by its address. `runs/ledger/base.py` has their
common code.
"""

from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.runs.ledger.addresses import open_ledger, use_ledger
from rubric_integrations.runs.ledger.base import FailureRecord, LedgerError, RunLedger
from rubric_integrations.runs.ledger.store import Ledger

__all__ = ["FailureRecord", "Ledger", "LedgerError", "LedgerLike", "RunLedger", "open_ledger", "use_ledger"]
