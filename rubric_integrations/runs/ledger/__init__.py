"""A file of judgments, so that each is requested once, by any number of tasks, threads and processes, across crashes.

`store` has the `Ledger`, which uses the others: `sqlite` opens the file and lends one connection to all threads,
`rows` writes judgments, `leases` decides who may request a judgment, and `batching` joins concurrent reads or writes
into one transaction.
"""

from rubric_integrations.runs.ledger.rows import FailureRecord
from rubric_integrations.runs.ledger.sqlite import LedgerError
from rubric_integrations.runs.ledger.store import Ledger

__all__ = ["FailureRecord", "Ledger", "LedgerError"]
