"""What only a ledger in a database can meet: its schema, a server that is lost, and secrets in its URL."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import cloudpickle
import psycopg
import pytest

from rubric_integrations.judges.spend import NOTHING, Allowance, Claim
from rubric_integrations.runs import LedgerError, open_ledger
from rubric_integrations.runs.ledger.postgres import PostgresLedger, connection
from rubric_integrations.runs.ledger.postgres.connection import Server, Worker
from rubric_integrations.scoring import JudgeFailure
from tests.runs.ledger.callers import KEY, KEYS, MET, execute, request, shorten_leases, stored_judgment

PASSWORD = "pass-word/with#all?of:them"


def with_password(url: str) -> str:
    return url.replace("postgres:@", f"postgres:{quote(PASSWORD, safe='')}@")


def end_connections(url: str) -> int:
    """End the connections of all ledgers in the schema of a URL, as a server does that restarts."""
    with psycopg.connect(url, autocommit=True) as db:
        query = """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = current_schema() AND pid <> pg_backend_pid()"""
        return db.execute(query).rowcount


@pytest.fixture
def url(postgres_url: str) -> str:
    """The URL of an empty schema, whose connections have its name."""
    schema = postgres_url.rpartition("%3D")[2]
    return f"{postgres_url}&application_name={schema}"


def test_several_ledgers_at_once_make_the_tables_once(url: str) -> None:
    ledgers: list[PostgresLedger] = []
    threads = [threading.Thread(target=lambda: ledgers.append(PostgresLedger(url))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(ledger) for ledger in ledgers] == [0] * 6
    for ledger in ledgers:
        ledger.close()


@pytest.mark.parametrize(("version", "remedy"), [(2, "update the library"), (0, "use the older library")])
def test_tables_of_another_version_are_refused_and_unchanged(url: str, version: int, remedy: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE rubric_ledger (version int)")
        db.execute("INSERT INTO rubric_ledger VALUES (%s)", (version,))
        with pytest.raises(LedgerError, match=f"is a ledger of version {version}, and this library reads .*: {remedy}"):
            open_ledger(url)
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"
        assert db.execute(tables).fetchone() == (1,)


def test_schema_that_does_not_exist_is_refused_with_the_remedy(postgres_server: str) -> None:
    with pytest.raises(LedgerError, match="names no schema that exists: make it with `CREATE SCHEMA`"):
        open_ledger(f"{postgres_server}&options=-csearch_path%3Dmissing")


async def test_tables_that_are_deleted_while_open_are_not_made_again(url: str) -> None:
    with open_ledger(url) as ledger:
        await request(ledger, KEY)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("DROP TABLE rubric_ledger")
        # The server may not have noticed yet that the second connection is closed.
        assert end_connections(url) in (1, 2)
        with pytest.raises(LedgerError, match="tables were deleted while it was open"):
            await request(ledger, KEYS[1])


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://me:PASSWORD@127.0.0.1:9/db", "postgresql://127.0.0.1:9/db cannot be used ("),
        ("postgresql://me:PASSWORD@127.0.0.1:port/db", "postgresql://127.0.0.1/db cannot be used ("),
        ("postgresql://me:PASSWORD@127.0.0.1/db?no_such_option=1", "is not a URL that PostgreSQL's library can read"),
        ("postgresql://me:%zzPASSWORD@127.0.0.1/db", "is not a URL that PostgreSQL's library can read"),
        ("postgresql://me:12/PASSWORD@127.0.0.1/db", "cannot be used ("),
        ("postgres:/me:PASSWORD@host", "`ledger` begins with 'postgres:' and is not the URL of a ledger"),
        ("postgresql:me:PASSWORD@host", "`ledger` begins with 'postgresql:' and is not the URL of a ledger"),
        ("mysql://me:PASSWORD@host/db", "`ledger` begins with 'mysql:' and is not the URL of a ledger"),
        ("sqlite://host/run.sqlite", "or the path of a file, such as 'run.sqlite'; without this error, a file of this"),
    ],
)
def test_address_that_cannot_be_used_is_refused_without_its_password(
    address: str, message: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError) as caught:
        open_ledger(address.replace("PASSWORD", "secret-word"))
    assert message in str(caught.value)
    assert "secret" not in repr(caught.value) + repr(caught.value.__cause__)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


async def test_connection_that_is_lost_is_made_again_and_no_lease_or_judgment_is_lost(url: str) -> None:
    with open_ledger(url) as ledger, open_ledger(url) as other:
        async with ledger.lease(KEYS[:3]) as lease:
            await lease.store({KEYS[0]: MET})
            waiting = asyncio.create_task(request(other, *KEYS[:3]))
            assert end_connections(url) == 2
            await lease.store({KEYS[1]: MET})
            assert lease.is_held()
            await lease.store({KEYS[2]: MET})
        assert await waiting == []
        assert (ledger.stored, other.reused, len(ledger)) == (3, 3, 3)


def lose_answer(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Lose the connection after each of the next commits, before the answer arrives."""
    transact: Callable[..., Any] = Worker._transact  # pyright: ignore[reportPrivateUsage]
    left = [times]

    def lost(self: Worker, calls: Any) -> Any:
        groups = transact(self, calls)
        if left[0]:
            left[0] -= 1
            self._db.close()  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
            raise psycopg.OperationalError("the connection is lost")
        return groups

    monkeypatch.setattr(Worker, "_transact", lost)


