"""Shows the progress of a run: a progress bar on stderr, and its summary in one line or as a table."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rubric_integrations._util.notebook import html_table
from rubric_integrations._util.terminal import spend_text

if TYPE_CHECKING:
    from rubric_integrations.runs.summary import RunSummary


def _no_outage() -> float | None:
    return None


@contextmanager
def progress_bar(
    submissions: object, outage_seconds: Callable[[], float | None] = _no_outage
) -> Generator[Callable[[RunSummary], None]]:
    """Show a progress bar on stderr while the block runs, if stderr is a terminal.

    Args:
        submissions: The submissions of the run. The bar shows their number and the time left if they have a length.
        outage_seconds: For how long the run has been waiting for the judge's endpoint; None if it is not.

    Yields:
        A function that draws the bar for the summary of the run so far.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Details(ProgressColumn):
        """What the bar says beside the numbers, redrawn several times a second, also while no result comes."""

        max_refresh = None

        def render(self, task: Task) -> Text:
            seconds = outage_seconds()
            text = task.fields["details"] if seconds is None else f"waiting for the endpoint, {seconds:.0f} s"
            return Text(text, no_wrap=True)

    console = Console(stderr=True)
    columns = (
        BarColumn(bar_width=8), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(compact=True), Details(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        total = len(submissions) if isinstance(submissions, Sized) else None
        task = progress.add_task("", total=total, details="")

        def show(summary: RunSummary) -> None:
            progress.update(task, completed=summary.submissions, details=short_summary_line(summary))

        yield show


def summary_line(summary: RunSummary) -> str:
    """Describe the results, the spend and the speed of a run in one line.

    Example:
        >>> from rubric_integrations.runs.summary import RunSummary
        >>> summary_line(RunSummary(submissions=10, failed=1, seconds=5.0))
        '1 failed, 0 abstentions, 0 calls, 0 tokens, $0.0000, 2.0/s'
    """
    spend = summary.spend
    reused = [f"{summary.reused} from the ledger"] if summary.reused else []
    escalated = [summary.escalations.summary()] if summary.escalations.judgments else []
    rate = f"{summary.submissions / summary.seconds:.1f}/s" if summary.seconds else "-/s"
    parts = [
        f"{summary.failed} failed", f"{summary.abstentions} abstentions", *reused,
        spend_text(spend.calls, spend.total_tokens, spend.cost), *escalated, rate,
    ]  # fmt: skip
    return ", ".join(parts)


def short_summary_line(summary: RunSummary) -> str:
    """Describe a run as `summary_line` does, short enough for one line of 80 columns beside the bar and two times.

    Example:
        >>> from rubric_integrations.runs.summary import RunSummary
        >>> short_summary_line(RunSummary(submissions=10, failed=1, seconds=5.0))
        '1 failed, 0 abst., 0 tok, $0.00 2.0/s'
    """
    spend = summary.spend
    tokens = "tokens unknown" if spend.total_tokens is None else f"{spend.total_tokens:,} tok"
    cost = "$?" if spend.cost is None else f"${spend.cost:.2f}"
    rate = f"{summary.submissions / summary.seconds:.1f}/s" if summary.seconds else ""
    return f"{summary.failed} failed, {summary.abstentions} abst., {tokens}, {cost} {rate}"


def summary_table(summary: RunSummary) -> str:
    """Return the results and the spend of a run as an HTML table, for notebooks.

    Example:
        >>> from rubric_integrations.runs.summary import RunSummary
        >>> "<td" in summary_table(RunSummary(submissions=10))
        True
    """
    cells: dict[str, object] = {
        "submissions": summary.submissions,
        "mean score": None if summary.mean_score is None else round(summary.mean_score, 3),
        "passed": summary.passed,
        "failed": summary.failed,
        "abstentions": summary.abstentions,
        "calls": summary.spend.calls,
        "US dollars": summary.spend.cost,
    }
    if summary.escalations.judgments:
        cells["cascade"] = summary.escalations.summary()
    return html_table(summary.stopped or "Run so far", list(cells), [list(cells.values())])
