"""The ledger in a PostgreSQL database: a store of judgments that any number of machines share."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from typing import Any, Self
from weakref import finalize

import psycopg

from rubric_integrations._util.records import encodable
from rubric_integrations.judges.shared_spend import Claim, Shares
from rubric_integrations.judges.stored import Lease
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend, SpendTotal
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.ledger.errors import LedgerError
from rubric_integrations.runs.ledger.leasing import lease_keys, read_judgment
from rubric_integrations.runs.ledger.postgres import queries
from rubric_integrations.runs.ledger.postgres.leases import Leases
from rubric_integrations.runs.ledger.postgres.records import (
    ClaimOfPart,
    FailureOfKey,
    SubmissionRecord,
    send_claims,
    send_failures,
    send_grader,
    send_submissions,
)
from rubric_integrations.runs.ledger.postgres.schema import Connection
from rubric_integrations.runs.ledger.postgres.server import Server
from rubric_integrations.runs.ledger.postgres.worker import Phase, Read, Worker
from rubric_integrations.runs.ledger.protocol import FailureRecord
from rubric_integrations.runs.ledger.submissions import dump_submission, load_submission, stored_files
from rubric_integrations.submission.rows import Row
from rubric_integrations.submission.submission import Submission

# The first judgment of a key is kept: if its owner's lease expired, another caller has requested the judgment
# meanwhile, and others may have read that one.
_STORE = """
INSERT INTO rubric_judgments AS j (key, judgment)
SELECT * FROM unnest(%s::text[], %s::text[]) AS x (key, judgment) ORDER BY 1
ON CONFLICT (key) DO UPDATE SET judgment = excluded.judgment, owner = NULL, at = clock_timestamp()
WHERE j.judgment IS NULL"""
_DIFFERENT = """
SELECT j.key, j.judgment FROM unnest(%s::text[], %s::text[]) AS x (key, judgment) JOIN rubric_judgments AS j USING (key)
WHERE j.judgment <> x.judgment"""


class PostgresLedger:
    """A store of judgments in a PostgreSQL database, for any number of processes on any number of machines.

    It has the methods of `Ledger`, and the same guarantees: each judgment is requested once, whoever dies is replaced
    after ten seconds without a heartbeat, and a judgment is safe once `Lease.store` returns. A server that is lost is
    waited for, up to five minutes. Of one process, one thread has one connection.

    Args:
        url: The database, such as `"postgresql://user@host:5432/database?sslmode=require"`, with everything that
            libpq reads from a URL. Prefer a password that is not part of it: `PGPASSWORD`, `~/.pgpass` or a service
            file. Whoever pickles the ledger pickles the URL. The tables are made on first use, in the first schema of
            the `search_path`, and begin with `rubric_`.

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
        self._process_state = _ProcessState(self._server, db)
        finalize(self, _close_at_exit, self._process_state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PostgresLedger({self.address!r})"

    def __reduce__(self) -> tuple[type[PostgresLedger], tuple[str]]:
        return PostgresLedger, (self._url,)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def close(self) -> None:
        """End the leases that are still held, and close the connection."""
        self._state.worker.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._state.worker.is_closed

    @property
    def stored(self) -> int:
        """The number of judgments that this object has stored, in this process."""
        return self._state.stored

    @property
    def reused(self) -> int:
        """The number of judgments that this object has read from the database, in this process."""
        return self._state.reused

    @property
    def spend(self) -> Spend:
        """What the judgments cost that this object has stored, in this process; failures are not included."""
        with self._state.lock:
            return self._state.spend_total.spend

    def __len__(self) -> int:
        """Count the judgments in the database."""
        return self._query(queries.COUNT)[0][0]

    def __bool__(self) -> bool:
        """Return True: without this, an empty ledger would be false, because it has a length."""
        return True

    def failures(self, limit: int = 20) -> list[FailureRecord]:
        """List the most recent failures, latest first, one entry per key.

        Args:
            limit: The largest number of entries.
        """
        rows = self._query(queries.FAILURES, limit)
        return [FailureRecord(key, kind, json.loads(message), at, times) for key, kind, message, at, times in rows]

    def lookup(self, keys: Sequence[str]) -> dict[str, Judgment]:
        """Return the judgments that the database has under some keys, without leasing the others."""
        return {key: self._read(key, text) for key, text in self._query(queries.LOOKUP, list(keys))}

    def record_submission(self, row_id: str, submission: Submission, rubric: Rubric | None = None) -> None:
        """Record a submission of a run, once, so that `rescore` can score it again.

        It is written before the leases that are requested later.

        Args:
            row_id: The id of its row.
            submission: The submission.
            rubric: The rubric that the row brought, in place of that of an earlier run; None if it brought none.
        """
        text = dump_submission(submission)
        rubric_text = encodable(rubric.to_json()) if rubric is not None else None
        record = SubmissionRecord(
            hash=_digest(f"{encodable(row_id)}\n{text}"),
            id=json.dumps(row_id),
            submission=text,
            rubric_hash=_digest(rubric_text) if rubric_text is not None else None,
            rubric=json.dumps(rubric_text),
            files=stored_files(submission),
        )
        self._state.worker.post(Phase.RECORD, send_submissions, record)

    def submissions(self) -> Iterator[tuple[Row, Submission]]:
        """Yield each recorded row, with the rubric that it brought as JSON, and its submission, in their order."""
        last = 0
        while rows := self._query(queries.PAGE, last):
            for last, row_id, text, rubric in rows:  # noqa: B007 -- the next page begins after `last`
                submission = load_submission(text, lambda digest: self._query(queries.FILE, digest)[0][0])
                yield Row(json.loads(row_id), submission, rubric=rubric and json.loads(rubric)), submission

    def record_grader(self, configuration: Mapping[str, object]) -> None:
        """Record this run's grader configuration, so that `rescore` can rebuild the grader."""
        text = json.dumps(configuration, sort_keys=True)
        self._state.worker.call_sync(Phase.RECORD, send_grader, (_digest(text), text))

    def latest_grader(self) -> dict[str, Any] | None:
        """Return the most recent grader configuration, or None if the ledger has no run."""
        rows = self._query(queries.GRADER)
        return json.loads(rows[0][0]) if rows else None

    def save_batch(self, batch_id: str, record: str) -> None:
        """Store the record of a batch, in place of an earlier one; it is safe when this returns."""
        self._query(queries.SAVE_BATCH, batch_id, record)

    def batches(self) -> dict[str, str]:
        """Return the records of all batches by id, the oldest first."""
        return dict(self._query(queries.BATCHES))

    async def claim_spend(self, run: str, part: str, claim: Claim) -> Shares:
        """Record what one part of a run claims of its limits, in place of its last claim, as far as it is granted.

        Args:
            run: The name of the run, the same for all processes and machines that share its limits.
            part: A unique name of the part, such as one process.
            claim: What the part has spent, and what it wants to spend.

        Returns:
            What the part may spend in all, and what the other parts have claimed.
        """
        record = ClaimOfPart(json.dumps(run), part, claim)
        return await self._state.worker.call(Phase.CLAIM, send_claims, record)

    @asynccontextmanager
    async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
        """Wait until nobody else holds a lease on any of some keys, and lease those that have no judgment.

        Raises:
            LedgerError: The database can no longer be used.
        """
        state = self._state
        store = partial(state.worker.call, Phase.STORE, self._send_judgments)
        async with lease_keys(keys, state.leases, self._read, store, self._record_failure) as lease:
            yield lease

    @property
    def _state(self) -> _ProcessState:
        if self._process_state.pid != os.getpid():
            with _fork_lock:
                if self._process_state.pid != os.getpid():
                    _inherited.append(self._process_state)
                    self._process_state = _ProcessState(self._server, None)
                    finalize(self, _close_at_exit, self._process_state)
        return self._process_state

    def _query(self, query: str, *values: object) -> list[Any]:
        return self._state.worker.call_sync(Phase.READ, queries.send_queries, (query, values))

    def _read(self, key: str, text: str) -> Judgment:
        judgment = read_judgment(self.address, key, text)
        with self._state.lock:
            self._state.reused += 1
        return judgment

    def _send_judgments(self, db: Connection, batch: Sequence[Mapping[str, Judgment]]) -> Read[Mapping[str, Judgment]]:
        """Store the judgments of several callers, and return for each caller those that are kept."""
        state = self._state
        judgments = {key: judgment for mine in reversed(batch) for key, judgment in mine.items()}
        texts = {key: json.dumps(judgment.model_dump(mode="json")) for key, judgment in judgments.items()}
        db.execute(_STORE, (list(texts), list(texts.values())))
        rows = db.execute(_DIFFERENT, (list(texts), list(texts.values())))

        def read() -> list[Mapping[str, Judgment]]:
            state.leases.mark_stored(judgments)
            earlier = {key: self._read(key, text) for key, text in rows}
            with state.lock:
                state.stored += len(judgments) - len(earlier)
                for key in judgments.keys() - earlier.keys():
                    state.spend_total.add(judgments[key].spend)
            kept = judgments | earlier
            return [{key: kept[key] for key in mine} for mine in batch]

        return read

    def _record_failure(self, key: str, failure: JudgeFailure) -> None:
        self._state.worker.post(Phase.RECORD, send_failures, FailureOfKey.of(key, failure))


class _ProcessState:
    """The state of a ledger in one process: a forked child has leases of its own, and its counts begin at zero."""

    def __init__(self, server: Server, db: Connection | None):
        self.pid, self.lock = os.getpid(), threading.Lock()
        self.worker = Worker(server, db)
        self.leases = Leases(self.worker)
        self.stored = self.reused = 0
        self.spend_total = SpendTotal()


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _close_at_exit(state: _ProcessState) -> None:
    if state.pid == os.getpid():
        state.worker.close()


# States of the parent in a forked child: if the garbage collector ended one there, it would disturb the parent.
_inherited: list[_ProcessState] = []
_fork_lock = threading.Lock()


def _reset_after_fork() -> None:
    # Another thread of the parent may have held it.
    global _fork_lock  # noqa: PLW0603
    _fork_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
