"""What all ledgers share: a lease as a context, from the leases of single keys, and judgments as text."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from rubric_integrations.judges.stored import Lease
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.runs.ledger.errors import LedgerError


class KeyLeases(Protocol):
    """The leases of a kind of ledger on single keys, from which `lease_keys` makes a lease on several."""

    async def obtain(self, keys: Sequence[str]) -> list[str | None]:
        """Wait until nobody else holds a lease on the first of some keys, and lease it unless its judgment is stored.

        Returns:
            For the first key, and for those after it up to one that somebody else holds: the stored judgment as JSON,
            or None if the caller now holds the lease.
        """
        ...

    def are_held(self, keys: Iterable[str]) -> bool:
        """Whether the leases on some keys last."""
        ...

    def release(self, keys: Iterable[str]) -> None:
        """End the leases of keys that have no judgment, so that others can lease them."""
        ...


_Store = Callable[[Mapping[str, Judgment]], Awaitable[Mapping[str, Judgment]]]
_RecordFailure = Callable[[str, JudgeFailure], None]


@asynccontextmanager
async def lease_keys(
    keys: Sequence[str],
    leases: KeyLeases,
    read: Callable[[str, str], Judgment],
    store: _Store,
    record_failure: _RecordFailure,
) -> AsyncGenerator[Lease]:
    """Wait until nobody else holds a lease on any of some keys, and lease those that have no judgment.

    Args:
        keys: The keys.
        leases: The leases of this process.
        read: Makes a judgment of a key and its JSON.
        store: Stores judgments, and returns those that are kept.
        record_failure: Records why there is no judgment for a key.

    Raises:
        LedgerError: The ledger can no longer be used.
    """
    lease = _Lease(leases, store, record_failure)
    try:
        # All callers use the same order: otherwise two could wait for each other.
        remaining = sorted(set(keys))
        while remaining:
            texts = await leases.obtain(remaining)
            # Noted before any judgment is read: if one cannot be read, these leases have to be released.
            lease.held.update(key for key, text in zip(remaining, texts, strict=False) if text is None)
            lease.stored |= {
                key: read(key, text) for key, text in zip(remaining, texts, strict=False) if text is not None
            }
            remaining = remaining[len(texts) :]
        yield lease
    finally:
        if lease.held:
            leases.release(lease.held)


def read_judgment(name: str, key: str, text: str) -> Judgment:
    """Return the judgment that a ledger has under a key.

    Args:
        name: The ledger, for the message.
        key: The key.
        text: The judgment as JSON.

    Raises:
        LedgerError: It is not a judgment of this version.
    """
    try:
        return Judgment.model_validate(json.loads(text))
    except ValueError:
        raise LedgerError(
            f"{name} has a judgment that this version cannot read, with the key {key!r}: update the library, or delete "
            "that row, so that the judgment is requested again"
        ) from None


class _Lease:
    def __init__(self, leases: KeyLeases, store: _Store, record_failure: _RecordFailure):
        self._leases, self._store, self._record_failure = leases, store, record_failure
        self.held: set[str] = set()
        self.stored: dict[str, Judgment] = {}

    def is_held(self) -> bool:
        return self._leases.are_held(self.held)

    async def store(self, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        kept = await self._store(judgments)
        self.held.difference_update(judgments)
        return kept

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        self._record_failure(key, failure)
