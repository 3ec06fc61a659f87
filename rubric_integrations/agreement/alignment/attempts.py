"""Counts the judges that were tried on a test set, in a small file beside the labels.

Each further attempt on the same labels makes it likelier that a judge seems better by chance. The file makes the
attempts known to the next one, also after a crash: an attempt is recorded before its test set is looked at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from rubric_integrations._util.files import refuse_endless
from rubric_integrations._util.records import Record

# Seconds for which another process may hold the file: it needs milliseconds.
_LONGEST_WAIT = 10.0
_PAUSE = 0.02
# A file with a thousand attempts on a thousand submissions is smaller.
_MAX_BYTES = 50_000_000


class AttemptsError(ValueError):
    """Raised if the file of attempts cannot be read or written, so that earlier attempts would be forgotten."""


class Attempt(Record):
    """One judge that was tried on a test set.

    Attributes:
        date: When, in UTC (ISO 8601).
        optimizer: The name of the optimizer.
        candidate: A digest of the judge that was tried, and of the one that it was compared with.
        test_set: A digest of the labels of the test set.
        submissions: The digests of the submissions in it.
        number: The number of this attempt on these submissions, from 1.
        gain: The measured gain; None if the attempt was not finished.
    """

    date: str
    optimizer: str
    candidate: str
    test_set: str
    submissions: tuple[str, ...]
    number: int
    gain: float | None = None


class _AttemptsFile(Record):
    attempts: tuple[Attempt, ...] = ()


class Attempts:
    """The attempts of a file, or of this process alone without one.

    Test sets that share a submission count as one: with another seed, or with one label more, they would otherwise
    begin at 0 again.

    Args:
        path: The file, by convention `labels.lock` beside the labels; it need not exist. None for no file.
    """

    def __init__(self, path: str | Path | None):
        self.path = None if path is None else Path(path)

    def next_number(self, submissions: frozenset[str]) -> int:
        """Return the number of the next attempt on a test set, from 1.

        Raises:
            AttemptsError: The file cannot be read.
        """
        attempts = [] if self.path is None else _read(self.path)
        return 1 + max((attempt.number for attempt in attempts if submissions & {*attempt.submissions}), default=0)

    def begin(self, attempt: Attempt) -> Attempt:
        """Record an attempt before its test set is looked at; one that was recorded before keeps its number.

        Args:
            attempt: The attempt, with the least number that it can have.

        Returns:
            The attempt with its number.

        Raises:
            AttemptsError: The file cannot be read or written.
        """
        if self.path is None:
            return attempt
        with _exclusive(self.path) as attempts:
            same = (attempt.candidate, attempt.test_set)
            earlier = next((other for other in attempts if (other.candidate, other.test_set) == same), None)
            if earlier is not None:
                return earlier
            shared = (other.number for other in attempts if {*attempt.submissions} & {*other.submissions})
            numbered = attempt.model_copy(update={"number": max([attempt.number, *(number + 1 for number in shared)])})
            attempts.append(numbered)
            return numbered

    def finish(self, attempt: Attempt) -> None:
        """Record the gain of an attempt that was recorded before.

        Raises:
            AttemptsError: The file cannot be read or written.
        """
        if self.path is None:
            return
        with _exclusive(self.path) as attempts:
            same = (attempt.candidate, attempt.test_set)
            attempts[:] = [attempt if (other.candidate, other.test_set) == same else other for other in attempts]


def _read(path: Path) -> list[Attempt]:
    if not path.exists():
        return []
    try:
        refuse_endless(path)
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("it is too large for such a file")
        return list(_AttemptsFile.model_validate_json(path.read_bytes()).attempts)
    except (ValueError, OSError) as error:
        detail = "it is not what `align` writes" if isinstance(error, ValidationError) else str(error)
        raise AttemptsError(
            f"`attempts`: {str(path)!r} cannot be read: {detail}. It counts the judges that were tried on these "
            "labels: restore it, or name another file. If it is lost, draw new labels, because a judge that is no "
            "better would be kept too often"
        ) from None


@contextmanager
def _exclusive(path: Path) -> Generator[list[Attempt]]:
    """Read the attempts, and write them back if they have changed; no other process does so meanwhile.

    The new file is the lock: only one process can create it, and it replaces the old one in one step.
    """
    new, is_replaced = path.with_name(f"{path.name}.new"), False
    handle = _create(path, new)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            attempts = _read(path)
            before = list(attempts)
            yield attempts
            if attempts == before:
                return
            file.write(_AttemptsFile(attempts=tuple(attempts)).model_dump_json(indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        is_replaced = True
    except OSError as error:
        raise _unwritable(path, str(error)) from None
    finally:
        if not is_replaced:  # otherwise, it is the lock of another process by now
            new.unlink(missing_ok=True)


def _create(path: Path, new: Path) -> int:
    until = time.monotonic() + _LONGEST_WAIT
    while True:
        try:
            return os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            if time.monotonic() > until:
                raise _unwritable(
                    path,
                    f"another process has been writing it for {_LONGEST_WAIT:g} s: if there is none, delete "
                    f"{str(new)!r}",
                ) from None
            time.sleep(_PAUSE)
        except (OSError, ValueError) as error:
            raise _unwritable(path, str(error)) from None


def _unwritable(path: Path, reason: str) -> AttemptsError:
    return AttemptsError(f"`attempts`: {str(path)!r} cannot be written: {reason}")
