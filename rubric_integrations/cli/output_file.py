"""The files that commands write, all of them here: none is lost, and each appears complete or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from rubric_integrations.cli.console import refuse, unwritable
from rubric_integrations.cli.output_checks import is_regular, partial_path, refuse_existing, refuse_inputs

try:
    import fcntl
except ImportError:
    # Windows refuses by itself to rename a file that another process has open.
    fcntl = None


class OutputFile:
    r"""A text file in UTF-8 that appears complete or not at all.

    The text is written to a file beside it (see `partial_path`), flushed after each `write`, and renamed when the block
    ends without an exception. In the block, that file is locked: another process that would write the same output is
    refused. A symbolic link stays a link, an existing file keeps its mode, and a device or a pipe is written directly.
    If the file cannot be written, the command ends with `Exit.BAD_INPUT`. A lone surrogate is written as its escape,
    `\ud800`, which JSON reads back.

    The constructor ends the command with `Exit.BAD_INPUT` if this file must not be written: see `output_checks`.

    Args:
        path: The file.
        option: The option that names it, for the messages.
        overwrite: Whether the user allows to replace an existing file.
        inputs: The files that the command reads, or writes by another option; these are never replaced.
        replaces: How an existing file begins that may be replaced without `overwrite`; None if there is no such file.
        may_be_rubric: Whether a rubric may be replaced with `overwrite`, because the command writes rubrics.
        keep_partial: Whether the file beside it remains if the block ends with an exception.

    Attributes:
        path: The file.
        is_direct: Whether it is a device or a pipe: what is written there cannot be sorted later.
    """

    def __init__(
        self,
        path: Path,
        *,
        option: str,
        overwrite: bool,
        inputs: Iterable[Path] = (),
        replaces: re.Pattern[bytes] | None = None,
        may_be_rubric: bool = False,
        keep_partial: bool = False,
    ):
        refuse_inputs(option, path, inputs)
        refuse_existing(option, path, overwrite=overwrite, replaces=replaces, may_be_rubric=may_be_rubric)
        self.path = path
        self._is_new = not path.exists()
        self._target = path.resolve()
        self._partial = partial_path(path)
        self._keep_partial = keep_partial
        self.is_direct = not is_regular(path)
        self._is_unfinished = False
        self._file: BinaryIO | None = None
        self._lock: int | None = None
        # The place, the position and the length of each text that has a place.
        self._placed: list[tuple[int, int, int]] = []

    @property
    def left_partial(self) -> Path | None:
        """The file with the text so far that remains after an exception; None if there is none."""
        return self._partial if self._keep_partial and not self.is_direct and self._partial.exists() else None

    def write(self, text: str, place: int | None = None) -> None:
        """Write text, which other processes can read when this returns.

        Args:
            text: The text.
            place: A number by which the texts are sorted when the file is complete, unless it is written directly. Give
                one to all texts or to none.
        """
        if self._file is None:
            raise ValueError("the file is open only in the block of its `with` statement")
        data = text.encode("utf-8", "backslashreplace")
        try:
            if place is not None and not self.is_direct:
                self._placed.append((place, self._file.tell(), len(data)))
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            refuse(unwritable(self.path, error))
        # At once, since what would be written until the end of the block would be lost.
        if not self.is_direct and not _is_open_as(self._file.fileno(), self._partial):
            refuse(f"{self.path}: cannot be written: {self._partial} was deleted or replaced meanwhile")

    def leave_unfinished(self) -> None:
        """At the end of the block, leave the text in the file beside this one if this one existed before."""
        self._is_unfinished = not self._is_new

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException as error:
            self._unlock()
            if isinstance(error, OSError):
                refuse(unwritable(self.path, error))
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._file:
                self._file.close()
            if self.is_direct:
                return
            is_empty = self._partial.stat().st_size == 0
            if kind is None and not self._is_unfinished:
                self._publish()
            elif is_empty or not self._keep_partial:
                self._partial.unlink(missing_ok=True)
        except OSError as failure:
            if kind is None:
                refuse(unwritable(self.path, failure))
        finally:
            self._unlock()

    def _open(self) -> None:
        if self.is_direct:
            # A duplicate of the descriptor shares its position: opened by name, a file that the shell redirects to
            # would be written from its beginning, over what this process prints.
            self._file = open(os.dup(1) if str(self.path) == "/dev/stdout" else self.path, "wb")  # noqa: PTH123, SIM115
            return
        self._lock_partial()
        if self._is_new and self._target.exists():
            if self._partial.stat().st_size == 0:
                self._partial.unlink()
            refuse(f"{self.path}: exists now, and did not when this command began: name another file")
        self._file = self._partial.open("wb")
        if self._target.is_file():
            shutil.copymode(self._target, self._partial)

    def _lock_partial(self) -> None:
        """Lock the file beside this one, which another process may have, until `_unlock` or the end of this process."""
        while fcntl and self._lock is None:
            lock = os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                refuse(
                    f"{self.path}: another command is writing it now: wait for its end, or name another file, since "
                    "what both write would be mixed"
                )
            except OSError:
                # A file system without locks.
                os.close(lock)
                return
            # Between the two calls, the other process may have renamed the file: then it is no longer the partial one.
            if _is_open_as(lock, self._partial):
                self._lock = lock
            else:
                os.close(lock)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _publish(self) -> None:
        if self._is_new and self._target.exists():
            refuse(
                f"{self.path}: exists now, and did not when this command began: it is unchanged, and what it was to "
                f"contain is in {self._partial}"
            )
        in_order = sorted(self._placed)
        if in_order == self._placed:
            self._partial.replace(self._target)
            return
        # A copy is sorted, so that a crash or a full disk leaves all texts in the partial file.
        with tempfile.NamedTemporaryFile(dir=self._target.parent, prefix=f"{self._target.name}.", delete=False) as copy:
            try:
                with self._partial.open("rb") as texts:
                    for _, position, length in in_order:
                        texts.seek(position)
                        copy.write(texts.read(length))
                copy.close()
                shutil.copymode(self._partial, copy.name)
                Path(copy.name).replace(self._target)
            except BaseException:
                Path(copy.name).unlink(missing_ok=True)
                raise
        self._partial.unlink()


def _is_open_as(descriptor: int, path: Path) -> bool:
    """Return whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
