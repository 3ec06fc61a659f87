"""The commands about rubric files (`validate`, `convert`, `migrate`, `schema`) and ready-made rubrics (`library`)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted
from rubric_integrations.cli.console import Exit, err, figure, figures_table, out, print_json, print_lines, refuse
from rubric_integrations.cli.loading import JsonOption
from rubric_integrations.cli.options import ModulesOption, import_modules
from rubric_integrations.cli.outputs import OutputFile, open_document, print_document

if TYPE_CHECKING:
    from rubric_integrations.library import MeasuredJudge
    from rubric_integrations.reporting.validation import CheckedFile
    from rubric_integrations.rubric.rubric import Rubric


OutputOption = Annotated[
    Path | None, typer.Option(help="The file to write, such as .json or .yaml. By default YAML on stdout.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the file of --output if it exists.")]


def convert(
    rubric: Annotated[Path, typer.Argument(help="A rubric file in any supported format.")],
    to: Annotated[str, typer.Option(help="The format to write: native, or the name of another one, such as agentv.")],
    rubric_format: Annotated[
        str | None,
        typer.Option("--from", help="The format of the file, such as healthbench. By default it is detected."),
    ] = None,
    case: Annotated[
        str | None, typer.Option(help="The id of a case of the file, whose rubric is converted, or the metric of ADK.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="A file with new weights and a pass mark, as the report page exports it.")
    ] = None,
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write a rubric in another format. With --weights, replace its weights and its pass mark.

    Parts that a rubric or the other format cannot express are listed on stderr.

    Exit codes: 0 written, with or without losses; 2 the rubric is invalid, the format is unknown or cannot express the
    rubric, or the file cannot be written.
    """
    from rubric_integrations.formats.parsing import SYNTAX
    from rubric_integrations.formats.registry import SYNTAX_OF_FORMAT, read_document, reading_losses, write_document
    from rubric_integrations.formats.suite_files import load_with_tests

    if output and SYNTAX.get(output.suffix.lower()) == "markdown" and to != "markdown":
        refuse(f"`--output` {output} is Markdown, in which {to} cannot be read: end its name in .yaml or .json")
    if case is not None and rubric_format is not None:
        refuse(
            "`--case` and `--from` exclude each other: the format of a file of cases is detected, so remove `--from`"
        )
    if output and SYNTAX.get(output.suffix.lower()) == "toml" and SYNTAX_OF_FORMAT.get(to) != "toml":
        refuse(f"`--output` {str(output)!r} ends in .toml, and {to} is not written as TOML: end it in .yaml or .json")
    file = open_document(output, overwrite=overwrite, inputs=[rubric, *([weights] if weights else [])])
    try:
        content, source = load_with_tests(rubric)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the parts that are listed below
            if case is None:
                read = read_document(content, source, rubric_format)
                reading = reading_losses(content, rubric_format)
            else:
                read, reading = _case_of(rubric, case)
            document, losses = write_document(read if weights is None else _reweighted(read, weights), to)
    except ValueError as error:  # a RubricError, or an unknown format, whose message names the known ones
        refuse(str(error))
    print_document(document, file, SYNTAX_OF_FORMAT.get(to, "yaml"))
    for loss in [*reading, *losses]:
        err.print(plain(f"lost: {loss}"), style="yellow", soft_wrap=True)


def _case_of(path: Path, case_id: str) -> tuple[Rubric, Sequence[str]]:
    """Return the rubric of a case of a file, with its losses.

    Raises:
        ValueError: The file has no such case, or has faults.
    """
    from rubric_integrations.formats.agentv import load_eval_cases

    cases = list(load_eval_cases(path))
    chosen = [case for case in cases if case.id == case_id]
    if len(chosen) != 1:
        known = ", ".join(repr(case.id) for case in cases[:20])
        raise ValueError(f"`--case` {case_id!r} is the id of {len(chosen)} cases of {path}: its cases are {known}")
    return chosen[0].rubric, chosen[0].losses


