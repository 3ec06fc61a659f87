"""The error of all ledgers."""

from __future__ import annotations

from rubric_integrations.judges.stored import StoreError


class LedgerError(StoreError, ValueError):
    """A file or a database is not a ledger, or can no longer be used as one; the judgments stored in it stay there."""
