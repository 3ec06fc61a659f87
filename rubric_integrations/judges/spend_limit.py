"""What a run buys: every call counted where it is made, and none made beyond what is allowed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from rubric_integrations.judges.protocol import BatchResult, Judge, OverallResult, Question
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import NO_SPEND, Spend, SpendTotal
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

Answer = TypeVar("Answer", Judgment, BatchResult, OverallResult)


class SpendLimitReached(Exception):  # noqa: N818 -- no error: the run keeps to its limit
    """The next call would go beyond `max_calls` or `max_cost`."""


class SpendLimit:
    """The calls of a run and what they cost, for all tasks and threads.

    A call is let through only if it keeps to the limits even where it, and all that are under way, cost as much as
    the dearest so far; else it waits for those, and then is refused. So that there is a dearest, the first goes alone.
    """

    def __init__(self, max_calls: int | None = None, max_cost: float | None = None):
        """Set the limits.

        Args:
            max_calls: TemplateCache to models, at least 0; None for no limit.
            max_cost: US dollars, at least 0; None for no limit.

        Raises:
            ValueError: A limit is negative.
        """
        for name, limit in (("max_calls", max_calls), ("max_cost", max_cost)):
            if limit is not None and not limit >= 0:
                raise ValueError(f"`{name}` must be at least 0, got {limit!r}")
        self.max_calls, self.max_cost = max_calls, max_cost
        self._bill = SpendTotal()
        self._started = self._under_way = 0
        self._dearest: float | None = None
        self._lock = threading.Lock()

    @property
    def spend(self) -> Spend:
        """What all calls cost that have ended."""
        with self._lock:
            return self._bill.total

    async def call(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make one call, and count what it cost, whatever became of it.

        Raises:
            SpendLimitReached: The limits allow none.
        """
        while not self._start():  # noqa: ASYNC110 -- shared by several event loops, which an asyncio.Event is not
            await asyncio.sleep(0.005)
        spend = NO_SPEND
        try:
            answer = await ask()
            spend = answer.spend
            return answer
        except JudgeFailure as failure:
            spend = failure.spend
            raise
        finally:
            self._end(spend)

    def _start(self) -> bool:
        with self._lock:
            if self.max_calls is not None and self._started >= self.max_calls:
                raise SpendLimitReached(f"`max_calls` of {self.max_calls} is reached")
            if self.max_cost is not None:
                if self._bill.cost is None:
                    raise SpendLimitReached(
                        "the price of a call is not known, so that `max_cost` cannot be kept: use `max_calls`"
                    )
                if self._dearest is None and self._under_way:
                    return False
                expected = self._bill.cost + (self._under_way + 1) * (self._dearest or 0.0)
                if expected > self.max_cost or self._bill.cost >= self.max_cost:
                    if self._under_way:
                        return False
                    raise SpendLimitReached(
                        f"`max_cost` of ${self.max_cost:g} is reached: ${self._bill.cost:.4f} are spent, and a call "
                        f"costs up to ${self._dearest or 0.0:.4f}"
                    )
            self._started += 1
            self._under_way += 1
            return True

    def _end(self, spend: Spend) -> None:
        with self._lock:
            self._under_way -= 1
            self._bill.add(spend)
            # A judge may ask again within what is one call here.
            self._started += max(0, spend.calls - 1)
            if spend.cost is not None:
                self._dearest = max(self._dearest or 0.0, spend.cost)


class SpendLimitedJudge:
    """A judge whose calls a meter counts."""

    def __init__(self, judge: Judge, meter: SpendLimit):
        self._judge: Any = judge
        self._meter = meter
        self.counted = judge

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # what copies and pickles look for is this object's own, or nobody's
        return getattr(self._judge, name)

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion.

        Raises:
            JudgeFailure: The judge has no answer.
            SpendLimitReached: The limits allow no call.
        """
        return await self._meter.call(partial(self._judge.judge, question))

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria in one call; raises as `judge` does."""
        return await self._meter.call(partial(self._judge.judge_batch, questions))

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Score a whole submission; raises as `judge` does."""
        return await self._meter.call(partial(self._judge.judge_overall, submission, rubric))