async def test_transaction_whose_answer_is_lost_has_the_same_result_the_second_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_ledger(url) as ledger:
        lose_answer(monkeypatch, 1)
        async with ledger.lease(KEYS[:2]) as lease:
            assert not lease.stored
            lose_answer(monkeypatch, 1)
            assert await lease.store({KEY: MET}) == {KEY: MET}
            lose_answer(monkeypatch, 1)
            lease.record_failure(KEYS[1], JudgeFailure("parse", "no JSON"))
            assert [failure.times for failure in ledger.failures()] == [1]
            lose_answer(monkeypatch, 1)
        lose_answer(monkeypatch, 1)
        assert (await ledger.claim_spend("r", "a", Claim(NOTHING, Allowance(2, 0.5)))).own.calls == 2
        assert await request(ledger, *KEYS[:2]) == [KEYS[1]]
        assert (ledger.stored, ledger.spend.calls, len(ledger)) == (2, 2, 2)


async def test_server_that_is_lost_is_waited_for_and_the_log_has_no_password(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connect, left = Server.connect, [3]

    def refuse(self: Server, *, create: bool) -> Any:
        if left[0]:
            left[0] -= 1
            raise psycopg.OperationalError(f"connection to {with_password(url)} refused: {PASSWORD}")
        return connect(self, create=create)

    with open_ledger(with_password(url)) as ledger:
        monkeypatch.setattr(Server, "connect", refuse)
        assert end_connections(url) == 1
        assert await request(ledger, KEY) == [KEY]
        assert left == [0]
    is_lost, answers = [record.message for record in caplog.records if record.name == connection.__name__]
    assert "cannot be reached (" in is_lost
    assert "waits for it, for up to 300 seconds" in is_lost
    assert "answers again" in answers
    assert not any(text in caplog.text for text in (PASSWORD, quote(PASSWORD, safe="")))


async def test_server_that_stays_lost_ends_the_run_and_is_tried_once_for_each_later_call(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Server.connect

    def refuse(_server: Server, *, create: bool) -> Any:
        raise psycopg.OperationalError("connection refused")

    with open_ledger(url) as ledger:
        monkeypatch.setattr(connection, "OUTAGE_SECONDS", 0.1)
        monkeypatch.setattr(Server, "connect", refuse)
        end_connections(url)
        for _ in range(2):
            with pytest.raises(LedgerError, match=r"cannot be used \(connection refused\): the judgments so far are"):
                await request(ledger, KEY)
        monkeypatch.setattr(Server, "connect", connect)
        assert await request(ledger, KEY) == [KEY]


async def test_error_that_stays_is_raised_and_the_ledger_can_be_used_again(url: str) -> None:
    with open_ledger(url) as ledger, psycopg.connect(url, autocommit=True) as db:
        db.execute("ALTER TABLE rubric_judgments ADD CONSTRAINT few CHECK (owner IS NULL)")
        for _ in range(2):
            with pytest.raises(LedgerError, match="violates check constraint"):
                await request(ledger, KEY)
        db.execute("ALTER TABLE rubric_judgments DROP CONSTRAINT few")
        assert await request(ledger, KEY) == [KEY]


async def test_error_of_a_record_that_nobody_waits_for_is_raised_and_its_lease_expires(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_leases(monkeypatch, 0.2)
    with open_ledger(url) as ledger, psycopg.connect(url, autocommit=True) as db:
        async with ledger.lease([KEY]) as lease:
            db.execute("ALTER TABLE rubric_failures RENAME TO renamed")
            lease.record_failure(KEY, JudgeFailure("parse", "no JSON"))
        with pytest.raises(LedgerError, match="rubric_failures"):
            len(ledger)
        assert await request(ledger, KEY) == [KEY]


async def test_every_transaction_may_have_another_connection_as_with_a_pool(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact: Callable[..., Any] = Worker._transact  # pyright: ignore[reportPrivateUsage]

    def pooled(self: Worker, calls: Any) -> Any:
        groups = transact(self, calls)
        prepared = self._db.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()  # pyright: ignore
        assert prepared == (0,)
        self._db.close()  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        return groups

    monkeypatch.setattr(Worker, "_transact", pooled)
    with open_ledger(url) as ledger:
        requested = await asyncio.gather(*(request(ledger, *KEYS[i : i + 2]) for i in range(5)))
        assert sorted(key for keys in requested for key in keys) == sorted(KEYS[:6])
        assert ledger.stored == len(ledger) == 6


async def test_owner_that_was_removed_while_it_was_paused_loses_its_leases(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_ledger(url) as ledger, open_ledger(url) as other:
        async with ledger.lease(KEYS[:2]) as lease:
            with psycopg.connect(url, autocommit=True) as db:
                db.execute("DELETE FROM rubric_owners")
                assert await request(other, KEY) == [KEY]
                # The next heartbeat finds out.
                shorten_leases(monkeypatch, 0.01)
                while lease.is_held():  # noqa: ASYNC110 -- a thread ends it
                    await asyncio.sleep(0.01)
                monkeypatch.undo()
                assert await request(ledger, KEYS[2]) == [KEYS[2]]
                assert not lease.is_held()
            late = MET.model_copy(update={"reason": "late"})
            assert await lease.store({KEY: late, KEYS[1]: late}) == {KEY: MET, KEYS[1]: late}
        assert (ledger.stored, other.stored, len(ledger)) == (2, 1, 3)


@pytest.mark.parametrize("library", [pickle, cloudpickle])
async def test_pickled_ledger_opens_the_same_database(url: str, library: Any) -> None:
    with open_ledger(with_password(url)) as ledger:
        await request(ledger, KEY)
        with pickle.loads(library.dumps(ledger)) as copy:
            assert await stored_judgment(copy) == MET
            assert (copy.stored, copy.reused) == (0, 1)
        assert PASSWORD not in repr(ledger) + ledger.address


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_child_has_leases_counts_and_a_connection_of_its_own(url: str) -> None:
    with open_ledger(url) as ledger:
        asyncio.run(request(ledger, KEYS[0]))

        async def hold() -> None:
            async with ledger.lease([KEYS[2]]):
                is_held.set()
                await asyncio.to_thread(is_over.wait)

        is_held, is_over = threading.Event(), threading.Event()
        holder = threading.Thread(target=lambda: asyncio.run(hold()))
        holder.start()
        is_held.wait()
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                assert (ledger.stored, ledger.reused) == (0, 0)
                assert asyncio.run(request(ledger, KEYS[0], KEYS[1])) == [KEYS[1]]
                assert (ledger.stored, ledger.reused) == (1, 1)
                ledger.close()
                failed = 0
            finally:
                os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
        # The child has ended neither the parent's connection nor its lease.
        assert execute(url, sqlite="", postgres="SELECT FROM rubric_judgments WHERE judgment IS NULL") == 1
        is_over.set()
        holder.join()
        assert asyncio.run(request(ledger, *KEYS[:4])) == [KEYS[2], KEYS[3]]
        assert (ledger.stored, len(ledger)) == (3, 4)


def test_missing_library_is_an_error_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("rubric_integrations.runs.ledger.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"needs psycopg: pip install 'psycopg\[binary\]'"):
        open_ledger("postgresql://host/database")
