"""Faults that are put into the library on purpose, to show that the simulator finds each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

from rubric_integrations.graders import endpoint, scheduler
from rubric_integrations.graders.scheduler import Redactor
from rubric_integrations.judges import validation
from rubric_integrations.judges.spend import SpendLimit
from rubric_integrations.judges.store import StoredJudge
from rubric_integrations.runs import run
from rubric_integrations.runs.ledger import base, store
from rubric_integrations.scoring import JudgeFailure, Judgment, Spend
from rubric_integrations.scoring.judgment import NO_SPEND
from rubric_integrations.submission import Row, Submission

_digest, _store = StoredJudge._digest, base._Lease.store  # pyright: ignore[reportPrivateUsage]
_on_rate_limit, _as_rows = endpoint.AdaptiveConcurrency.on_rate_limit, run.as_rows
_record_failure = endpoint.Endpoint._record_failure  # pyright: ignore[reportPrivateUsage]
_redact_failure, _start, _end = Redactor.failure, SpendLimit.start, SpendLimit.end


def _do_nothing(*_arguments: object) -> None:
    pass


def _agree(*_arguments: object) -> bool:
    return True


def _accept(_request: object, result: object) -> object:
    return result


async def _wait_for_nothing(_self: object) -> None:
    pass


async def _count_nothing_before_sending(_self: SpendLimit, _highest_cost: float | None = None) -> float:
    return 0.0


def _count_after_sending(self: Any, spend: Spend, reserved: float, is_answered: bool) -> None:
    self._started += 1
    self._under_way += 1
    _end(self, spend, reserved, is_answered)


async def _reserve_nothing(self: SpendLimit, _highest_cost: float | None = None) -> float:
    return await _start(self, 0.0)


def _forget_spend_of_failures(self: SpendLimit, spend: Spend, reserved: float, is_answered: bool) -> None:
    _end(self, spend if is_answered or spend.is_lower_bound else NO_SPEND, reserved, is_answered)


def _forget_spend_of_cancelled_calls(self: SpendLimit, spend: Spend, reserved: float, is_answered: bool) -> None:
    _end(self, NO_SPEND if isinstance(sys.exception(), asyncio.CancelledError) else spend, reserved, is_answered)


def _forget_reservation_of_lost_call(self: Any, spend: Spend, reserved: float, is_answered: bool) -> None:
    counted = self._counted
    _end(self, spend, reserved, is_answered)
    if spend.is_lower_bound:
        self._counted = counted


def _take_unknown_cost_for_nothing(self: Any, spend: Spend, reserved: float, is_answered: bool) -> None:
    counted = self._counted
    _end(self, spend, reserved, is_answered)
    if spend.cost is None and is_answered:
        self._counted = counted


def _redact_all_but_timeouts(self: Redactor, failure: JudgeFailure) -> JudgeFailure:
    return failure if "timed out" in failure.message else _redact_failure(self, failure)


def _count_replies(self: Any, failure: JudgeFailure, submission: Submission) -> None:
    _record_failure(self, failure, submission)
    if self._streak is not None:
        self._streak.record([failure], is_graded=False)


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


def _sleep_in_the_loop(self: endpoint.AdaptiveConcurrency, sent_at: float, wait: float = 0.0) -> None:
    endpoint.time.sleep(wait)
    _on_rate_limit(self, sent_at, wait)


async def _repeat_last_row(submissions: Any, **options: Any) -> AsyncGenerator[tuple[Any, Row]]:
    row = None
    async for row in _as_rows(submissions, **options):
        yield row
    if row:
        yield row


class _NoTimeout(nullcontext[None]):
    """Stands in for `asyncio.timeout`, and never ends."""


BREAKAGES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a slot is not released": lambda: patch.object(endpoint.AdaptiveConcurrency, "_release", _do_nothing),
    "a lease is not released": lambda: patch.object(store.FileLeases, "release", _do_nothing),
    "heartbeats are not sent": lambda: patch.object(store.FileLeases, "renew", _do_nothing),
    "everybody else is taken for dead": lambda: patch.object(store.Owner, "is_dead", True),
    "a lease ends before its judgment is stored": lambda: patch.object(base._Lease, "store", _store_after_release),  # pyright: ignore[reportPrivateUsage]
    "the key of a judgment ignores its criterion": lambda: patch.object(StoredJudge, "_digest", _ignore_criterion),
    "calls are counted after they are sent": lambda: patch.multiple(
        SpendLimit, start=_count_nothing_before_sending, end=_count_after_sending
    ),
    "nothing is reserved for a call": lambda: patch.object(SpendLimit, "start", _reserve_nothing),
    "failed calls are not counted": lambda: patch.object(SpendLimit, "end", _forget_spend_of_failures),
    "a cancelled call is not counted": lambda: patch.object(SpendLimit, "end", _forget_spend_of_cancelled_calls),
    "the reservation of a lost call is not kept": lambda: patch.object(
        SpendLimit, "end", _forget_reservation_of_lost_call
    ),
    "a judgment without a cost is free": lambda: patch.object(SpendLimit, "end", _take_unknown_cost_for_nothing),
    "a judgment without spend is free": lambda: patch.object(validation, "UNKNOWN_CALL", NO_SPEND),
    "the failure of a timeout is not redacted": lambda: patch.object(Redactor, "failure", _redact_all_but_timeouts),
    "a lease is not checked before sending": lambda: patch.object(store.FileLeases, "are_held", _agree),
    "judgments are not validated": lambda: patch.object(scheduler, "validate", _accept),
    "a server's request to wait is ignored": lambda: patch.object(
        endpoint.AdaptiveConcurrency, "wait_for_server", _wait_for_nothing
    ),
    "a wait blocks the event loop": lambda: patch.object(
        endpoint.AdaptiveConcurrency, "on_rate_limit", _sleep_in_the_loop
    ),
    "a call has no timeout": lambda: patch.object(scheduler.asyncio, "timeout", _NoTimeout),
    "failed replies are counted in place of failed submissions": lambda: patch.object(
        endpoint.Endpoint, "_record_failure", _count_replies
    ),
    "a row is graded twice": lambda: patch.object(run, "as_rows", _repeat_last_row),
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
    "a cancelled call is not counted": 93,
    "the reservation of a lost call is not kept": 57,
    "a judgment without a cost is free": 50,
    "a judgment without spend is free": 50,
    "the failure of a timeout is not redacted": 60,
    "a lease is not checked before sending": 194,
    "judgments are not validated": 17,
    "a server's request to wait is ignored": 14,
    "a wait blocks the event loop": 10,
    "a call has no timeout": 37,
    "failed replies are counted in place of failed submissions": 35,
    "a row is graded twice": 38,
}
"""For each fault, a seed that finds it quickly. The tests play it first, and all others only if it no longer does."""
