"""The command `migrate`: updates an OpenRubricRL file to the current schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, refuse
from rubric_integrations.cli.documents import open_document, write_document


def migrate(
    rubric: Annotated[Path, typer.Argument(help="An OpenRubricRL file of an older schema.")],
    to_version: Annotated[str, typer.Option(help="The version to write into a file that has none.")] = "1.0.0",
    output: Annotated[
        Path | None, typer.Option(help="The file to write, .json or .yaml. By default YAML on stdout.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --output if it exists.")] = False,
) -> None:
    """Update an OpenRubricRL file to the current schema: adds a `version`, and an `explanation` to every example.

    Exit codes: 0 written; 2 the file cannot be read, or is invalid in other ways.
    """
    from rubric_integrations.formats import openrubricrl
    from rubric_integrations.formats.parsing import load
    from rubric_integrations.rubric.errors import RubricError

    file = open_document(output, overwrite=overwrite, inputs=[rubric])
    try:
        document, changes = openrubricrl.migrate(load(rubric)[0], to_version)
        openrubricrl.read(document, str(rubric))
    except RubricError as error:
        refuse(str(error))
    write_document(document, file)
    for change in changes or ["nothing to change"]:
        err.print(plain(change), soft_wrap=True)
