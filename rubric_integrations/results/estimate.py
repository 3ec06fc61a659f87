"""A figure with its interval, as everything that measures judges returns it."""

from __future__ import annotations

from typing import NamedTuple


class Estimate(NamedTuple):
    """A figure with its interval.

    Attributes:
        value: The figure; None if it is undefined.
        low: The lower end of its interval; None if the data do not tell it.
        high: The upper end.
        n: The number of observations that it rests on.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.value is None:
            return f"undefined (n = {self.n:,})"
        limits = "" if self.low is None or self.high is None else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}{limits} (n = {self.n:,})"
