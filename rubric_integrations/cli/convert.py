"""The command `convert`: writes a rubric in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, refuse
from rubric_integrations.cli.documents import open_document, write_document


def convert(
    rubric: Annotated[Path, typer.Argument(help="A rubric file in any supported format.")],
    to: Annotated[str, typer.Option(help="The format to write: native, or the name of another one, such as agentv.")],
    output: Annotated[
        Path | None, typer.Option(help="The file to write, .json or .yaml. By default YAML on stdout.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --output if it exists.")] = False,
) -> None:
    """Write a rubric in another format. Each part that the format cannot hold is listed on stderr.

    Exit codes: 0 written, with or without losses; 2 the rubric is invalid, the format is unknown or cannot express it,
    or the file cannot be written.
    """
    from rubric_integrations import formats
    from rubric_integrations.rubric.rubric import Rubric

    file = open_document(output, overwrite=overwrite, inputs=[rubric])
    try:
        document, losses = formats.write_document(Rubric.from_file(rubric), to)
    except ValueError as error:  # a RubricError, or an unknown format, whose message names the known ones
        refuse(str(error))
    write_document(document, file)
    for loss in losses:
        err.print(plain(f"lost: {loss}"), style="yellow", soft_wrap=True)
