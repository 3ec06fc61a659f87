"""Files that commands write: never one that the command reads, and complete or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from rubric_integrations.cli.console import refuse, unwritable

# SQLite keeps these files beside a database that is open.
_LEDGER_SUFFIXES = ("", "-wal", "-shm", "-journal")


def partial_path(path: Path) -> Path:
    """Return the file that is written until `path` is complete: beside it, with the suffix `.partial`."""
    target = path.resolve()
    return target.with_name(f"{target.name}.partial")


def ledger_files(ledger: Path | None) -> list[Path]:
    """Return the files of a ledger: the database, and those that SQLite keeps beside it."""
    return [ledger.with_name(ledger.name + suffix) for suffix in _LEDGER_SUFFIXES] if ledger else []


def refuse_inputs(option: str, output: Path | None, inputs: Iterable[Path]) -> None:
    """Refuse an output file that is one of the command's inputs, under any name, before anything is written.

    Args:
        option: The option that names the output, for the message.
        output: The file to write; None if there is none.
        inputs: The files that the command reads, or writes by another option.
    """
    if output is None:
        return
    for path in inputs:
        if _is_same_file(output, path):
            refuse(
                f"`{option}` {output} is {path}, which is read by this command or is one of its other files: name "
                "another file, since this one would be overwritten"
            )
        if is_regular(output) and _is_same_file(partial_path(output), path):
            refuse(
                f"`{option}` {output} is written as {partial_path(output).name} until it is complete, and that file is "
                "read by this command: name another file"
            )


def _is_same_file(one: Path, other: Path) -> bool:
    # `samefile` knows links and the case rules of the file system; `resolve` compares files that do not exist yet.
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError):
        return False


def is_regular(path: Path) -> bool:
    """Return whether a path is a file or none yet, not a device, a pipe or a folder."""
    # Where a shell redirects its output to a file, /dev/stdout is that file, which the shell must not lose by a rename.
    is_device = path.absolute().parts[1:2] in (("dev",), ("proc",))
    return not is_device and (path.is_file() or not path.exists())


class OutputFile:
    r"""A text file in UTF-8 that appears complete or not at all.

    The text is written to a file beside it (see `partial_path`), flushed after each `write`, and renamed when the block
    ends without an exception. A symbolic link stays a link, an existing file keeps its mode, and a device or a pipe is
    written directly. If the file cannot be written, the command ends with `Exit.BAD_INPUT`. A lone surrogate is written
    as its escape, `\ud800`, which JSON reads back.

    Args:
        path: The file.
        keep_partial: Whether the file beside it remains if the block ends with an exception.
    """

    def __init__(self, path: Path, *, keep_partial: bool = False):
        self.path = path
        self._target = path.resolve()
        self._partial = partial_path(path)
        self._keep_partial = keep_partial
        self._is_direct = not is_regular(path)
        self._file: TextIO | None = None

    @property
    def left_partial(self) -> Path | None:
        """The file with the text so far that remains after an exception; None if there is none."""
        return self._partial if self._keep_partial and not self._is_direct and self._partial.exists() else None

    def write(self, text: str) -> None:
        """Write text, which other processes can read when this returns."""
        if self._file is None:
            raise ValueError("the file is open only in the block of its `with` statement")
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            refuse(unwritable(self.path, error))

    def __enter__(self) -> Self:
        try:
            path = self.path if self._is_direct else self._partial
            # A duplicate of the descriptor shares its position: opened by name, a file that the shell redirects to
            # would be written from its beginning, over what this process prints.
            source = os.dup(1) if str(self.path) == "/dev/stdout" else path
            self._file = open(source, "w", encoding="utf-8", errors="backslashreplace", newline="\n")  # noqa: PTH123
            if self._target.is_file() and not self._is_direct:
                shutil.copymode(self._target, path)
        except OSError as error:
            refuse(unwritable(self.path, error))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._file:
                self._file.close()
            if self._is_direct:
                return
            is_empty = self._partial.stat().st_size == 0
            if kind is None:
                self._partial.replace(self._target)
            elif is_empty or not self._keep_partial:
                self._partial.unlink(missing_ok=True)
        except OSError as failure:
            if kind is None:
                refuse(unwritable(self.path, failure))
