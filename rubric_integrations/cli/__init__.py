"""The command line, `rubric-integrations`.

Each command is one module with one function of the same name. To add a command, write `cli/<name>.py` and add one line
to `COMMANDS` in `cli/registry.py`. Import heavy packages (pydantic, DSPy, pandas) inside the function, so that `--help`
stays fast.
"""

import typer

from rubric_integrations.cli.registry import COMMANDS

__all__ = ["COMMANDS", "app", "main"]

app = typer.Typer(
    name="rubric-integrations",
    help="Grade LLM output against weighted rubrics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def main() -> None:
    """Run the command line with the arguments of this process."""
    app()
