"""What other processes and machines spend under the same limits, as a store of theirs counts it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

from rubric_integrations.results.usage import NO_SPEND, Spend

# Seconds for which the spend of the others is taken for current.
INTERVAL = 0.1
# Seconds between two looks at an exchange that another task makes.
_PAUSE = 0.005

Exchange = Callable[[Spend], Awaitable[Spend]]
"""Records what this process has spent so far, and returns what all have."""


class SharedSpend:
    """Exchanges what was spent with the other processes of a run, shared by all tasks and threads.

    Args:
        exchange: Makes one exchange.
        own_spend: Returns what this process has spent so far: calls, and their cost.

    Attributes:
        others: What the others had spent at the last exchange.

    Example:
        >>> async def exchange(own: Spend) -> Spend:
        ...     return own + Spend(calls=5, cost=0.5)
        >>> shared = SharedSpend(exchange, lambda: Spend(calls=2))
        >>> asyncio.run(shared.update())
        >>> shared.others.calls
        5
    """

    def __init__(self, exchange: Exchange, own_spend: Callable[[], Spend]):
        self.others = NO_SPEND
        self._exchange, self._own_spend = exchange, own_spend
        self._begun_at: float | None = None
        self._is_exchanging, self._lock = False, threading.Lock()

    async def update(self) -> None:
        """Exchange unless the last exchange began less than a tenth of a second ago; raises what `exchange` raises."""
        while self._is_stale():
            if self._begin():
                try:
                    await self.exchange()
                finally:
                    self._is_exchanging = False
                return
            await asyncio.sleep(_PAUSE)

    async def exchange(self) -> None:
        """Exchange now; raises what `exchange` raises."""
        begun_at, own = time.monotonic(), self._own_spend()
        total = await self._exchange(own)
        self.others = Spend(calls=total.calls - own.calls, cost=max(0.0, (total.cost or 0.0) - (own.cost or 0.0)))
        self._begun_at = begun_at

    def _is_stale(self) -> bool:
        return self._begun_at is None or time.monotonic() - self._begun_at >= INTERVAL

    def _begin(self) -> bool:
        with self._lock:
            is_free = not self._is_exchanging
            self._is_exchanging = True
            return is_free
