"""The adaptive concurrency limit: halved by a rate limit, and restored by successful calls."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations.graders.endpoint import AdaptiveConcurrency


def test_rate_limit_halves_the_slots_once_and_successful_calls_restore_them() -> None:
    concurrency, sent = AdaptiveConcurrency(16), time.monotonic()
    for _ in range(10):
        concurrency.on_rate_limit(sent_at=sent)  # all were sent before the first refusal
    assert concurrency.slots == 8
    concurrency.on_rate_limit(sent_at=time.monotonic())
    assert concurrency.slots == 4
    for _ in range(4):
        concurrency.on_success()
    assert concurrency.slots == 5
    for _ in range(1000):
        concurrency.on_success()
    assert concurrency.slots == 16


@given(st.lists(st.sampled_from(["limited", "answered"]), max_size=60), st.integers(1, 9))
def test_limit_holds_and_one_slot_is_left_after_any_events(events: list[str], limit: int) -> None:
    async def run() -> None:
        concurrency, under_way = AdaptiveConcurrency(limit), 0

        async def call(event: str) -> None:
            nonlocal under_way
            async with concurrency:
                under_way += 1
                assert under_way <= limit
                await asyncio.sleep(0)
                under_way -= 1
            if event == "limited":
                concurrency.on_rate_limit(sent_at=time.monotonic())
            else:
                concurrency.on_success()
            assert 1 <= concurrency.slots <= limit

        await asyncio.wait_for(asyncio.gather(*map(call, events)), 5)

    asyncio.run(run())


async def test_cancelled_wait_for_the_server_returns_its_slot() -> None:
    concurrency = AdaptiveConcurrency(1)
    concurrency.on_rate_limit(sent_at=time.monotonic(), wait=30)

    async def call() -> None:
        async with concurrency:
            await concurrency.wait_for_server()

    waiting = asyncio.create_task(call())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(1), concurrency:
        assert concurrency.slots == 1
