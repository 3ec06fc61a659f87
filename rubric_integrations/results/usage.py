"""Calls, tokens and dollars that judgments cost, and their sums."""

from __future__ import annotations

from collections.abc import Iterable

from rubric_integrations._util.records import Record


class TokenUsage(Record):
    """Tokens that a provider charged for; an answer from our own stores charges none.

    Attributes:
        prompt_tokens: Tokens sent.
        completion_tokens: Tokens received.
        cached_tokens: Those of the sent tokens that the provider had in its prefix cache.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens sent and received."""
        return self.prompt_tokens + self.completion_tokens


class Spend(Record):
    """What judgments cost, failed attempts included.

    Attributes:
        calls: Requests to a model.
        usage: Their tokens; None where a call did not report them, which is not zero.
        cost: US dollars; None where the price of a call is unknown, which is not zero.

    Example:
        >>> (Spend(calls=1, cost=0.5) + Spend(calls=1, cost=None)).cost is None
        True
    """

    calls: int = 0
    usage: TokenUsage | None = TokenUsage()
    cost: float | None = 0.0

    @property
    def total_tokens(self) -> int | None:
        """Tokens sent and received; None where a call did not report them."""
        return None if self.usage is None else self.usage.total_tokens

    def __add__(self, other: Spend) -> Spend:
        return total_spend((self, other))


NO_SPEND = Spend()
"""The spend of an answer that needed no call."""

UNKNOWN_CALL = Spend(calls=1, usage=None, cost=None)
"""The spend of a call that was sent, without an answer that says what it cost: the provider may charge for it."""


class SpendTotal:
    """A running total of spends, which makes no record for each partial sum.

    Example:
        >>> total = SpendTotal()
        >>> for cost in (0.5, 0.25):
        ...     total.add(Spend(calls=1, cost=cost))
        >>> total.spend.calls, total.cost
        (2, 0.75)
    """

    def __init__(self) -> None:
        self._calls = self._sent = self._received = self._cached = 0
        self._usage_is_known = True
        self.cost: float | None = 0.0

    def add(self, spend: Spend) -> None:
        """Add one spend."""
        self._calls += spend.calls
        usage = spend.usage
        if usage is None:
            self._usage_is_known = False
        else:
            self._sent += usage.prompt_tokens
            self._received += usage.completion_tokens
            self._cached += usage.cached_tokens
        self.cost = None if self.cost is None or spend.cost is None else self.cost + spend.cost

    @property
    def spend(self) -> Spend:
        """The total; its tokens or cost are None where those of a part are unknown."""
        usage = TokenUsage(prompt_tokens=self._sent, completion_tokens=self._received, cached_tokens=self._cached)
        return Spend(calls=self._calls, usage=usage if self._usage_is_known else None, cost=self.cost)


def total_spend(spends: Iterable[Spend]) -> Spend:
    """Add up spends; the total of none is zero."""
    parts = list(spends)
    if len(parts) == 1:
        return parts[0]
    total = SpendTotal()
    for spend in parts:
        total.add(spend)
    return total.spend
