"""`PostgresLedger`: a store of judgments that any number of machines share."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import finalize

import psycopg

from rubric_integrations.judges.exploration import KEY_PREFIX
from rubric_integrations.judges.spend import NOTHING, Allowance, Claim, Shares
from rubric_integrations.runs.ledger.base import (
    MAX_MESSAGE,
    FailureRecord,
    LedgerBase,
    LedgerError,
    ProcessState,
    StoreJudgments,
    SubmissionRecord,
    SubmissionRow,
    join_batch,
)
from rubric_integrations.runs.ledger.postgres.connection import Connection, Phase, Read, Server, Worker, send_queries
from rubric_integrations.runs.ledger.postgres.leases import PostgresLeases
from rubric_integrations.scoring.judgment import JudgeFailure, Judgment

# Without the replies of explorers, which are no judgments.
COUNT = "SELECT count(*) FROM rubric_judgments WHERE judgment IS NOT NULL AND NOT starts_with(key, %s)"
LOOKUP = "SELECT key, judgment FROM rubric_judgments WHERE key = ANY(%s::text[]) AND judgment IS NOT NULL"
FAILURES = """
SELECT key, kind, message, extract(epoch FROM at)::float8, times FROM rubric_failures
WHERE starts_with(key, 'row ') = %s ORDER BY at DESC LIMIT %s"""
FORGET_FAILURE = "DELETE FROM rubric_failures WHERE key = %s RETURNING key"
GRADER = "SELECT grader FROM rubric_graders ORDER BY at DESC LIMIT 1"
PAGE = """
SELECT number, id, submission, r.rubric FROM rubric_submissions AS s LEFT JOIN rubric_rubrics AS r ON r.hash = s.rubric
WHERE number > %s ORDER BY number LIMIT 200"""
SAVE_BATCH = """
INSERT INTO rubric_batches (id, record) VALUES (%s, %s)
ON CONFLICT (id) DO UPDATE SET record = excluded.record RETURNING id"""
BATCHES = "SELECT id, record FROM rubric_batches ORDER BY number"
FILE = "SELECT content FROM rubric_files WHERE sha256 = %s"


# The rows of each statement are distinct and sorted: PostgreSQL refuses two rows with the same key in one statement,
# and without an order two transactions could wait for each other.
_FILES = "INSERT INTO rubric_files VALUES (%s, %b) ON CONFLICT DO NOTHING"
_RUBRICS = """
INSERT INTO rubric_rubrics SELECT * FROM unnest(%s::text[], %s::text[]) AS x (hash, rubric) ORDER BY 1
ON CONFLICT DO NOTHING"""
_SUBMISSIONS = """
INSERT INTO rubric_submissions AS s (number, hash, id, submission, rubric)
SELECT * FROM (
    SELECT nextval('rubric_submissions_number_seq'), hash, id, submission, rubric FROM (
        SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[])
            WITH ORDINALITY AS x (hash, id, submission, rubric, place)
        WHERE NOT EXISTS (
            SELECT FROM rubric_submissions AS s WHERE s.hash = x.hash AND s.rubric IS NOT DISTINCT FROM x.rubric
        ) ORDER BY place
    ) AS y
) AS z ORDER BY hash
ON CONFLICT (hash) DO UPDATE SET rubric = excluded.rubric"""
_GRADER = """
INSERT INTO rubric_graders VALUES (%s, %s, clock_timestamp())
ON CONFLICT (hash) DO UPDATE SET at = excluded.at"""
_FAILURES = """
INSERT INTO rubric_failures AS f
SELECT key, kind, message, clock_timestamp(), times, %s
FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[]) AS x (key, kind, message, times) ORDER BY 1
ON CONFLICT (key) DO UPDATE SET kind = excluded.kind, message = excluded.message, at = excluded.at,
    times = f.times + excluded.times, batch = excluded.batch
WHERE f.batch <> excluded.batch"""
# Without the lock, two transactions would not see each other's claims, and both would get the same amount.
_LOCK_RUN = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 8241996540317))"
_OTHERS = """
SELECT coalesce(sum(calls), 0)::float8, coalesce(sum(cost), 0)::float8 FROM rubric_spending
WHERE run = %s AND part <> %s"""
# The formula of `Claim.granted`.
_CLAIM = """
INSERT INTO rubric_spending
SELECT %s, %s, greatest(%s::float8, least(%s::float8, %s::float8 - coalesce(sum(calls), 0)))::bigint,
    greatest(%s::float8, least(%s::float8, %s::float8 - coalesce(sum(cost), 0)))
FROM rubric_spending WHERE run = %s AND part <> %s
ON CONFLICT (run, part) DO UPDATE SET calls = excluded.calls, cost = excluded.cost
RETURNING calls::float8, cost"""


class FailureOfKey(NamedTuple):
    """A failure of a judge, and the key of the judgment that is missing because of it.

    Attributes:
        key: The key.
        failure: The failure.
        batch: A unique id of this record. If the connection is lost and the transaction is repeated, the id shows
            whether the failure was already counted.
    """

    key: str
    failure: JudgeFailure
    batch: str

    @classmethod
    def of(cls, key: str, failure: JudgeFailure) -> FailureOfKey:
        """Make the record of a judge's failure, with a new unique id."""
        return cls(key, failure, uuid4().hex)


