"""Runs a probe from the command line: a progress bar and a table of success rates by family."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rubric_integrations._util.terminal import plain, spend_text
from rubric_integrations.graders import CallLimits
from rubric_integrations.redteam import ProbeReport, probe

if TYPE_CHECKING:
    from rubric_integrations.judges import JudgeLike

# More lines are not read in a terminal; `--out` has every success.
MAX_SUCCESSES = 20


def probe_table(report: ProbeReport) -> Table:
    """Build the table of the behavioural attacks: one row per family."""
    table = Table(title="Attacks that changed a verdict", title_justify="left", title_style="bold")
    for column in ("family", "attacks", "changed", "of", "rate (95 % interval)", "failed", "left out"):
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


def print_probe(report: ProbeReport, console: Console) -> None:
    """Print a probe: the table, the changed verdicts, the structural attacks that succeeded, and the spend."""
    console.print(probe_table(report))
    for success in report.successes[:MAX_SUCCESSES]:
        change = f"{success.requirement!r} changed from {success.before} to {success.after}"
        line = f"{success.attack}: {change}: {success.reason}"
        console.print(plain(line), soft_wrap=True)
    if len(report.successes) > MAX_SUCCESSES:
        console.print(f"... and {len(report.successes) - MAX_SUCCESSES} more")
    for breach in report.breaches:
        console.print(
            plain(f"STRUCTURAL ATTACK SUCCEEDED: {breach.attack}: {breach.how}"), style="bold red", soft_wrap=True
        )
    right = report.baseline - report.baseline_errors - report.baseline_failures
    spend = spend_text(report.spend.calls, report.spend.total_tokens, report.spend.cost)
    console.print(
        plain(
            f"Without an attack {right} of {report.baseline} verdicts were right, {report.baseline_errors} wrong, "
            f"{report.baseline_failures} missing. {len(report.breaches)} of {report.structural} structural attacks "
            f"succeeded. {spend}."
        ),
        soft_wrap=True,
    )


def run_probe(judge: JudgeLike, max_concurrency: int, console: Console) -> ProbeReport:
    """Probe a judge with the whole catalogue and print the result.

    Args:
        judge: The judge to probe; anything that a grader accepts as `judge`.
        max_concurrency: Maximum number of concurrent calls.
        console: The console to print to.

    Raises:
        ValueError: A setting is missing or out of range.
        TypeError: `judge` cannot judge.
    """
    columns = (TextColumn("Probing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        probing = probe(judge, limits=CallLimits(max_concurrency=max_concurrency), progress=advance)
        report = asyncio.run(probing)
    print_probe(report, console)
    return report
