"""The limits of a grader's calls: concurrency, time, spend, and the retries of a judgment."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    wait_exponential,
    wait_random,
)

from rubric_integrations.graders.concurrency import AdaptiveConcurrency
from rubric_integrations.graders.endpoint import LONGEST_WAIT, Endpoint
from rubric_integrations.graders.settings import CallLimits
from rubric_integrations.judges.spend_limit import SpendLimit
from rubric_integrations.results.judgment import JudgeFailure
from rubric_integrations.results.usage import NO_SPEND, Spend, total_spend

T = TypeVar("T")

_backoff = wait_exponential(multiplier=0.5, max=20.0) + wait_random(0, 0.25)


class CallLimiter:
    """Limits and retries the calls of one grader.

    `call` retries: an attempt that failed is repeated up to `max_retries` times. If no reply arrived (an outage, a rate
    limit, a timeout), it is repeated beyond that for `limits.max_outage` seconds. The wait between attempts doubles
    from half a second to 20, or is what the server requests.

    What a single call to a model waits for is in `graders/limited_judge.py`, which uses the other attributes. A copy,
    and one from a pickle, has the same limits and knows of no calls.

    Args:
        max_retries: Retries after a failed attempt, at least 0. With 0 no call is repeated, whatever failed.
        limits: Concurrency, timeout and outage.
        in_run: Whether the calls belong to one run, which a judge that cannot be used ends.
        spend_limit: Counts and limits the calls of a run; None for no limit.

    Attributes:
        endpoints: The state of the model behind each judge that uses this limiter.

    Raises:
        ValueError: `max_retries` is negative.
    """

    def __init__(
        self, max_retries: int, limits: CallLimits, *, in_run: bool = False, spend_limit: SpendLimit | None = None
    ):
        if isinstance(max_retries, bool) or max_retries < 0:
            raise ValueError(f"`max_retries` must be at least 0, got {max_retries!r}")
        self.max_retries, self.limits = max_retries, limits
        self._in_run, self.spend_limit = in_run, spend_limit
        self.endpoints: list[Endpoint] = []
        self._concurrency = _new_limits()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_concurrency"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._concurrency = _new_limits()

    def for_run(
        self,
        max_concurrency: int | None,
        spend_limit: SpendLimit | None,
        max_outage: float | None,
        *,
        may_end: bool = True,
    ) -> CallLimiter:
        """Make a limiter for one run, with the same limits but for those that are passed.

        Unless it `may_end`, the run goes on also if its judge cannot be used.

        Runs of one grader share their slots, if they have equally many: two runs at the same time make no more calls
        than one.
        """
        changes = {"max_concurrency": max_concurrency, "max_outage": max_outage}
        changed = {name: value for name, value in changes.items() if value is not None}
        limits = CallLimits.model_validate({**self.limits.model_dump(), **changed})
        limiter = CallLimiter(self.max_retries, limits, in_run=may_end, spend_limit=spend_limit)
        limiter._concurrency = self._concurrency
        return limiter

    def new_endpoint(self, earlier: Endpoint | None = None) -> Endpoint:
        """Return the state of another judge's model.

        Args:
            earlier: The state before this run; None if there is none.
        """
        endpoint = Endpoint(self.limits.max_outage, in_run=self._in_run, earlier=earlier)
        self.endpoints.append(endpoint)
        return endpoint

    @property
    def down_since(self) -> float | None:
        """When the present outage began, by `time.monotonic`; None if there is none."""
        times = [endpoint.down_since for endpoint in self.endpoints]
        return min((time for time in times if time is not None), default=None)

    def reset(self) -> None:
        """Forget what was learnt about the judges' models."""
        for endpoint in self.endpoints:
            endpoint.reset()

    @property
    def concurrency(self) -> AdaptiveConcurrency:
        """The concurrency limit of the running event loop."""
        loop, limit = asyncio.get_running_loop(), self.limits.max_concurrency
        by_limit = self._concurrency.get(loop)
        if by_limit is None:
            by_limit = self._concurrency[loop] = {}
        concurrency = by_limit.get(limit)
        if concurrency is None:
            concurrency = by_limit[limit] = AdaptiveConcurrency(limit)
        return concurrency

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, Spend]:
        """Attempt a call until it succeeds or the retries are used up.

        Returns:
            The result, and what failed attempts cost.

        Raises:
            JudgeFailure: The last failure; its `spend` is that of all attempts.
        """
        try:
            return await attempt(), NO_SPEND
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

        async def next_attempt() -> T:
            try:
                if not failures:
                    raise first  # already made, outside of tenacity, which costs more than a call that succeeds
                return await attempt()
            except JudgeFailure as failure:
                failures.append(failure)
                raise

        retrying = AsyncRetrying(stop=is_exhausted, wait=_wait, retry=retry_if_exception(_is_retryable), reraise=True)
        try:
            return await retrying(next_attempt), total_spend(failure.spend for failure in failures)
        except JudgeFailure as last:
            failure = copy.copy(last)  # a judge may raise one object for every question
            failure.spend = total_spend(failure.spend for failure in failures)
            raise failure from last


def _new_limits() -> WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, AdaptiveConcurrency]]:
    # By event loop, because a semaphore belongs to one, and a grader may serve several; then by the number of slots.
    return WeakKeyDictionary()


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    requested = failure.retry_after if isinstance(failure, JudgeFailure) else None
    return min(LONGEST_WAIT, max(0.0, requested)) if requested is not None else _backoff(state)


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, JudgeFailure) and error.retryable
