"""What judgments cost: calls, tokens and dollars, and their sums."""

from __future__ import annotations

from collections.abc import Iterable

from rubric_integrations._util.records import Record


class TokenUsage(Record):
    """Tokens that were paid for; what a cache of ours answered costs none.

    Attributes:
        prompt_tokens: Tokens sent.
        completion_tokens: Tokens received.
        cached_tokens: Of those sent, how many the provider had in its prefix cache.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Sent and received."""
        return self.prompt_tokens + self.completion_tokens


class Spend(Record):
    """What some judgments cost, failed attempts included.

    Attributes:
        calls: TemplateCache to a model.
        usage: Their tokens.
        cost: US dollars; None where the price of a call is not known (which is not zero).
    """

    calls: int = 0
    usage: TokenUsage = TokenUsage()
    cost: float | None = 0.0

    def __add__(self, other: Spend) -> Spend:
        return total_spend((self, other))


NO_SPEND = Spend()
"""What costs no call."""


class SpendTotal:
    """Spends added up one by one, without a record of each sum.

    Example:
        >>> bill = SpendTotal()
        >>> for cost in (0.5, 0.25):
        ...     bill.add(Spend(calls=1, cost=cost))
        >>> bill.total.calls, bill.total.cost
        (2, 0.75)
    """

    def __init__(self) -> None:
        self._calls = self._sent = self._received = self._cached = 0
        self.cost: float | None = 0.0

    def add(self, spend: Spend) -> None:
        """Count one more."""
        usage = spend.usage
        self._calls += spend.calls
        self._sent += usage.prompt_tokens
        self._received += usage.completion_tokens
        self._cached += usage.cached_tokens
        self.cost = None if self.cost is None or spend.cost is None else self.cost + spend.cost

    @property
    def total(self) -> Spend:
        """What it comes to; its cost is not known where that of a part is not."""
        usage = TokenUsage(prompt_tokens=self._sent, completion_tokens=self._received, cached_tokens=self._cached)
        return Spend(calls=self._calls, usage=usage, cost=self.cost)


def total_spend(spends: Iterable[Spend]) -> Spend:
    """The sum of spends; nothing for none."""
    each = list(spends)
    if len(each) == 1:
        return each[0]
    bill = SpendTotal()
    for spend in each:
        bill.add(spend)
    return bill.total
