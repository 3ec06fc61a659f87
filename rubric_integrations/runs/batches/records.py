"""What a ledger stores about a batch: first the intent to submit it, then its ticket, and that it was collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from rubric_integrations._util.records import Record
from rubric_integrations.judges.requests import RequestProtocol
from rubric_integrations.judges.step_down import RequestForm
from rubric_integrations.judges.stored import JudgmentStore
from rubric_integrations.results.judgment import Judgment
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.rows import Row
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
