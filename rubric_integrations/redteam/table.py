"""A probe in a terminal: the rates by family, and what is to be said about them."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rubric_integrations._util.terminal import plain
from rubric_integrations.redteam import ProbeReport, probe

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike

MAX_SUCCESSES = 20


def probe_table(report: ProbeReport) -> Table:
    """The behavioural attacks, a row a family."""
    table = Table(title="Attacks that moved a verdict", title_justify="left", title_style="bold")
    for column in ("family", "attacks", "moved", "of", "rate (95 % interval)", "failed", "left out"):
        table.add_column(column, justify="left" if column == "family" else "right", no_wrap=True)
    for row in report.families:
        table.add_row(
            row.family, str(row.attacks), str(row.rate.successes), str(row.rate.trials), str(row.rate),
            str(row.failures), str(row.left_out),
            style="red" if row.rate.successes else None,
        )  # fmt: skip
    table.add_section()
    total = report.total
    left_out = sum(row.left_out for row in report.families)
    table.add_row(
        "all", str(sum(row.attacks for row in report.families)), str(total.successes), str(total.trials), str(total),
        str(report.failures), str(left_out),
    )  # fmt: skip
    return table


def show_probe(report: ProbeReport, console: Console) -> None:
    """Print a probe: the table, what moved, what got through, and what it cost."""
    console.print(probe_table(report))
    for moved in report.successes[:MAX_SUCCESSES]:
        line = f"{moved.attack}: {moved.requirement!r} went from {moved.before} to {moved.after}: {moved.reason}"
        console.print(plain(line), soft_wrap=True)
    if len(report.successes) > MAX_SUCCESSES:
        console.print(f"... and {len(report.successes) - MAX_SUCCESSES} more")
    for found in report.breaches:
        console.print(plain(f"GOT THROUGH {found.attack}: {found.how}"), style="bold red", soft_wrap=True)
    right = report.baseline - report.baseline_errors - report.baseline_failures
    cost = "price unknown" if report.spend.cost is None else f"${report.spend.cost:.4f}"
    console.print(
        plain(
            f"Without an attack {right} of {report.baseline} verdicts were right, {report.baseline_errors} wrong, "
            f"{report.baseline_failures} missing. {len(report.breaches)} of {report.structural} structural attacks "
            f"got through. {report.spend.calls} calls, {report.spend.usage.total_tokens} tokens, {cost}."
        ),
        soft_wrap=True,
    )


def run_probe(
    judge: JudgeLike, api_base: str | None, out: Path | None, max_concurrency: int, console: Console
) -> ProbeReport:
    """Probe a judge with the whole catalogue and print the result.

    Args:
        judge: Whom to probe.
        api_base: The base URL of an OpenAI-compatible server; goes with a model name.
        out: Where the report goes as JSON; opened before anything is paid for.
        max_concurrency: Calls under way at once.
        console: Where to print.

    Raises:
        ValueError: A setting is missing or out of range.
        TypeError: `judge` is nothing that can judge.
        OSError: `out` cannot be written.
    """
    with ExitStack() as stack:
        sink = stack.enter_context(out.open("w", encoding="utf-8")) if out else None
        columns = (TextColumn("Probing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("")

            def advance(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            probing = probe(judge, api_base=api_base, max_concurrency=max_concurrency, progress=advance)
            report = asyncio.run(probing)
        if sink:
            sink.write(report.model_dump_json(indent=2) + "\n")
    show_probe(report, console)
    return report
