"""What a run uses of a ledger, beside the judgments: the protocol of every kind of ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from rubric_integrations.judges.shared_spend import Claim, Shares
from rubric_integrations.judges.stored import JudgmentStore
from rubric_integrations.results.judgment import FailureKind, Judgment
from rubric_integrations.results.usage import Spend
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.rows import Row
from rubric_integrations.submission.submission import Submission

# Characters of a failure's message that are stored: a provider may send a whole page.
MAX_MESSAGE = 1_000


class FailureRecord(NamedTuple):
    """The failures of a judge under one key.

    Attributes:
        key: The key of the judgment.
        kind: The kind of the last failure.
        message: The message of the last failure, up to 1,000 characters.
        at: The time of the last failure, in Unix seconds.
        times: The number of failures.
    """

    key: str
    kind: FailureKind
    message: str
    at: float
    times: int


@runtime_checkable
class RunLedger(JudgmentStore, Protocol):
    """A store of judgments that also records what `rescore` and limits over several machines need.

    `Ledger`, a file, is one, and `open_ledger` returns one for the URL of a database.
    """

    @property
    def address(self) -> str:
        """The path or the URL, for messages: without user, password and options."""
        ...

    @property
    def stored(self) -> int:
        """The number of judgments that this object has stored, in this process."""
        ...

    @property
    def reused(self) -> int:
        """The number of judgments that this object has read, in this process."""
        ...

    @property
    def spend(self) -> Spend:
        """What the judgments cost that this object has stored, in this process; failures are not included."""
        ...

    def __len__(self) -> int:
        """Count the judgments in the ledger."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exc: object) -> None: ...

    def close(self) -> None:
        """End the leases that are still held, and close the ledger."""
        ...

    def failures(self, limit: int = 20) -> list[FailureRecord]:
        """List the most recent failures, latest first, one entry per key."""
        ...

    def lookup(self, keys: Sequence[str]) -> dict[str, Judgment]:
        """Return the judgments under some keys, without leasing the others."""
        ...

    def record_submission(self, row_id: str, submission: Submission, rubric: Rubric | None = None) -> None:
        """Record a submission of a run, once, and the rubric that its row brought, in place of an earlier one."""
        ...

    def submissions(self) -> Iterator[tuple[Row, Submission]]:
        """Yield each recorded row, with the rubric that it brought as JSON, and its submission, in their order."""
        ...

    def record_grader(self, configuration: Mapping[str, object]) -> None:
        """Record this run's grader configuration."""
        ...

    def latest_grader(self) -> dict[str, Any] | None:
        """Return the most recent grader configuration, or None if the ledger has no run."""
        ...

    async def claim_spend(self, run: str, part: str, claim: Claim) -> Shares:
        """Record what one part of a run claims of its limits, in place of its last claim, as far as it is granted.

        Args:
            run: The name of the run, the same for all processes and machines that share its limits.
            part: A unique name of the part, such as one process.
            claim: What the part has spent, and what it wants to spend.

        Returns:
            What the part may spend in all, and what the other parts have claimed.
        """
        ...


LedgerLike = JudgmentStore | str | PathLike[str]
"""A ledger or another store of judgments, the path of a ledger's file, or the URL of a database."""
