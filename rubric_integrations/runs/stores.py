"""The store of a run: where its judgments go, and what else its ledger records."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rubric_integrations.graders import Grader
from rubric_integrations.judges.spend_limit import SpendLimit
from rubric_integrations.judges.stored import JudgmentStore
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.files import Row

if TYPE_CHECKING:
    from rubric_integrations.runs.ledger import LedgerLike, RunLedger


def check_run_name(name: str | None, ledger: LedgerLike | None) -> str | None:
    """Return the name of a run whose limits hold for all its processes.

    Raises:
        ValueError: There is a name, and no ledger.
    """
    if name is not None and ledger is None:
        raise ValueError(f"`run` {name!r} needs a `ledger`, which counts what all processes of that run spend")
    return name


class RunStore:
    """The open store of a run, or none.

    Args:
        store: A ledger or another store of judgments, which records nothing else; None if judgments are not stored.
    """

    def __init__(self, store: JudgmentStore | None = None):
        from rubric_integrations.runs.ledger import RunLedger

        self._store = store
        self._ledger: RunLedger | None = store if isinstance(store, RunLedger) else None
        self._reused_before = self._ledger.reused if self._ledger else 0

    @property
    def reused(self) -> int:
        """The number of judgments that were read since the run began; 0 if nobody counts them."""
        return self._ledger.reused - self._reused_before if self._ledger else 0

    def attach(self, grader: Grader) -> Grader:
        """Return a grader that uses the store, and record its configuration."""
        if self._ledger:
            self._ledger.record_grader(grader.configuration())
        return grader.with_store(self._store) if self._store else grader

    def record(self, row: Row, rubric: Rubric | None) -> None:
        """Record the submission of a row, and the rubric that it brought."""
        if self._ledger and row.submission:
            self._ledger.record_submission(row.id, row.submission, rubric)

    def share_limits(self, run: str | None, limit: SpendLimit) -> None:
        """Divide the limits with the other processes of a run with a name.

        Raises:
            TypeError: The store does not count what is spent.
        """
        if run is None:
            return
        if self._ledger is None:
            kind = type(self._store).__name__
            raise TypeError(f"`run` needs a `ledger` that counts what its processes spend, got {kind}")
        limit.share(partial(self._ledger.claim_spend, run, limit.part))


@contextmanager
def open_store(ledger: LedgerLike | None) -> Generator[RunStore]:
    """Open the ledger of a run if it is an address, and close it at the end.

    Raises:
        LedgerError: The ledger cannot be used.
    """
    if ledger is None:
        yield RunStore()
        return
    from rubric_integrations.runs.ledger import use_ledger

    with use_ledger(ledger) as store:
        yield RunStore(store)
