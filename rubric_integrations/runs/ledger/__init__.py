"""Judgments on disk, each bought once by all tasks, threads and processes that share the file, and across crashes."""

from rubric_integrations.runs.ledger.sqlite import LedgerError
from rubric_integrations.runs.ledger.store import FailureRecord, Ledger

__all__ = ["FailureRecord", "Ledger", "LedgerError"]
