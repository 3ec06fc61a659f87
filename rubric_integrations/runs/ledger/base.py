"""The part of a ledger that does not depend on where it stores judgments: `LedgerBase`, and the protocol `RunLedger`.

A kind of ledger (`Ledger` in a file, `PostgresLedger` in a database) implements the abstract methods of `LedgerBase`:
reading and writing judgments, submissions, files, graders, failures, batches, and the amounts that processes claim from
the spend limits of a run. The base implements everything else: leases on several keys, the counts, the state of each
process, and the JSON of submissions.

The bytes of attachments are stored once, in a separate table, because many rows may have the same image.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable
from uuid import getnode, uuid4

from rubric_integrations._util.records import encodable
from rubric_integrations.judges.exploration import KEY_PREFIX
from rubric_integrations.judges.spend import Claim, Shares
from rubric_integrations.judges.store import JudgmentStore, Lease, StoreError
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import FailureKind, JudgeFailure, Judgment, Spend, SpendTotal
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.submission import Submission


class LedgerError(StoreError, ValueError):
    """Raised if a file or a database is not a ledger, or can no longer be used. Stored judgments are kept."""


class Owner(NamedTuple):
    """An owner of leases, which are rights to request a judgment: one `KeyLeases` object in one process.

    Attributes:
        name: A unique name.
        host: The machine and the process namespace. None if the owner is no longer registered.
        pid: The process id. None if the owner is no longer registered.
        heartbeat: A counter that the owner increases while it is alive and has leases. None if the owner is no longer
            registered. Always 0 in a database, which stores the time of the heartbeat instead.
    """

    name: str
    host: str | None
    pid: int | None
    heartbeat: int | None = 0

    @classmethod
    def in_this_process(cls) -> Owner:
        """Make an owner of leases with a new name, for the current process."""
        return cls(uuid4().hex, _host(), os.getpid())

    @property
    def is_dead(self) -> bool:
        """Whether the process of the owner has certainly ended, or the owner is no longer registered.

        False if the process may be alive, because it is on another machine or its process id exists. The system may
        have given the id to another process. Therefore, after False, only missing heartbeats show that the owner is
        dead.
        """
        if self.host is None or self.pid is None:
            return True
        # On Windows, `os.kill(pid, 0)` would end the process instead of looking for it.
        if os.name == "posix" and self.host == _host():
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return True
            except OSError:
                return False
        return False


@cache
def _host() -> str:
    try:
        # A container may share the name of its host, but not its process ids. Two machines may have the same name.
        namespace = str(Path("/proc/self/ns/pid").readlink())
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        namespace, machine = "", f"{getnode():x}"
    return f"{socket.gethostname()} {namespace} {machine}"


class Acquired(NamedTuple):
    """The acquisition of a lease on a key by one caller. With the lease, only this caller requests the judgment.

    A process that has lost its leases continues under a new owner name. By this name, an acquisition from before the
    loss differs from an acquisition that another task of the same process makes later.

    Attributes:
        owner: The owner that this process was at the time of the acquisition.
        is_contested: Whether an earlier owner has lost the lease on the key and may still store its judgment. For
            example, its process was suspended while it waited for the reply.
    """

    owner: Owner
    is_contested: bool = False


Holder = TypeVar("Holder")


class KeyLeases(ABC, Generic[Holder]):
    """The leases of one process. While one caller has the lease on a key, only it requests the key's judgment.

    `Holder` is the type that describes another owner of a key.
    """

    def __init__(self) -> None:
        self._owner = Owner.in_this_process()
        # The keys that the current owner has leased.
        self._held: set[str] = set()

    @abstractmethod
    async def obtain(self, keys: Sequence[str]) -> list[str | Acquired]:
        """Lease keys in order, up to the first key that another caller has leased. Keys with a judgment are not leased.

        If another caller has leased `keys[0]`, this method waits until that lease has ended. Therefore, the result has
        at least one entry. For the other keys, call the method again with the keys that have no entry yet.

        Args:
            keys: The keys that the caller needs, at least one.

        Returns:
            One entry for each of the first keys, in order: the stored judgment as JSON, or the acquisition if the
            caller now has the lease. The list ends before the first key that another caller has leased.

        Raises:
            LedgerError: The ledger can no longer be used.
        """

    def are_held(self, acquired: Mapping[str, Acquired]) -> bool:
        """Whether the caller still has its leases on all these keys.

        The result can be False if the process was suspended, because its leases may have expired in the meantime.

        While an owner sends heartbeats, no other process ends its leases. Therefore, most keys are not looked up in the
        ledger. Only contested keys are looked up, because the earlier owner of such a key may have stored the judgment
        in the meantime. In that case, the caller's lease on the key has ended.

        Args:
            acquired: The acquisition of each key, as `obtain` returned it.

        Raises:
            LedgerError: The ledger can no longer be used.
        """
        if not self._is_alive() or not self._held.issuperset(acquired):
            return False
        owner, contested = self._owner, list[str]()
        for key, acquisition in acquired.items():
            if acquisition.owner is not owner:
                return False
            if acquisition.is_contested:
                contested.append(key)
        return not contested or self._count_leased(contested) == len(contested)

    @abstractmethod
    def _is_alive(self) -> bool:
        """Whether the current owner's last heartbeat is so recent that no other process may have ended its leases."""

    @abstractmethod
    def _count_leased(self, keys: list[str]) -> int:
        """Count the keys on which the current owner has a lease in the ledger."""

    def mark_stored(self, keys: Iterable[str]) -> None:
        """Record that the judgments of some keys are stored, which ends the leases on these keys."""
        self._held.difference_update(keys)

    def release(self, acquired: Mapping[str, Acquired]) -> None:
        """End the leases on keys that have no judgment. Other callers can then lease them."""
        owner = self._owner
        # The acquisitions of an earlier owner are lost: another task of this process may have leased those keys since.
        keys = [key for key, acquisition in acquired.items() if acquisition.owner is owner]
        # After a fork, the child destroys copies of its parent's tasks. This must not end the parent's leases.
        if owner.pid == os.getpid() and keys:
            self._end(keys, owner)

    @abstractmethod
    def _end(self, keys: list[str], owner: Owner) -> None:
        """End the leases of an owner in this process on some keys. Contested keys stay contested."""

    def _release_acquired(self, keys: Sequence[str], states: Sequence[str | Holder | Acquired]) -> None:
        """Release the keys that were acquired for a caller that was cancelled."""
        self.release(acquired_keys(keys, states))

    def _abandon(self) -> None:
        """Continue as a new owner, because other processes have ended the leases of this owner, or will end them."""
        self._owner = Owner.in_this_process()
        self._held.clear()


