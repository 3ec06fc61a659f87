"""The output files of commands. Each file appears complete or not at all.

A command never replaces its inputs or a ledger. Only a command that writes rubrics may replace a rubric. Most existing
files are replaced only with `--overwrite`.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from rubric_integrations.cli.console import refuse, unwritable
from rubric_integrations.cli.options import LedgerAddress

if TYPE_CHECKING:
    from rubric_integrations.formats.parsing import Syntax
    from rubric_integrations.runs.summary import Graded

# The suffixes of the files that SQLite keeps next to an open database.
_BESIDE_LEDGER = ("-wal", "-shm", "-journal")
_SQLITE = b"SQLite format 3\0"
_RUBRIC_SUFFIXES = (".json", ".yaml", ".yml", ".md", ".markdown", ".toml")
# The number of bytes at the beginning of a file that are read to detect its kind. A line of a run file may begin with a
# long text.
_HEAD = 1_000_000

RUN_FILE = re.compile(rb'\A\{"id": [^\n]*"passed": (?:true|false)')
"""The beginning of a file of reports that `grade --out` writes."""

PAGE = re.compile(rb'\A<!doctype html>\n[^\0]{,400}<meta name="generator" content="rubric-integrations">')
"""The beginning of a page that `report` writes."""

JUNIT_FILE = re.compile(rb"\A<\?xml [^\n]*\n<testsuites\b")
"""The beginning of a JUnit file."""


def partial_path(path: Path) -> Path:
    """Return the temporary path that an output file has until it is complete.

    It is in the same directory and has the suffix `.partial`.
    """
    target = path.resolve()
    return target.with_name(f"{target.name}.partial")


def ledger_files(ledger: LedgerAddress | None) -> list[Path]:
    """Return the files of a ledger: the database and the other files of SQLite. Empty for the URL of a database.

    No output may replace these files.
    """
    return [Path(f"{ledger}{suffix}") for suffix in ("", *_BESIDE_LEDGER)] if isinstance(ledger, Path) else []


def is_regular(path: Path) -> bool:
    """Return whether a path is a regular file or does not exist. Devices, pipes and directories are not regular."""
    # If a shell redirects its output to a file, /dev/stdout is this file. It must not be replaced by renaming.
    is_device = path.absolute().parts[1:2] in (("dev",), ("proc",))
    return not is_device and (path.is_file() or not path.exists())


def is_folder(path: str) -> bool:
    """Return whether a path means a directory of Parquet files: it ends with a slash or contains such files."""
    return path.endswith(("/", os.sep)) or any(Path(path).glob("part-*.parquet"))


def refuse_inputs(option: str, output: Path, inputs: Iterable[Path]) -> None:
    """End the command with an error if an output file is one of its inputs, even under another name.

    Args:
        option: The option that names the output, for the message.
        output: The file to write.
        inputs: The files that the command reads, or that it writes for other options.
    """
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


def refuse_existing(
    option: str, output: Path, *, overwrite: bool, replaces: re.Pattern[bytes] | None, may_be_rubric: bool
) -> None:
    """End the command with an error if the directory of an output is missing, or if a file must not be replaced.

    Args:
        option: The option that names the output, for the messages.
        output: The file to write.
        overwrite: Whether the user allows to replace an existing file. A ledger is never replaced.
        replaces: A pattern of the first bytes of files that may be replaced without `overwrite`, such as report pages.
            None if there are no such files.
        may_be_rubric: Whether a rubric may be replaced with `overwrite`, because the command writes rubrics.
    """
    if output.is_dir():
        refuse(f"`{option}` {output} is a folder: name a file in it")
    if not output.parent.is_dir():
        refuse(f"`{option}` {output}: cannot be written: there is no folder {str(output.parent)!r}: make it first")
    if not is_regular(output):
        return
    for path in (output, partial_path(output)):
        if _is_of_database(path):
            refuse(
                f"`{option}` {output}: {path.name} is a ledger or another SQLite database: name another file, since "
                "its judgments would be lost"
            )
    if not output.exists():
        return
    head = _head(output)
    # A run that reached a limit before its first row has left an empty file.
    if not overwrite and not (replaces and (not head or replaces.search(head))):
        refuse(f"{output}: exists: name another file, or pass --overwrite, which deletes its contents")
    if not may_be_rubric and is_rubric(output):
        refuse(f"`{option}` {output} is a rubric: name another file, since the rubric would be overwritten")


def _is_same_file(one: Path, other: Path) -> bool:
    # `samefile` handles links and the case rules of the file system. `resolve` works for files that do not exist yet.
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError):
        return False


def _is_of_database(path: Path) -> bool:
    """Return whether a path is an SQLite database, or another file of such a database."""
    names = [path.name, *(path.name.removesuffix(suffix) for suffix in _BESIDE_LEDGER)]
    return any(_head(path.parent / name, len(_SQLITE)) == _SQLITE for name in names)


def is_rubric(path: Path) -> bool:
    """Return whether a file is a valid rubric."""
    from rubric_integrations.rubric.rubric import Rubric, RubricError

    if path.suffix.lower() not in _RUBRIC_SUFFIXES:
        return False
    try:
        Rubric.from_file(path)
    except RubricError:
        return False
    return True


def _head(path: Path, size: int = _HEAD) -> bytes:
    try:
        # Opening a pipe would wait for its writer.
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


try:
    import fcntl
except ImportError:
    # Windows already refuses to rename a file that another process has open.
    fcntl = None


class OutputFile:
    r"""A text file in UTF-8 that appears complete or not at all. Use it as a context manager.

    The text is written to a partial file in the same directory (see `partial_path`). The partial file is flushed after
    each `write`, and renamed when the block ends without an exception. It is locked during the block. Therefore,
    another process that would write the same output ends with an error.

    A symbolic link stays a link, and an existing file keeps its mode. A device or a pipe is written directly. If the
    file cannot be written, the command ends with `Exit.BAD_INPUT`. A lone surrogate is written as its escape, such as
    `\ud800`, which JSON reads back.

    The constructor ends the command with `Exit.BAD_INPUT` if this file must not be written (see `refuse_inputs` and
    `refuse_existing`).

    Args:
        path: The file.
        option: The name of the option for this file, for messages.
        overwrite: Whether the user allows to replace an existing file.
        inputs: The files that the command reads, or that it writes for other options. They are never replaced.
        replaces: A pattern of the first bytes of files that may be replaced without `overwrite`, such as report pages.
            None if there are no such files.
        may_be_rubric: Whether a rubric may be replaced with `overwrite`, because the command writes rubrics.
        keep_partial: Whether the partial file is kept if the block ends with an exception.
        is_stored: Whether the command can write the same text again without cost, for example from a ledger. Then the
            partial file is removed if writing fails, for example because the disk is full.

    Attributes:
        path: The file.
        is_direct: Whether the file is a device or a pipe. Text that was written there cannot be sorted later.
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
        is_stored: bool = True,
    ):
        refuse_inputs(option, path, inputs)
        refuse_existing(option, path, overwrite=overwrite, replaces=replaces, may_be_rubric=may_be_rubric)
        self.path = path
        self._is_new = not path.exists()
        self._target = path.resolve()
        self._partial = partial_path(path)
        self._keep_partial, self._is_stored = keep_partial, is_stored
        self.is_direct = not is_regular(path)
        self._is_unfinished = False
        self._file: BinaryIO | None = None
        self._lock: int | None = None
        # The byte position and the length of each text that has a place, by its place.
        self._placed: dict[int, tuple[int, int]] = {}

    @property
    def left_partial(self) -> Path | None:
        """The partial file that remains after an exception. None if there is none."""
        return self._partial if self._keep_partial and not self.is_direct and self._partial.exists() else None

    def write(self, text: str, place: int | None = None) -> None:
        """Write text. Other processes can read it when this method returns.

        Args:
            text: The text.
            place: The sort key of the text in the complete file, where it replaces an earlier text with this place. It
                has no effect on a device or a pipe. Pass it for all texts or for none.
        """
        if self._file is None:
            raise ValueError("the file is open only in the block of its `with` statement")
        data = text.encode("utf-8", "backslashreplace")
        try:
            if place is not None and not self.is_direct:
                self._placed[place] = (self._file.tell(), len(data))
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self._keep_partial = self._keep_partial and not self._is_stored
            left = f"; the reports so far are in {self._partial}" if self._keep_partial else ""
            refuse(f"{unwritable(self.path, error)}{left}")
        # Checked immediately, because all later text would be lost.
        if not self.is_direct and not _is_open_as(self._file.fileno(), self._partial):
            refuse(f"{self.path}: cannot be written: {self._partial} was deleted or replaced meanwhile")

    def leave_unfinished(self) -> None:
        """Keep an existing file at the end of the block, instead of replacing it with the incomplete new text."""
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
                # If the disk is full, the rest of the buffer cannot be written now either.
                with suppress(OSError) if kind else nullcontext():
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
            # A duplicate of the descriptor shares its position. If the file were opened by name, a redirected file
            # would be overwritten from its beginning, including the output of this process.
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
        """Lock the partial file until `_unlock` or the end of this process. Another process may have locked it."""
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
            # Between the two calls, the other process may have renamed the file. It is then no longer the partial file.
            if _is_open_as(lock, self._partial):
                self._lock = lock
            else:
                os.close(lock)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _publish(self) -> None:
        """Move the finished file to its place, with its texts in the order of their rows."""
        if self._is_new and self._target.exists():
            refuse(
                f"{self.path}: exists now, and did not when this command began: it is unchanged, and what it was to "
                f"contain is in {self._partial}"
            )
        in_order = [text for _, text in sorted(self._placed.items())]
        is_complete = sum(length for _, length in in_order) == self._partial.stat().st_size
        if not in_order or (is_complete and in_order == sorted(in_order)):
            self._partial.replace(self._target)
            return
        # A sorted copy is written. Therefore, after a crash or on a full disk, the partial file still has all texts.
        with tempfile.NamedTemporaryFile(dir=self._target.parent, prefix=f"{self._target.name}.", delete=False) as copy:
            try:
                with self._partial.open("rb") as texts:
                    for position, length in in_order:
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
    """Return whether an open file is still the file with this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def open_document(output: Path | None, *, overwrite: bool, inputs: Iterable[Path] = ()) -> OutputFile | None:
    """Return the file of `--output`, or None for stdout. End the command with an error if it must not be written.

    Args:
        output: The file. None means stdout.
        overwrite: Whether an existing file may be replaced.
        inputs: The files that the command reads.
    """
    if output is None:
        return None
    return OutputFile(output, option="--output", overwrite=overwrite, inputs=inputs, may_be_rubric=True)


def print_document(document: dict[str, Any], output: OutputFile | None, syntax: Syntax = "yaml") -> None:
    """Write a document as YAML or JSON, or in the syntax of its format.

    Args:
        document: The document.
        output: The file. The ending of its name decides the syntax. None means stdout.
        syntax: The syntax for stdout and for files with an unknown ending.
    """
    from rubric_integrations.formats.parsing import SYNTAX, dump

    text = dump(document, SYNTAX.get(output.path.suffix.lower(), syntax) if output else syntax)
    if output is None:
        print(text, end="")  # noqa: T201 -- rich would wrap lines and read markup
        return
    with output as file:
        file.write(text)


class ParquetOutput:
    """The Parquet files of a run, which appear when they are complete (see `write_parquet`).

    The constructor ends the command with `Exit.BAD_INPUT` if these files must not be written.

    Args:
        path: A file that ends in `.parquet`, or a directory.
        overwrite: Whether the user allows to replace existing grades.
        resumes: Whether the run resumes an earlier one, whose grades are replaced without `overwrite`.
        inputs: The files that the command reads, or that it writes for other options. They are never replaced.

    Attributes:
        is_direct: True, because a file of grades cannot be sorted later. The results must arrive in order.
        left_partial: None, because an incomplete Parquet file cannot be read and is removed.
    """

    is_direct = True
    left_partial: Path | None = None

    def __init__(self, path: Path, *, overwrite: bool, resumes: bool, inputs: Iterable[Path]):
        from rubric_integrations.runs.tables import GradesWriter, earlier_grades, is_grades_file, is_grades_path

        self._path, self._is_unfinished = path, False
        try:
            earlier = earlier_grades(path)
            if is_grades_path(path):
                own = resumes and all(map(is_grades_file, earlier))
                refuse_inputs("--out", path, inputs)
                refuse_existing("--out", path, overwrite=overwrite or own, replaces=None, may_be_rubric=False)
            elif any(file.resolve().parent == path.resolve() for file in inputs):
                refuse(f"`--out` {path} is the folder of a file that this command reads or writes: name another folder")
            elif earlier and not (overwrite or resumes):
                refuse(f"{earlier[0]}: exists: name another folder, or pass --overwrite, which replaces its grades")
            self._writer = GradesWriter(path)
        except (FileExistsError, ImportError) as error:
            refuse(f"`--out` {path}: {error}")
        self._is_new = not earlier

    def write(self, graded: Graded) -> None:
        """Add a result to the Parquet files."""
        try:
            self._writer.write(graded)
        except OSError as error:
            refuse(unwritable(self._path, error))

    def leave_unfinished(self) -> None:
        """Keep existing grades at the end of the block, instead of replacing them with the incomplete new grades."""
        self._is_unfinished = not self._is_new

    def __enter__(self) -> Self:
        try:
            self._writer.open()
        except OSError as error:
            refuse(unwritable(self._path, error))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._writer.close(is_whole=kind is None and not self._is_unfinished)
        except OSError as failure:
            refuse(unwritable(self._path, failure))
