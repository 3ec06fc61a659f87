"""The command `preview`: shows how a file of responses is read and its first row as a judge sees it. It calls no model.

If a file does not have the usual columns, `grade` prints a summary of two lines about how it reads the file.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted
from rubric_integrations.cli.console import Exit, err, out, print_json, refuse
from rubric_integrations.cli.loading import JsonOption, reading_status
from rubric_integrations.cli.options import RowOptions, option_name

if TYPE_CHECKING:
    from rubric_integrations.cli.rows import Problems
    from rubric_integrations.formats.row_rubrics import RowRubrics
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.submission.files import FileDescription, ResponsesFile
    from rubric_integrations.submission.inputs import Row

# These fields are listed even if the file does not have them, because a missing `query` is often an unrecognized
# column.
_ALWAYS = ("response", "query", "reference", "id")
# The number of characters that are shown from the beginning and from the end of a text.
_BEGINNING, _END = 500, 100
_MAX_NAMES = 20


class _Shown(NamedTuple):
    """A row as a judge sees it.

    Attributes:
        inputs: The texts that a judge sees, by field.
        note: A note, such as why no judge is asked. Empty if there is none.
    """

    inputs: dict[str, str]
    note: str = ""


def preview(
    file: Annotated[Path, typer.Argument(help="A file of responses, as for `grade`.")],
    row_options: RowOptions,
    rubric: Annotated[
        Path | None, typer.Option(help="Show the first question about this rubric that a judge gets.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="Name the criteria of the rubric that a decision model, such as typesafe/m, may judge badly."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how `grade` reads a file: its format, columns, rows with errors, and the first row as a judge sees it.

    Calls no model and needs no key. Correct a wrong guess with the options that the output names.

    Exit codes: 0 read; 2 bad usage, the file or the rubric cannot be read, or no row can be graded.
    """
    from rubric_integrations.cli.rows import Problems
    from rubric_integrations.formats.row_rubrics import RowRubrics, problem_of
    from rubric_integrations.judges.decision_mapping import caution
    from rubric_integrations.judges.decisions import is_decision_model

    if judge is not None and not (is_decision_model(judge) and rubric):
        refuse(f"`--judge` {judge!r} has no effect here: it needs a decision model and `--rubric`; leave it out")
    count, first, shown, problems = 0, None, None, Problems()
    try:
        rubrics = RowRubrics(rubric, row_options.library)
        with reading_status(file):
            responses = row_options.open(file)
            for _ in responses.check():
                pass
            for row in responses.rows():
                if row.submission is None:
                    problems.add(count, row.id, row.error or "")
                count, first = count + 1, first or (row if row.submission else None)
    except (ValueError, TypeError) as error:  # a RubricError or a ResponsesError
        refuse(str(error))
    description = responses.description
    if not count or description is None:
        refuse(f"{file}: is empty: there is nothing to grade")
    try:
        shown = first and _show(first, rubrics)
    except (ValueError, TypeError) as error:
        refuse(f"{file}: row {first.id if first else ''} {problem_of(error)}")
    rubric_of_run = [str(rubric)] if rubric else [] if first and first.rubric is not None else ["RUBRIC.yaml"]
    of_judge = ["--judge", judge] if judge else []
    command = shlex.join(["rubric-integrations", "grade", *rubric_of_run, str(file), *row_options.arguments, *of_judge])
    if judge and rubrics.shared and (warning := caution(rubrics.shared.criteria)):
        err.print(plain(warning), style="yellow", soft_wrap=True)
    if as_json:
        print_json({
            "file": str(file), **description._asdict(), "rows": count, "failed_rows": problems.count,
            "problems": problems.lines(), "first_row": first and shown and {"id": first.id, **shown._asdict()},
            "command": command,
        })  # fmt: skip
    else:
        _print_reading(file, description, count, problems, row_options)
        if first and shown:
            _print_first(first, shown)
            out.print(plain(f"To grade the file: {command}"), soft_wrap=True)
    if first is None:
        raise typer.Exit(Exit.BAD_INPUT)


def print_reading(row_options: RowOptions, file: ResponsesFile, count: int) -> None:
    """Print on stderr how a file was read by its check, if it does not have the usual columns."""
    description, path = file.description, file.path
    if description is None or description.is_plain:
        return
    columns = "; ".join(
        f"{field} from {_source(field, description, row_options)}"
        for field in ("response", "query", "reference", "context", "trajectory", "rubric", "labels")
        if field in description.columns or field in ("response", "query")
    )
    correct = "name the columns with " + ", ".join(map(option_name, _COLUMN_OPTIONS))
    command = shlex.join(["rubric-integrations", "preview", str(path), *row_options.arguments])
    for line in (
        f"{path}: {counted(count, 'row')}, read as {_format(description)}: {columns}",
        f"To see the first row: {command}. To correct it, {correct}.",
    ):
        err.print(plain(line), soft_wrap=True)


