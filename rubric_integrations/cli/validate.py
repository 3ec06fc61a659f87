"""The command `validate`: checks rubric files and warns about criteria that judges answer unreliably."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, err, out
from rubric_integrations.cli.import_option import import_modules

if TYPE_CHECKING:
    from rubric_integrations.reporting.validation import CheckedFile


def validate(
    rubrics: Annotated[list[Path], typer.Argument(help="Rubric files, YAML or JSON, in any supported format.")],
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import a Python module that registers custom metrics."),
    ] = None,
    report: Annotated[
        Literal["text", "json", "sarif"], typer.Option("--format", help="Text to read, or JSON or SARIF for tools.")
    ] = "text",
    warnings: Annotated[
        bool, typer.Option("--warnings/--no-warnings", help="Whether to print warnings for valid files.")
    ] = True,
) -> None:
    """Check rubric files. Prints one line per fault, with its place, its field and how to fix it, and warnings.

    Exit codes: 0 all files are valid; 1 a file is not; 2 bad usage.
    """
    from rubric_integrations.reporting.validation import as_json, as_sarif, check_file

    import_modules(modules or ())
    files = [check_file(path) for path in rubrics]
    if report == "text":
        _print_text(files, warnings)
    else:
        print(as_json(files) if report == "json" else as_sarif(files))  # noqa: T201 -- rich would wrap the lines
    raise typer.Exit(Exit.NOT_PASSED if any(file.faults for file in files) else Exit.DONE)


def _print_text(files: list[CheckedFile], warnings: bool) -> None:
    for file in files:
        for fault in file.faults:
            err.print(plain(f"{file.path}: {fault}"), style="red", soft_wrap=True)
        for warning in file.warnings if warnings else ():
            out.print(plain(f"{file.path}: warning: {warning}"), style="yellow", soft_wrap=True)
        if file.summary:
            out.print(plain(f"{file.path}: valid: {file.summary}"), soft_wrap=True)
    if len(files) > 1:
        invalid = sum(bool(file.faults) for file in files)
        out.print(plain(f"{len(files)} files: {len(files) - invalid} valid, {invalid} invalid"), soft_wrap=True)
