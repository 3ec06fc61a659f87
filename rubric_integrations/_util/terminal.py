"""Text for a terminal: untrusted text without control characters, spend in one line, and a progress bar on stderr."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.text import Text


@contextmanager
def counting_bar(description: str, total: int, *, enabled: bool = True) -> Generator[Callable[[], None]]:
    """Show a progress bar on stderr while the block runs, if stderr is a terminal.

    Args:
        description: The text to the left of the bar.
        total: The number of steps.
        enabled: Whether to show the bar on a terminal.

    Yields:
        A function that counts one finished step; it may be called from any thread.

    Example:
        >>> with counting_bar("grading", total=2, enabled=False) as count_step:
        ...     for _ in range(2):
        ...         count_step()
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True, disable=not (enabled and console.is_terminal)) as progress:
        task = progress.add_task(description, total=total)

        def count_step() -> None:
            progress.advance(task)

        yield count_step


def plain(text: str) -> Text:
    r"""Make untrusted text safe to print: no markup, and a replacement character for each control character.

    Control characters could move the cursor and overwrite what the terminal already shows.

    Example:
        >>> plain("[red]\x1b[2J").plain
        '[red]�[2J'
    """
    return Text("".join(ch if ch.isprintable() or ch in "\n\t" else "\N{REPLACEMENT CHARACTER}" for ch in text))


def spend_text(calls: int, tokens: int | None, cost: float | None) -> str:
    """Describe calls, tokens and cost in US dollars; None means unknown.

    Example:
        >>> spend_text(3, None, 0.5)
        '3 calls, tokens unknown, $0.5000'
    """
    tokens_part = "tokens unknown" if tokens is None else f"{tokens} tokens"
    cost_part = "price unknown" if cost is None else f"${cost:.4f}"
    return f"{calls} calls, {tokens_part}, {cost_part}"
