"""The command line: `rubric-integrations grade`, `validate`, `convert`, `migrate` and `schema`."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rubric_integrations.reporting.terminal import groups_table, plain, ranking_table, report_table
from rubric_integrations.responses import ResponsesError, Row, read_responses
from rubric_integrations.rubric import Rubric, RubricError
from rubric_integrations.runner import Graded, grade_rows
from rubric_integrations.verdict import Spend

# Up to this many submissions each get a table; of more, the ranking says enough, and `--out` has the rest.
MAX_TABLES = 12
MAX_RANKED = 50

app = typer.Typer(
    name="rubric-integrations",
    help="Grade LLM output against weighted rubrics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)


class Exit(IntEnum):
    """What the exit code says. A judge's failure outweighs bad input, which outweighs a gate."""

    DONE = 0
    NOT_PASSED = 1
    BAD_INPUT = 2
    JUDGE_FAILED = 3


@app.callback()
def _root() -> None:  # pyright: ignore[reportUnusedFunction] -- keeps typer from merging the commands
    """Grade LLM output against weighted rubrics."""


@app.command()
def grade(
    rubric: Annotated[Path, typer.Argument(help="The rubric: a YAML or JSON file.")],
    responses: Annotated[
        Path,
        typer.Argument(
            help="What to grade: .jsonl or .csv with a `response` (and `query`, `reference`, `id`), or a text."
        ),
    ],
    judge: Annotated[
        str, typer.Option(help="A model, such as openai/gpt-5-mini or ollama_chat/llama3.2; or offline: no model.")
    ] = "offline",
    api_base: Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server.")] = None,
    query: Annotated[str | None, typer.Option(help="The task, for rows that name none.")] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write one full report a line (JSONL).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out.")] = False,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 1 unless every submission passes.")] = False,
    cannot_assess: Annotated[
        Literal["skip", "zero", "partial", "fail"], typer.Option(help="What an abstention counts.")
    ] = "skip",
    on_failure: Annotated[
        Literal["raise", "abstain", "worst_case"],
        typer.Option(help="What a judge's failure does: leave the submission ungraded, or count as this."),
    ] = "raise",
    max_concurrency: Annotated[int, typer.Option(min=1, help="Calls to the judge under way at once.")] = 32,
    max_retries: Annotated[int, typer.Option(min=0, help="Further attempts after a lost or unreadable reply.")] = 2,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one call.")] = 120.0,
) -> None:
    """Grade responses against a rubric.

    Exit codes: 0 done; 1 not passed (with --gate); 2 bad usage or bad input; 3 a judge failed and a grade is missing.

    Rows that can be graded are graded, whatever becomes of the others.
    """
    from rubric_integrations.graders import PerCriterionGrader
    from rubric_integrations.judges.offline import WHAT_IT_IS

    try:
        loaded = Rubric.from_file(rubric)
        grader = PerCriterionGrader(
            judge=judge, api_base=api_base, cannot_assess=cannot_assess, on_failure=on_failure,
            max_concurrency=max_concurrency, max_retries=max_retries, timeout=timeout,
        )  # fmt: skip
        rows = list(read_responses(responses, query))
    except (RubricError, ResponsesError, ValueError, TypeError) as error:
        _refuse(str(error))
    if not rows:
        _refuse(f"{responses}: is empty: there is nothing to grade")
    if out_file and out_file.exists() and not overwrite:
        _refuse(f"{out_file}: exists: name another file, or pass --overwrite, which loses what it holds")
    if judge == "offline":
        err.print(plain(WHAT_IT_IS), soft_wrap=True)
    with ExitStack() as stack:
        sink = None
        if out_file:
            try:
                sink = stack.enter_context(out_file.open("w", encoding="utf-8"))
            except OSError as error:
                _refuse(f"{out_file}: cannot be written: {error.strerror or error}")
        try:
            results = asyncio.run(_grade_all(rows, loaded, grader, max_concurrency, sink))
        except KeyboardInterrupt:
            err.print("Stopped." + (f" What was graded until then is in {out_file}." if out_file else ""))
            raise typer.Exit(130) from None
    _show(results, loaded, out_file)
    raise typer.Exit(_exit_code(results, gate))