def acquired_keys(keys: Sequence[str], states: Sequence[object]) -> dict[str, Acquired]:
    """Return the acquisitions of the keys that the caller has leased, by key.

    Args:
        keys: The keys that the caller needs.
        states: The states of the first keys, in the same order. The list can be shorter than `keys`. A state is an
            `Acquired` if the caller has leased the key. Otherwise, it is the stored judgment or the other owner of the
            key.
    """
    return {key: state for key, state in zip(keys, states, strict=False) if isinstance(state, Acquired)}


def read_judgment(name: str, key: str, text: str) -> Judgment:
    """Parse the judgment that a ledger has stored under a key.

    Args:
        name: The name of the ledger, for the message.
        key: The key.
        text: The judgment as JSON.

    Raises:
        LedgerError: The text is not a judgment of this version.
    """
    try:
        return Judgment.model_validate(json.loads(text))
    except ValueError:
        raise LedgerError(
            f"{name} has a judgment that this version cannot read, with the key {key!r}: update the library, or delete "
            "that row, so that the judgment is requested again"
        ) from None


# The largest number of characters of a failure's message that is stored. A provider may send a complete web page.
MAX_MESSAGE = 1_000


class FailureRecord(NamedTuple):
    """The failed attempts of a judge to give the judgment of one key.

    Attributes:
        key: The key of the judgment.
        kind: The kind of the last failure.
        message: The message of the last failure, up to 1,000 characters.
        at: The time of the last failure, in Unix seconds.
        times: The number of failures.
    """

    key: str
    kind: FailureKind
    message: str
    at: float
    times: int


