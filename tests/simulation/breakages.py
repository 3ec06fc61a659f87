"""Faults that are put into the library on purpose, to show that the simulator finds each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

from rubric_integrations.graders import concurrency, limited_judge
from rubric_integrations.judges.spend_limit import SpendLimit
from rubric_integrations.judges.stored import StoredJudge
from rubric_integrations.judges.validation import ValidatedJudge
from rubric_integrations.judges.wrappers import JudgeWrapper
from rubric_integrations.results import JudgeFailure, Judgment
from rubric_integrations.results.usage import NO_SPEND
from rubric_integrations.runs import runner
from rubric_integrations.runs.ledger import leases, leasing
from rubric_integrations.submission.files import Row

_call, _digest, _store = SpendLimit.call, StoredJudge._digest, leasing._Lease.store  # pyright: ignore[reportPrivateUsage]
_on_rate_limit, _as_rows = concurrency.AdaptiveConcurrency.on_rate_limit, runner.as_rows


def _do_nothing(*_arguments: object) -> None:
    pass


def _agree(*_arguments: object) -> bool:
    return True


async def _wait_for_nothing(_self: object) -> None:
    pass


async def _count_after_sending(
    self: SpendLimit, request: Callable[[], Awaitable[Any]], highest_cost: float | None = None
) -> Any:
    result = await request()

    async def is_known() -> Any:
        return result

    return await _call(self, is_known, highest_cost)


async def _reserve_nothing(
    self: SpendLimit, request: Callable[[], Awaitable[Any]], _highest_cost: float | None = None
) -> Any:
    return await _call(self, request, 0.0)


async def _forget_spend_of_failures(
    self: SpendLimit, request: Callable[[], Awaitable[Any]], highest_cost: float | None = None
) -> Any:
    async def forgetful_request() -> Any:
        try:
            return await request()
        except JudgeFailure as failure:
            failure.spend = NO_SPEND
            raise

    return await _call(self, forgetful_request, highest_cost)


async def _store_after_release(self: Any, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
    async def store_later() -> None:
        await asyncio.sleep(0.25)
        await _store(self, judgments)

    self.later = asyncio.create_task(store_later())
    return judgments


def _ignore_criterion(
    self: StoredJudge, form: str, submission: Any, guidelines: str, _own_part: object, _criteria: Any
) -> str:
    return _digest(self, form, submission, guidelines, "the same", ())


def _sleep_in_the_loop(self: concurrency.AdaptiveConcurrency, sent_at: float, wait: float = 0.0) -> None:
    concurrency.time.sleep(wait)
    _on_rate_limit(self, sent_at, wait)


async def _repeat_last_row(submissions: Any) -> AsyncGenerator[tuple[Any, Row]]:
    row = None
    async for row in _as_rows(submissions):
        yield row
    if row:
        yield row


class _NoTimeout(nullcontext[None]):
    """Stands in for `asyncio.timeout`, and never ends."""


BREAKAGES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a slot is not released": lambda: patch.object(concurrency.AdaptiveConcurrency, "_release", _do_nothing),
    "a lease is not released": lambda: patch.object(leases.Leases, "release", _do_nothing),
    "heartbeats are not sent": lambda: patch.object(leases.Leases, "renew", _do_nothing),
    "everybody else is taken for dead": lambda: patch.object(leases.Owner, "is_dead", True),
    "a lease ends before its judgment is stored": lambda: patch.object(leasing._Lease, "store", _store_after_release),  # pyright: ignore[reportPrivateUsage]
    "the key of a judgment ignores its criterion": lambda: patch.object(StoredJudge, "_digest", _ignore_criterion),
    "calls are counted after they are sent": lambda: patch.object(SpendLimit, "call", _count_after_sending),
    "nothing is reserved for a call": lambda: patch.object(SpendLimit, "call", _reserve_nothing),
    "failed calls are not counted": lambda: patch.object(SpendLimit, "call", _forget_spend_of_failures),
    "a lease is not checked before sending": lambda: patch.object(leases.Leases, "are_held", _agree),
    "judgments are not validated": lambda: patch.object(ValidatedJudge, "judge", JudgeWrapper.judge),
    "a server's request to wait is ignored": lambda: patch.object(
        concurrency.AdaptiveConcurrency, "wait_for_server", _wait_for_nothing
    ),
    "a wait blocks the event loop": lambda: patch.object(
        concurrency.AdaptiveConcurrency, "on_rate_limit", _sleep_in_the_loop
    ),
    "a call has no timeout": lambda: patch.object(limited_judge.asyncio, "timeout", _NoTimeout),
    "a row is graded twice": lambda: patch.object(runner, "as_rows", _repeat_last_row),
}

SEEDS_THAT_FIND: dict[str, int] = {
    "a slot is not released": 26,
    "a lease is not released": 39,
    "heartbeats are not sent": 27,
    "everybody else is taken for dead": 15,
    "a lease ends before its judgment is stored": 38,
    "the key of a judgment ignores its criterion": 38,
    "calls are counted after they are sent": 37,
    "nothing is reserved for a call": 77,
    "failed calls are not counted": 19,
    "a lease is not checked before sending": 194,
    "judgments are not validated": 17,
    "a server's request to wait is ignored": 14,
    "a wait blocks the event loop": 10,
    "a call has no timeout": 37,
    "a row is graded twice": 38,
}
"""For each fault, a seed that finds it quickly. The tests play it first, and all others only if it no longer does."""
