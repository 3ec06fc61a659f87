"""Writes a rubric or schema to a file or to stdout, for the commands that produce one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from rubric_integrations.cli.output_file import OutputFile


def write_document(document: dict[str, Any], output: Path | None, syntax: Literal["json", "yaml"] = "yaml") -> None:
    """Write a document as YAML or JSON.

    Args:
        document: The document.
        output: The file; a name that ends in `.json` is written as JSON. None means stdout.
        syntax: The syntax for stdout and for files with another ending.
    """
    from rubric_integrations.formats.parsing import dump

    text = dump(document, "json" if output and output.suffix == ".json" else syntax)
    if output is None:
        print(text, end="")  # noqa: T201 -- rich would wrap lines and read markup
        return
    with OutputFile(output) as file:
        file.write(text)
