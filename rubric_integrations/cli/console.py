"""What all commands share: the output streams, the exit codes, and how a command ends on bad input."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

import typer
from rich.console import Console

from rubric_integrations._util.terminal import plain

out = Console()
err = Console(stderr=True)


class Exit(IntEnum):
    """Exit codes. If several apply, a judge failure comes before bad input, and bad input before a failed gate."""

    DONE = 0
    NOT_PASSED = 1
    BAD_INPUT = 2
    JUDGE_FAILED = 3
    STOPPED = 4
    INTERRUPTED = 130


def refuse(message: str) -> NoReturn:
    """Print what is wrong with the user's input, and exit with `Exit.BAD_INPUT`."""
    err.print(plain(message), style="red", soft_wrap=True)
    raise typer.Exit(Exit.BAD_INPUT)


def unwritable(path: object, error: OSError) -> str:
    """Describe a file that could not be written."""
    return f"{path}: cannot be written: {error.strerror or error}"
