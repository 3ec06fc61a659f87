"""Calls within one event-loop tick are one batch; callers that are cancelled lose neither an item nor a result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from rubric_integrations.runs.ledger.sqlite import Batcher


class Tenfold:
    """Multiplies by ten; records its batches and what was discarded."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.discarded: list[tuple[int, int]] = []
        self.call = Batcher[int, int](self._run, lambda item, result: self.discarded.append((item, result)))

    def _run(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        if 13 in items:
            raise ValueError("thirteen")
        return [10 * item for item in items]


async def test_calls_in_one_tick_are_one_batch_and_later_calls_another() -> None:
    tenfold = Tenfold()
    assert await asyncio.gather(*map(tenfold.call, (1, 2, 1))) == [10, 20, 10]
    assert await tenfold.call(3) == 30
    assert tenfold.batches == [[1, 2, 1], [3]]
    assert tenfold.discarded == []


async def test_error_of_a_batch_is_raised_to_all_its_callers_and_to_no_others() -> None:
    tenfold = Tenfold()
    results = await asyncio.gather(tenfold.call(1), tenfold.call(13), return_exceptions=True)
    assert [str(error) for error in results] == ["thirteen", "thirteen"]
    assert await tenfold.call(1) == 10


@pytest.mark.parametrize("ticks", [0, 1, 2])
async def test_item_of_a_cancelled_caller_is_in_the_batch_and_its_result_is_discarded(ticks: int) -> None:
    tenfold = Tenfold()
    leaving, staying = asyncio.create_task(tenfold.call(1)), asyncio.create_task(tenfold.call(2))
    for _ in range(ticks):
        await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 20
    with pytest.raises(asyncio.CancelledError):
        await leaving
    # A task that is cancelled before its first step has not called anything.
    assert tenfold.batches == ([[1, 2]] if ticks else [[2]])
    assert tenfold.discarded == ([(1, 10)] if ticks else [])


@pytest.mark.parametrize("ticks", [0, 1])
async def test_item_of_a_coroutine_closed_as_garbage_is_in_the_batch_and_its_result_is_discarded(ticks: int) -> None:
    tenfold = Tenfold()
    abandoned = tenfold.call(1)
    abandoned.send(None)
    for _ in range(ticks):
        await asyncio.sleep(0)
    abandoned.close()
    await asyncio.sleep(0)
    assert (tenfold.batches, tenfold.discarded) == ([[1]], [(1, 10)])


def test_event_loops_in_several_threads_have_batches_of_their_own() -> None:
    tenfold, results = Tenfold(), list[int]()

    async def call_three_times(item: int) -> None:
        results.extend(await asyncio.gather(*(tenfold.call(item) for _ in range(3))))

    threads = [threading.Thread(target=asyncio.run, args=(call_three_times(item),)) for item in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(10 * item for item in range(8) for _ in range(3))
    assert all(len(set(batch)) == 1 for batch in tenfold.batches)
