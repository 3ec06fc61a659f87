"""Enforces `max_calls` and `max_cost` across a run: every call is counted, and its cost is reserved before the call.

Processes and machines may share a limit. Each process claims a share of the limit before it makes calls.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from rubric_integrations.judges.decisions import split_model_name
from rubric_integrations.judges.protocol import RunStopped
from rubric_integrations.scoring.judgment import UNANSWERED_CALL, JudgeFailure, Spend, SpendTotal

# A process claims in advance for so many seconds of its own calls. It makes about ten claims per second.
AHEAD = 0.1
# The largest share of the remaining amount that a process may claim in advance. Near a limit, no process then claims
# much that others could use.
_LARGEST_SHARE = 0.25
# Seconds for which a refusal stays valid.
_REFUSED = 0.1
# Seconds between two checks of a claim that another task makes.
_PAUSE = 0.005


spend_of_grade: ContextVar[SpendTotal | None] = ContextVar("spend_of_grade", default=None)
"""Counts the requests of the current grade where they are sent, and the judgments that it takes from a store.

The outcomes of the grade do not have the spend of cancelled requests. None outside of a grade.
"""


class Allowance(NamedTuple):
    """An amount of calls and of money. Infinite if there is no limit.

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
        """Return this amount with both numbers multiplied by a factor."""
        return Allowance(self.calls * factor, self.cost * factor)

    def at_most(self, other: Allowance) -> Allowance:
        """Return the smaller number of calls and the smaller cost of two amounts."""
        return Allowance(min(self.calls, other.calls), min(self.cost, other.cost))

    def at_least(self, other: Allowance) -> Allowance:
        """Return the larger number of calls and the larger cost of two amounts."""
        return Allowance(max(self.calls, other.calls), max(self.cost, other.cost))


NOTHING = Allowance(0, 0.0)


class Claim(NamedTuple):
    """The claim of one process on the limits that all processes of a run share.

    Attributes:
        spent: The amount that the process has spent, or may have spent. It counts even if it exceeds the limits.
        wanted: The total amount that the process wants to be able to spend, at least `spent`.
        limit: The limits of all processes together.
    """

    spent: Allowance
    wanted: Allowance
    limit: Allowance = Allowance()

    def granted(self, others: Allowance) -> Allowance:
        """Return the total amount that the process may spend.

        Args:
            others: The amount that all other processes have claimed.

        Example:
            >>> claim = Claim(spent=Allowance(2, 0.2), wanted=Allowance(8, 0.3), limit=Allowance(10, 1.0))
            >>> claim.granted(others=Allowance(5, 0.5))
            Allowance(calls=5, cost=0.3)
        """
        return self.wanted.at_most(self.limit - others).at_least(self.spent)


class Shares(NamedTuple):
    """How the limits of a run are divided between this process and the others.

    Attributes:
        own: The total amount that this process may spend.
        others: The amount that all other processes have claimed.
    """

    own: Allowance
    others: Allowance


MakeClaim = Callable[[Claim], Awaitable[Shares]]
"""A function that replaces the last claim of this process.

It reads the claims of the other processes in the same transaction.
"""


class SharedSpend:
    """The share of a run's limits that one process may spend. All its tasks and threads use the same object.

    The process claims a larger share if its calls need more.

    Args:
        make_claim: A function that makes one claim.
        limit: The limits of all processes together.

    Attributes:
        shares: The result of the last claim: the amount that this process may spend, and the claims of the others.

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
        """Claim a larger share of the limits. Return whether this process may now spend more than before.

        Args:
            spent: Returns the amount that this process has spent, or may have spent.
            needed: Returns the total amount that this process must be able to spend for the calls that wait now.

        Raises:
            Exception: The exception that `make_claim` raised.
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
        """Record the spent amount and release the unused rest of the claim. Raises the exceptions of `make_claim`."""
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


class HasSpend(Protocol):
    """The result of a call to a model, with its spend."""

    @property
    def spend(self) -> Spend:
        """The calls, tokens and cost of the call."""
        ...


AnyResult = TypeVar("AnyResult", bound=HasSpend)

# Dollars by which a sum of prices may miss its exact value.
_ROUNDING = 1e-9


# Tokens that are reserved for the first reply of a run, and the factor of the longest reply for each later reply.
_FIRST_REPLY, _LONGEST_REPLIES = 2_000, 2

OTHER_LIMIT = ", or use `max_calls` in its place"
"""The end of `price_remedy`, which does not apply where there is no `max_calls`."""

PRICE_UNKNOWN = "the price of a call is not known, so that `max_cost` cannot be enforced: use `max_calls`"