_COLUMN_OPTIONS = ("response_column", "query_column", "reference_column", "id_column", "rubric_column")


def _format(description: FileDescription) -> str:
    tool = f"{description.tool} ({description.format})" if description.tool else description.format
    return f"{tool}, conversations in the dialect {description.dialect}" if description.dialect else tool


def _source(field: str, description: FileDescription, row_options: RowOptions) -> str:
    """Return the source of a field's values as text."""
    columns = description.columns.get(field)
    if columns:
        return _names(columns)
    if columns is not None:
        return "made from the row"
    if field == "query":
        in_messages = "the conversation" if description.dialect else "nowhere"
        return in_messages if row_options.query is None else "--query"
    if field == "id":
        return "the file's name" if description.format == "one text" else "the number of the row"
    return "the file" if field == "response" and description.format == "one text" else "nowhere"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def _show(row: Row, rubrics: RowRubrics) -> _Shown:
    """Return a row as a judge sees it, with the first criterion of its rubric that needs a judge."""
    from rubric_integrations.scoring.judgment import JudgeFailure

    has_rubric = rubrics.shared is not None or row.rubric is not None
    try:
        return _render(row, rubrics.of(row, row.rubric) if has_rubric else None)
    except JudgeFailure as failure:
        return _Shown({}, f"no judge can be asked about it: {failure.message}")


def _render(row: Row, rubric: Rubric | None) -> _Shown:
    """Render a row as the judge of its first question sees it."""
    from rubric_integrations.graders.grader import is_computed
    from rubric_integrations.judges.prompts.render import render_inputs, render_question
    from rubric_integrations.judges.protocol import Question

    submission = row.submission
    assert submission is not None  # noqa: S101 -- only such a row is shown
    criteria = rubric.criteria if rubric else ()
    criterion = next((criterion for criterion in criteria if not is_computed(criterion, submission)), None)
    note = "no judge is asked: checks decide all criteria, or evidence is missing" if rubric and not criterion else ""
    if rubric and criterion:
        prompt = render_question(Question(submission, criterion, rubric.instructions))
    else:
        prompt = render_inputs(submission, "", {})
    files = {f"file {number}": "\n".join(file.texts) for number, file in enumerate(prompt.files, start=1)}
    return _Shown({**files, **prompt.inputs}, note)


def _print_reading(
    file: Path, description: FileDescription, count: int, problems: Problems, row_options: RowOptions
) -> None:
    """Print how a file was read: its format, the source of each field, and the rows that cannot be graded."""
    from rich.table import Table

    failed = {0: "", count: "; none can be graded:"}.get(problems.count, f"; {problems.count:,} cannot be graded:")
    out.print(plain(f"{file}: {counted(count, 'row')}, read as {_format(description)}{failed}"), soft_wrap=True)
    for line in problems.lines():
        out.print(plain(f"  {line}"), style="red", soft_wrap=True)
    if problems.count == count and not description.columns:
        return
    table = Table("field", "is read from", "to change it")
    table.columns[1].overflow = "fold"
    # The names of the metadata have their own row below.
    for field in dict.fromkeys((*_ALWAYS, *(field for field in description.columns if field != "metadata"))):
        option = f"{field}_column"
        source = _source(field, description, row_options)
        table.add_row(plain(field), plain(source), option_name(option) if option in _COLUMN_OPTIONS else "")
    for name, names in (("in the results", description.metadata), ("not read", description.ignored)):
        if names:
            table.add_row(name, plain(_names(names)), "")
    out.print(table)


def _print_first(row: Row, shown: _Shown) -> None:
    """Print the texts that a judge sees of one row."""
    from rich.table import Table

    table = Table(
        title=plain(f"Row {row.id}, as a judge sees it"), title_justify="left", title_style="bold", show_header=False,
        show_lines=True,
    )  # fmt: skip
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for field, text in shown.inputs.items():
        table.add_row(plain(field), plain(_shortened(text), keeps_lines=True))
    if shown.inputs:
        out.print(table)
    if shown.note:
        out.print(plain(f"Row {row.id}: {shown.note}"), soft_wrap=True)


def _shortened(text: str) -> str:
    omitted = len(text) - _BEGINNING - _END
    if omitted <= 0:
        return text
    return f"{text[:_BEGINNING]}\n... {omitted:,} of {len(text):,} characters ...\n{text[-_END:]}"
