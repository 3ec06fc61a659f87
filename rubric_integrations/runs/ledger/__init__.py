"""Stores of judgments, so that each is requested once, by any number of tasks, threads and processes.

There are two kinds: `Ledger` is a file, for the processes of one machine, and `postgres/` is a database, for any
number of machines. `open_ledger` opens either by its address (`addresses`).

`protocol` lists what a run uses of a ledger, and `leasing`, `submissions` and `errors` are what all kinds share.
`store` has the `Ledger`, which uses the others: `sqlite` opens the file and lends one connection to all threads, `rows`
writes judgments, `leases` decides who may request a judgment, and `batching` joins concurrent reads or writes into one
transaction.
"""

from rubric_integrations.runs.ledger.addresses import open_ledger, use_ledger
from rubric_integrations.runs.ledger.errors import LedgerError
from rubric_integrations.runs.ledger.protocol import FailureRecord, LedgerLike, RunLedger
from rubric_integrations.runs.ledger.store import Ledger

__all__ = ["FailureRecord", "Ledger", "LedgerError", "LedgerLike", "RunLedger", "open_ledger", "use_ledger"]
