"""The records of a batch in the ledger, and the protocol of a provider's batch API.

A ledger first stores the intent to submit a batch, then its ticket, and finally that it was collected. A crash between
two of these steps loses no batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from rubric_integrations._util.records import Record
from rubric_integrations.judges.calling import RequestForm
from rubric_integrations.judges.protocol import RequestProtocol
from rubric_integrations.judges.store import JudgmentStore
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import Judgment
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.submission import Submission


class BatchError(ValueError):
    """A batch cannot be submitted or collected; what the ledger has about it stays there."""


class Batch(Record):
    """A batch of requests to one model.

    Attributes:
        id: A unique name, which the provider gets too, if its batches have names.
        protocol: The protocol of its requests.
        base_url: The base URL of the provider's API.
        grader: What its keys depend on: the judges, and the settings of the grader that change questions, as JSON.
        judge: The position of its judge on the panel.
        rubric: The rubric that all rows share, as JSON; None if each row brings its own.
        settings: What the caller wants to know again when the batch is collected, without secrets.
        keys: The keys of the judgments; empty once it is collected.
        created_at: When the intent was stored, in Unix seconds.
        form: The form of the requests; once it is collected, that of the next ones.
        ticket: The provider's id of the batch; None before it is submitted.
        collected: Whether its replies are stored, or it was never submitted.
    """

    id: str
    protocol: RequestProtocol
    base_url: str
    grader: str
    judge: int
    rubric: str | None
    settings: dict[str, Any]
    keys: tuple[str, ...]
    created_at: float
    form: RequestForm = RequestForm()
    ticket: str | None = None
    collected: bool = False

    def closed(self, form: RequestForm | None = None) -> Batch:
        """Return the record of this batch once nothing more is expected of it.

        Args:
            form: The form of the next requests; by default that of these.
        """
        emptied = {"keys": (), "collected": True, "rubric": None, "settings": {}}
        return self.model_copy(update={**emptied, "form": form or self.form})


@runtime_checkable
class BatchLedger(JudgmentStore, Protocol):
    """A ledger that also stores batches, such as `Ledger`."""

    def save_batch(self, batch_id: str, record: str) -> None:
        """Store the record of a batch, in place of an earlier one; it is safe when this returns."""
        ...

    def batches(self) -> dict[str, str]:
        """Return the records of all batches by id, the oldest first."""
        ...

    def lookup(self, keys: Sequence[str]) -> Mapping[str, Judgment]:
        """Return the judgments under some keys, without leasing the others."""
        ...

    def record_submission(self, row_id: str, submission: Submission, rubric: Rubric | None = None) -> None:
        """Record a submission, once, and the rubric that its row brought."""
        ...

    def submissions(self) -> Iterator[tuple[Row, Submission]]:
        """Yield each recorded row, with the rubric that it brought as JSON, and its submission, in their order."""
        ...


LOCK = "batches"
"""The key whose lease a process holds while it submits or collects: no two do so at once."""


def save(ledger: BatchLedger, batch: Batch) -> None:
    """Store a batch."""
    ledger.save_batch(batch.id, batch.model_dump_json())


def load(ledger: BatchLedger) -> list[Batch]:
    """Return all batches, collected ones included.

    Raises:
        BatchError: One was written by another version of this library.
    """
    batches: list[Batch] = []
    for batch_id, text in ledger.batches().items():
        try:
            batches.append(Batch.model_validate_json(text))
        except ValueError:
            raise BatchError(
                f"the ledger has a batch {batch_id!r} that this version cannot read: update the library; without this "
                "error, its requests would be paid for twice"
            ) from None
    return batches


def open_settings(ledger: BatchLedger) -> list[dict[str, Any]]:
    """Return the distinct settings with which batches were submitted that are not collected."""
    distinct: list[dict[str, Any]] = []
    for batch in load(ledger):
        if not batch.collected and batch.settings not in distinct:
            distinct.append(batch.settings)
    return distinct


class Unclear(Exception):  # noqa: N818 -- no error: the answer comes later
    """Whether a batch was submitted can be seen only when the provider has processed its batches."""


class Framing(NamedTuple):
    """How the lines of a batch become a file.

    Attributes:
        before: The bytes before the first line.
        between: Those between two lines.
        after: Those after the last line.
        max_lines: The most lines of a batch.
        max_bytes: The most bytes of a file.
    """

    before: bytes
    between: bytes
    after: bytes
    max_lines: int
    max_bytes: int


class BatchStatus(NamedTuple):
    """How far a batch is.

    Attributes:
        word: The provider's word for it.
        is_over: Whether the provider has ended it, so that no more replies come.
        files: The paths of its results, below the base URL.
        problem: Why requests have no reply, if the batch did not end as it should; otherwise empty.
        done: The number of requests that are processed.
    """

    word: str
    is_over: bool
    files: tuple[str, ...] = ()
    problem: str = ""
    done: int = 0


class LineReply(NamedTuple):
    """A response in a batch: its status and body, or why there is none."""

    status: int
    body: bytes
    problem: str = ""


class Provider(Protocol):
    """A batch API."""

    framing: Framing

    def line(self, key: str, body: bytes) -> bytes:
        """Return the line of a request; the body is in it unchanged."""
        ...

    async def create(self, batch: Batch, file: Path) -> str:
        """Submit a file of lines, and return the ticket.

        Raises:
            BatchError: The provider refuses it.
            Uncertain: Nobody knows whether it arrived: look with `find`.
        """
        ...

    async def find(self, batch: Batch, others: Collection[str]) -> str | None:
        """Return the ticket of a batch that may have been submitted; None if it was not.

        Args:
            batch: The batch.
            others: The tickets of other batches.

        Raises:
            Unclear: It cannot be known yet.
        """
        ...

    async def status(self, ticket: str) -> BatchStatus:
        """Return how far a batch is."""
        ...

    async def download(self, path: str, file: Path, max_bytes: int) -> None:
        """Append the results at a path to a file."""
        ...

    def read_line(self, line: Mapping[str, Any]) -> LineReply:
        """Return the response in a line of the results.

        Raises:
            LookupError, TypeError, ValueError, AttributeError: It is no such line.
        """
        ...
