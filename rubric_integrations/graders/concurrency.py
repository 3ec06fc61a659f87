"""A concurrency limit that a rate limit halves, and that recovers call by call."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType


class AdaptiveConcurrency:
    """The concurrency limit of one event loop; use it as an async context manager around each call.

    It follows the additive increase and multiplicative decrease of TCP (Chiu & Jain, 1989): a rate limit halves the
    slots, and each successful call returns such a share of a slot that one whole slot is back after as many calls as
    there are slots.

    Args:
        limit: The most calls at the same time, at least 1.

    Example:
        >>> concurrency = AdaptiveConcurrency(8)
        >>> concurrency.on_rate_limit(sent_at=time.monotonic())
        >>> concurrency.slots
        4
    """

    def __init__(self, limit: int):
        self.limit = limit
        self._free = asyncio.Semaphore(limit)
        self._withheld = self._to_withhold = self._in_use = 0
        self._recovered, self._halved_at, self._not_before = 0.0, -1.0, 0.0

    @property
    def slots(self) -> int:
        """How many calls may run at the same time now; at least 1."""
        return self.limit - self._withheld - self._to_withhold

    @property
    def free(self) -> int:
        """How many more calls may start now."""
        return max(0, self.slots - self._in_use)

    async def __aenter__(self) -> None:
        await self._free.acquire()
        self._in_use += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_use -= 1
        self._release()

    def _release(self) -> None:
        if self._to_withhold:
            self._to_withhold -= 1
            self._withheld += 1
        else:
            self._free.release()

    async def wait_for_server(self) -> None:
        """Wait until the server accepts calls again; await it when everything else allows the call."""
        # Another call may be refused during the wait, which then becomes longer.
        while (wait := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110 -- what it waits for is a time
            await asyncio.sleep(wait)

    def on_rate_limit(self, sent_at: float, wait: float = 0.0) -> None:
        """Halve the slots, once for all calls that were sent before the provider first refused one.

        Args:
            sent_at: When the refused call was sent, by `time.monotonic`.
            wait: Seconds during which the server wants no call at all.
        """
        self._not_before = max(self._not_before, time.monotonic() + wait)
        if sent_at > self._halved_at:
            self._halved_at = time.monotonic()
            self._to_withhold += self.slots // 2
            self._recovered = 0.0

    def on_success(self) -> None:
        """Return a share of a slot after a successful call."""
        if not (self._withheld or self._to_withhold):
            return
        self._recovered += 1 / self.slots
        if self._recovered >= 1:
            self._recovered -= 1
            if self._to_withhold:
                self._to_withhold -= 1
            else:
                self._withheld -= 1
                self._free.release()