class TokenPrice(NamedTuple):
    """The price of a model's tokens, in US dollars per million tokens.

    Attributes:
        input: The price of the tokens of a prompt.
        output: The price of the tokens of a reply.
    """

    input: float
    output: float

    def cost(self, input_tokens: float, output_tokens: float) -> float:
        """Return the cost of a call with these numbers of tokens, in US dollars.

        Example:
            >>> TokenPrice(0.25, 2.0).cost(1_000, 500)
            0.00125
        """
        return (input_tokens * self.input + output_tokens * self.output) / 1_000_000


def with_price(spend: Spend, price: TokenPrice | None) -> Spend:
    """Return the spend of a call with the cost of its tokens, if the tokens and the price are known."""
    if price is None or (usage := spend.usage) is None or not usage.total_tokens:
        return spend
    return spend.model_copy(update={"cost": price.cost(usage.prompt_tokens, usage.completion_tokens)})


NOT_SENT = "cancelled before the request was sent"
"""The note of a `CancelledError` that ended a call before its request was sent. Such a call is not counted."""

# The built-in instructions, the schema of the reply, the field headers and the fences together have half of this size.
_FIXED_BYTES = 12_000


def prompt_bytes(text_bytes: int, own_bytes: int) -> int:
    """Return the largest possible size of a prompt, in bytes.

    Args:
        text_bytes: The size of the texts to judge and of the criteria. Sanitizing may double it.
        own_bytes: The size of the judge's own instructions and examples.
    """
    return _FIXED_BYTES + 2 * (text_bytes + own_bytes)


Prices = Mapping[str, tuple[float, float]]
"""The prices of a judge's input and output tokens, by the judge's name, in US dollars per million tokens."""


def read_prices(prices: Prices | None) -> dict[str, TokenPrice]:
    """Check prices that a user passes, and return them by the name of the judge (see `price_name`). Empty for None.

    Raises:
        ValueError: A price is not two numbers of at least 0.
    """
    for name, numbers in (prices or {}).items():
        if len(numbers) != 2 or not all(number >= 0 and math.isfinite(number) for number in numbers):
            raise ValueError(
                f"`prices` of {name!r} must be two numbers of at least 0, the prices of a million input and output "
                f"tokens in US dollars, got {numbers!r}"
            )
    return {split_model_name(name)[1]: TokenPrice(*numbers) for name, numbers in (prices or {}).items()}


def price_name(judge: object) -> str:
    """Return the name of a judge in `prices`: the name of its model or, without a model, of its class.

    The name of a decision model has no prefix, because its price may be written with or without it.
    """
    model = getattr(judge, "model_name", type(judge).__name__)
    return split_model_name(str(getattr(getattr(judge, "lm", None), "model", model)))[1]


def price_remedy(name: str) -> str:
    """Return why `max_cost` cannot be enforced for a judge, and what to do."""
    return (
        f"the price of a call of {name!r} is not known, so that `max_cost` cannot be enforced: pass "
        f"`prices={{{name!r}: (input, output)}}` in US dollars per million tokens (`--price {name}=IN,OUT`)"
        f"{OTHER_LIMIT}"
    )


class SpendLimitReached(RunStopped):
    """The next call would exceed `max_calls` or `max_cost`."""


class PriceUnknown(SpendLimitReached):
    """`max_cost` cannot be enforced, because the price of a call is not known."""


