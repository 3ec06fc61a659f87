"""The progress of a run on stderr: done, failed, abstained, tokens, cost, rate and time left."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rubric_integrations.runs.summary import RunSummary


@contextmanager
def progress_bar(submissions: Any) -> Generator[Callable[[RunSummary], None]]:
    """A bar that is told the summary after each submission; shown only on a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        BarColumn(bar_width=8), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(compact=True), TextColumn("{task.fields[said]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        total = len(submissions) if isinstance(submissions, Sized) else None
        task = progress.add_task("", total=total, said="")

        def show(summary: RunSummary) -> None:
            progress.update(task, completed=summary.submissions, said=_short(summary))

        yield show


def summary_line(summary: RunSummary) -> str:
    """What a run has come to and what it has cost, in one line.

    Example:
        >>> from rubric_integrations.runs.summary import RunSummary
        >>> summary_line(RunSummary(submissions=10, failed=1, seconds=5.0))
        '1 failed, 0 abstentions, 0 calls, 0 tokens, $0.0000, 2.0/s'
    """
    cost = "price unknown" if summary.spend.cost is None else f"${summary.spend.cost:.4f}"
    rate = f"{summary.submissions / summary.seconds:.1f}/s" if summary.seconds else "-/s"
    reused = [f"{summary.reused} from the ledger"] if summary.reused else []
    parts = [
        f"{summary.failed} failed", f"{summary.abstentions} abstentions", *reused, f"{summary.spend.calls} calls",
        f"{summary.spend.usage.total_tokens} tokens", cost, rate,
    ]  # fmt: skip
    return ", ".join(parts)


def _short(summary: RunSummary) -> str:
    """The same for a line of 80 columns that holds a bar and two times."""
    cost = "$?" if summary.spend.cost is None else f"${summary.spend.cost:.2f}"
    rate = f"{summary.submissions / summary.seconds:.1f}/s" if summary.seconds else ""
    tokens = f"{summary.spend.usage.total_tokens:,} tok"
    return f"{summary.failed} failed, {summary.abstentions} abst., {tokens}, {cost} {rate}"
