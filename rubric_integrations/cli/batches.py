"""The commands `submit` and `collect`, for a provider's batch API at half price.

`submit` sends the questions about a file of responses. `collect` stores the replies in the ledger of `submit`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted, url_without_secrets
from rubric_integrations.cli.console import Exit, err, out, refuse
from rubric_integrations.cli.options import (
    NOTHING_TO_GRADE,
    GraderOptions,
    JudgeOptions,
    ModulesOption,
    Only,
    RowOptions,
    RubricArgument,
    import_modules,
    ledger_address,
    ledger_exists,
)

if TYPE_CHECKING:
    from rubric_integrations.runs import CollectedBatches

# The most kinds of problems that are printed, because nobody reads more in a terminal.
_MAX_SHOWN = 5


def collect(
    ledger: Annotated[str, typer.Option(help="The ledger with which the batches were submitted.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all batches are finished, up to a day.")] = False,
    api_key: Annotated[
        str | None, typer.Option(help="Key of the server, if `submit` had one; by default, the environment's.")
    ] = None,
    modules: ModulesOption = None,
) -> None:
    """Store the replies to the batches of `submit` in their ledger.

    A request without a valid reply stays unanswered. Request it again with `submit`, or with `grade` at the full price.
    If this command is interrupted, repeat it.

    Exit codes: 0 done, or batches are not finished yet; 2 bad usage or bad input; 3 a request has no valid reply, or
    the provider refuses a request.
    """
    from rubric_integrations.judges.store import StoreError
    from rubric_integrations.runs import BatchError, collect_batches
    from rubric_integrations.runs.batches.base import open_settings
    from rubric_integrations.runs.batches.replay import use_batch_ledger

    address, name = ledger_address(ledger), url_without_secrets(ledger)
    if not ledger_exists(address):
        refuse(f"{name}: there is no such ledger")
    failed = False
    try:
        import_modules(modules or ())
        with use_batch_ledger(address) as opened:
            all_settings = open_settings(opened)
            if not all_settings:
                out.print(plain(f"{name}: all batches are collected."), soft_wrap=True)
            for settings in all_settings:
                counts = collect_batches(opened, _make_grader(settings, api_key), wait=wait)
                _print(counts, ", ".join(settings["judges"]))
                failed = failed or bool(counts.failed)
    except BatchError as error:
        err.print(plain(str(error)), style="red", soft_wrap=True)
        raise typer.Exit(Exit.JUDGE_FAILED) from None
    except (ValueError, TypeError, StoreError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    if failed:
        raise typer.Exit(Exit.JUDGE_FAILED)


def _make_grader(settings: dict[str, Any], api_key: str | None) -> Any:
    if "judges" not in settings:
        raise ValueError("the batches were submitted in Python: collect them with `collect_batches` and their grader")
    judges = JudgeOptions(
        settings["judges"], api_base=settings["api_base"], api_key=api_key, judge_option=settings["judge_option"]
    )
    options = GraderOptions(step_limit=settings["step_limit"], chunk_size=settings["chunk_size"])
    return options.make_grader(judges.make_judges())


def _print(counts: CollectedBatches, judge: str) -> None:
    """Print what was collected from the batches of one judge."""
    cost = "" if counts.spend.cost is None else f" for ${counts.spend.cost:.4f}"
    batches = counted(counts.batches, "batch", "batches")
    line = f"{judge}: {counted(counts.judgments, 'judgment')} of {batches} stored{cost}."
    out.print(plain(line), soft_wrap=True)
    if counts.waiting:
        line = (
            f"Still waiting for {counted(counts.waiting, 'batch', 'batches')}: {counts.done:,} of "
            f"{counted(counts.requests, 'request')} processed."
        )
        out.print(plain(line), soft_wrap=True)
    if counts.failed:
        err.print(plain(f"{counted(counts.failed, 'request')} without a judgment:"), style="red", soft_wrap=True)
        for message, times in counts.problems[:_MAX_SHOWN]:
            err.print(plain(f"  {times:,} x {message}"), style="red", soft_wrap=True)
    if counts.unknown:
        err.print(
            plain(f"{counted(counts.unknown, 'line')} of the results cannot be used."), style="yellow", soft_wrap=True
        )


def submit(
    ledger: Annotated[
        str,
        typer.Option(help="The ledger for the judgments: a file such as run.sqlite, or a postgresql:// URL."),
    ],
    judge: Annotated[
        list[str],
        typer.Option(
            help="A model, such as openai/gpt-5-mini. Several models form a panel, which votes.",
            rich_help_panel=JudgeOptions.panel,
        ),
    ],
    judge_options: Annotated[
        JudgeOptions,
        Only(
            texts={
                "api_base": "Base URL of another server with the same batch API.",
                "api_key": "Key of that server; by default, the environment's. It is stored nowhere.",
                "judge_option": "A setting of the model: temperature, max_tokens, seed, reasoning_effort or "
                "system_prompt.",
            }
        ),
    ],
    row_options: Annotated[RowOptions, Only(("query", "response_column", "query_column", "input_format", "library"))],
    grader_options: Annotated[
        GraderOptions, Only(texts={"step_limit": "As for `grade`.", "chunk_size": "As for `grade`."})
    ],
    rubric: Annotated[Path | None, RubricArgument] = None,
    responses: Annotated[
        Path | None,
        typer.Argument(help="The responses, in the formats that `grade` reads.", show_default=False),
    ] = None,
    modules: ModulesOption = None,
) -> None:
    """Submit the questions about responses to the batch API of the judge's provider, at half price.

    The answers arrive within a day. `collect` stores them in the ledger. Then `grade` with the same ledger, rubric,
    responses and judge reads the answers from the ledger. If this command is interrupted, repeat it: nothing is
    requested twice.

    Exit codes: 0 done; 2 bad usage or bad input, also of a single row; 3 the provider refuses a request.
    """
    from rubric_integrations.cli.rows import RowsOfFile
    from rubric_integrations.formats.row_rubrics import RowRubrics
    from rubric_integrations.judges.store import StoreError
    from rubric_integrations.runs import BatchError, submit_batches

    if rubric is None:
        refuse(NOTHING_TO_GRADE)
    rubric_file, rows_file = (rubric, responses) if responses else (None, rubric)
    judges, library = replace(judge_options, judge=judge), row_options.library
    settings = {
        "judges": judge, "api_base": judges.api_base, "judge_option": judges.judge_option or [],
        "step_limit": grader_options.step_limit, "chunk_size": grader_options.chunk_size,
    }  # fmt: skip
    try:
        import_modules(modules or ())
        rubrics = RowRubrics(rubric_file, library)
        grader = grader_options.make_grader(judges.make_judges())
        # Refuses wrong files and rubrics before anything is submitted.
        rows = RowsOfFile(row_options.open(rows_file), rubrics, rubric_file)
        address = ledger_address(ledger)
        counts = submit_batches(rows, rubrics.shared, grader, ledger=address, library=library, settings=settings)
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
    line = (
        f"{counted(counts.requests, 'request')} about {counted(counts.rows, 'row')} submitted in "
        f"{counted(counts.batches, 'batch', 'batches')}"
    )
    waiting = f"; {counts.waiting:,} are in earlier batches" if counts.waiting else ""
    out.print(plain(f"{line}{waiting}."), soft_wrap=True)
    if counts.batches or counts.waiting:
        out.print(plain(f"Next: rubric-integrations collect --ledger {url_without_secrets(ledger)}"), soft_wrap=True)
    if problems:
        raise typer.Exit(Exit.BAD_INPUT if counts.errors else Exit.JUDGE_FAILED)
