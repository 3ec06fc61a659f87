"""What all commands share: the app, where they write, and what their exit codes say."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

import typer
from rich.console import Console

from rubric_integrations._util.terminal import plain

app = typer.Typer(
    name="rubric-integrations",
    help="Grade LLM output against weighted rubrics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)


class Exit(IntEnum):
    """What the exit code says. A judge's failure outweighs bad input, which outweighs a gate."""

    DONE = 0
    NOT_PASSED = 1
    BAD_INPUT = 2
    JUDGE_FAILED = 3
    STOPPED = 4


@app.callback()
def _root() -> None:  # pyright: ignore[reportUnusedFunction] -- keeps typer from merging the commands
    """Grade LLM output against weighted rubrics."""


def refuse(message: str) -> NoReturn:
    """Say what is wrong with the user's input, and end."""
    err.print(plain(message), style="red", soft_wrap=True)
    raise typer.Exit(Exit.BAD_INPUT)
