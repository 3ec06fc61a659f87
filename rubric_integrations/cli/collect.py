"""The command `collect`: stores the replies to the batches of `submit` in their ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.urls import url_without_secrets
from rubric_integrations.cli.console import Exit, err, out, refuse
from rubric_integrations.cli.grader_options import GraderOptions
from rubric_integrations.cli.import_option import import_modules
from rubric_integrations.cli.judge_option import make_judges
from rubric_integrations.cli.ledger_option import ledger_address, ledger_exists

if TYPE_CHECKING:
    from rubric_integrations.runs.batches import CollectedBatches

# More kinds of problems are not read in a terminal.
_MAX_SHOWN = 5


def collect(
    ledger: Annotated[str, typer.Option(help="The ledger with which the batches were submitted.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all batches are over, up to a day.")] = False,
    api_key: Annotated[
        str | None, typer.Option(help="Key of the server, if `submit` had one; by default that of the environment.")
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import a Python module that registers custom metrics."),
    ] = None,
) -> None:
    """Store the replies to the batches of `submit` in their ledger.

    A request without a valid reply stays unanswered: `submit` requests it again, or `grade` at the full price. If this
    is interrupted, repeat it.

    Exit codes: 0 done, or batches are not over yet; 2 bad usage or bad input; 3 a request has no valid reply, or the
    provider refuses.
    """
    from rubric_integrations.judges.stored import StoreError
    from rubric_integrations.runs.batches import BatchError, collect_batches
    from rubric_integrations.runs.batches.records import open_settings
    from rubric_integrations.runs.batches.session import use_ledger

    address, name = ledger_address(ledger), url_without_secrets(ledger)
    if not ledger_exists(address):
        refuse(f"{name}: there is no such ledger")
    failed = False
    try:
        import_modules(modules or ())
        with use_ledger(address) as opened:
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
    judges = make_judges(settings["judges"], settings["api_base"], settings["judge_option"], api_key=api_key)
    return GraderOptions.for_batches(settings["step_limit"], settings["chunk_size"]).make_grader(judges)


def _print(counts: CollectedBatches, judge: str) -> None:
    cost = "" if counts.spend.cost is None else f" for ${counts.spend.cost:.4f}"
    line = f"{judge}: {counts.judgments:,} judgments of {counts.batches:,} batches stored{cost}."
    out.print(plain(line), soft_wrap=True)
    if counts.waiting:
        line = (
            f"{counts.waiting:,} batches are not over: {counts.done:,} of {counts.requests:,} requests are processed."
        )
        out.print(plain(line), soft_wrap=True)
    if counts.failed:
        err.print(plain(f"{counts.failed:,} requests have no judgment:"), style="red", soft_wrap=True)
        for message, times in counts.problems[:_MAX_SHOWN]:
            err.print(plain(f"  {times:,} x {message}"), style="red", soft_wrap=True)
    if counts.unknown:
        err.print(plain(f"{counts.unknown:,} lines of the results cannot be used."), style="yellow", soft_wrap=True)
