"""The ledger: a store of judgments in one file."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Self

from rubric_integrations._util.records import encodable
from rubric_integrations.judges.shared_spend import Allowance, Claim, Shares
from rubric_integrations.judges.stored import Lease
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend, SpendTotal
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.ledger.batches import StoredBatches
from rubric_integrations.runs.ledger.batching import Batcher
from rubric_integrations.runs.ledger.leases import Leases
from rubric_integrations.runs.ledger.leasing import lease_keys, read_judgment
from rubric_integrations.runs.ledger.protocol import MAX_MESSAGE, FailureRecord
from rubric_integrations.runs.ledger.reopening import reopen
from rubric_integrations.runs.ledger.rows import store_rows
from rubric_integrations.runs.ledger.sqlite import LedgerFile
from rubric_integrations.runs.ledger.submissions import dump_submission, load_submission, stored_files
from rubric_integrations.submission.rows import Row
from rubric_integrations.submission.submission import Submission

# The rows after a number, with the rubric that each has brought.
_PAGE = (
    "SELECT number, id, submissions.submission, rubrics.rubric FROM submissions"
    " LEFT JOIN row_rubrics ON row_rubrics.submission = submissions.hash"
    " LEFT JOIN rubrics ON rubrics.hash = row_rubrics.rubric"
    " WHERE number > ? ORDER BY number LIMIT 500"
)


class Ledger(StoredBatches):
    """A store of judgments in one SQLite file, on a local disk.

    While one caller holds the lease on a key, all others wait for its judgment; if that caller fails or its process
    dies, the next one gets the lease. One object serves any number of threads and event loops, and works on both sides
    of `os.fork`. Several processes may open the same file. A pickle holds its path, so that another process on the same
    machine opens the file, once for all pickles of it. A copy is the same ledger.

    A judgment is safe once `Lease.store` returns: no crash of the process loses it. A power failure may lose those of
    the last half minute or so, which are then requested again, but does not damage the file.

    Args:
        path: The file, such as `run.sqlite`; it is created if it does not exist. While it is open, there are two more
            files beside it, which end in `-wal` and `-shm`.

    Attributes:
        path: The file.

    Raises:
        LedgerError: The file is not a ledger or is a ledger of another version (it is unchanged then), or it cannot be
            written.

    Example:
        >>> import tempfile
        >>> from rubric_integrations import PerCriterionGrader, Rubric
        >>> rubric = Rubric.from_dict([{"weight": 10, "requirement": "States the margin as 17.2%"}])
        >>> with tempfile.TemporaryDirectory() as folder, Ledger(f"{folder}/run.sqlite") as ledger:
        ...     grader = PerCriterionGrader("offline").with_store(ledger)
        ...     scores = [rubric.grade_sync("It was 17.2%.", grader=grader).score for _ in range(2)]
        ...     (scores, ledger.stored, ledger.reused)
        ([1.0, 1.0], 1, 1)
    """

    def __init__(self, path: str | PathLike[str]):
        self.path = Path(path)
        self._file = LedgerFile(self.path)
        self._process_state = self._new_process_state()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return reopen, (Ledger, str(self.path.absolute()))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def close(self) -> None:
        """End the leases that are still held, and close the file."""
        self._state.leases.close()
        self._file.close()

    @property
    def address(self) -> str:
        """The path of the file."""
        return str(self.path)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._file.is_closed

    @property
    def stored(self) -> int:
        """The number of judgments that this object has stored, in this process."""
        return self._state.stored

    @property
    def reused(self) -> int:
        """The number of judgments that this object has read from the file, in this process."""
        return self._state.reused

    @property
    def spend(self) -> Spend:
        """What the judgments cost that this object has stored, in this process; failures are not included."""
        with self._file.lock:
            return self._state.spend_total.spend

    def __len__(self) -> int:
        """Count the judgments in the file."""
        with self._file.working() as db:
            # `WHERE status = 'stored'` would read the whole file, while these two queries read indexes.
            rows = db.execute("SELECT count(*) FROM judgments").fetchone()[0]
            return rows - db.execute("SELECT count(*) FROM judgments WHERE status = 'leased'").fetchone()[0]

    def __bool__(self) -> bool:
        """Return True: without this, an empty ledger would be false, because it has a length."""
        return True

    def failures(self, limit: int = 20) -> list[FailureRecord]:
        """List the most recent failures, latest first, one entry per key.

        Args:
            limit: The largest number of entries.
        """
        with self._file.working() as db:
            query = "SELECT key, kind, message, at, times FROM failures ORDER BY at DESC LIMIT ?"
            return [FailureRecord(*row) for row in db.execute(query, (limit,))]

    def lookup(self, keys: Sequence[str]) -> dict[str, Judgment]:
        """Return the judgments that the file has under some keys, without leasing the others."""
        with self._file.working() as db:
            query = "SELECT judgment FROM judgments WHERE key = ? AND status = 'stored'"
            rows = {key: db.execute(query, (key,)).fetchone() for key in keys}
        return {key: self._read(key, row[0]) for key, row in rows.items() if row}

    def record_submission(self, row_id: str, submission: Submission, rubric: Rubric | None = None) -> None:
        """Record a submission of a run, once, so that `rescore` can score it again.

        Args:
            row_id: The id of its row.
            submission: The submission.
            rubric: The rubric that the row brought, in place of that of an earlier run; None if it brought none.
        """
        text = dump_submission(submission)
        row_id = encodable(row_id)
        digest = sha256(f"{row_id}\n{text}".encode()).hexdigest()
        query = "INSERT OR IGNORE INTO submissions (hash, id, submission) VALUES (?, ?, ?)"
        with self._file.working() as db:
            db.executemany("INSERT OR IGNORE INTO files VALUES (?, ?)", stored_files(submission).items())
            db.execute(query, (digest, row_id, text))
            if rubric is not None:
                # In JSON, the escape of half an emoji is that character again.
                rubric_text = encodable(rubric.to_json())
                rubric_digest = sha256(rubric_text.encode()).hexdigest()
                db.execute("INSERT OR IGNORE INTO rubrics VALUES (?, ?)", (rubric_digest, rubric_text))
                db.execute("INSERT OR REPLACE INTO row_rubrics VALUES (?, ?)", (digest, rubric_digest))
            elif db.execute("SELECT 1 FROM row_rubrics WHERE submission = ?", (digest,)).fetchone():
                db.execute("DELETE FROM row_rubrics WHERE submission = ?", (digest,))

    def submissions(self) -> Iterator[tuple[Row, Submission]]:
        """Yield each recorded row, with the rubric that it brought as JSON, and its submission, in their order."""
        last = 0
        while True:
            with self._file.working() as db:
                rows = db.execute(_PAGE, (last,)).fetchall()
            if not rows:
                return
            for last, row_id, text, rubric in rows:  # noqa: B007 -- the next page begins after `last`
                with self._file.working() as db:
                    submission = load_submission(text, partial(_read_file, db))
                yield Row(row_id, submission, rubric=rubric), submission

    def record_grader(self, configuration: Mapping[str, object]) -> None:
        """Record this run's grader configuration, so that `rescore` can rebuild the grader."""
        text = json.dumps(configuration, sort_keys=True)
        with self._file.working() as db:
            db.execute(
                "INSERT INTO graders VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET at = excluded.at",
                (sha256(text.encode()).hexdigest(), text, time.time()),
            )

    def latest_grader(self) -> dict[str, Any] | None:
        """Return the most recent grader configuration, or None if the ledger has no run."""
        with self._file.working() as db:
            row = db.execute("SELECT grader FROM graders ORDER BY at DESC LIMIT 1").fetchone()
        return json.loads(row[0]) if row else None

    async def claim_spend(self, run: str, part: str, claim: Claim) -> Shares:
        """Record what one part of a run claims of its limits, in place of its last claim, as far as it is granted.

        Args:
            run: The name of the run, the same for all processes that share its limits.
            part: A unique name of the part, such as one process.
            claim: What the part has spent, and what it wants to spend.

        Returns:
            What the part may spend in all, and what the other parts have claimed.
        """
        run = encodable(run)
        with self._file.writing() as db:
            total = "SELECT coalesce(sum(calls), 0), coalesce(sum(cost), 0.0) FROM spending WHERE run = ? AND part <> ?"
            others = Allowance(*db.execute(total, (run, part)).fetchone())
            own = claim.granted(others)
            db.execute("INSERT OR REPLACE INTO spending VALUES (?, ?, ?, ?)", (run, part, own.calls, own.cost))
        return Shares(own, others)

    @asynccontextmanager
    async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
        """Wait until nobody else holds a lease on any of some keys, and lease those that have no judgment.

        Raises:
            LedgerError: The file can no longer be used.
        """
        state = self._state
        async with lease_keys(keys, state.leases, self._read, state.store, self._record_failure) as lease:
            yield lease

    @property
    def _state(self) -> _ProcessState:
        if self._process_state.pid != os.getpid():
            with self._file.lock:
                if self._process_state.pid != os.getpid():
                    self._process_state = self._new_process_state()
        return self._process_state

    def _new_process_state(self) -> _ProcessState:
        return _ProcessState(self._file, self._store_batch)

    def _read(self, key: str, text: str) -> Judgment:
        judgment = read_judgment(f"`path` {str(self.path)!r}", key, text)
        with self._file.lock:
            self._state.reused += 1
        return judgment

    def _store_batch(self, batch: Sequence[Mapping[str, Judgment]]) -> list[dict[str, Judgment]]:
        """Store the judgments of several callers, and return for each caller those that are kept."""
        judgments = {key: judgment for mine in reversed(batch) for key, judgment in mine.items()}
        with self._file.writing() as db:
            earlier = store_rows(db, judgments)
            state = self._state
            state.leases.mark_stored(judgments)
            state.stored += len(judgments) - len(earlier)
            for key in judgments.keys() - earlier.keys():
                state.spend_total.add(judgments[key].spend)
        kept = judgments | {key: self._read(key, text) for key, text in earlier.items()}
        return [{key: kept[key] for key in mine} for mine in batch]

    def _record_failure(self, key: str, failure: JudgeFailure) -> None:
        with self._file.working() as db:
            db.execute(
                "INSERT INTO failures VALUES (?, ?, ?, ?, 1) ON CONFLICT (key) DO UPDATE"
                " SET kind = excluded.kind, message = excluded.message, at = excluded.at, times = times + 1",
                (key, failure.kind, failure.message[:MAX_MESSAGE], time.time()),
            )


def _read_file(db: sqlite3.Connection, digest: str) -> bytes:
    return db.execute("SELECT content FROM files WHERE sha256 = ?", (digest,)).fetchone()[0]


_StoreBatch = Callable[[Sequence[Mapping[str, Judgment]]], Sequence[Mapping[str, Judgment]]]


class _ProcessState:
    """The state of a ledger in one process: a forked child has leases of its own, and its counts begin at zero."""

    def __init__(self, file: LedgerFile, store_batch: _StoreBatch):
        self.pid = os.getpid()
        self.leases, self.store = Leases(file), Batcher(store_batch)
        self.stored = self.reused = 0
        self.spend_total = SpendTotal()
