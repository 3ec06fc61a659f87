"""The batches that a ledger stores: their records as JSON, by id."""

from __future__ import annotations

from rubric_integrations.runs.ledger.sqlite import LedgerFile


class StoredBatches:
    """The part of `Ledger` that stores batches (see `rubric_integrations.runs.batches`)."""

    _file: LedgerFile

    def save_batch(self, batch_id: str, record: str) -> None:
        """Store the record of a batch, in place of an earlier one; not even a power failure loses it.

        Args:
            batch_id: Its id.
            record: Its record, as JSON.
        """
        query = "INSERT INTO batches (id, record) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record"
        with self._file.working() as db:
            # If the intent were lost, the batch would be submitted again. Judgments may be lost: they are requested.
            db.execute("PRAGMA synchronous = FULL")
            try:
                db.execute(query, (batch_id, record))
            finally:
                db.execute("PRAGMA synchronous = NORMAL")

    def batches(self) -> dict[str, str]:
        """Return the records of all batches by id, the oldest first."""
        with self._file.working() as db:
            return dict(db.execute("SELECT id, record FROM batches ORDER BY number").fetchall())
