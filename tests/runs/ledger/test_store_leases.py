"""A key is requested by one caller at a time; whoever fails, is cancelled or dies is replaced."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.graders import CallLimits
from rubric_integrations.judges import Question
from rubric_integrations.judges.store import Lease
from rubric_integrations.runs import LedgerError, open_ledger
from rubric_integrations.scoring import Judgment
from tests.fakes import FakeJudge
from tests.runs.ledger.callers import (
    KEY,
    KEYS,
    MET,
    execute,
    expire_at_once,
    kill,
    read_line,
    request,
    shorten_leases,
    start_process,
    stop_heartbeats,
)


async def test_key_requested_by_many_tasks_is_requested_once(address: str) -> None:
    with open_ledger(address) as ledger:
        requested = await asyncio.gather(*(request(ledger, KEY, seconds=0.02) for _ in range(50)))
        assert sum(map(len, requested)) == ledger.stored == 1
        assert ledger.reused == 49


def test_keys_requested_by_threads_with_event_loops_of_their_own_are_requested_once(address: str) -> None:
    requested: list[str] = []
    with open_ledger(address) as ledger:

        async def request_all() -> None:
            for key in KEYS[:20]:
                requested.extend(await request(ledger, key, seconds=0.001))

        threads = [threading.Thread(target=lambda: asyncio.run(request_all())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(requested) == sorted(KEYS[:20])
        assert (ledger.stored, ledger.reused, ledger.spend.calls) == (20, 140, 20)


@pytest.mark.processes
def test_keys_requested_by_two_processes_are_requested_once(address: str) -> None:
    code = """
print("ready", flush=True)
sys.stdin.readline()
async def request(key):
    async with ledger.lease([key]) as lease:
        if key not in lease.stored:
            await asyncio.sleep(0.001)
            await lease.store({key: MET})
            print(key)
await asyncio.gather(*map(request, keys))
"""
    processes = [start_process(address, code, *keys) for keys in (KEYS, KEYS[::-1])]
    assert [read_line(process) for process in processes] == ["ready", "ready"]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    requested = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert Counter(key for keys in requested for key in keys) == Counter(KEYS)


async def test_leases_of_a_killed_process_go_to_the_caller_that_waits(address: str) -> None:
    code = """
async with ledger.lease(keys):
    print("leased", flush=True)
    await asyncio.sleep(600)