class ClaimOfPart(NamedTuple):
    """A claim, by which one part of a run (usually a process) reserves calls and cost within the limits of the run.

    Attributes:
        run: The name of the run, as JSON.
        part: A unique name of the part.
        claim: The claim.
    """

    run: str
    part: str
    claim: Claim


def send_submissions(db: Connection, records: Sequence[SubmissionRecord]) -> Read[None]:
    """Send statements that record submissions, their rubrics and their files. Equal ones are stored only once."""
    files = {digest: content for record in records for digest, content in record.files.items()}
    for digest, content in sorted(files.items()):
        db.execute(_FILES, (digest, content))
    rubrics = {record.rubric_hash: json.dumps(record.rubric) for record in records if record.rubric_hash is not None}
    if rubrics:
        db.execute(_RUBRICS, (list(rubrics), list(rubrics.values())))
    # Numbered in the order of the run, because `rescore` yields them in this order.
    rows = list({record.hash: record for record in records}.values())
    columns = ([row.hash for row in rows], [json.dumps(row.id) for row in rows], [row.submission for row in rows])
    db.execute(_SUBMISSIONS, (*columns, [row.rubric_hash for row in rows]))
    return lambda: [None] * len(records)


def send_grader(db: Connection, graders: Sequence[tuple[str, str]]) -> Read[None]:
    """Send statements that record grader configurations. Each configuration is a pair of its digest and its JSON."""
    for grader in graders:
        db.execute(_GRADER, grader)
    return lambda: [None] * len(graders)


def send_failures(db: Connection, failures: Sequence[FailureOfKey]) -> Read[None]:
    """Send statements that record failures.

    For a key with several failures, the last failure is stored and all failures are counted.
    """
    last: dict[str, FailureOfKey] = {}
    times: dict[str, int] = {}
    for failure in failures:
        last[failure.key] = failure
        times[failure.key] = times.get(failure.key, 0) + 1
    kinds = [failure.failure.kind for failure in last.values()]
    messages = [json.dumps(failure.failure.message[:MAX_MESSAGE]) for failure in last.values()]
    db.execute(_FAILURES, (failures[0].batch, list(last), kinds, messages, list(times.values())))
    return lambda: [None] * len(failures)


def send_claims(db: Connection, records: Sequence[ClaimOfPart]) -> Read[Shares]:
    """Send statements that reserve calls and cost (see `claim_spend`), and return a function that reads the results."""
    # Sorted, because otherwise two transactions with the same runs could wait for each other.
    for run in sorted({record.run for record in records}):
        db.execute(_LOCK_RUN, (run,))
    cursors: list[tuple[psycopg.Cursor[Any], psycopg.Cursor[Any]]] = []
    for run, part, (spent, wanted, limit) in records:
        others = db.execute(_OTHERS, (run, part))
        amounts = (spent.calls, wanted.calls, limit.calls, spent.cost, wanted.cost, limit.cost)
        cursors.append((db.execute(_CLAIM, (run, part, *amounts, run, part)), others))

    def read() -> list[Shares]:
        return [Shares(*(Allowance(*(cursor.fetchone() or NOTHING)) for cursor in pair)) for pair in cursors]

    return read


# The first judgment of a key is kept: if an owner's lease expired, another caller has requested the judgment since, and
# other callers may have read it.
_STORE = """
INSERT INTO rubric_judgments AS j (key, judgment)
SELECT * FROM unnest(%s::text[], %s::text[]) AS x (key, judgment) ORDER BY 1
ON CONFLICT (key) DO UPDATE SET judgment = excluded.judgment, owner = NULL, at = clock_timestamp()
WHERE j.judgment IS NULL"""
_DIFFERENT = """
SELECT j.key, j.judgment FROM unnest(%s::text[], %s::text[]) AS x (key, judgment) JOIN rubric_judgments AS j USING (key)
WHERE j.judgment <> x.judgment"""


class _PostgresState(ProcessState):
    def __init__(self, leases: PostgresLeases, worker: Worker):
        super().__init__(leases)
        self.worker = worker


