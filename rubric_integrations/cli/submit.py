"""The command `submit`: submits the questions about a file of responses to a provider's batch API, at half price."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.urls import url_without_secrets
from rubric_integrations.cli.console import Exit, err, out, refuse
from rubric_integrations.cli.grader_options import GraderOptions
from rubric_integrations.cli.import_option import import_modules
from rubric_integrations.cli.judge_option import make_judges
from rubric_integrations.cli.ledger_option import ledger_address

# More problems of rows are not read in a terminal.
_MAX_SHOWN = 5


def submit(
    rubric: Annotated[
        Path,
        typer.Argument(help="The rubric: a YAML or JSON file. Leave it out where each row brings a `rubric`."),
    ],
    ledger: Annotated[
        str,
        typer.Option(
            help="The ledger, in which the judgments will be: a file such as run.sqlite, or a postgresql:// URL."
        ),
    ],
    judge: Annotated[
        list[str], typer.Option(help="A model, such as openai/gpt-5-mini. Several are a panel, which votes.")
    ],
    responses: Annotated[
        Path | None,
        typer.Argument(help="What to grade, in the formats that `grade` reads.", show_default=False),
    ] = None,
    api_base: Annotated[str | None, typer.Option(help="Base URL of another server with the same batch API.")] = None,
    api_key: Annotated[
        str | None,
        typer.Option(help="Key of that server; by default that of the environment. It is stored nowhere."),
    ] = None,
    judge_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting of the model: temperature, max_tokens, seed, reasoning_effort or system_prompt.",
        ),
    ] = None,
    query: Annotated[str | None, typer.Option(help="The task, for rows without a `query`.")] = None,
    response_column: Annotated[str | None, typer.Option(help="The column of the responses, if not `response`.")] = None,
    query_column: Annotated[str | None, typer.Option(help="The column of the tasks, if not `query`.")] = None,
    library: Annotated[
        Path | None, typer.Option(help="A file of rubrics by name, for rows whose `rubric` is a name.")
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import a Python module that registers custom metrics."),
    ] = None,
    step_limit: Annotated[int | None, typer.Option(min=1, help="As for `grade`.")] = None,
    chunk_size: Annotated[int | None, typer.Option(min=1_000, help="As for `grade`.")] = None,
) -> None:
    """Submit the questions about responses to the batch API of the judge's provider, at half price.

    The answers come within a day: `collect` stores them in the ledger. `grade` with the same ledger, rubric, responses
    and judge then finds them there. If this is interrupted, repeat it: nothing is requested twice.

    Exit codes: 0 done; 2 bad usage or bad input, also of a single row; 3 the provider refuses a request.
    """
    from rubric_integrations.cli.rows_of_file import RowsOfFile
    from rubric_integrations.formats.row_rubrics import RowRubrics
    from rubric_integrations.judges.stored import StoreError
    from rubric_integrations.runs.batches import BatchError, submit_batches
    from rubric_integrations.submission.files import read_responses

    rubric_file, rows_file = (rubric, responses) if responses else (None, rubric)
    settings = {
        "judges": judge, "api_base": api_base, "judge_option": judge_option or [], "step_limit": step_limit,
        "chunk_size": chunk_size,
    }  # fmt: skip
    try:
        import_modules(modules or ())
        rubrics = RowRubrics(rubric_file, library)
        judges = make_judges(judge, api_base, judge_option or (), api_key=api_key)
        grader = GraderOptions.for_batches(step_limit, chunk_size).make_grader(judges)
        read = partial(read_responses, rows_file, query, response_column=response_column, query_column=query_column)
        # Reads everything once, so that wrong files and rubrics are refused before anything is submitted.
        if not len(RowsOfFile(read, rubrics, rows_file, rubric_file)):
            refuse(f"{rows_file}: is empty: there is nothing to grade")
        address = ledger_address(ledger)
        counts = submit_batches(read(), rubrics.shared, grader, ledger=address, library=library, settings=settings)
    except BatchError as error:
        err.print(plain(str(error)), style="red", soft_wrap=True)
        raise typer.Exit(Exit.JUDGE_FAILED) from None
    except (ValueError, TypeError, StoreError) as error:
        refuse(str(error))
    problems = [*counts.errors, *counts.failed]
    for problem in problems[:_MAX_SHOWN]:
        err.print(plain(problem), style="red", soft_wrap=True)
    if len(problems) > _MAX_SHOWN:
        err.print(f"... and {len(problems) - _MAX_SHOWN:,} more", style="red")
    line = f"{counts.requests:,} requests about {counts.rows:,} rows submitted in {counts.batches:,} batches"
    waiting = f"; {counts.waiting:,} are in earlier batches" if counts.waiting else ""
    out.print(plain(f"{line}{waiting}."), soft_wrap=True)
    if counts.batches or counts.waiting:
        out.print(plain(f"Next: rubric-integrations collect --ledger {url_without_secrets(ledger)}"), soft_wrap=True)
    if problems:
        raise typer.Exit(Exit.BAD_INPUT if counts.errors else Exit.JUDGE_FAILED)
