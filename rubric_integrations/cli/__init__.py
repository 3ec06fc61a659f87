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
    """Format a warning without its place in our code, which a user cannot change."""
    return f"{one_line(str(message))}\n"


def _is_not_about_prices(record: logging.LogRecord) -> bool:
    """Drop what stands before the first message of each command without a network: the price list is not the latest."""
    text = record.getMessage()
    return "Model metadata refresh failed" not in text and "model cost map" not in text


def main() -> None:
    """Run the command line with the arguments of this process."""
    # LiteLLM would read any `.env` in a folder above it or above the working directory: the keys and base URLs there
    # may belong to somebody else. In Python it is left alone, since the user's own program may rely on it.
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
        # What is still in the buffer would be written again, and fail again, when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(unwritable("stdout", error), file=sys.stderr)  # noqa: T201 -- outside of the app, `refuse` is a traceback
        sys.exit(Exit.BAD_INPUT)
