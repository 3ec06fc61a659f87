"""Calls under a concurrency limit and a timeout, retried after failures that may be temporary."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    wait_exponential,
    wait_random,
)

from rubric_integrations.graders.concurrency import AdaptiveConcurrency
from rubric_integrations.graders.settings import CallLimits
from rubric_integrations.judges.spend_limit import SpendLimitReached
from rubric_integrations.judges.stored import StoreError
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.usage import NO_SPEND, Spend, total_spend

T = TypeVar("T")

_logger = logging.getLogger(__name__)

# Seconds between two warnings about an outage.
_WARNING_INTERVAL = 30.0
# Seconds. No wait between attempts is longer, whatever a server requests: a run should fail while its user is watching.
MAX_WAIT = 60.0
# Our own waits end sooner, so that a run goes on soon after an outage.
_backoff = wait_exponential(multiplier=0.5, max=20.0) + wait_random(0, 0.25)


class CallLimiter:
    """Limits and retries the calls of one grader.

    An attempt that failed is repeated up to `max_retries` times. If no reply arrived (an outage, a rate limit, a
    timeout), it is repeated beyond that for `limits.max_outage` seconds. The wait between attempts doubles from half a
    second to 20, or is what the server requests. A rate limit also halves the concurrency for a while. During an outage
    the logger of this module warns every half minute.

    Args:
        max_retries: Retries after a failed attempt, at least 0. With 0 no call is repeated, whatever failed.
        limits: Concurrency, timeout and outage.

    Raises:
        ValueError: `max_retries` is negative.
    """

    def __init__(self, max_retries: int, limits: CallLimits):
        if isinstance(max_retries, bool) or max_retries < 0:
            raise ValueError(f"`max_retries` must be at least 0, got {max_retries!r}")
        self.max_retries, self.limits = max_retries, limits
        self._warned_at = -math.inf
        # A semaphore belongs to one event loop; a grader may serve several.
        self._concurrency: WeakKeyDictionary[asyncio.AbstractEventLoop, AdaptiveConcurrency] = WeakKeyDictionary()

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, Spend]:
        """Attempt a call until it succeeds or the retries are used up.

        Returns:
            The result, and what failed attempts cost.

        Raises:
            JudgeFailure: The last failure; its `spend` is that of all attempts.
        """
        try:
            return await self._attempt(attempt), NO_SPEND
        except JudgeFailure as failure:
            if not failure.retryable or not self.max_retries:
                raise
            first = failure
        return await self._retry(attempt, first)

    async def _retry(self, attempt: Callable[[], Awaitable[T]], first: JudgeFailure) -> tuple[T, Spend]:
        failures: list[JudgeFailure] = []
        started_at = time.monotonic()

        def is_exhausted(_state: RetryCallState) -> bool:
            # Replies that cannot be read are counted; an outage lasts as long as it lasts, however often it is met.
            if failures[-1].kind == "transport":
                lost_for = time.monotonic() - started_at
                return len(failures) > self.max_retries and lost_for >= self.limits.max_outage
            return sum(failure.kind != "transport" for failure in failures) > self.max_retries

        def warn_of_outage(_state: RetryCallState) -> None:
            if failures[-1].kind == "transport" and len(failures) > self.max_retries:
                self._warn_of_outage(failures[-1], time.monotonic() - started_at)

        async def next_attempt() -> T:
            try:
                if not failures:
                    raise first  # already made, outside of tenacity, which costs more than a call that succeeds
                return await self._attempt(attempt)
            except JudgeFailure as failure:
                failures.append(failure)
                raise

        retrying = AsyncRetrying(
            stop=is_exhausted,
            before_sleep=warn_of_outage,
            wait=_wait,
            retry=retry_if_exception(_is_retryable),
            reraise=True,
        )
        try:
            return await retrying(next_attempt), total_spend(failure.spend for failure in failures)
        except JudgeFailure as last:
            last.spend = total_spend(failure.spend for failure in failures)
            raise

    def _warn_of_outage(self, failure: JudgeFailure, lost_for: float) -> None:
        now = time.monotonic()
        if now - self._warned_at >= _WARNING_INTERVAL:
            self._warned_at = now
            message = "no reply from the judge for %.0f s (%s): retrying for up to %.0f s"
            _logger.warning(message, lost_for, failure.message, self.limits.max_outage)

    async def _attempt(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Make one attempt in a slot of its own; any exception becomes a failure of this one question."""
        concurrency = self.concurrency
        async with concurrency:
            sent_at = time.monotonic()
            try:
                async with asyncio.timeout(self.limits.timeout):
                    result = await attempt()
            except (SpendLimitReached, StoreError):
                raise
            except JudgeFailure as failure:
                if failure.rate_limited:
                    concurrency.on_rate_limit(sent_at, min(MAX_WAIT, failure.retry_after or 0.0))
                raise
            except TimeoutError:
                message, spend = f"no reply within {self.limits.timeout:g} s", Spend(calls=1)
                raise JudgeFailure("transport", message, retryable=True, spend=spend) from None
            except Exception as error:  # whatever a user's own judge raises
                raise JudgeFailure("config", f"{type(error).__name__}: {error}") from error
            concurrency.on_success()
            return result

    @property
    def concurrency(self) -> AdaptiveConcurrency:
        """The concurrency limit of the running event loop."""
        loop = asyncio.get_running_loop()
        concurrency = self._concurrency.get(loop)
        if concurrency is None:
            concurrency = self._concurrency[loop] = AdaptiveConcurrency(self.limits.max_concurrency)
        return concurrency

    def with_concurrency(self, max_concurrency: int) -> CallLimiter:
        """Make a limiter with the same retries and timeout and another concurrency limit."""
        return CallLimiter(self.max_retries, self.limits.model_copy(update={"max_concurrency": max_concurrency}))


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    requested = failure.retry_after if isinstance(failure, JudgeFailure) else None
    return min(MAX_WAIT, max(0.0, requested)) if requested is not None else _backoff(state)


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, JudgeFailure) and error.retryable
