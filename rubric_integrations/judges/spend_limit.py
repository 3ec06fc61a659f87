"""Enforces `max_calls` and `max_cost` across a run: every call is counted, and none is made beyond a limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from rubric_integrations.judges.protocol import BatchResult, Judge, OverallResult, Question
from rubric_integrations.judges.wrappers import JudgeWrapper
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import NO_SPEND, Spend, SpendTotal
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.submission.submission import Submission

Result = TypeVar("Result", Judgment, BatchResult, OverallResult)

# Seconds between two looks at a limit that calls under way may still free.
_PAUSE = 0.005


class SpendLimitReached(Exception):  # noqa: N818 -- no error: the run keeps its limit
    """The next call would exceed `max_calls` or `max_cost`."""


class SpendLimit:
    """The limit on the calls of a run and on their cost, shared by all its tasks and threads.

    A call is allowed only if the limits hold even where it, and every call under way, costs as much as the most
    expensive call so far. Otherwise it waits for the calls under way, and is then refused. So that there is a most
    expensive call, the first call is made alone.

    Args:
        max_calls: Requests to models, at least 0; None for no limit.
        max_cost: US dollars, at least 0; None for no limit.

    Raises:
        ValueError: A limit is negative.
    """

    def __init__(self, max_calls: int | None = None, max_cost: float | None = None):
        for name, limit in (("max_calls", max_calls), ("max_cost", max_cost)):
            if limit is not None and not limit >= 0:
                raise ValueError(f"`{name}` must be at least 0, got {limit!r}")
        self.max_calls, self.max_cost = max_calls, max_cost
        self._total = SpendTotal()
        self._started = self._under_way = 0
        self._highest_cost: float | None = None
        self._lock = threading.Lock()

    @property
    def spend(self) -> Spend:
        """What all calls that have ended cost."""
        with self._lock:
            return self._total.spend

    async def call(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """Make one call, and count what it cost, also if it fails.

        Raises:
            SpendLimitReached: The limits do not allow another call.
        """
        while not self._start():  # noqa: ASYNC110 -- shared by several event loops, which an asyncio.Event is not
            await asyncio.sleep(_PAUSE)
        spend = NO_SPEND
        try:
            result = await request()
            spend = result.spend
            return result
        except JudgeFailure as failure:
            spend = failure.spend
            raise
        finally:
            self._end(spend)

    def _start(self) -> bool:
        """Count a call as started, and return True; False if the caller has to wait for the calls under way."""
        with self._lock:
            if self.max_calls is not None and self._started >= self.max_calls:
                raise SpendLimitReached(f"`max_calls` of {self.max_calls} is reached")
            if self.max_cost is not None and not self._fits_cost(self.max_cost):
                return False
            self._started += 1
            self._under_way += 1
            return True

    def _fits_cost(self, max_cost: float) -> bool:
        spent = self._total.cost
        if spent is None:
            raise SpendLimitReached(
                "the price of a call is not known, so that `max_cost` cannot be enforced: use `max_calls`"
            )
        if self._highest_cost is None and self._under_way:
            return False
        highest = self._highest_cost or 0.0
        if spent + (self._under_way + 1) * highest <= max_cost and spent < max_cost:
            return True
        if self._under_way:
            return False
        raise SpendLimitReached(
            f"`max_cost` of ${max_cost:g} is reached: ${spent:.4f} are spent, and a call costs up to ${highest:.4f}"
        )

    def _end(self, spend: Spend) -> None:
        with self._lock:
            self._under_way -= 1
            self._total.add(spend)
            # What is one call here may have been several requests of the judge.
            self._started += max(0, spend.calls - 1)
            if spend.cost is not None:
                self._highest_cost = max(self._highest_cost or 0.0, spend.cost)


class SpendLimitedJudge(JudgeWrapper):
    """A judge whose calls are counted and limited by a `SpendLimit`."""

    def __init__(self, judge: Judge, limit: SpendLimit):
        super().__init__(judge)
        self._limit = limit

    async def judge(self, question: Question) -> Judgment:
        """Answer one criterion.

        Raises:
            JudgeFailure: The judge has no answer.
            SpendLimitReached: The limits do not allow another call.
        """
        return await self._limit.call(partial(self.inner.judge, question))

    async def judge_batch(self, questions: Mapping[int, Question]) -> BatchResult:
        """Answer several criteria in one request; raises as `judge` does."""
        return await self._limit.call(partial(self.inner.judge_batch, questions))

    async def judge_overall(self, submission: Submission, rubric: Rubric) -> OverallResult:
        """Score a whole submission; raises as `judge` does."""
        return await self._limit.call(partial(self.inner.judge_overall, submission, rubric))
