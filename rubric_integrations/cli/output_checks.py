"""Which files a command may write: no input, no ledger, no rubric, and an existing file only if the user says so."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from rubric_integrations.cli.console import refuse
from rubric_integrations.cli.ledger_option import LedgerAddress

# SQLite keeps files with these suffixes beside a database that is open.
_BESIDE_LEDGER = ("-wal", "-shm", "-journal")
_SQLITE = b"SQLite format 3\0"
_RUBRIC_SUFFIXES = (".json", ".yaml", ".yml")
# Bytes at the beginning of a file that show what it is. A line of a run file begins with the graded text.
_HEAD = 1_000_000

RUN_FILE = re.compile(rb'\A\{"id": [^\n]*"passed": (?:true|false)')
"""How a file of reports begins, as `grade --out` writes it."""

PAGE = re.compile(rb'\A<!doctype html>\n[^\0]{,400}<meta name="generator" content="rubric-integrations">')
"""How a page begins, as `report` writes it."""

LABELS_FILE = re.compile(rb'\A\{"id": ?"[^\n]*"verdict": ?"[^\n]*"sampled": ?"')
"""How a file of labels begins, as `label` writes it, and as a page exports it."""

JUNIT_FILE = re.compile(rb"\A<\?xml [^\n]*\n<testsuites\b")
"""How a JUnit file begins."""


def partial_path(path: Path) -> Path:
    """Return the file that is written until `path` is complete: beside it, with the suffix `.partial`."""
    target = path.resolve()
    return target.with_name(f"{target.name}.partial")


def ledger_files(ledger: LedgerAddress | None) -> list[Path]:
    """Return the files of a ledger: the database, and those that SQLite keeps beside it; none of one with a URL."""
    return [Path(f"{ledger}{suffix}") for suffix in ("", *_BESIDE_LEDGER)] if isinstance(ledger, Path) else []


def is_regular(path: Path) -> bool:
    """Return whether a path is a file or none yet, not a device, a pipe or a folder."""
    # Where a shell redirects its output to a file, /dev/stdout is that file, which the shell must not lose by a rename.
    is_device = path.absolute().parts[1:2] in (("dev",), ("proc",))
    return not is_device and (path.is_file() or not path.exists())


def is_folder(path: str) -> bool:
    """Return whether a user means a folder of Parquet files: it ends with a slash, or has such files already."""
    return path.endswith(("/", os.sep)) or any(Path(path).glob("part-*.parquet"))


def refuse_inputs(option: str, output: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output file that is one of the command's inputs, under any name.

    Args:
        option: The option that names the output, for the message.
        output: The file to write.
        inputs: The files that the command reads, or writes by another option.
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
    """Refuse to replace a folder, a ledger, a rubric, or another file without the user's consent.

    Args:
        option: The option that names the output, for the messages.
        output: The file to write.
        overwrite: Whether the user allows to replace an existing file, which never includes a ledger.
        replaces: How a file begins that may be replaced without `overwrite`; None if there is no such file.
        may_be_rubric: Whether a rubric may be replaced with `overwrite`, because the command writes rubrics.
    """
    if output.is_dir():
        refuse(f"`{option}` {output} is a folder: name a file in it")
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
    # A run that a limit ended before its first row left an empty file.
    if not overwrite and not (replaces and (not head or replaces.search(head))):
        refuse(f"{output}: exists: name another file, or pass --overwrite, which deletes its contents")
    if not may_be_rubric and _is_rubric(output):
        refuse(f"`{option}` {output} is a rubric: name another file, since the rubric would be overwritten")


def _is_same_file(one: Path, other: Path) -> bool:
    # `samefile` knows links and the case rules of the file system; `resolve` compares files that do not exist yet.
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError):
        return False


def _is_of_database(path: Path) -> bool:
    """Whether a path is an SQLite database, or a file that SQLite keeps beside one."""
    names = [path.name, *(path.name.removesuffix(suffix) for suffix in _BESIDE_LEDGER)]
    return any(_head(path.parent / name, len(_SQLITE)) == _SQLITE for name in names)


def _is_rubric(path: Path) -> bool:
    from rubric_integrations.rubric.errors import RubricError
    from rubric_integrations.rubric.rubric import Rubric

    if path.suffix.lower() not in _RUBRIC_SUFFIXES:
        return False
    try:
        Rubric.from_file(path)
    except RubricError:
        return False
    return True


def _head(path: Path, size: int = _HEAD) -> bytes:
    try:
        # To open a pipe would wait for its writer.
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""