def _reweighted(rubric: Rubric, path: Path) -> Rubric:
    """Return a rubric with the weights and the pass mark of a file.

    Raises:
        ValueError: The file cannot be read or has other fields, or a value does not fit the rubric.
    """
    from rubric_integrations.formats.parsing import load

    content = load(path)[0]
    weights = content.get("weights") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or content.keys() - {"weights", "pass_mark"}:
        raise ValueError(f"{path}: must have `weights`, by the names of the criteria, and may have a `pass_mark`")
    try:
        return rubric.with_weights(weights, content.get("pass_mark"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def migrate(
    rubric: Annotated[Path, typer.Argument(help="An OpenRubricRL file of an older schema.")],
    to_version: Annotated[str, typer.Option(help="The version to write into a file without a version.")] = "1.0.0",
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Update an OpenRubricRL file to the current schema: a `version` of the file, and an `explanation` in each example.

    Exit codes: 0 written; 2 the file cannot be read, or is still invalid after the update.
    """
    from rubric_integrations.formats import openrubricrl
    from rubric_integrations.formats.parsing import load
    from rubric_integrations.rubric.rubric import RubricError

    file = open_document(output, overwrite=overwrite, inputs=[rubric])
    try:
        document, changes = openrubricrl.migrate(load(rubric)[0], to_version)
        openrubricrl.parse(document, str(rubric))
    except RubricError as error:
        refuse(str(error))
    print_document(document, file)
    for change in changes or ["nothing to change"]:
        err.print(plain(change), soft_wrap=True)


def schema(
    output: Annotated[Path | None, typer.Option(help="The file to write. By default stdout.")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Print the JSON Schema of the native rubric format, for editors and validators.

    Exit codes: 0 written; 2 bad usage, or the file cannot be written.
    """
    from rubric_integrations.formats.native import json_schema

    print_document(json_schema(), open_document(output, overwrite=overwrite), "json")


def validate(
    rubrics: Annotated[list[Path], typer.Argument(help="Rubric files in any supported format.")],
    modules: ModulesOption = None,
    report: Annotated[
        Literal["text", "json", "sarif"], typer.Option("--format", help="Text to read, or JSON or SARIF for tools.")
    ] = "text",
    warnings: Annotated[
        bool, typer.Option("--warnings/--no-warnings", help="Whether to print warnings for valid files.")
    ] = True,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse a file if a part of it is left out, such as an assertion in JavaScript."),
    ] = False,
    fail_on_warnings: Annotated[
        bool, typer.Option("--fail-on-warnings", help="Exit with 1 also if a valid file has a warning.")
    ] = False,
) -> None:
    """Check rubric files. Prints warnings, and one line per fault with its place, its field and how to fix it.

    Exit codes: 0 all files are valid; 1 a file is not valid, or has a warning (--fail-on-warnings); 2 bad usage.
    """
    from rubric_integrations.reporting.validation import as_json, as_sarif, check_file

    if fail_on_warnings and not warnings:
        refuse(
            "--fail-on-warnings: cannot take --no-warnings: the command would fail without the warnings that are the "
            "reason: leave out one of them"
        )
    import_modules(modules or ())
    files = [check_file(path, strict=strict) for path in rubrics]
    if report == "text":
        _print_text(files, warnings)
    else:
        print(as_json(files) if report == "json" else as_sarif(files))  # noqa: T201 -- rich would wrap the lines
    number = sum(len(file.warnings) for file in files) if fail_on_warnings else 0
    if number:
        err.print(f"--fail-on-warnings: {counted(number, 'warning')}", style="red", soft_wrap=True)
    raise typer.Exit(Exit.NOT_PASSED if number or any(file.faults for file in files) else Exit.DONE)


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


def library(
    name: Annotated[
        str | None, typer.Argument(help="A rubric of the library, such as groundedness.", show_default=False)
    ] = None,
    copy: Annotated[Path | None, typer.Option(help="Write the rubric to this file, to change it.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --copy if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the ready-made rubrics. With a name, print its criteria, and how far judges of such questions were measured.

    `library:NAME` stands for the path of a rubric: rubric-integrations grade library:groundedness rows.jsonl

    Exit codes: 0 done; 2 there is no such rubric, or the file cannot be written.
    """
    from rubric_integrations.library import load, measured_judges, names, text

    if name is None and copy is not None:
        refuse(f"`--copy` {str(copy)!r} needs the name of a rubric: rubric-integrations library NAME --copy FILE")
    try:
        chosen = names() if name is None else (name,)
        measured = {name: measured_judges(name) for name in chosen}
        rubrics = {name: load(name) for name in chosen}
    except ValueError as error:  # a RubricError, whose message names a similar rubric
        refuse(str(error))
    if copy is not None:
        file = OutputFile(copy, option="--copy", overwrite=overwrite, inputs=[], may_be_rubric=True)
        with file:
            file.write(text(chosen[0]))
        return
    if as_json:
        print_json([
            {"name": name, "version": rubric.version, "description": rubric.description, "criteria": rubric.keys,
             "measured_judges": measured[name]}
            for name, rubric in rubrics.items()
        ])  # fmt: skip
    elif name is None:
        _print_library(rubrics, measured)
    else:
        _print_rubric(name, rubrics[name], measured[name])


def _print_library(rubrics: dict[str, Rubric], measured: dict[str, tuple[MeasuredJudge, ...]]) -> None:
    """Print the rubrics of the library, one on each row."""
    columns = ("name", "criteria", "about", "measured on")
    table = figures_table("Ready-made rubrics", columns, text=(columns[0], *columns[2:]))
    for name, rubric in rubrics.items():
        sets = ", ".join(dict.fromkeys(judge.data for judge in measured[name]))
        table.add_row(name, str(len(rubric)), rubric.description, sets or _NOT_MEASURED)
    out.print(table)
    print_lines(
        ["To see one: rubric-integrations library NAME. To use it: rubric-integrations grade library:NAME ROWS"]
    )


def _print_rubric(name: str, rubric: Rubric, measured: Sequence[MeasuredJudge]) -> None:
    """Print a rubric of the library: its criteria, and the figures of judges like its judge."""
    from rubric_integrations.rubric.criterion import describe_condition

    title = f"{name}, version {rubric.version}: {rubric.description} Passes from {rubric.pass_mark:g}."
    columns = ("criterion", "weight", "needs", "answered by", "requirement")
    table = figures_table(title, columns, text=(columns[0], *columns[2:]))
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        weight = f"{criterion.weight:+g}{', required' if criterion.is_gate else ''}"
        condition = f" Applies if: {describe_condition(criterion.applies_when)}" if criterion.applies_when else ""
        needs = ", ".join(criterion.needs)
        answered_by = "code" if criterion.check else "a judge"
        table.add_row(key, weight, needs, answered_by, plain(criterion.requirement + condition))
    out.print(table)
    print_lines([f"{counted(len(rubric.cases), 'test case')}: rubric-integrations test library:{name} --judge MODEL"])
    if not measured:
        print_lines([f"Agreement with people: {_NOT_MEASURED}. {_MEASURE}"])
        return
    for (data, question, keys), judges in groupby(measured, key=lambda judge: judge[:3]):
        title = f'Agreement of recorded judges with people on {data}: "{question}" (like {", ".join(keys)})'
        table = figures_table(title, ("judge", "prompt", "n", "weighted kappa"), text=("judge", "prompt"))
        for judge in judges:
            interval = "" if judge.low is None or judge.high is None else f" [{judge.low:.2f}, {judge.high:.2f}]"
            table.add_row(judge.judge, judge.prompt, f"{judge.n:,}", f"{figure(judge.kappa, 2)}{interval}")
        out.print(table)
    rest = [
        key
        for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)
        if criterion.check is None and all(key not in judge.criteria for judge in measured)
    ]
    print_lines([
        "A figure belongs to a prompt and a model: these are other models, prompts and texts than yours. " + _MEASURE,
        *([f"Not measured: {', '.join(rest)}."] if rest else []),
    ])  # fmt: skip


_NOT_MEASURED = "not measured"
_MEASURE = "Measure your judge on your labels: rubric-integrations agree"
