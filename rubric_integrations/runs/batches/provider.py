"""What `submit` and `collect` need of a provider's batch API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rubric_integrations.runs.batches.records import Batch


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
