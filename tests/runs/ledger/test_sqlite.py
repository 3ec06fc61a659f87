"""A file that is not a ledger is refused unchanged; forks, full disks and read-only files lose nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.runs import Ledger, LedgerError, open_ledger
from rubric_integrations.runs.ledger import store
from rubric_integrations.runs.ledger.sqlite import APPLICATION_ID, SCHEMA_VERSION
from tests.fakes import FakeJudge
from tests.runs.ledger.callers import FULL, KEYS, MET, request


def make_database(path: Path, *pragmas: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in ("CREATE TABLE theirs (x)", "INSERT INTO theirs VALUES (1)", *pragmas):
        db.execute(statement)
    db.close()


def make_ledger_of_version(path: Path, version: int) -> None:
    make_database(path, f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {version}")


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_text("criteria: []\n"), "is not an SQLite file, so it is not a ledger"),
    (lambda path: path.write_bytes(bytes(5000)), "is not an SQLite file, so it is not a ledger"),
    (make_database, "is the SQLite file of another program, not a ledger"),
    (lambda path: make_database(path, "PRAGMA journal_mode = WAL"), "is the SQLite file of another program"),
    (lambda path: make_ledger_of_version(path, SCHEMA_VERSION + 1),
     f"is a ledger of version {SCHEMA_VERSION + 1}, and this library reads version 2: update the library, or name a"),
    (lambda path: make_ledger_of_version(path, 1),
     "is a ledger of version 1, and this library reads version 2: use the older library that wrote it, or name a new"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_file_that_is_not_a_ledger_of_this_version_is_refused_in_one_line_and_unchanged(
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
def test_path_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LedgerError, match=r"^`path` .*$"):
        Ledger(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_empty_file_becomes_a_ledger(path: Path) -> None:
    path.touch()
    with Ledger(path) as ledger:
        assert ledger
        assert len(ledger) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_child_has_leases_counts_and_a_connection_of_its_own(path: Path) -> None:
    # The parent writes to one pipe when the child may go on, and the child to the other.
    to_child, to_parent = os.pipe(), os.pipe()
    with Ledger(path) as ledger:

        async def hold() -> None:
            async with ledger.lease([KEYS[2]]):
                await asyncio.sleep(0)

        async def start_holding() -> Any:
            holding = hold()
            holding.send(None)
            await asyncio.sleep(0)
            holding.send(None)
            return holding

        loop = asyncio.new_event_loop()
        held = loop.run_until_complete(start_holding())
        loop.close()
        asyncio.run(request(ledger, KEYS[0]))
        child = os.fork()
        if child == 0:
            failed = 1
            os.close(to_child[1])
            try:
                assert (ledger.stored, ledger.reused) == (0, 0)
                held.close()
                assert asyncio.run(request(ledger, KEYS[0], KEYS[1])) == [KEYS[1]]
                os.write(to_parent[1], b".")
                os.read(to_child[0], 1)
                # The parent has closed its connection meanwhile, which must not close the child's.
                assert asyncio.run(request(ledger, *KEYS[3:10])) == KEYS[3:10]
                assert (len(ledger), ledger.stored) == (9, 8)
                failed = 0
            finally:
                os._exit(failed)
        os.close(to_parent[1])
        os.read(to_parent[0], 1)
        assert asyncio.run(request(ledger, KEYS[1])) == []
        # The child has destroyed its copy of the parent's task without ending the parent's lease.
        db = sqlite3.connect(path)
        assert db.execute("SELECT status FROM judgments WHERE key = ?", (KEYS[2],)).fetchall() == [("leased",)]
        db.close()
        held.close()
        assert ledger.stored == 1
    os.write(to_child[1], b".")
    assert os.waitpid(child, 0)[1] == 0
    with Ledger(path) as ledger:
        assert len(ledger) == 9


def set_on_connect(monkeypatch: pytest.MonkeyPatch, pragma: str) -> None:
    connect = sqlite3.connect

    def limited(*args: Any, **settings: Any) -> sqlite3.Connection:
        db = connect(*args, **settings)
        db.execute(pragma)
        return db

    monkeypatch.setattr(sqlite3, "connect", limited)


async def test_full_disk_raises_in_one_line_and_loses_no_stored_judgment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_on_connect(monkeypatch, "PRAGMA max_page_count = 30")
    with Ledger(path) as ledger:

        async def fill() -> None:
            for key in KEYS:
                await request(ledger, key, judgment=FULL.model_copy(update={"reason": "x" * 1000}))

        with pytest.raises(LedgerError) as caught:
            await fill()
        assert str(caught.value).startswith(f"`path` {str(path)!r} cannot be used (database or disk is full): the ")
        assert "\n" not in str(caught.value)
        count = ledger.stored
        assert 0 < count == len(ledger)
        assert await request(ledger, *KEYS[:count]) == []
    monkeypatch.undo()
    with Ledger(path) as ledger:
        assert await request(ledger, *KEYS) == KEYS[count:]


@pytest.mark.parametrize("exists", [True, False])
def test_read_only_file_is_refused_in_one_line(path: Path, exists: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if exists:
        Ledger(path).close()
    set_on_connect(monkeypatch, "PRAGMA query_only = 1")
    with pytest.raises(
        LedgerError, match=r"^`path` .* cannot be used \(attempt to write a readonly database\): the.*$"
    ):
        Ledger(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("exists", [True, False])
def test_read_only_folder_is_refused_in_one_line(path: Path, exists: bool) -> None:
    if exists:
        Ledger(path).close()
    path.parent.chmod(0o500)
    try:
        with pytest.raises(LedgerError, match=r"^`path` .* cannot be used \(.*\): the judgments .*$"):
            Ledger(path)
    finally:
        path.parent.chmod(0o700)


def delete(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_name("renamed.sqlite"))


def replace_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy.sqlite")
    shutil.copy(path, copy)
    copy.replace(path)


@pytest.mark.skipif(os.name == "nt", reason="Windows does not delete or rename an open file")
@pytest.mark.parametrize("change", [delete, rename, replace_by_a_copy])
def test_run_whose_ledger_is_deleted_or_renamed_ends_with_an_error(path: Path, change: Callable[[Path], None]) -> None:
    texts = iter(["one", "two", "three"])
    rubric = Rubric.from_dict([{"weight": 1, "requirement": "Is kind"}])
    judge = FakeJudge(fingerprint="f")
    run = iter(grade_many(texts, rubric, PerCriterionGrader(judge), ledger=path, max_concurrency=1))
    assert next(run).score == 1.0
    requested = len(judge.questions)
    change(path)
    with pytest.raises(LedgerError, match="was deleted, renamed or replaced while it was open") as caught:
        list(run)
    assert repr(str(path)) in str(caught.value)
    assert len(judge.questions) == requested
    # Nobody made a new, empty ledger in its place.
    assert path.exists() == (change is replace_by_a_copy)


@pytest.mark.skipif(os.name == "nt", reason="Windows does not delete or rename an open file")
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("change", [delete, replace_by_a_copy])
@pytest.mark.parametrize("exists", [False, True])
def test_run_whose_ledger_loses_a_file_of_sqlite_ends_with_an_error_and_keeps_its_judgments(
    path: Path, suffix: str, change: Callable[[Path], None], exists: bool
) -> None:
    texts = iter(["one", "two", "three"])
    rubric = Rubric.from_dict([{"weight": 1, "requirement": "Is kind"}])
    judge = FakeJudge(fingerprint="f")
    if exists:
        Ledger(path).close()
    run = iter(grade_many(texts, rubric, PerCriterionGrader(judge), ledger=path, max_concurrency=1))
    assert next(run).score == 1.0
    requested = len(judge.questions)
    change(Path(f"{path}{suffix}"))
    with pytest.raises(LedgerError, match="was deleted, renamed or replaced while it was open") as caught:
        list(run)
    assert f"its file '{path}{suffix}'" in str(caught.value)
    assert len(judge.questions) == requested
    with Ledger(path) as ledger:
        assert len(ledger) == requested


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork here")
def test_ledger_that_is_deleted_before_a_fork_is_not_created_again(path: Path) -> None:
    with Ledger(path) as ledger:
        assert len(ledger) == 0
        path.unlink()
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(LedgerError, match="was deleted"):
            len(ledger)
        assert not path.exists()


async def test_questions_of_one_tick_share_lookups_file_checks_and_lease_checks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(path) as ledger:
        statements: list[str] = []
        with ledger._file.working() as db:  # pyright: ignore[reportPrivateUsage]
            db.set_trace_callback(statements.append)
        checked = count_file_checks(monkeypatch, path)
        is_held: list[bool] = []

        async def request_one(key: str) -> None:
            async with ledger.lease([key]) as lease:
                is_held.append(lease.is_held())
                await lease.store({key: MET})

        await asyncio.gather(*map(request_one, KEYS[:12]))
        assert is_held == [True] * 12
        assert len([statement for statement in statements if statement.startswith("SELECT")]) == 1
        assert len([statement for statement in statements if statement.startswith("BEGIN")]) == 2
        # One check of the three files when the keys are leased, and one when the judgments are stored.
        assert len(checked) == 6


async def test_stored_judgments_of_one_tick_are_read_by_one_statement(path: Path) -> None:
    with Ledger(path) as ledger:
        await request(ledger, *KEYS[:12])
        statements: list[str] = []
        with ledger._file.working() as db:  # pyright: ignore[reportPrivateUsage]
            db.set_trace_callback(statements.append)
        assert await asyncio.gather(*(request(ledger, key) for key in KEYS[:12])) == [[]] * 12
        assert len(statements) == 1


def count_file_checks(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[str]:
    """Record each call of `os.stat` for the file of a ledger and those beside it."""
    checked: list[str] = []
    stat = os.stat

    def recording_stat(file: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(file).startswith(str(path)):
            checked.append(str(file))
        return stat(file, *arguments, **options)

    monkeypatch.setattr(os, "stat", recording_stat)
    return checked


async def remove_leases(path: Path) -> None:
    """Do as another process does that has seen no heartbeat for too long."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM judgments WHERE status = 'leased'")
        db.execute("DELETE FROM owners")