async def _grade_all(
    rows: list[Row], rubric: Rubric, grader: Any, max_concurrency: int, sink: IO[str] | None
) -> list[Graded]:
    results: list[Graded] = []
    columns = (TextColumn("Grading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal or len(rows) < 2) as progress:
        task = progress.add_task("", total=len(rows))
        async for graded in grade_rows(rows, rubric, grader, max_concurrency):
            results.append(graded)
            if sink:
                sink.write(_line(graded))
                sink.flush()
            progress.advance(task)
    return results


def _line(graded: Graded) -> str:
    """One line of `--out`: the row, and its report's own fields."""
    row, report = graded.row, graded.report
    line: dict[str, Any] = {"id": row.id}
    line["submission"] = row.submission.model_dump(mode="json", exclude_none=True) if row.submission else None
    line |= report.model_dump(mode="json") if report else {"score": None, "passed": False, "error": row.error}
    if graded.judge_error:
        # What was found is kept, but a partial sum must not pass for a grade.
        line |= {"score": None, "passed": False}
    return json.dumps(line, ensure_ascii=False) + "\n"


def _show(results: list[Graded], rubric: Rubric, out_file: Path | None) -> None:
    if len(results) <= MAX_TABLES:
        for graded in results:
            out.print(report_table(graded))
            if rubric.tree is not None and graded.report and graded.report.report:
                out.print(groups_table(graded, rubric))
    if len(results) <= MAX_RANKED:
        out.print(ranking_table(results))
    for graded in results:
        if problem := graded.judge_error or graded.row.error:
            err.print(plain(f"{graded.row.id}: {problem}"), style="red", soft_wrap=True)
    reports = [graded.report for graded in results if graded.report and not graded.judge_error]
    scores = [report.score for report in reports if report.score is not None]
    spend = sum((graded.report.spend for graded in results if graded.report), Spend())
    mean = f"mean {math.fsum(scores) / len(scores):.3f}" if scores else "no score"
    cost = "price unknown" if spend.cost is None else f"${spend.cost:.4f}"
    out.print(
        plain(
            f"{len(reports)} of {len(results)} graded by {rubric.name or 'the rubric'}: {mean}, "
            f"{sum(report.passed for report in reports)} passed; "
            f"{spend.calls} calls, {spend.usage.total_tokens} tokens, {cost}."
            + (f" Reports: {out_file}" if out_file else "")
        ),
        soft_wrap=True,
    )


def _exit_code(results: list[Graded], gate: bool) -> Exit:
    if any(graded.judge_error for graded in results):
        return Exit.JUDGE_FAILED
    if any(graded.report is None for graded in results):
        return Exit.BAD_INPUT
    if gate and not all(graded.report and graded.report.passed for graded in results):
        return Exit.NOT_PASSED
    return Exit.DONE


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

    try:
        document, losses = write_document(Rubric.from_file(rubric), to)
    except RubricError as error:
        _refuse(str(error))
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
    from rubric_integrations.formats.files import load

    try:
        document, changes = openrubricrl.migrate(load(rubric)[0], to_version)
        openrubricrl.read(document, str(rubric))
    except RubricError as error:
        _refuse(str(error))
    _write(document, output)
    for change in changes or ["nothing to change"]:
        err.print(plain(change), soft_wrap=True)


@app.command()
def schema(output: Annotated[Path | None, typer.Option(help="Where to; by default stdout.")] = None) -> None:
    """Print the JSON Schema of the native format."""
    from rubric_integrations.formats.schema import json_schema

    _write(json_schema(), output, "json")


def _write(document: dict[str, Any], output: Path | None, syntax: Literal["json", "yaml"] = "yaml") -> None:
    from rubric_integrations.formats.documents import dump

    text = dump(document, "json" if output and output.suffix == ".json" else syntax)
    if output is None:
        print(text, end="")  # noqa: T201 -- a document, not a message
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        _refuse(f"{output}: cannot be written: {error.strerror or error}")


def _refuse(message: str) -> NoReturn:
    err.print(plain(message), style="red", soft_wrap=True)
    raise typer.Exit(Exit.BAD_INPUT)


def main() -> None:
    """Run the command line."""
    app()
