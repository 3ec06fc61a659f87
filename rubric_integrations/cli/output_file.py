"""The files that commands write, all of them here: none is lost, and each appears complete or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from rubric_integrations.cli.console import refuse, unwritable
from rubric_integrations.cli.output_checks import is_regular, partial_path, refuse_existing, refuse_inputs


class OutputFile:
    r"""A text file in UTF-8 that appears complete or not at all.

    The text is written to a file beside it (see `partial_path`), flushed after each `write`, and renamed when the block
    ends without an exception. A symbolic link stays a link, an existing file keeps its mode, and a device or a pipe is
    written directly. If the file cannot be written, the command ends with `Exit.BAD_INPUT`. A lone surrogate is written
    as its escape, `\ud800`, which JSON reads back.

    The constructor ends the command with `Exit.BAD_INPUT` if this file must not be written: see `output_checks`.

    Args:
        path: The file.
        option: The option that names it, for the messages.
        overwrite: Whether the user allows to replace an existing file.
        inputs: The files that the command reads, or writes by another option; these are never replaced.
        replaces: How an existing file begins that may be replaced without `overwrite`; None if there is no such file.
        may_be_rubric: Whether a rubric may be replaced with `overwrite`, because the command writes rubrics.
        keep_partial: Whether the file beside it remains if the block ends with an exception.
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
        self._is_direct = not is_regular(path)
        self._is_unfinished = False
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

    def leave_unfinished(self) -> None:
        """At the end of the block, leave the text in the file beside this one if this one existed before."""
        self._is_unfinished = not self._is_new

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
            if kind is None and not self._is_unfinished:
                self._publish()
            elif is_empty or not self._keep_partial:
                self._partial.unlink(missing_ok=True)
        except OSError as failure:
            if kind is None:
                refuse(unwritable(self.path, failure))

    def _publish(self) -> None:
        if self._is_new and self._target.exists():
            refuse(
                f"{self.path}: exists now, and did not when this command began: it is unchanged, and what it was to "
                f"contain is in {self._partial}"
            )
        self._partial.replace(self._target)
