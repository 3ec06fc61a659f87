"""Judgments on disk, each bought once by all tasks, threads and processes that share the file, and across crashes."""

from rubric_integrations.ledger.file import LedgerError
from rubric_integrations.ledger.store import Ledger, Lost

__all__ = ["Ledger", "LedgerError", "Lost"]