@runtime_checkable
class RunLedger(JudgmentStore, Protocol):
    """A store of judgments that also records the data for `rescore` and for limits shared by several machines.

    Two classes implement this protocol: `Ledger` (an SQLite file) and `PostgresLedger` (a database).
    """

    @property
    def address(self) -> str:
        """The path, or the URL without user, password and options, for messages."""
        ...

    @property
    def stored(self) -> int:
        """The number of judgments that this object has stored in this process. A forked child begins at 0."""
        ...

    @property
    def reused(self) -> int:
        """The number of stored judgments that this object has read in this process. A forked child begins at 0."""
        ...

    @property
    def spend(self) -> Spend:
        """The spend of the judgments that this object has stored in this process.

        The spend of failures is not included. A forked child begins at 0.
        """
        ...

    def __len__(self) -> int:
        """Count the judgments in the ledger."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exc: object) -> None: ...

    def close(self) -> None:
        """End the remaining leases and close the ledger."""
        ...

    def failures(self, limit: int = 20) -> list[FailureRecord]:
        """List the most recent failures of judges, latest first, with one entry for each key of a judgment."""
        ...

    def lookup(self, keys: Sequence[str]) -> dict[str, Judgment]:
        """Return the stored judgments of some keys, by key. Keys without a judgment are left out.

        The caller gets no leases on the keys without a judgment. To request these judgments, use `lease`.
        """
        ...

    def record_submission(self, row_id: str, submission: Submission, rubric: Rubric | None = None) -> None:
        """Record a submission of a run. A submission that the ledger already has is not recorded again.

        Args:
            row_id: The id of the row.
            submission: The submission.
            rubric: The row's own rubric, or None if it does not have its own. It replaces the rubric that an earlier
                run recorded for this row.
        """
        ...

    def submissions(self) -> Iterator[tuple[Row, Submission]]:
        """Yield each recorded row and its submission, in the order in which they were recorded.

        The `rubric` of a row is the row's own rubric as JSON text. It is None if the row does not have its own rubric.
        """
        ...

    def failed_rows(self) -> Set[str]:
        """Return the key (`row_key`) of each row whose last grade failed. A run grades these rows last."""
        ...

    def record_row(self, row_id: str, error: str | None) -> None:
        """Record why the grade of a row failed. With None, remove the record of an earlier failure."""
        ...

    def record_grader(self, configuration: Mapping[str, object]) -> None:
        """Record the configuration of the grader that this run uses, for `rescore`."""
        ...

    def latest_grader(self) -> dict[str, Any] | None:
        """Return the most recent grader configuration, or None if the ledger has no run."""
        ...

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
        ...


_ROW = "row "


def row_key(row_id: str) -> str:
    """Return the key under which a ledger records that the grade of a row failed."""
    return f"{_ROW}{_digest(encodable(row_id))}"


def dump_submission(submission: Submission) -> str:
    """Return the JSON of a submission, with the SHA-256 of each file instead of its bytes."""
    fields = submission.model_dump(mode="json", exclude_none=True, exclude={"attachments"})
    if submission.attachments:
        fields["attachments"] = [file.identity() for file in submission.attachments]
    return json.dumps(fields)


def stored_files(submission: Submission) -> dict[str, bytes]:
    """Return the bytes of each file of a submission by their SHA-256. Files without bytes are left out."""
    return {str(file.sha256): file.content for file in submission.attachments if file.content is not None}


def load_submission(text: str, read_file: Callable[[str], bytes]) -> Submission:
    """Restore the submission of a row, with the bytes of its files.

    Args:
        text: The JSON that `dump_submission` returned.
        read_file: Returns the bytes of a file by their SHA-256.
    """
    fields: dict[str, Any] = json.loads(text)
    for entry in fields.get("attachments", []):
        if digest := entry.pop("sha256", None):
            entry["data"] = base64.b64encode(read_file(digest)).decode()
    return Submission.model_validate_json(json.dumps(fields))


class SubmissionRecord(NamedTuple):
    """A row of a run, as ledgers store it.

    Attributes:
        hash: The digest of the id and the submission.
        id: The id of the row.
        submission: The submission, as JSON.
        rubric_hash: The digest of the row's own rubric. None if the row does not have its own rubric.
        rubric: The row's own rubric, as JSON.
        files: The bytes of its attachments, by their SHA-256.
    """

    hash: str
    id: str
    submission: str
    rubric_hash: str | None
    rubric: str | None
    files: dict[str, bytes]

    @classmethod
    def of(cls, row_id: str, submission: Submission, rubric: Rubric | None) -> SubmissionRecord:
        """Make the record of a row: its submission and its own rubric, if it has one."""
        text = dump_submission(submission)
        # `encodable` replaces half an emoji by its escape. In JSON, the escape is the same character.
        rubric_text = None if rubric is None else encodable(rubric.without_cases().to_json())
        rubric_hash = None if rubric_text is None else _digest(rubric_text)
        digest = _digest(f"{encodable(row_id)}\n{text}")
        return cls(digest, row_id, text, rubric_hash, rubric_text, stored_files(submission))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


class SubmissionRow(NamedTuple):
    """A recorded row, as a ledger reads it.

    Attributes:
        number: The row's number in the ledger, which increases with each new row.
        id: The id of the row.
        submission: The submission, as JSON.
        rubric: The row's own rubric, as JSON. None if the row does not have its own rubric.
    """

    number: int
    id: str
    submission: str
    rubric: str | None


StoreJudgments = Callable[[Mapping[str, Judgment]], Awaitable[Mapping[str, Judgment]]]
"""The type of a function that stores judgments by key, and returns the judgments that the ledger keeps."""


class ProcessState:
    """The state of a ledger in one process. A forked child gets new leases and new counts.

    Args:
        leases: The leases of this process.
    """

    def __init__(self, leases: KeyLeases[Any]):
        self.pid, self.lock, self.leases = os.getpid(), threading.Lock(), leases
        self.stored = self.reused = 0
        self.spend_total = SpendTotal()


State = TypeVar("State", bound=ProcessState)


class LedgerBase(ABC, Generic[State]):
    """The part of a `RunLedger` that does not depend on where the judgments are stored.

    A subclass implements the abstract methods. Its `__init__` opens the file or the connection, and then sets
    `_process_state`.
    """

    _process_state: State

    @abstractmethod
    def close(self) -> None:
        """End the remaining leases and close the ledger."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether `close` was called."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the judgments in the ledger."""

    @abstractmethod
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

    @abstractmethod
    def save_batch(self, batch_id: str, record: str) -> None:
        """Store the record of a batch and replace an earlier one. The stored record survives a power failure.

        Args:
            batch_id: The id of the batch.
            record: The record of the batch, as JSON.
        """

    @abstractmethod
    def batches(self) -> dict[str, str]:
        """Return the records of all batches, as JSON by the id of the batch, the oldest first."""

    @property
    @abstractmethod
    def _name(self) -> str:
        """The name of the ledger in messages."""

    @abstractmethod
    def _new_process_state(self) -> State:
        """Make the state of a process that was just forked."""

    @abstractmethod
    def _store_function(self, state: State) -> StoreJudgments:
        """Return the function that stores judgments by key, and returns the judgments that the ledger keeps."""

    @abstractmethod
    def _find_judgments(self, keys: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Return the keys that have a judgment, each with the judgment as JSON."""

    @abstractmethod
    def _write_submission(self, record: SubmissionRecord) -> None:
        """Record a submission once and replace the rubric of an earlier record."""

    @abstractmethod
    def _read_submissions(self, after: int) -> Sequence[SubmissionRow]:
        """Return the next submissions after a number, in order. Empty after the last submission."""

    @abstractmethod
    def _read_file(self, digest: str) -> bytes:
        """Return the bytes of an attachment by their SHA-256."""

    @abstractmethod
    def _write_grader(self, digest: str, text: str) -> None:
        """Record a grader configuration as the most recent one."""

    @abstractmethod
    def _read_grader(self) -> str | None:
        """Return the most recent grader configuration as JSON, or None."""

    @abstractmethod
    def _write_failure(self, key: str, failure: JudgeFailure) -> None:
        """Record why a key has no judgment, or why a row has no grade."""

    @abstractmethod
    def _forget_failure(self, key: str) -> None:
        """Remove the record of a failure."""

    @abstractmethod
    def _read_failures(self, of_rows: bool, limit: int | None) -> Sequence[FailureRecord]:
        """Return the failures of judgments or of rows, latest first. With a limit of None, return all of them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __bool__(self) -> bool:
        """Return True. Without this method, an empty ledger would be false, because it has a length."""
        return True

    @property
    def stored(self) -> int:
        """The number of judgments that this object has stored in this process. A forked child begins at 0."""
        return self._state.stored

    @property
    def reused(self) -> int:
        """The number of stored judgments that this object has read in this process. A forked child begins at 0."""
        return self._state.reused

    @property
    def spend(self) -> Spend:
        """The spend of the judgments that this object has stored in this process.

        The spend of failures is not included. A forked child begins at 0.
        """
        state = self._state
        with state.lock:
            return state.spend_total.spend

    def lookup(self, keys: Sequence[str]) -> dict[str, Judgment]:
        """Return the stored judgments of some keys, by key. Keys without a judgment are left out.

        The caller gets no leases on the keys without a judgment. To request these judgments, use `lease`.
        """
        return {key: self._read(key, text) for key, text in self._find_judgments(keys)}

    def record_submission(self, row_id: str, submission: Submission, rubric: Rubric | None = None) -> None:
        """Record a submission of a run, for `rescore`. A submission that the ledger already has is not recorded again.

        If the caller leases keys after this call, the submission is written before these leases.

        Args:
            row_id: The id of the row.
            submission: The submission.
            rubric: The row's own rubric, or None if it does not have its own. It replaces the rubric that an earlier
                run recorded for this row.
        """
        self._write_submission(SubmissionRecord.of(row_id, submission, rubric))

    def submissions(self) -> Iterator[tuple[Row, Submission]]:
        """Yield each recorded row and its submission, in the order in which they were recorded.

        The `rubric` of a row is the row's own rubric as JSON text. It is None if the row does not have its own rubric.
        """
        last = 0
        while rows := self._read_submissions(last):
            for last, row_id, text, rubric in rows:  # noqa: B007 -- the next page begins after `last`
                submission = load_submission(text, self._read_file)
                yield Row(row_id, submission, rubric=rubric), submission

    def failures(self, limit: int = 20) -> list[FailureRecord]:
        """List the most recent failures of judges, latest first, with one entry for each key of a judgment.

        Args:
            limit: The largest number of entries.
        """
        return list(self._read_failures(False, limit))

    def failed_rows(self) -> Set[str]:
        """Return the key (`row_key`) of each row whose last grade failed. A run grades these rows last."""
        return {failure.key for failure in self._read_failures(True, None)}

    def record_row(self, row_id: str, error: str | None) -> None:
        """Record why the grade of a row failed. The next run grades this row after all other rows.

        Args:
            row_id: The id of the row.
            error: The reason of the failure. With None, the record of an earlier failure is removed.
        """
        if error is None:
            self._forget_failure(row_key(row_id))
        else:
            self._write_failure(row_key(row_id), JudgeFailure("parse", error))

    def record_grader(self, configuration: Mapping[str, object]) -> None:
        """Record this run's grader configuration, from which `rescore` rebuilds the grader."""
        text = json.dumps(configuration, sort_keys=True)
        self._write_grader(_digest(text), text)

    def latest_grader(self) -> dict[str, Any] | None:
        """Return the most recent grader configuration, or None if the ledger has no run."""
        text = self._read_grader()
        return json.loads(text) if text else None

    def lease(self, keys: Sequence[str]) -> AbstractAsyncContextManager[Lease]:
        """Return a context manager that leases the keys without a judgment, for a caller that requests the judgments.

        On entry, it waits until no other caller has a lease on any of the keys. On exit, it ends the remaining leases.

        Args:
            keys: The keys of the judgments.

        Raises:
            LedgerError: The ledger can no longer be used.
        """
        state = self._state
        return _Lease(keys, state.leases, self._store_function(state), self._read, self._write_failure)

    @property
    def _state(self) -> State:
        if self._process_state.pid != os.getpid():
            with _fork_lock:
                if self._process_state.pid != os.getpid():
                    _inherited.append(self._process_state)
                    self._process_state = self._new_process_state()
        return self._process_state

    def _read(self, key: str, text: str) -> Judgment:
        judgment, state = read_judgment(self._name, key, text), self._state
        if not key.startswith(KEY_PREFIX):
            with state.lock:
                state.reused += 1
        return judgment

    def _mark_stored(
        self,
        state: State,
        batch: Sequence[Mapping[str, Judgment]],
        judgments: Mapping[str, Judgment],
        earlier: Mapping[str, str],
    ) -> list[Mapping[str, Judgment]]:
        """Count the stored judgments, end their leases, and return for each caller the judgments that the ledger keeps.

        Args:
            state: The state of the process that stored them.
            batch: The judgments of each caller.
            judgments: The judgments of all callers.
            earlier: The judgments, as JSON by key, that were stored before these and differ from them.
        """
        state.leases.mark_stored(judgments)
        kept = {key: self._read(key, text) for key, text in earlier.items()} if earlier else {}
        with state.lock:
            for key, judgment in judgments.items():
                if key not in kept:
                    state.stored += not key.startswith(KEY_PREFIX)
                    state.spend_total.add(judgment.spend)
        kept = {**judgments, **kept}
        return [{key: kept[key] for key in mine} for mine in batch]


