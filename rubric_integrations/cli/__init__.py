"""The command line, `rubric-integrations`.

To add a command, write a function in a module of this package and add one line to `COMMANDS` in `cli/commands.py`.
Import heavy packages (pydantic, DSPy, pandas) inside the function, to keep `--help` fast.
"""

import errno
import logging
import os
import sys
import warnings
from typing import Annotated

import typer

from rubric_integrations._util.text import one_line
from rubric_integrations.cli.commands import COMMANDS
from rubric_integrations.cli.console import Exit, unwritable
from rubric_integrations.cli.options import with_flat_signature

# Errors of a stream that the shell redirects to a full or broken disk.
_UNWRITABLE_STREAM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

__all__ = ["COMMANDS", "app", "main"]

app = typer.Typer(
    name="rubric-integrations",
    help="Grade LLM output against weighted rubrics.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name, _command in COMMANDS.items():
    app.command(_name)(with_flat_signature(_command))


def _print_version(is_set: bool) -> None:
    if is_set:
        # Imported here, because it takes a tenth of the time of `rubric-integrations --help`.
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("rubric-integrations")
        except PackageNotFoundError:
            number = "of a source folder that is not installed"
        print("rubric-integrations", number)  # noqa: T201 -- rich would colour the number
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Grade LLM output against weighted rubrics."""


def _in_one_line(message: Warning | str, *_place: object, **_line: object) -> str:
    """Format a warning without its location in our code, because a user cannot change it."""
    return f"{one_line(str(message))}\n"


def _is_not_about_prices(record: logging.LogRecord) -> bool:
    """Drop messages about an outdated price list. Without a network, each command would begin with them."""
    text = record.getMessage()
    return "Model metadata refresh failed" not in text and "model cost map" not in text


def main() -> None:
    """Run the command line with the arguments of this process."""
    # Otherwise, LiteLLM would read any `.env` in a directory above itself or above the working directory. The keys and
    # base URLs in it may belong to somebody else. In Python we do not change this, because the user's program may
    # depend on it.
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    warnings.formatwarning = _in_one_line
    for logger in ("dspy.clients.model_metadata", "LiteLLM"):
        logging.getLogger(logger).addFilter(_is_not_about_prices)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _UNWRITABLE_STREAM or error.filename is not None:
            raise
        # Otherwise, Python would try to write the rest of the buffer at its exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(unwritable("stdout", error), file=sys.stderr)  # noqa: T201 -- outside of the app, `refuse` is a traceback
        sys.exit(Exit.BAD_INPUT)