class SpendLimit:
    """The limit on the calls of a run and on their cost, shared by all its tasks and threads.

    Before a call is sent, its expected cost is reserved. If the limit does not allow the reservation, the call waits
    for the calls in flight. If the limit still does not allow it, the call is refused. Therefore `max_cost` can be
    exceeded only if calls in flight cost more than their reservations. If a judge cannot estimate the cost of a call,
    the cost of the most expensive call so far is reserved. If no cost is known yet, such a call waits until no other
    call is in flight. If a call was sent but never answered, its cost is unknown, and its reservation counts as spent.

    An unpickled object has the same limits, and has counted nothing. The limits then apply to each process separately.

    Args:
        max_calls: The largest number of requests to models, at least 0. None for no limit.
        max_cost: The largest cost in US dollars, at least 0. None for no limit.
        prices: The prices of tokens by the names of judges. They replace the prices of DSPy's price list.

    Attributes:
        part: A unique name of this object. Processes that share the limits of a run record their spending under it.

    Raises:
        ValueError: A limit is negative, or a price is not two numbers of at least 0.
    """

    def __init__(self, max_calls: int | None = None, max_cost: float | None = None, prices: Prices | None = None):
        for name, limit in (("max_calls", max_calls), ("max_cost", max_cost)):
            if limit is not None and not limit >= 0:
                raise ValueError(f"`{name}` must be at least 0, got {limit!r}")
        self.max_calls, self.max_cost, self.part = max_calls, max_cost, uuid4().hex
        self.prices = read_prices(prices)
        self._total = SpendTotal()
        self._limit = Allowance(
            math.inf if max_calls is None else max_calls, math.inf if max_cost is None else max_cost
        )
        # Also if it is shared: another process may have limits, which count the calls of this one.
        self._is_limited = max_calls is not None or max_cost is not None
        self._started = self._under_way = self._waiting = self._lost_without_price = 0
        # The cost that was paid or may have been paid, and the reserved cost of the calls in flight.
        self._counted = self._reserved = 0.0
        self._highest_cost: float | None = None
        self._longest_reply: int | None = None
        self._has_unknown_price = False
        self._shared: SharedSpend | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return SpendLimit, (self.max_calls, self.max_cost, self.prices)

    @property
    def spend(self) -> Spend:
        """The spend of all finished calls."""
        with self._lock:
            return self._total.spend

    @property
    def reply_tokens(self) -> int:
        """The number of tokens that are reserved for a reply: twice the number in the longest reply so far."""
        return _FIRST_REPLY if self._longest_reply is None else _LONGEST_REPLIES * self._longest_reply

    def share(self, make_claim: MakeClaim) -> None:
        """Share the limits with other processes and machines. The limits then apply to all of them together.

        This process makes calls only within its claims. Concurrent calls of several processes do not exceed the limits.
        Near a limit, a process may be refused calls because another process has claimed an amount that it does not use.

        Args:
            make_claim: A function that claims a part of the limits.
        """
        self._shared, self._is_limited = SharedSpend(make_claim, self._limit), True

    async def record(self) -> None:
        """Record the spending of this process for the other processes that share the limits.

        Raises the exceptions of `make_claim`.
        """
        if self._shared:
            await self._shared.settle(self._spent())

    def has_room_for(self, rows: int, highest: Spend | None) -> bool:
        """Whether the limits would still be respected if each of these rows cost as much as the most expensive row.

        With this check, a run near a limit finishes one row after another. Otherwise it could begin many rows and
        finish none.

        Args:
            rows: The number of rows in progress, including the row that would begin now.
            highest: The calls and the cost of the most expensive row so far. None while no row is finished.
        """
        if self.max_calls is None and self.max_cost is None:
            return True
        if highest is None:
            return rows <= 1
        with self._lock:
            calls = self._total.spend.calls + self._others.calls + rows * highest.calls
            cost = self._counted + self._others.cost + rows * (highest.cost or 0.0)
        return calls <= self._limit.calls and cost <= self._limit.cost + _ROUNDING

    async def call(self, request: Callable[[], Awaitable[AnyResult]], highest_cost: float | None = None) -> AnyResult:
        """Make one call, and count its cost, even if it fails.

        Args:
            request: A function that makes the call.
            highest_cost: The cost to reserve, in US dollars. None if the judge cannot estimate it.

        Raises:
            SpendLimitReached: The limits do not allow another call.
            Exception: The exception of a failed claim on shared limits.
        """
        reserved = await self.start(highest_cost)
        # Also if the call is cancelled: it was sent.
        spend, is_answered = UNANSWERED_CALL, False
        try:
            result = await request()
            spend, is_answered = result.spend, True
            return result
        except JudgeFailure as failure:
            spend = failure.spend
            raise
        finally:
            self.end(spend, reserved, is_answered)

    async def start(self, highest_cost: float | None = None) -> float:
        """Count a call as started, as soon as the limits allow it. The caller must then call `end` or `give_back`.

        Args:
            highest_cost: The cost to reserve, in US dollars. None if the judge cannot estimate it.

        Returns:
            The reserved cost, in US dollars.

        Raises:
            SpendLimitReached: The limits do not allow another call.
            Exception: The exception of a failed claim on shared limits.
        """
        while (reserved := self._reserve(highest_cost)) is None:
            if not await self._claim_more(highest_cost):
                self._refuse_if_reached(highest_cost)
                await asyncio.sleep(_PAUSE)
        return reserved

    @property
    def _others(self) -> Allowance:
        return self._shared.shares.others if self._shared else NOTHING

    def _spent(self) -> Allowance:
        with self._lock:
            return Allowance(self._started, self._counted + self._reserved)

    async def _claim_more(self, highest_cost: float | None) -> bool:
        """Claim a part of shared limits for all waiting calls, and return whether more may be spent."""
        if self._shared is None:
            return False

        def needed() -> Allowance:
            return self._spent().plus(Allowance(1, self._reservation(highest_cost)).times(self._waiting))

        with self._lock:
            self._waiting += 1
        try:
            return await self._shared.extend(self._spent, needed)
        finally:
            with self._lock:
                self._waiting -= 1

    def _reservation(self, highest_cost: float | None) -> float:
        """Return the cost to reserve for a call. 0 if there is no `max_cost`, or if no cost is known."""
        if self.max_cost is None:
            return 0.0
        return (self._highest_cost or 0.0) if highest_cost is None else highest_cost

    def _reserve(self, highest_cost: float | None) -> float | None:
        """Count a call as started, and return its reserved cost. None if the limits do not allow the call now."""
        with self._lock:
            reserved = 0.0
            if self._is_limited:
                is_unpriced = highest_cost is None and self._highest_cost is None
                if self.max_cost is not None and (self._has_unknown_price or (is_unpriced and self._under_way)):
                    return None
                reserved = self._reservation(highest_cost)
                own = self._shared.shares.own if self._shared else self._limit
                if not self._fits(reserved, own) or (self.max_cost is not None and self._has_spent_all):
                    return None
            self._started += 1
            self._under_way += 1
            self._reserved += reserved
            return reserved

    def _fits(self, reserved: float, allowance: Allowance) -> bool:
        cost = self._counted + self._reserved + reserved
        return self._started + 1 <= allowance.calls and (self.max_cost is None or cost <= allowance.cost + _ROUNDING)

    @property
    def _has_spent_all(self) -> bool:
        return self._counted + self._others.cost >= self._limit.cost

    def _refuse_if_reached(self, highest_cost: float | None) -> None:
        """Raise an error if a call exceeds the limits, even after the calls in flight have ended."""
        with self._lock:
            if self.max_cost is not None and self._has_unknown_price:
                raise PriceUnknown(PRICE_UNKNOWN)
            if self._started + self._others.calls >= self._limit.calls:
                others = f", with {self._others.calls:g} of the run's other processes" if self._others.calls else ""
                raise SpendLimitReached(f"`max_calls` of {self.max_calls} is reached{others}")
            reserved = self._reservation(highest_cost)
            if self._under_way or (self._fits(reserved, self._limit - self._others) and not self._has_spent_all):
                return
            raise SpendLimitReached(
                f"`max_cost` of ${self.max_cost:g} is reached: ${self._counted + self._others.cost:.4f} are spent, and "
                f"the next call may cost ${reserved:.4f}"
            )

    def give_back(self, reserved: float) -> None:
        """Undo the `start` of a call that was cancelled before it was sent."""
        with self._lock:
            self._started -= 1
            self._release(reserved)

    def _release(self, reserved: float) -> None:
        self._under_way -= 1
        # Sums of prices miss their exact value by a rounding error, which must not grow over a long run.
        self._reserved = self._reserved - reserved if self._under_way else 0.0

    def end(self, spend: Spend, reserved: float, is_answered: bool) -> None:
        """Count the cost of a call that has ended.

        Args:
            spend: The spend of the call. `UNANSWERED_CALL` if the call was cancelled after it was sent, because the
                provider may still charge for it.
            reserved: The cost that `start` reserved, in US dollars.
            is_answered: Whether the call has returned an answer.
        """
        with self._lock:
            self._release(reserved)
            self._total.add(spend)
            # One call of this object may have been several requests of the judge.
            if spend.calls > 1:
                self._started += spend.calls - 1
            if spend.usage is not None and spend.usage.completion_tokens > (self._longest_reply or 0):
                self._longest_reply = spend.usage.completion_tokens
            if spend.cost is not None and not spend.is_lower_bound:
                self._highest_cost = max(self._highest_cost or 0.0, spend.cost)
                self._counted += spend.cost + self._lost_without_price * self._highest_cost
                self._lost_without_price = 0
            elif reserved:
                self._counted += max(reserved, spend.cost or 0.0)
            elif is_answered and spend.cost is None:
                self._has_unknown_price = True
            else:
                self._counted += spend.cost or 0.0
                self._lost_without_price += 1


T = TypeVar("T")


async def gather_calls(calls: Iterable[Coroutine[Any, Any, T] | asyncio.Task[T]]) -> list[T]:
    """Await calls like `asyncio.gather`, but return or raise only after all of them have ended.

    After an error, `asyncio.gather` leaves the other calls running, and nobody counts their cost. Here they are
    cancelled. If a spend limit is reached, they are awaited, because their requests are already paid for.

    Raises:
        Exception: The first exception of a call.
    """
    tasks = list(map(asyncio.ensure_future, calls))
    if not tasks:
        return []
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        errors = (task.exception() for task in ended if not task.cancelled())
        error = next((error for error in errors if error is not None), None)
        if isinstance(error, SpendLimitReached):
            await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if error is not None:
        raise error
    return [task.result() for task in tasks]
