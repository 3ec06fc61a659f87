"""Writes a rubric or schema to a file or to stdout, for the commands that produce one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from rubric_integrations.cli.output_file import OutputFile


def open_document(output: Path | None, *, overwrite: bool, inputs: Iterable[Path] = ()) -> OutputFile | None:
    """Return the file of `--output`, or None for stdout, and refuse one that must not be written.

    Args:
        output: The file; None means stdout.
        overwrite: Whether an existing file may be replaced.
        inputs: The files that the command reads.
    """
    if output is None:
        return None
    return OutputFile(output, option="--output", overwrite=overwrite, inputs=inputs, may_be_rubric=True)


def write_document(
    document: dict[str, Any], output: OutputFile | None, syntax: Literal["json", "yaml"] = "yaml"
) -> None:
    """Write a document as YAML or JSON.

    Args:
        document: The document.
        output: The file; a name that ends in `.json` is written as JSON. None means stdout.
        syntax: The syntax for stdout and for files with another ending.
    """
    from rubric_integrations.formats.parsing import dump

    text = dump(document, "json" if output and output.path.suffix == ".json" else syntax)
    if output is None:
        print(text, end="")  # noqa: T201 -- rich would wrap lines and read markup
        return
    with output as file:
        file.write(text)
