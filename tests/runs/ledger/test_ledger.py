"""A ledger keeps what was bought: over crashes, forks and full disks, once for all tasks, threads and processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.judges.stored import JudgmentStore
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend, TokenUsage
from rubric_integrations.runs.ledger import Ledger, LedgerError, leases
from rubric_integrations.runs.ledger.sqlite import APPLICATION_ID, SCHEMA_VERSION
from tests.openai_server import OpenAIServer

FULL = Judgment(
    verdict="A", value=0.1 + 0.2, reason="so\x00 – 😀\n", neutralized=True, confidence=0.7, expected_value=1 / 3,
    spend=Spend(calls=2, usage=TokenUsage(prompt_tokens=30, completion_tokens=4, cached_tokens=5), cost=1e-7 / 3),
)  # fmt: skip
MET = Judgment(verdict="MET", value=1.0, spend=Spend(calls=1, cost=0.5))
KEYS = [sha256(str(number).encode()).hexdigest() for number in range(200)]
KEY = KEYS[0]

# What other processes run: they get the path, and speak in lines.
PRELUDE = """
import asyncio, os, sys, time
from rubric_integrations.runs.ledger import Ledger
from rubric_integrations.results import Judgment
MET = Judgment(verdict="MET", value=1.0)
ledger, keys = Ledger(sys.argv[1]), sys.argv[2:]
async def main():
"""


def process(ledger: Path, code: str, *keys: str) -> subprocess.Popen[str]:
    body = "".join(f"    {line}\n" for line in code.strip("\n").splitlines())
    script = f"{PRELUDE}{body}asyncio.run(main())\n"
    return subprocess.Popen(
        [sys.executable, "-c", script, str(ledger), *keys], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def line_of(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def kill(running: subprocess.Popen[str]) -> None:
    running.send_signal(signal.SIGKILL)
    running.communicate()


async def buy(ledger: JudgmentStore, *keys: str, judgment: Judgment = MET, work: float = 0.0) -> list[str]:
    """What an asker does; the keys that it had to buy."""
    async with ledger.lease(keys) as lease:
        bought = [key for key in keys if key not in lease.stored]
        for key in bought:
            await asyncio.sleep(work)
            await lease.store({key: judgment})
        return bought


async def kept(ledger: Ledger, key: str = KEY) -> Judgment | None:
    async with ledger.lease([key]) as lease:
        return lease.stored.get(key)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.sqlite"


@pytest.mark.parametrize(
    "judgment",
    [FULL, MET, Judgment(verdict="CANNOT_ASSESS", value=None, spend=Spend(cost=None)),
     Judgment(verdict="62.5", value=None, reason="half an emoji: \ud83d")],
)  # fmt: skip
async def test_a_judgment_comes_back_whole_also_after_reopening(path: Path, judgment: Judgment) -> None:
    with Ledger(path) as ledger:
        await buy(ledger, KEY, judgment=judgment)
        assert await kept(ledger) == judgment
        assert (len(ledger), ledger.stored, ledger.reused, ledger.spend) == (1, 1, 1, judgment.spend)
    with Ledger(str(path)) as ledger:
        assert await kept(ledger) == judgment
        assert (len(ledger), ledger.stored, ledger.reused, ledger.spend) == (1, 0, 1, Spend())
    with pytest.raises(LedgerError, match="is closed: keep it open until all grades are done"):
        await kept(ledger)


async def test_the_first_judgment_stays(path: Path) -> None:
    with Ledger(path) as ledger:
        async with ledger.lease([KEY, KEY]) as lease:
            await lease.store({KEY: FULL})
            await lease.store({KEY: MET})
        assert await kept(ledger) == FULL
        assert (len(ledger), ledger.stored, ledger.spend) == (1, 2, FULL.spend + MET.spend)


async def test_nothing_that_was_kept_dies_with_the_process(path: Path) -> None:
    code = """
async with ledger.lease(keys) as lease:
    for key in keys[:-1]:
        await lease.store({key: MET})
    os.kill(os.getpid(), 9)
