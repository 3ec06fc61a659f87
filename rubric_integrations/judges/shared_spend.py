"""Limits that several processes and machines share: each claims a part of them before it spends it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

# Seconds of its own calls for which a process claims in advance, so that it makes about ten claims per second.
AHEAD = 0.1
# Of what is left, the share that a process may claim in advance: near a limit, nobody holds what others could use.
_LARGEST_SHARE = 0.25
# Seconds for which a refusal is taken for current.
_REFUSED = 0.1
# Seconds between two looks at a claim that another task makes.
_PAUSE = 0.005


class Allowance(NamedTuple):
    """An amount of calls and of money; infinite where there is no limit.

    Attributes:
        calls: Calls of models.
        cost: US dollars.
    """

    calls: float = math.inf
    cost: float = math.inf

    def __sub__(self, other: Allowance) -> Allowance:
        return Allowance(self.calls - other.calls, self.cost - other.cost)

    def plus(self, other: Allowance) -> Allowance:
        """Return the sum of both amounts.

        Example:
            >>> Allowance(1, 0.5).plus(Allowance(2, 0.25))
            Allowance(calls=3, cost=0.75)
        """
        return Allowance(self.calls + other.calls, self.cost + other.cost)

    def times(self, factor: float) -> Allowance:
        """Return a multiple of this amount."""
        return Allowance(self.calls * factor, self.cost * factor)

    def at_most(self, other: Allowance) -> Allowance:
        """Return the smaller number of each kind."""
        return Allowance(min(self.calls, other.calls), min(self.cost, other.cost))

    def at_least(self, other: Allowance) -> Allowance:
        """Return the larger number of each kind."""
        return Allowance(max(self.calls, other.calls), max(self.cost, other.cost))


NOTHING = Allowance(0, 0.0)


class Claim(NamedTuple):
    """What one part of a run wants of the limits of the whole.

    Attributes:
        spent: What the part has spent, or may have: it counts whatever the limits are.
        wanted: What it wants to be able to spend in all, at least `spent`.
        limit: The limits of all parts together.
    """

    spent: Allowance
    wanted: Allowance
    limit: Allowance = Allowance()

    def granted(self, others: Allowance) -> Allowance:
        """Return what the part may spend in all, if the others have claimed so much.

        Example:
            >>> claim = Claim(spent=Allowance(2, 0.2), wanted=Allowance(8, 0.3), limit=Allowance(10, 1.0))
            >>> claim.granted(others=Allowance(5, 0.5))
            Allowance(calls=5, cost=0.3)
        """
        return self.wanted.at_most(self.limit - others).at_least(self.spent)


class Shares(NamedTuple):
    """How the limits of a run are divided.

    Attributes:
        own: What this part may spend in all.
        others: What all other parts have claimed.
    """

    own: Allowance
    others: Allowance


MakeClaim = Callable[[Claim], Awaitable[Shares]]
"""Records a claim in place of the part's last one, in one transaction with the reading of the others' claims."""


class SharedSpend:
    """A process's share of the limits of a run, which grows by claims; shared by all tasks and threads.

    Args:
        make_claim: Makes one claim.
        limit: The limits of all processes together.

    Attributes:
        shares: What this process may spend, and what the others have claimed, by the last claim.

    Example:
        >>> async def make_claim(claim: Claim) -> Shares:
        ...     return Shares(claim.granted(NOTHING), NOTHING)
        >>> shared = SharedSpend(make_claim, Allowance(calls=10))
        >>> asyncio.run(shared.extend(lambda: NOTHING, lambda: Allowance(2, 0.0)))
        True
        >>> shared.shares.own.calls
        2
    """

    def __init__(self, make_claim: MakeClaim, limit: Allowance):
        self.shares = Shares(NOTHING, NOTHING)
        self._make_claim, self._limit = make_claim, limit
        self._last, self._last_at, self._refused_at = NOTHING, -math.inf, -math.inf
        self._is_claiming, self._lock = False, threading.Lock()

    async def extend(self, spent: Callable[[], Allowance], needed: Callable[[], Allowance]) -> bool:
        """Claim more, and return whether this process may spend more than before; raises what `make_claim` raises.

        Args:
            spent: Returns what this process has spent, or may have.
            needed: Returns what it has to spend in all for the calls that wait now.
        """
        before = self.shares.own
        while True:
            if self._begin():
                break
            await asyncio.sleep(_PAUSE)
        try:
            if self.shares.own != before:
                return True
            if time.monotonic() - self._refused_at < _REFUSED:
                return False
            await self._claim(spent(), needed())
            if self.shares.own == before:
                self._refused_at = time.monotonic()
                return False
            return True
        finally:
            self._is_claiming = False

    async def settle(self, spent: Allowance) -> None:
        """Record what was spent, and give back what was claimed beyond it; raises what `make_claim` raises."""
        self.shares = await self._make_claim(Claim(spent, spent, self._limit))

    async def _claim(self, spent: Allowance, needed: Allowance) -> None:
        now = time.monotonic()
        elapsed = max(now - self._last_at, 1e-3)
        pace = (spent - self._last).at_least(NOTHING).times(min(1.0, AHEAD / elapsed))
        left = (self._limit - self.shares.others - needed).at_least(NOTHING)
        ahead = pace.at_most(left.times(_LARGEST_SHARE))
        self._last, self._last_at = spent, now
        wanted = needed.plus(ahead._replace(calls=math.floor(ahead.calls))).at_least(spent)
        self.shares = await self._make_claim(Claim(spent, wanted, self._limit))

    def _begin(self) -> bool:
        with self._lock:
            is_free = not self._is_claiming
            self._is_claiming = True
            return is_free
