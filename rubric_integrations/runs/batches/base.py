"""The records of a batch in the ledger, and the protocol of a provider's batch API.

A ledger stores three states of a batch. Before the submission, it stores the intent to submit the batch. After the
submission, it stores the ticket, which is the provider's id of the batch. Finally, it stores that the batch was
collected. A crash between two states loses no batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from rubric_integrations._util.records import Record
from rubric_integrations.judges.protocol import RequestForm, RequestProtocol
from rubric_integrations.judges.store import JudgmentStore
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import Judgment
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.submission import Submission


class BatchError(ValueError):
    """Raised if a batch cannot be submitted or collected. The records of batches in the ledger are kept."""


class Batch(Record):
    """A batch of requests to one model.

    Attributes:
        id: A unique name of the batch. If batches of the provider have names, the provider also stores the id.
        protocol: The protocol of the requests.
        base_url: The base URL of the provider's API.
        grader: The judges of the grader, and its settings that change questions, as JSON. The keys of the judgments
            depend on these judges and settings.
        judge: The position of the batch's judge on the panel.
        rubric: The rubric of all rows, as JSON. None if each row has its own rubric.
        settings: Data that the caller stores with the batch and reads when the batch is collected. The data contain no
            secrets.
        keys: The keys of the judgments. Empty after the batch was collected.
        created_at: The time when the intent was stored, in Unix seconds.
        form: The reply format and the temperature of the requests in this batch. In the record of a collected batch,
            the reply format and the temperature that later requests to this judge should use.
        ticket: The provider's id of the batch. None before the batch is submitted.
        collected: Whether the batch is finished: its replies are stored, or it is known that it was never submitted.
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
        """Return the record of this batch as a finished batch, without its keys, rubric and settings.

        Call this method after the replies were stored, or if the batch was never submitted.

        Args:
            form: The reply format and the temperature of later requests. By default, the form of this batch.
        """
        emptied = {"keys": (), "collected": True, "rubric": None, "settings": {}}
        return self.model_copy(update={**emptied, "form": form or self.form})


@runtime_checkable
class BatchLedger(JudgmentStore, Protocol):
    """A ledger that also stores batches, such as `Ledger`."""

    def save_batch(self, batch_id: str, record: str) -> None:
        """Store the record of a batch and replace an earlier one. When this returns, the record is stored safely."""
        ...

    def batches(self) -> dict[str, str]:
        """Return the records of all batches, as JSON by the id of the batch, the oldest first."""
        ...

    def lookup(self, keys: Sequence[str]) -> Mapping[str, Judgment]:
        """Return the stored judgments of some keys, by key. Keys without a judgment are left out.

        The caller gets no leases, which are rights to request these judgments.
        """
        ...

    def record_submission(self, row_id: str, submission: Submission, rubric: Rubric | None = None) -> None:
        """Record the submission of a row and the row's own rubric.

        A submission that is already recorded is not recorded again.
        """
        ...

    def submissions(self) -> Iterator[tuple[Row, Submission]]:
        """Yield each recorded row and its submission, in the order in which they were recorded.

        The `rubric` of a row is the row's own rubric as JSON text. It is None if the row does not have its own rubric.
        """
        ...


LOCK = "batches"
"""The key that a process leases while it submits or collects. Therefore only one process does so at a time."""


def save(ledger: BatchLedger, batch: Batch) -> None:
    """Store the record of a batch in a ledger, and replace an earlier record of the batch."""
    ledger.save_batch(batch.id, batch.model_dump_json())


def load(ledger: BatchLedger) -> list[Batch]:
    """Return the records of all batches in a ledger, including collected batches.

    Raises:
        BatchError: This version of the library cannot read the record of a batch.
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
    """Return the data that callers stored with batches (`Batch.settings`), without duplicates.

    Collected batches are left out.
    """
    distinct: list[dict[str, Any]] = []
    for batch in load(ledger):
        if not batch.collected and batch.settings not in distinct:
            distinct.append(batch.settings)
    return distinct


class Unclear(Exception):  # noqa: N818 -- no error: the answer comes later
    """Raised if it is not known yet whether a batch was submitted.

    The provider lists a batch of the same size that has not ended. Only the results show whether it is the same batch.
    Therefore, the caller must try again later.
    """


class Framing(NamedTuple):
    """The format of the file of a batch: the bytes around its lines and its limits.

    Attributes:
        before: The bytes before the first line.
        between: The bytes between two lines.
        after: The bytes after the last line.
        max_lines: The largest number of lines of a batch.
        max_bytes: The largest number of bytes of a file.
    """

    before: bytes
    between: bytes
    after: bytes
    max_lines: int
    max_bytes: int


class BatchStatus(NamedTuple):
    """The progress of a batch at the provider.

    Attributes:
        word: The status as the provider names it, such as `ended`.
        is_over: Whether the provider has ended the batch. After that, no more replies come.
        files: The paths of the results, below the base URL.
        problem: The reason why the batch has requests without a reply. Empty if the batch ended normally.
        done: The number of processed requests.
    """

    word: str
    is_over: bool
    files: tuple[str, ...] = ()
    problem: str = ""
    done: int = 0


class LineReply(NamedTuple):
    """The HTTP status and the body of the response to one request, or the reason why it has no response."""

    status: int
    body: bytes
    problem: str = ""


class Provider(Protocol):
    """The methods that a class for a provider's batch API must have, such as `OpenAIBatches`."""

    framing: Framing

    def line(self, key: str, body: bytes) -> bytes:
        """Return a request as one line of a batch file. The line contains the body unchanged.

        Args:
            key: The name of the request. The provider repeats it in the line of the result.
            body: The body of the request, as JSON.
        """
        ...

    async def create(self, batch: Batch, file: Path) -> str:
        """Submit a file of lines as a batch, and return the provider's id of the batch (its ticket).

        Raises:
            BatchError: The provider refuses the batch.
            Uncertain: It is unknown whether the batch was submitted. Use `find` to look for it.
        """
        ...

    async def find(self, batch: Batch, others: Collection[str]) -> str | None:
        """Return the provider's id of a batch (its ticket), or None if the batch was not submitted.

        Call this method if it is unknown whether the batch was submitted.

        Args:
            batch: The batch.
            others: The tickets of other batches, which are not searched.

        Raises:
            Unclear: It is not known yet whether the batch was submitted.
        """
        ...

    async def status(self, ticket: str) -> BatchStatus:
        """Return the progress of a batch, by its ticket (the provider's id of the batch)."""
        ...

    async def download(self, path: str, file: Path, max_bytes: int) -> None:
        """Append the results of a batch to a file.

        Args:
            path: The path of the results, as in `BatchStatus.files`.
            file: The file.
            max_bytes: The largest allowed size of the file.
        """
        ...

    def read_line(self, line: Mapping[str, Any]) -> LineReply:
        """Return the response that one line of a result file contains.

        Raises:
            LookupError, TypeError, ValueError, AttributeError: The line is not a result.
        """
        ...