def join_batch(batch: Sequence[Mapping[str, Judgment]]) -> dict[str, Judgment]:
    """Join the judgments of several callers in one dictionary. If two judgments have the same key, the first is kept.

    Args:
        batch: The judgments of each caller, by key.
    """
    return {key: judgment for mine in reversed(batch) for key, judgment in mine.items()}


# The parent's states in a forked child. They are kept, because their destruction in the child would disturb the parent.
_inherited: list[ProcessState] = []
_fork_lock = threading.Lock()


def _reset_after_fork() -> None:
    # Another thread of the parent may have locked it.
    global _fork_lock  # noqa: PLW0603
    _fork_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


class _Lease:
    """A `Lease` on several keys, and the context that obtains and releases it."""

    def __init__(
        self,
        keys: Sequence[str],
        leases: KeyLeases[Any],
        store: StoreJudgments,
        read: Callable[[str, str], Judgment],
        record_failure: Callable[[str, JudgeFailure], None],
    ):
        self._keys, self._leases, self._store, self._read = keys, leases, store, read
        self._record_failure = record_failure
        self.stored: dict[str, Judgment] = {}
        self._held: dict[str, Acquired] = {}

    async def __aenter__(self) -> Lease:
        # All callers lease keys in the same order. Otherwise two callers could wait for each other.
        remaining = sorted(set(self._keys))
        try:
            while remaining:
                texts = await self._leases.obtain(remaining)
                # Recorded before any judgment is read: if one cannot be read, these leases have to be released.
                self._held.update(acquired_keys(remaining, texts))
                for key, text in zip(remaining, texts, strict=False):
                    if isinstance(text, str):
                        self.stored[key] = self._read(key, text)
                remaining = remaining[len(texts) :]
        except BaseException:
            self._release()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._held:
            self._leases.release(self._held)
            self._held = {}

    def is_held(self) -> bool:
        return self._leases.are_held(self._held)

    async def store(self, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        kept = await self._store(judgments)
        for key in judgments:
            self._held.pop(key, None)
        return kept

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        self._record_failure(key, failure)