@pytest.mark.parametrize("event", ["heartbeat", "next lease", "time"])
async def test_lease_that_others_have_ended_is_noticed(event: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(path) as ledger:
        async with ledger.lease([KEYS[0]]) as lost:
            assert lost.is_held()
            await remove_leases(path)
            if event == "heartbeat":
                leases: Any = ledger._state.leases  # pyright: ignore[reportPrivateUsage]
                leases.renew()
            elif event == "time":
                now = time.monotonic() + store.LEASE_SECONDS
                monkeypatch.setattr(time, "monotonic", lambda: now)
            async with ledger.lease([KEYS[1]]) as lease:
                assert lease.is_held()
                assert not lost.is_held()
                assert await request(ledger, KEYS[0]) == [KEYS[0]]
                assert not lost.is_held()


async def test_lease_is_not_taken_for_held_if_no_heartbeat_can_be_sent(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(path) as ledger:
        async with ledger.lease([KEYS[0]]) as lease:
            with closing(sqlite3.connect(path)) as db:
                # Stands for a disk that is full at that moment.
                db.execute("CREATE TRIGGER no BEFORE UPDATE ON owners BEGIN SELECT raise(ABORT, 'full'); END")
            now = time.monotonic() + store.LEASE_SECONDS
            monkeypatch.setattr(time, "monotonic", lambda: now)
            assert not lease.is_held()


@pytest.mark.parametrize("address", ["sqlite:///run.sqlite", "sqlite:run.sqlite", "SQLite:///{folder}/run.sqlite"])
def test_url_of_a_file_opens_the_ledger_at_its_path(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_ledger(address.format(folder=tmp_path)):
        assert (tmp_path / "run.sqlite").exists()


def test_path_that_looks_like_the_url_of_a_file_is_taken_literally(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_ledger(Path("sqlite:run.sqlite")):
        assert (tmp_path / "sqlite:run.sqlite").exists()


def test_damaged_byte_of_a_stored_text_ends_the_run_with_one_short_line(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [f"text {number}" for number in range(60)]
    rubric = Rubric.from_dict([{"requirement": "Is kind"}, {"requirement": "Is short"}])
    grader = PerCriterionGrader(FakeJudge(fingerprint="f"))
    list(grade_many(rows, rubric, grader, ledger=path))
    content = path.read_bytes()
    assert b'"verdict":"MET"' in content
    path.write_bytes(content.replace(b'"verdict":"MET"', b'"verdict":"M\xff\xff"'))
    with pytest.raises(LedgerError, match=r"is damaged \(Could not decode") as caught:
        list(grade_many(rows, rubric, grader, ledger=path))
    message = str(caught.value)
    assert "free space" not in message
    assert "\n" not in message
    assert len(message) < 400
    # The other rows fail in the same way, at the same time.
    gc.collect()
    assert "never retrieved" not in caplog.text
