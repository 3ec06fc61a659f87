"""The command `convert`: writes a rubric in another format."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import err, refuse
from rubric_integrations.cli.documents import open_document
from rubric_integrations.cli.documents import write_document as print_or_write


def convert(
    rubric: Annotated[Path, typer.Argument(help="A rubric file in any supported format.")],
    to: Annotated[str, typer.Option(help="The format to write: native, or the name of another one, such as agentv.")],
    rubric_format: Annotated[
        str | None,
        typer.Option("--from", help="The format of the file, such as healthbench. By default it is detected."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The file to write, .json or .yaml. By default YAML on stdout.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --output if it exists.")] = False,
) -> None:
    """Write a rubric in another format. What a rubric or the other format cannot hold is listed on stderr.

    Exit codes: 0 written, with or without losses; 2 the rubric is invalid, the format is unknown or cannot express it,
    or the file cannot be written.
    """
    from rubric_integrations.formats.documents import read_document, reading_losses, write_document
    from rubric_integrations.formats.parsing import load

    file = open_document(output, overwrite=overwrite, inputs=[rubric])
    try:
        content, source = load(rubric)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the parts that are listed below
            document, losses = write_document(read_document(content, source, rubric_format), to)
            losses = reading_losses(content, rubric_format) + losses
    except ValueError as error:  # a RubricError, or an unknown format, whose message names the known ones
        refuse(str(error))
    print_or_write(document, file)
    for loss in losses:
        err.print(plain(f"lost: {loss}"), style="yellow", soft_wrap=True)
