"""Asking under a budget: a concurrency cap, a timeout, and further attempts after what may pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from rubric_integrations.graders.concurrency import AdaptiveConcurrency
from rubric_integrations.judges.spend_limit import SpendLimitReached
from rubric_integrations.judges.stored import StoreError
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.usage import NO_SPEND, Spend, total_spend

T = TypeVar("T")

# No wait between attempts is longer, whatever a server asks for: a run should fail while someone is looking.
MAX_WAIT = 60.0

_backoff = wait_exponential(multiplier=0.5, max=MAX_WAIT) + wait_random(0, 0.25)


class CallLimiter:
    """What one grader may have under way, and how often it may ask again.

    One budget serves lost and unreadable replies; the wait doubles from half a second, or is what the server asks for.
    A rate limit also halves the cap for a while.
    """

    def __init__(self, max_retries: int, max_concurrency: int, timeout: float):
        for name, value, least in (("max_retries", max_retries, 0), ("max_concurrency", max_concurrency, 1)):
            if isinstance(value, bool) or value < least:
                raise ValueError(f"`{name}` must be at least {least}, got {value!r}")
        if not timeout > 0:
            raise ValueError(f"`timeout` must be above 0 seconds, got {timeout!r}")
        self.max_retries, self.max_concurrency, self.timeout = max_retries, max_concurrency, timeout
        # A semaphore belongs to one event loop; a grader may serve several.
        self._paces: WeakKeyDictionary[asyncio.AbstractEventLoop, AdaptiveConcurrency] = WeakKeyDictionary()

    async def ask(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, Spend]:
        """Ask until there is an answer; also tell what failed attempts cost.

        Raises:
            JudgeFailure: The last one; its `spend` is that of all attempts.
        """
        try:
            return await self._once(attempt), NO_SPEND
        except JudgeFailure as failure:
            if not failure.retryable or not self.max_retries:
                raise
            first = failure
        return await self._again(attempt, first)

    async def _again(self, attempt: Callable[[], Awaitable[T]], first: JudgeFailure) -> tuple[T, Spend]:
        """The attempts after the first, which counts as one."""
        failures: list[JudgeFailure] = []

        async def next_attempt() -> T:
            try:
                if not failures:
                    raise first
                return await self._once(attempt)
            except JudgeFailure as failure:
                failures.append(failure)
                raise

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.max_retries + 1),
            wait=_wait,
            retry=retry_if_exception(_may_retry),
            reraise=True,
        )
        try:
            return await retrying(next_attempt), total_spend(failure.spend for failure in failures)
        except JudgeFailure as last:
            last.spend = total_spend(failure.spend for failure in failures)
            raise

    async def _once(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """One attempt, in a slot of its own; whatever ends it is a failure of one question."""
        concurrency = self.concurrency
        async with concurrency:
            sent = time.monotonic()
            try:
                async with asyncio.timeout(self.timeout):
                    answer = await attempt()
            except (SpendLimitReached, StoreError):
                raise
            except JudgeFailure as failure:
                if failure.rate_limited:
                    concurrency.limited(sent, min(MAX_WAIT, failure.retry_after or 0.0))
                raise
            except TimeoutError:
                late, spend = f"no reply within {self.timeout:g} s", Spend(calls=1)
                raise JudgeFailure("transport", late, retryable=True, spend=spend) from None
            except Exception as error:  # whatever a judge of the user's own raises
                raise JudgeFailure("config", f"{type(error).__name__}: {error}") from error
            concurrency.answered()
            return answer

    @property
    def concurrency(self) -> AdaptiveConcurrency:
        """The cap on calls under way in the running event loop."""
        loop = asyncio.get_running_loop()
        concurrency = self._paces.get(loop)
        if concurrency is None:
            concurrency = self._paces[loop] = AdaptiveConcurrency(self.max_concurrency)
        return concurrency

    def with_cap(self, max_concurrency: int) -> CallLimiter:
        """The same budget with another cap."""
        return CallLimiter(self.max_retries, max_concurrency, self.timeout)


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.retry_after if isinstance(failure, JudgeFailure) else None
    return min(MAX_WAIT, max(0.0, asked)) if asked is not None else _backoff(state)


def _may_retry(error: BaseException) -> bool:
    return isinstance(error, JudgeFailure) and error.retryable
