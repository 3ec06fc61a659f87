"""How many calls may be under way: a cap that gives way to rate limits, and comes back."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType


class AdaptiveConcurrency:
    """A cap on the calls under way in one event loop, halved by a rate limit and regained call by call.

    It is the additive increase and multiplicative decrease of TCP (Chiu & Jain, 1989): each answer adds the share of
    a slot that gives back one slot after as many answers as there are slots.

    Example:
        >>> pace = AdaptiveConcurrency(8)
        >>> pace.limited(since=time.monotonic())
        >>> pace.slots
        4
    """

    def __init__(self, cap: int):
        self.cap = cap
        self._free = asyncio.Semaphore(cap)
        self._withheld = self._to_withhold = 0
        self._regained, self._halved_at, self._not_before = 0.0, -1.0, 0.0

    @property
    def slots(self) -> int:
        """How many calls may be under way now; at least 1."""
        return self.cap - self._withheld - self._to_withhold

    async def __aenter__(self) -> None:
        await self._free.acquire()
        wait = self._not_before - time.monotonic()
        if wait > 0:
            try:
                await asyncio.sleep(wait)
            except BaseException:
                self._release()
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        if self._to_withhold:
            self._to_withhold -= 1
            self._withheld += 1
        else:
            self._free.release()

    def limited(self, since: float, wait: float = 0.0) -> None:
        """A call was refused for its rate: halve the slots, once for all calls that were sent before it was known.

        Args:
            since: When the call was sent, by `time.monotonic`.
            wait: Seconds for which the server wants no call at all.
        """
        self._not_before = max(self._not_before, time.monotonic() + wait)
        if since > self._halved_at:
            self._halved_at = time.monotonic()
            self._to_withhold += self.slots // 2
            self._regained = 0.0

    def answered(self) -> None:
        """A call was answered: a share of a slot comes back."""
        if not (self._withheld or self._to_withhold):
            return
        self._regained += 1 / self.slots
        if self._regained >= 1:
            self._regained -= 1
            if self._to_withhold:
                self._to_withhold -= 1
            else:
                self._withheld -= 1
                self._free.release()