"""
    process(path, code, *KEYS[:5]).communicate()
    with Ledger(path) as ledger:
        assert len(ledger) == 4
        assert await buy(ledger, *KEYS[:5]) == [KEYS[4]]


def foreign(path: Path, *pragmas: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in ("CREATE TABLE theirs (x)", "INSERT INTO theirs VALUES (1)", *pragmas):
        db.execute(statement)
    db.close()


NEWER = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_text("criteria: []\n"), "is no SQLite file, so no ledger"),
    (lambda path: path.write_bytes(bytes(5000)), "is no SQLite file, so no ledger"),
    (foreign, "is another program's SQLite file, no ledger"),
    (lambda path: foreign(path, "PRAGMA journal_mode = WAL"), "is another program's SQLite file, no ledger"),
    (lambda path: foreign(path, *NEWER), f"is a ledger of version {SCHEMA_VERSION + 1}, and this library knows 1: up"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_a_file_that_is_no_ledger_of_ours_is_refused_in_one_line_and_unchanged(
    path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(LedgerError) as caught:
        Ledger(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", [".", "no/such/folder/run.sqlite", "a\0b", "n" * 300])
def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LedgerError, match=r"^`path` .*$"):
        Ledger(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_ledger(path: Path) -> None:
    path.touch()
    with Ledger(path) as ledger:
        assert ledger
        assert len(ledger) == 0


async def test_a_judgment_of_another_version_is_refused(path: Path) -> None:
    with Ledger(path) as ledger:
        await buy(ledger, KEY)
        db = sqlite3.connect(path)
        db.execute("""UPDATE judgments SET judgment = '{"verdict": "MET", "value": 1.0, "mood": "good"}'""")
        db.commit()
        db.close()
        with pytest.raises(LedgerError, match=f"has a judgment that this version cannot read, with the key '{KEY}'"):
            await kept(ledger)


async def test_failures_are_noted_and_asked_again(path: Path) -> None:
    with Ledger(path) as ledger:
        for failure in (JudgeFailure("parse", "no JSON"), JudgeFailure("transport", "no reply \ud83d" + "x" * 5000)):
            async with ledger.lease([KEY]) as lease:
                assert not lease.stored
                lease.record_failure(KEY, failure)
        async with ledger.lease([KEYS[1]]) as lease:
            lease.record_failure(KEYS[1], JudgeFailure("config", "no key"))
        last, first = ledger.failures()
        assert (last.key, last.kind, last.message, last.times) == (KEYS[1], "config", "no key", 1)
        assert (first.key, first.kind, first.message[:10], first.times) == (KEY, "transport", "no reply ?", 2)
        assert len(first.message) == 1000
        assert ledger.failures(limit=1) == [last]
        assert await buy(ledger, KEY) == [KEY]
        assert len(ledger) == 1


async def test_tasks_buy_a_key_once(path: Path) -> None:
    with Ledger(path) as ledger:
        bought = await asyncio.gather(*(buy(ledger, KEY, work=0.02) for _ in range(50)))
        assert sum(map(len, bought)) == ledger.stored == 1
        assert ledger.reused == 49


def test_threads_with_loops_of_their_own_buy_a_key_once(path: Path) -> None:
    bought: list[str] = []
    with Ledger(path) as ledger:

        async def all_keys() -> None:
            for key in KEYS[:20]:
                bought.extend(await buy(ledger, key, work=0.001))

        threads = [threading.Thread(target=lambda: asyncio.run(all_keys())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(bought) == sorted(KEYS[:20])
        assert (ledger.stored, ledger.reused, ledger.spend.calls) == (20, 140, 20)


def test_processes_buy_a_key_once(path: Path) -> None:
    code = """
print("ready", flush=True)
sys.stdin.readline()
async def ask(key):
    async with ledger.lease([key]) as lease:
        if key not in lease.stored:
            await asyncio.sleep(0.001)
            await lease.store({key: MET})
            print(key)
await asyncio.gather(*map(ask, keys))
"""
    running = [process(path, code, *keys) for keys in (KEYS, KEYS[::-1])]
    assert [line_of(one) for one in running] == ["ready", "ready"]
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    lines = [one.communicate()[0].split() for one in running]
    assert [one.returncode for one in running] == [0, 0]
    assert Counter(key for keys in lines for key in keys) == Counter(KEYS)


HOLD = """
async with ledger.lease(keys):
    print("held", flush=True)
    await asyncio.sleep(600)
