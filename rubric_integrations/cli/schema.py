"""The command `schema`: prints the JSON Schema of the native rubric format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations.cli.documents import open_document, write_document


def schema(
    output: Annotated[Path | None, typer.Option(help="The file to write. By default stdout.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --output if it exists.")] = False,
) -> None:
    """Print the JSON Schema of the native rubric format, for editors and validators.

    Exit codes: 0 written; 2 bad usage, or the file cannot be written.
    """
    from rubric_integrations.formats.schema import json_schema

    write_document(json_schema(), open_document(output, overwrite=overwrite), "json")
