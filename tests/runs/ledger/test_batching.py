"""Calls of one turn are one run; whoever leaves early loses neither an item nor leaves a result to nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from rubric_integrations.runs.ledger.batching import Batcher


class Tenfold:
    """Multiplies by ten, and remembers with whom."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.unwanted: list[tuple[int, int]] = []
        self.ask = Batcher[int, int](self._run, lambda item, result: self.unwanted.append((item, result)))

    def _run(self, items: Sequence[int]) -> list[int]:
        self.runs.append(list(items))
        if 13 in items:
            raise ValueError("thirteen")
        return [10 * item for item in items]


async def test_calls_of_one_turn_are_one_run_and_later_ones_another() -> None:
    tenfold = Tenfold()
    assert await asyncio.gather(*map(tenfold.ask, (1, 2, 1))) == [10, 20, 10]
    assert await tenfold.ask(3) == 30
    assert tenfold.runs == [[1, 2, 1], [3]]
    assert tenfold.unwanted == []


async def test_what_the_run_raises_all_hear_and_the_next_turn_is_a_new_one() -> None:
    tenfold = Tenfold()
    told = await asyncio.gather(tenfold.ask(1), tenfold.ask(13), return_exceptions=True)
    assert [str(error) for error in told] == ["thirteen", "thirteen"]
    assert await tenfold.ask(1) == 10


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_the_item_of_whoever_is_cancelled_is_in_the_run_and_its_result_is_handed_over(turns: int) -> None:
    tenfold = Tenfold()
    leaving, staying = asyncio.create_task(tenfold.ask(1)), asyncio.create_task(tenfold.ask(2))
    for _ in range(turns):
        await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 20
    with pytest.raises(asyncio.CancelledError):
        await leaving
    # Before its first step there was no call at all.
    assert tenfold.runs == ([[1, 2]] if turns else [[2]])
    assert tenfold.unwanted == ([(1, 10)] if turns else [])


@pytest.mark.parametrize("turns", [0, 1])
async def test_so_it_is_with_what_is_left_as_garbage(turns: int) -> None:
    tenfold = Tenfold()
    forgotten = tenfold.ask(1)
    forgotten.send(None)
    for _ in range(turns):
        await asyncio.sleep(0)
    forgotten.close()
    await asyncio.sleep(0)
    assert (tenfold.runs, tenfold.unwanted) == ([[1]], [(1, 10)])


def test_each_event_loop_has_turns_of_its_own() -> None:
    tenfold, found = Tenfold(), list[int]()

    async def ask(item: int) -> None:
        found.extend(await asyncio.gather(*(tenfold.ask(item) for _ in range(3))))

    threads = [threading.Thread(target=asyncio.run, args=(ask(item),)) for item in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(10 * item for item in range(8) for _ in range(3))
    assert all(len(set(run)) == 1 for run in tenfold.runs)