"""


async def test_what_a_killed_process_asked_is_asked_by_who_waits(path: Path) -> None:
    with Ledger(path) as ledger:
        holder = process(path, HOLD, *KEYS[:3])
        assert line_of(holder) == "held"
        waiting = asyncio.create_task(buy(ledger, *KEYS[:3]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        kill(holder)
        assert await waiting == KEYS[:3]


async def test_an_owner_elsewhere_that_falls_silent_is_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE", 0.1)
    with Ledger(path) as ledger:
        db = sqlite3.connect(path)
        db.execute("INSERT INTO owners VALUES ('them', 'elsewhere', 1, 7)")
        db.execute("INSERT INTO judgments VALUES (?, 'asked', NULL, 0, 'them')", (KEY,))
        # A row without an owner, as of one that was thought dead.
        db.execute("INSERT INTO judgments VALUES (?, 'asked', NULL, 0, 'nobody')", (KEYS[1],))
        db.commit()
        assert len(ledger) == 0
        assert await buy(ledger, KEY, KEYS[1]) == [KEY, KEYS[1]]
        assert db.execute("SELECT count(*) FROM owners WHERE owner = 'them'").fetchone() == (0,)
        db.close()


async def test_an_owner_that_lives_is_waited_for_beyond_its_lease(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE", 0.3)
    with Ledger(path) as mine, Ledger(path) as other:
        first = asyncio.create_task(buy(mine, KEY, work=0.9))
        await asyncio.sleep(0)
        assert await buy(other, KEY) == []
        assert await first == [KEY]


async def test_whoever_gives_up_leaves_the_key_to_others(path: Path) -> None:
    with Ledger(path) as ledger:

        async def hang() -> None:
            async with ledger.lease([KEY]):
                await asyncio.sleep(600)

        async def fail() -> None:
            async with ledger.lease([KEY]):
                raise ZeroDivisionError

        # Cancelled with the key, cancelled while waiting for it with another in hand, and failed.
        held = asyncio.create_task(hang())
        await asyncio.sleep(0)
        least = min(KEYS)
        waiting = asyncio.create_task(buy(ledger, KEY, least))
        await asyncio.sleep(0.01)
        for task in (waiting, held):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(ZeroDivisionError):
            await fail()
        # Never ended, only forgotten: before the answer, with it, and with the key.
        for steps in range(3):
            forgotten = hang()
            forgotten.send(None)
            if steps:
                await asyncio.sleep(0)
            if steps > 1:
                forgotten.send(None)
            forgotten.close()
            await asyncio.sleep(0)
        assert await buy(ledger, KEY, least) == [KEY, least]
        assert ledger.stored == 2


async def test_a_closed_ledger_holds_nothing_any_more(path: Path) -> None:
    ledger = Ledger(path)
    async with ledger.lease([KEY]) as lease:
        ledger.close()
        with Ledger(path) as other:
            assert await buy(other, KEY) == [KEY]
        with pytest.raises(LedgerError, match="is closed"):
            await lease.store({KEY: MET})


async def test_overlapping_claims_in_opposite_order_end(path: Path) -> None:
    with Ledger(path) as mine, Ledger(path) as other:
        some = [(KEYS[i : i + 4], (mine, other)[i % 2]) for i in range(12)]
        await asyncio.gather(*(buy(ledger, *keys[::step], work=0.001) for keys, ledger in some for step in (1, -1)))
        assert mine.stored + other.stored == len(mine) == 15


async def test_who_waits_for_a_key_holds_those_before_it_and_none_behind(path: Path) -> None:
    before, wanted, behind = sorted(KEYS[:3])
    with Ledger(path) as ledger:
        async with ledger.lease([wanted]):
            waiting = asyncio.create_task(buy(ledger, before, wanted, behind))
            await asyncio.sleep(0.01)
            assert await buy(ledger, behind) == [behind]
            late = asyncio.create_task(buy(ledger, before))
            await asyncio.sleep(0.01)
            assert not late.done()
        assert await waiting == [before, wanted]
        assert await late == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_shares_the_file_and_nothing_else(path: Path) -> None:
    turn, done = os.pipe(), os.pipe()  # the parent's turn to speak, and the child's
    with Ledger(path) as ledger:

        async def hold() -> None:
            async with ledger.lease([KEYS[2]]):
                await asyncio.sleep(0)

        async def begun() -> Any:
            holding = hold()
            holding.send(None)
            await asyncio.sleep(0)
            holding.send(None)
            return holding

        loop = asyncio.new_event_loop()
        held = loop.run_until_complete(begun())
        loop.close()
        asyncio.run(buy(ledger, KEYS[0]))
        child = os.fork()
        if child == 0:
            failed = 1
            os.close(turn[1])
            try:
                assert (ledger.stored, ledger.reused) == (0, 0)
                held.close()
                assert asyncio.run(buy(ledger, KEYS[0], KEYS[1])) == [KEYS[1]]
                os.write(done[1], b".")
                os.read(turn[0], 1)
                # The parent has closed the file: it must not have taken it away.
                assert asyncio.run(buy(ledger, *KEYS[3:10])) == KEYS[3:10]
                assert (len(ledger), ledger.stored) == (9, 8)
                failed = 0
            finally:
                os._exit(failed)
        os.close(done[1])
        os.read(done[0], 1)
        assert asyncio.run(buy(ledger, KEYS[1])) == []
        # The child has forgotten the parent's claim without ending it.
        db = sqlite3.connect(path)
        assert db.execute("SELECT status FROM judgments WHERE key = ?", (KEYS[2],)).fetchall() == [("asked",)]
        db.close()
        held.close()
        assert ledger.stored == 1
    os.write(turn[1], b".")
    assert os.waitpid(child, 0)[1] == 0
    with Ledger(path) as ledger:
        assert len(ledger) == 9


def connecting(monkeypatch: pytest.MonkeyPatch, pragma: str) -> None:
    connect = sqlite3.connect

    def limited(*args: Any, **settings: Any) -> sqlite3.Connection:
        db = connect(*args, **settings)
        db.execute(pragma)
        return db

    monkeypatch.setattr(sqlite3, "connect", limited)


async def test_a_full_disk_ends_in_one_line_and_what_was_kept_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting(monkeypatch, "PRAGMA max_page_count = 20")
    with Ledger(path) as ledger:

        async def fill() -> None:
            for key in KEYS:
                await buy(ledger, key, judgment=FULL.model_copy(update={"reason": "x" * 1000}))

        with pytest.raises(LedgerError) as caught:
            await fill()
        assert str(caught.value).startswith(f"`path` {str(path)!r} cannot be used (database or disk is full): what was")
        assert "\n" not in str(caught.value)
        count = ledger.stored
        assert 0 < count == len(ledger)
        assert await buy(ledger, *KEYS[:count]) == []
    monkeypatch.undo()
    with Ledger(path) as ledger:
        assert await buy(ledger, *KEYS) == KEYS[count:]


@pytest.mark.parametrize("there", [True, False])
def test_a_file_that_may_not_be_written_is_refused_in_one_line(
    path: Path, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        Ledger(path).close()
    connecting(monkeypatch, "PRAGMA query_only = 1")
    with pytest.raises(
        LedgerError, match=r"^`path` .* cannot be used \(attempt to write a readonly database\): what.*$"
    ):
        Ledger(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_may_not_be_written_is_refused_in_one_line(path: Path, there: bool) -> None:
    if there:
        Ledger(path).close()
    path.parent.chmod(0o500)
    try:
        with pytest.raises(LedgerError, match=r"^`path` .* cannot be used \(.*\): what was bought .*$"):
            Ledger(path)
    finally:
        path.parent.chmod(0o700)


async def test_a_claim_that_could_not_be_ended_expires(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE", 0.1)
    with Ledger(path) as ledger:
        block = sqlite3.connect(path)
        async with ledger.lease([KEY]):
            # Stands for a disk that is full just then.
            block.execute("CREATE TRIGGER no BEFORE DELETE ON judgments BEGIN SELECT raise(ABORT, 'full'); END")
        block.execute("DROP TRIGGER no")
        assert await buy(ledger, KEY) == [KEY]
        block.close()


RUBRIC = [
    {"name": "kind", "weight": 5, "requirement": "Is kind"},
    {"name": "apt", "weight": 3, "requirement": "Is apt"},
]


def test_a_second_grade_costs_no_call_also_in_another_process(server: OpenAIServer, path: Path) -> None:
    def grade() -> tuple[float | None, int, int]:
        with Ledger(path) as ledger:
            grader = PerCriterionGrader("openai/m", api_base=server.url).with_store(ledger)
            rubric = Rubric.from_dict(RUBRIC)
            report = rubric.grade_sync("Hello.", grader=grader, query="Greet.")
            assert rubric.grade_sync("Hello.", grader=grader, query="Greet.") == report
            return report.score, ledger.stored, ledger.reused

    assert grade() == (1.0, 2, 2)
    assert grade() == (1.0, 0, 4)
    code = f"""
from rubric_integrations import PerCriterionGrader, Rubric
grader = PerCriterionGrader("openai/m", api_base={server.url!r}).with_store(ledger)
report = await Rubric.from_dict({RUBRIC!r}).grade("Hello.", grader=grader, query="Greet.")
print(report.score, ledger.stored, ledger.reused)
"""
    other = process(path, code)
    assert other.communicate()[0].split() == ["1.0", "0", "2"]
    assert len(server.calls) == 2
