"""Commands about rubric files: `validate`, `convert`, `migrate` and `schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations.cli.console import Exit, app, err, out, refuse


@app.command()
def validate(
    rubrics: Annotated[list[Path], typer.Argument(help="Rubric files, YAML or JSON, in any format.")],
    report: Annotated[
        Literal["text", "json", "sarif"], typer.Option("--format", help="Lines for people, or a report for machines.")
    ] = "text",
    warnings: Annotated[bool, typer.Option("--warnings/--no-warnings", help="Whether to lint what is sound.")] = True,
) -> None:
    """Check rubric files: a line a fault, with its place, its field and the remedy; and warn of what may go wrong.

    Exit codes: 0 all are sound; 1 one is not; 2 bad usage.
    """
    from rubric_integrations.reporting.validation import as_json, as_sarif, check_file

    checked = [check_file(path) for path in rubrics]
    if report == "text":
        for result in checked:
            for fault in result.faults:
                err.print(plain(f"{result.path}: {fault}"), style="red", soft_wrap=True)
            for warning in result.warnings if warnings else ():
                out.print(plain(f"{result.path}: warning: {warning}"), style="yellow", soft_wrap=True)
            if result.summary:
                out.print(plain(f"{result.path}: sound: {result.summary}"), soft_wrap=True)
        if len(checked) > 1:
            broken = sum(bool(result.faults) for result in checked)
            out.print(plain(f"{len(checked)} files: {len(checked) - broken} sound, {broken} broken"), soft_wrap=True)
    else:
        print(as_json(checked) if report == "json" else as_sarif(checked))  # noqa: T201 -- a report, not a message
    raise typer.Exit(Exit.NOT_PASSED if any(result.faults for result in checked) else Exit.DONE)


@app.command()
def convert(
    rubric: Annotated[Path, typer.Argument(help="A rubric file in any format.")],
    to: Annotated[Literal["native", "agentv", "openrubricrl"], typer.Option(help="The format to write.")],
    output: Annotated[Path | None, typer.Option(help="Where to; .json or .yaml. By default YAML on stdout.")] = None,
) -> None:
    """Write a rubric in another format. What that format cannot hold is listed on stderr, a line each.

    Exit codes: 0 written, with or without losses; 2 the rubric is broken or cannot be written.
    """
    from rubric_integrations.formats import write_document
    from rubric_integrations.rubric.errors import RubricError
    from rubric_integrations.rubric.rubric import Rubric

    try:
        document, losses = write_document(Rubric.from_file(rubric), to)
    except RubricError as error:
        refuse(str(error))
    _write(document, output)
    for loss in losses:
        err.print(plain(f"lost: {loss}"), style="yellow", soft_wrap=True)


@app.command()
def migrate(
    rubric: Annotated[Path, typer.Argument(help="An OpenRubricRL file of an older schema.")],
    to_version: Annotated[str, typer.Option(help="The version that a file without one gets.")] = "1.0.0",
    output: Annotated[Path | None, typer.Option(help="Where to; .json or .yaml. By default YAML on stdout.")] = None,
) -> None:
    """Bring an older OpenRubricRL file up to date: a `version`, and an `explanation` in every example.

    Exit codes: 0 written; 2 the file cannot be read, or is broken in other ways.
    """
    from rubric_integrations.formats import openrubricrl
    from rubric_integrations.formats.parsing import load
    from rubric_integrations.rubric.errors import RubricError

    try:
        document, changes = openrubricrl.migrate(load(rubric)[0], to_version)
        openrubricrl.read(document, str(rubric))
    except RubricError as error:
        refuse(str(error))
    _write(document, output)
    for change in changes or ["nothing to change"]:
        err.print(plain(change), soft_wrap=True)


@app.command()
def schema(output: Annotated[Path | None, typer.Option(help="Where to; by default stdout.")] = None) -> None:
    """Print the JSON Schema of the native format."""
    from rubric_integrations.formats.schema import json_schema

    _write(json_schema(), output, "json")


def _write(document: dict[str, Any], output: Path | None, syntax: Literal["json", "yaml"] = "yaml") -> None:
    from rubric_integrations.formats.parsing import dump

    text = dump(document, "json" if output and output.suffix == ".json" else syntax)
    if output is None:
        print(text, end="")  # noqa: T201 -- a document, not a message
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        refuse(f"{output}: cannot be written: {error.strerror or error}")