"""
    with open_ledger(address) as ledger:
        holder = start_process(address, code, *KEYS[:3])
        assert read_line(holder) == "leased"
        waiting = asyncio.create_task(request(ledger, *KEYS[:3]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        kill(holder)
        assert await waiting == KEYS[:3]


async def test_owner_on_another_host_without_heartbeats_is_replaced(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_leases(monkeypatch, 0.1)
    with open_ledger(address) as ledger:
        await request(ledger, KEYS[2])
        execute(
            address,
            sqlite="INSERT INTO owners VALUES ('them', 'elsewhere', 1, 7)",
            postgres="INSERT INTO rubric_owners VALUES ('them', 'elsewhere', 1, now())",
        )
        # A lease whose owner is not registered, as after its leases expired while it was suspended.
        for key, owner in ((KEY, "them"), (KEYS[1], "nobody")):
            execute(
                address,
                sqlite=f"INSERT INTO judgments VALUES ('{key}', 'leased', NULL, 0, '{owner}')",
                postgres=f"INSERT INTO rubric_judgments VALUES ('{key}', '{owner}', NULL, now())",
            )
        assert len(ledger) == 1
        assert await request(ledger, KEY, KEYS[1]) == [KEY, KEYS[1]]
        assert not execute(
            address,
            sqlite="DELETE FROM owners WHERE owner = 'them'",
            postgres="DELETE FROM rubric_owners WHERE owner = 'them'",
        )


async def test_owner_with_heartbeats_holds_its_lease_beyond_the_lease_time(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_leases(monkeypatch, 0.3)
    with open_ledger(address) as ledger, open_ledger(address) as other:
        first = asyncio.create_task(request(ledger, KEY, seconds=0.9, is_leased=(is_leased := asyncio.Event())))
        await is_leased.wait()
        assert await request(other, KEY) == []
        assert await first == [KEY]


async def test_key_of_a_cancelled_failed_or_abandoned_caller_can_be_leased(address: str) -> None:
    with open_ledger(address) as ledger:
        is_leased = asyncio.Event()

        async def hang() -> None:
            async with ledger.lease([KEY]):
                is_leased.set()
                await asyncio.sleep(600)

        async def fail() -> None:
            async with ledger.lease([KEY]):
                raise ZeroDivisionError

        # One caller is cancelled while it holds the key, and one while it waits for it and holds another.
        held = asyncio.create_task(hang())
        await is_leased.wait()
        least = min(KEYS)
        waiting = asyncio.create_task(request(ledger, KEY, least))
        await asyncio.sleep(0.01)
        for task in (waiting, held):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(ZeroDivisionError):
            await fail()
        # Coroutines that are closed as garbage: before the batch runs, after it, and while they hold the key.
        for steps in range(3):
            abandoned = hang()
            future: Any = abandoned.send(None)
            while steps and not future.done():  # noqa: ASYNC110 -- the future belongs to the abandoned coroutine
                await asyncio.sleep(0)
            if steps > 1:
                abandoned.send(None)
            abandoned.close()
            await asyncio.sleep(0)
        assert await request(ledger, KEY, least) == [KEY, least]
        assert ledger.stored == 2


async def test_closed_ledger_holds_no_lease_and_stores_nothing(address: str) -> None:
    ledger = open_ledger(address)
    async with ledger.lease([KEY]) as lease:
        ledger.close()
        with open_ledger(address) as other:
            assert await request(other, KEY) == [KEY]
        with pytest.raises(LedgerError, match="is closed"):
            await lease.store({KEY: MET})


async def test_overlapping_keys_in_opposite_order_cause_no_deadlock(address: str) -> None:
    with open_ledger(address) as ledger, open_ledger(address) as other:
        requests = [(KEYS[i : i + 4], (ledger, other)[i % 2]) for i in range(12)]
        await asyncio.gather(
            *(request(store, *keys[::step], seconds=0.001) for keys, store in requests for step in (1, -1))
        )
        assert ledger.stored + other.stored == len(ledger) == 15


async def test_caller_that_waits_for_a_key_holds_those_before_it_and_none_after_it(address: str) -> None:
    before, wanted, after = sorted(KEYS[:3])
    with open_ledger(address) as ledger:
        async with ledger.lease([wanted]):
            waiting = asyncio.create_task(request(ledger, before, wanted, after))
            await asyncio.sleep(0.01)
            assert await request(ledger, after) == [after]
            late = asyncio.create_task(request(ledger, before))
            await asyncio.sleep(0.01)
            assert not late.done()
        assert await waiting == [before, wanted]
        assert await late == []


async def test_lease_that_could_not_be_released_expires(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_leases(monkeypatch, 0.1)
    with open_ledger(path) as ledger:
        db = sqlite3.connect(path)
        async with ledger.lease([KEY]):
            # Stands for a disk that is full at that moment.
            db.execute("CREATE TRIGGER no BEFORE DELETE ON judgments BEGIN SELECT raise(ABORT, 'full'); END")
        db.execute("DROP TRIGGER no")
        assert await request(ledger, KEY) == [KEY]
        db.close()


async def test_lost_lease_is_not_held_after_another_task_of_the_process_leased_its_key(address: str) -> None:
    with open_ledger(address) as ledger, open_ledger(address) as other:
        lost = ledger.lease([KEY])
        async with lost as lease:
            # Stands for another process that has seen no heartbeat for too long.
            execute(
                address,
                sqlite="DELETE FROM judgments WHERE status = 'leased'",
                postgres="DELETE FROM rubric_judgments WHERE judgment IS NULL",
            )
            execute(address, sqlite="DELETE FROM owners", postgres="DELETE FROM rubric_owners")
            # This process notices it when it leases another key.
            await request(ledger, KEYS[1])
            async with ledger.lease([KEY]) as later:
                assert (lease.is_held(), later.is_held()) == (False, True)
                await lost.__aexit__(None, None, None)
                assert later.is_held()
                waiting = asyncio.create_task(request(other, KEY))
                await asyncio.sleep(0.1)
                assert not waiting.done()
                await later.store({KEY: MET})
            assert await waiting == []


async def test_lease_is_not_held_after_the_late_judgment_of_an_earlier_owner_is_stored(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire_at_once(monkeypatch)
    with open_ledger(address) as late, open_ledger(address) as failing, open_ledger(address) as ledger:
        async with late.lease([KEY]) as lost:
            async with failing.lease([KEY]):
                pass
            async with ledger.lease([KEY]) as lease, ledger.lease([KEYS[1]]) as unrelated:
                assert lease.is_held()
                assert await lost.store({KEY: MET}) == {KEY: MET}
                assert not lease.is_held()
                assert unrelated.is_held()
                late_judgment = MET.model_copy(update={"reason": "later"})
                assert await lease.store({KEY: late_judgment}) == {KEY: MET}


@pytest.mark.parametrize("seed", range(8))
async def test_last_owner_of_a_key_never_holds_it_once_its_judgment_is_stored(
    address: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    expire_at_once(monkeypatch)
    chance, held = Random(seed), 0
    stored: dict[str, Judgment] = {}
    last: dict[str, Lease] = {}
    leases: dict[tuple[int, str], tuple[Lease, AsyncExitStack]] = {}
    async with AsyncExitStack() as stack:
        ledgers = [stack.enter_context(open_ledger(address)) for _ in range(3)]
        for step in range(60):
            number, key = chance.randrange(3), chance.choice(KEYS[:4])
            if (number, key) not in leases:
                own = await stack.enter_async_context(AsyncExitStack())
                lease = await own.enter_async_context(ledgers[number].lease([key]))
                assert lease.stored == ({key: stored[key]} if key in stored else {})
                if not lease.stored:
                    last[key], leases[number, key] = lease, (lease, own)
                continue
            lease, own = leases[number, key]
            if lease is last[key] and lease.is_held():
                held += 1
                assert key not in stored
            is_answered = chance.random() < 0.4
            if is_answered:
                judgment = MET.model_copy(update={"reason": f"{number} {step}"})
                assert await lease.store({key: judgment}) == {key: stored.setdefault(key, judgment)}
            if is_answered or chance.random() < 0.4:
                await own.aclose()
                del leases[number, key]
    assert held


async def test_report_of_a_process_paused_past_its_lease_has_the_judgment_of_the_ledger(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_leases(monkeypatch, 0.1)

    stop_heartbeats(monkeypatch)
    is_requested, overtaken = asyncio.Event(), asyncio.Event()

    async def late_answer(_question: Question) -> str:
        is_requested.set()
        await overtaken.wait()
        return "MET"

    rubric = Rubric.from_dict([{"weight": 1, "requirement": "Is kind"}])
    with open_ledger(address) as ledger, open_ledger(address) as other:
        paused = PerCriterionGrader(FakeJudge(late_answer, fingerprint="f")).with_store(ledger)
        report = asyncio.create_task(rubric.grade("a", grader=paused))
        await is_requested.wait()
        quick = PerCriterionGrader(FakeJudge("UNMET", fingerprint="f")).with_store(other)
        kept = await rubric.grade("a", grader=quick)
        overtaken.set()
        assert (await report).criteria == kept.criteria
        assert (ledger.stored, other.stored, len(ledger)) == (0, 1, 1)


async def test_call_that_waited_past_its_lease_is_not_sent(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_leases(monkeypatch, 0.1)

    stop_heartbeats(monkeypatch)
    others_are_done = asyncio.Event()

    async def answer_late(_question: Question) -> str:
        await others_are_done.wait()
        return "MET"

    rubric = Rubric.from_dict([{"weight": 1, "requirement": "Is kind"}])
    with open_ledger(address) as ledger, open_ledger(address) as other:
        judge = FakeJudge(answer_late, fingerprint="f")
        paused = PerCriterionGrader(judge, limits=CallLimits(max_concurrency=1)).with_store(ledger)
        # The second call has a lease, and waits for the only slot.
        reports = [asyncio.create_task(rubric.grade(text, grader=paused)) for text in ("a", "b")]
        await asyncio.sleep(0.01)
        quick = PerCriterionGrader(FakeJudge("UNMET", fingerprint="f")).with_store(other)
        kept = await rubric.grade("b", grader=quick)
        others_are_done.set()
        assert (await asyncio.gather(*reports))[1].criteria == kept.criteria
        assert [question.submission.response for question in judge.questions] == ["a"]


async def test_wait_for_the_claim_of_another_does_not_count_against_the_timeout(address: str) -> None:
    rubric = Rubric.from_dict([{"weight": 1, "requirement": "Is kind"}])
    is_waiting, release = asyncio.Event(), asyncio.Event()

    async def slow_answer(_question: Question) -> str:
        is_waiting.set()
        await release.wait()
        return "MET"

    with open_ledger(address) as ledger, open_ledger(address) as other:
        holder = PerCriterionGrader(FakeJudge(slow_answer, fingerprint="f")).with_store(ledger)
        held = asyncio.create_task(rubric.grade("a", grader=holder))
        await is_waiting.wait()
        limits = CallLimits(timeout=0.02, max_outage=0)
        waiter = PerCriterionGrader(FakeJudge(fingerprint="f"), limits=limits, max_retries=0).with_store(other)
        waiting = asyncio.create_task(rubric.grade("a", grader=waiter))
        # Ten times the timeout.
        await asyncio.sleep(0.2)
        assert not waiting.done()
        release.set()
        assert (await waiting).score == (await held).score == 1.0
        assert (ledger.stored, other.reused) == (1, 1)
