"""Asking under a budget: a concurrency cap, a timeout, and further attempts after what may pass."""

from __future__ import annotations

import asyncio
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

from rubric_integrations.verdict import JudgeFailure, Spend

T = TypeVar("T")

# No wait between attempts is longer, whatever a server asks for: a run should fail while someone is looking.
MAX_WAIT = 60.0

_backoff = wait_exponential(multiplier=0.5, max=MAX_WAIT) + wait_random(0, 0.25)


class Budget:
    """What one grader may have under way, and how often it may ask again.

    One budget serves lost and unreadable replies; the wait doubles from half a second, or is what the server asks for.
    """

    def __init__(self, max_retries: int, max_concurrency: int, timeout: float):
        for name, value, least in (("max_retries", max_retries, 0), ("max_concurrency", max_concurrency, 1)):
            if isinstance(value, bool) or value < least:
                raise ValueError(f"`{name}` must be at least {least}, got {value!r}")
        if not timeout > 0:
            raise ValueError(f"`timeout` must be above 0 seconds, got {timeout!r}")
        self.max_retries, self.max_concurrency, self.timeout = max_retries, max_concurrency, timeout
        # A semaphore belongs to one event loop; a grader may serve several.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def ask(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, Spend]:
        """Ask until there is an answer; also tell what failed attempts cost.

        Raises:
            JudgeFailure: The last one; its `spend` is that of all attempts.
        """
        lost = Spend()

        async def once() -> T:
            nonlocal lost
            try:
                async with self._slot(), asyncio.timeout(self.timeout):
                    return await attempt()
            except JudgeFailure as failure:
                lost += failure.spend
                raise
            except TimeoutError:
                lost += Spend(calls=1)
                raise JudgeFailure("transport", f"no reply within {self.timeout:g} s", retryable=True) from None
            except Exception as error:  # whatever a judge of the user's own raises, it is one question's failure
                raise JudgeFailure("config", f"{type(error).__name__}: {error}") from error

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.max_retries + 1),
            wait=_wait,
            retry=retry_if_exception(_may_retry),
            reraise=True,
        )
        try:
            return await retrying(once), lost
        except JudgeFailure as failure:
            failure.spend = lost
            raise

    def _slot(self) -> asyncio.Semaphore:
        return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.max_concurrency))


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.retry_after if isinstance(failure, JudgeFailure) else None
    return min(MAX_WAIT, max(0.0, asked)) if asked is not None else _backoff(state)


def _may_retry(error: BaseException) -> bool:
    return isinstance(error, JudgeFailure) and error.retryable
