"""The ledger: a store of judgments in one file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic_core import PydanticSerializationError

from rubric_integrations.judges.stored import Lease
from rubric_integrations.results.judgment import FailureKind, JudgeFailure, Judgment
from rubric_integrations.results.usage import Spend, SpendTotal
from rubric_integrations.runs.ledger.batching import Batcher
from rubric_integrations.runs.ledger.leases import Leases
from rubric_integrations.runs.ledger.sqlite import LedgerError, LedgerFile
from rubric_integrations.submission.submission import Submission

MAX_MESSAGE = 1_000


class FailureRecord(NamedTuple):
    """A key that a judge failed at.

    Attributes:
        key: The judgment's key.
        kind: The last failure's `kind`.
        message: What it said.
        at: When, in Unix seconds.
        times: How many failures there were.
    """

    key: str
    kind: FailureKind
    message: str
    at: float
    times: int


class Ledger:
    """A store of judgments in one SQLite file, on a local disk.

    A judgment is safe when `keep` returns: killing the process loses none. A power loss may cost those of the last
    half minute or so, which are bought again then, but not the file. While somebody asks about a key everyone else
    waits for the answer, and whoever dies over it is replaced. One object serves any number of threads and event
    loops, and may cross `os.fork`.

    Attributes:
        path: The file.

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
        """Open a ledger, or make one where there is no file.

        Args:
            path: The file, such as `run.sqlite`; while it is open it has a `-wal` and a `-shm` beside it.

        Raises:
            LedgerError: The file is not a ledger, or of a newer version (it is unchanged), or cannot be written.
        """
        self.path = Path(path)
        self._file = LedgerFile(self.path)
        self._process = self._in_this_process()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what is still claimed, and close the file."""
        self._here.leases.close()
        self._file.close()

    @property
    def stored(self) -> int:
        """Judgments that this object has kept, in this process."""
        return self._here.stored

    @property
    def reused(self) -> int:
        """Answers that this object has given from the file, in this process."""
        return self._here.reused

    @property
    def spend(self) -> Spend:
        """What the judgments cost that this object has kept, in this process; failures are not in it."""
        with self._file.lock:
            return self._here.bill.total

    def __len__(self) -> int:
        """How many judgments the file has."""
        with self._file.working() as db:
            # Not by `status = 'kept'`, which would read the whole file: these two read indexes.
            kept_or_asked = db.execute("SELECT count(*) FROM judgments").fetchone()[0]
            return kept_or_asked - db.execute("SELECT count(*) FROM judgments WHERE status = 'asked'").fetchone()[0]

    def __bool__(self) -> bool:
        """Always true: an empty ledger is one, too."""
        return True

    def failures(self, limit: int = 20) -> list[FailureRecord]:
        """The most recent failures, one entry a key."""
        with self._file.working() as db:
            return [
                FailureRecord(*row) for row in db.execute("SELECT * FROM failures ORDER BY at DESC LIMIT ?", (limit,))
            ]

    def lookup(self, keys: Sequence[str]) -> dict[str, Judgment]:
        """What the file has under these keys, without claiming the others."""
        with self._file.working() as db:
            query = "SELECT judgment FROM judgments WHERE key = ? AND status = 'kept'"
            found = {key: db.execute(query, (key,)).fetchone() for key in keys}
        return {key: self._read(key, row[0]) for key, row in found.items() if row}

    def record_submission(self, row_id: str, submission: Submission) -> None:
        """Remember what was graded, once, so that it can be scored anew."""
        text = json.dumps(submission.model_dump(mode="json", exclude_none=True))
        digest = sha256(f"{row_id}\n{text}".encode()).hexdigest()
        with self._file.working() as db:
            db.execute(
                "INSERT OR IGNORE INTO submissions (hash, id, submission) VALUES (?, ?, ?)", (digest, row_id, text)
            )

    def submissions(self) -> Iterator[tuple[str, Submission]]:
        """The id of everything that was graded, and the thing itself, in the order of the first time."""
        last = 0
        while True:
            with self._file.working() as db:
                query = "SELECT number, id, submission FROM submissions WHERE number > ? ORDER BY number LIMIT 500"
                rows = db.execute(query, (last,)).fetchall()
            if not rows:
                return
            for last, row_id, text in rows:  # noqa: B007 -- where the next page begins
                yield row_id, Submission.model_validate_json(text)

    def record_grader(self, configuration: Mapping[str, object]) -> None:
        """Remember how is graded now."""
        text = json.dumps(configuration, sort_keys=True)
        with self._file.working() as db:
            db.execute(
                "INSERT INTO graders VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET at = excluded.at",
                (sha256(text.encode()).hexdigest(), text, time.time()),
            )

    def latest_grader(self) -> dict[str, Any] | None:
        """How was graded last; None where nothing was."""
        with self._file.working() as db:
            row = db.execute("SELECT grader FROM graders ORDER BY at DESC LIMIT 1").fetchone()
        return json.loads(row[0]) if row else None

    @asynccontextmanager
    async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
        """Wait until nobody else asks about any of these keys, and hold those that the file has not.

        Raises:
            LedgerError: The file cannot be used any more.
        """
        here = self._here
        lease, leases = _Lease(here.keep, self._note), here.leases
        try:
            # In one order for all: two askers could wait for each other else.
            left = sorted(set(keys))
            while left:
                found = await leases.obtain(left)
                # First of all what we hold now: it must be released if a judgment cannot be read.
                lease.held.update(key for key, text in zip(left, found, strict=False) if text is None)
                lease.stored |= {
                    key: self._read(key, text) for key, text in zip(left, found, strict=False) if text is not None
                }
                left = left[len(found) :]
            yield lease
        finally:
            if lease.held:
                leases.release(lease.held)

    @property
    def _here(self) -> _Process:
        if self._process.pid != os.getpid():
            with self._file.lock:
                if self._process.pid != os.getpid():
                    self._process = self._in_this_process()
        return self._process

    def _in_this_process(self) -> _Process:
        return _Process(self._file, self._keep_all)

    def _read(self, key: str, text: str) -> Judgment:
        try:
            judgment = Judgment.model_validate(json.loads(text))
        except ValueError:
            raise LedgerError(
                f"`path` {str(self.path)!r} has a judgment that this version cannot read, with the key {key!r}: update "
                "the library, or delete that row to buy it again"
            ) from None
        with self._file.lock:
            self._here.reused += 1
        return judgment

    def _keep_all(self, bought: Sequence[Mapping[str, Judgment]]) -> list[None]:
        now = time.time()
        rows = [(key, _text(judgment), now) for judgments in bought for key, judgment in judgments.items()]
        with self._file.writing() as db:
            # The first one stays: others may have read it by the time an owner that was given up comes back.
            db.executemany(
                "INSERT INTO judgments VALUES (?, 'kept', ?, ?, NULL) ON CONFLICT (key) DO UPDATE SET status = 'kept',"
                " judgment = excluded.judgment, at = excluded.at, owner = NULL WHERE status = 'asked'",
                rows,
            )
            here = self._here
            here.leases.done(key for key, _, _ in rows)
            here.stored += len(rows)
            for judgments in bought:
                for judgment in judgments.values():
                    here.bill.add(judgment.spend)
        return [None] * len(bought)

    def _note(self, key: str, failure: JudgeFailure) -> None:
        message = str(failure).removeprefix(f"{failure.kind}: ").encode("utf-8", "replace").decode()
        with self._file.working() as db:
            db.execute(
                "INSERT INTO failures VALUES (?, ?, ?, ?, 1) ON CONFLICT (key) DO UPDATE"
                " SET kind = excluded.kind, message = excluded.message, at = excluded.at, times = times + 1",
                (key, failure.kind, message[:MAX_MESSAGE], time.time()),
            )


class _Process:
    """What a ledger is in one process; a forked one claims in its own name, and counts from zero."""

    def __init__(self, file: LedgerFile, keep_all: Callable[[Sequence[Mapping[str, Judgment]]], Sequence[None]]):
        self.pid = os.getpid()
        self.leases, self.keep = Leases(file), Batcher(keep_all)
        self.stored = self.reused = 0
        self.bill = SpendTotal()


class _Lease:
    def __init__(
        self,
        keep: Callable[[Mapping[str, Judgment]], Awaitable[None]],
        note: Callable[[str, JudgeFailure], None],
    ):
        self._keep, self._note = keep, note
        self.held: set[str] = set()
        self.stored: dict[str, Judgment] = {}

    async def store(self, judgments: Mapping[str, Judgment]) -> None:
        await self._keep(judgments)
        self.held.difference_update(judgments)

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        self._note(key, failure)


def _text(judgment: Judgment) -> str:
    try:
        return judgment.model_dump_json()
    except PydanticSerializationError:
        # Half an emoji in a model's reason, say, which is no UTF-8; this writes it as an escape.
        return json.dumps(judgment.model_dump())