class PostgresLedger(LedgerBase[_PostgresState]):
    """A store of judgments in a PostgreSQL database, for any number of processes on any number of machines.

    It has the methods and guarantees of `Ledger`. Each judgment is requested once. If a process dies, another process
    can lease its keys after ten seconds without a heartbeat. When `Lease.store` returns, the judgment is stored. If the
    connection to the server is lost, calls wait for up to five minutes. Each process uses one connection, in one
    thread.

    Args:
        url: The URL of the database, such as `"postgresql://user@host:5432/database?sslmode=require"`, with any
            settings that libpq reads from a URL. Prefer a password outside the URL: `PGPASSWORD`, `~/.pgpass` or a
            service file, because a pickle of the ledger contains the URL. The tables are created at the first use, in
            the first schema of the `search_path`. Their names begin with `rubric_`.

    Attributes:
        address: The URL without user, password and options.

    Raises:
        LedgerError: The server cannot be reached or used, or its tables are of another version.
    """

    def __init__(self, url: str):
        self._url, self._server = url, Server(url)
        self.address = self._server.address
        try:
            db = self._server.connect(create=True)
        except (psycopg.Error, LedgerError) as error:
            raise self._server.error(error) from None
        self._process_state = self._start(db)

    def __repr__(self) -> str:
        return f"PostgresLedger({self.address!r})"

    def __reduce__(self) -> tuple[type[PostgresLedger], tuple[str]]:
        return PostgresLedger, (self._url,)

    def close(self) -> None:
        """End the remaining leases and close the connection."""
        self._state.worker.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._state.worker.is_closed

    def __len__(self) -> int:
        """Count the judgments in the database."""
        return self._query(COUNT, KEY_PREFIX)[0][0]

    def save_batch(self, batch_id: str, record: str) -> None:
        """Store the record of a batch and replace an earlier one. When this returns, the record is stored safely.

        Args:
            batch_id: The id of the batch.
            record: The record of the batch, as JSON.
        """
        self._query(SAVE_BATCH, batch_id, record)

    def batches(self) -> dict[str, str]:
        """Return the records of all batches, as JSON by the id of the batch, the oldest first."""
        return dict(self._query(BATCHES))

    async def claim_spend(self, run: str, part: str, claim: Claim) -> Shares:
        """Reserve calls and cost for one part of a run, within the limits that all parts of the run share.

        The parts of a run are usually its processes. Before a part makes calls, it reserves an amount by a claim. Each
        claim of a part replaces its earlier claim.

        Args:
            run: The name of the run. It is the same for all processes and machines that share its limits.
            part: A unique name of the part for which the amount is reserved.
            claim: The amount that the part has already spent, the total amount that it wants to be able to spend, and
                the limits of the run.

        Returns:
            The total amount that the part may spend, and the total amount that the other parts have reserved.
        """
        record = ClaimOfPart(json.dumps(run), part, claim)
        return await self._state.worker.call(Phase.CLAIM, send_claims, record)

    @property
    def _name(self) -> str:
        return self.address

    def _new_process_state(self) -> _PostgresState:
        return self._start(None)

    def _start(self, db: Connection | None) -> _PostgresState:
        worker = Worker(self._server, db)
        finalize(self, _close_at_exit, worker, os.getpid())
        return _PostgresState(PostgresLeases(worker), worker)

    def _store_function(self, state: _PostgresState) -> StoreJudgments:
        # Made for each lease. If the state contained it, it would keep the ledger alive.
        return partial(state.worker.call, Phase.STORE, self._send_judgments)

    def _query(self, query: str, *values: object) -> list[Any]:
        return self._state.worker.call_sync(Phase.READ, send_queries, (query, values))

    def _send_judgments(self, db: Connection, batch: Sequence[Mapping[str, Judgment]]) -> Read[Mapping[str, Judgment]]:
        """Store the judgments of several callers, and return for each caller the judgments that the ledger keeps."""
        judgments, state = join_batch(batch), self._state
        texts = {key: json.dumps(judgment.model_dump(mode="json")) for key, judgment in judgments.items()}
        db.execute(_STORE, (list(texts), list(texts.values())))
        rows = db.execute(_DIFFERENT, (list(texts), list(texts.values())))
        return lambda: self._mark_stored(state, batch, judgments, dict(rows.fetchall()))

    def _find_judgments(self, keys: Sequence[str]) -> list[tuple[str, str]]:
        return self._query(LOOKUP, list(keys))

    def _write_submission(self, record: SubmissionRecord) -> None:
        self._state.worker.post(Phase.RECORD, send_submissions, record)

    def _read_submissions(self, after: int) -> list[SubmissionRow]:
        return [
            SubmissionRow(number, json.loads(row_id), text, rubric and json.loads(rubric))
            for number, row_id, text, rubric in self._query(PAGE, after)
        ]

    def _read_file(self, digest: str) -> bytes:
        return self._query(FILE, digest)[0][0]

    def _write_grader(self, digest: str, text: str) -> None:
        self._state.worker.call_sync(Phase.RECORD, send_grader, (digest, text))

    def _read_grader(self) -> str | None:
        rows = self._query(GRADER)
        return rows[0][0] if rows else None

    def _write_failure(self, key: str, failure: JudgeFailure) -> None:
        self._state.worker.post(Phase.RECORD, send_failures, FailureOfKey.of(key, failure))

    def _forget_failure(self, key: str) -> None:
        self._query(FORGET_FAILURE, key)

    def _read_failures(self, of_rows: bool, limit: int | None) -> list[FailureRecord]:
        rows = self._query(FAILURES, of_rows, limit)
        return [FailureRecord(key, kind, json.loads(message), at, times) for key, kind, message, at, times in rows]


def _close_at_exit(worker: Worker, pid: int) -> None:
    if pid == os.getpid():
        worker.close()
