"""A progress bar on stderr for work with a known number of steps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager


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
