"""Text for a terminal: untrusted text without control characters, and a progress bar on stderr."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.text import Text

from rubric_integrations._util.text import one_line


@contextmanager
def counting_bar(description: str, total: int, *, enabled: bool = True) -> Generator[Callable[[], None]]:
    """Show a progress bar on stderr while the block runs, if stderr is a terminal.

    Args:
        description: The text to the left of the bar.
        total: The number of steps.
        enabled: Whether to show the bar on a terminal.

    Yields:
        A function that counts one finished step. It may be called from any thread.

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


def plain(text: str, *, keeps_lines: bool = False) -> Text:
    r"""Make untrusted text safe to print: on one line, without markup and control characters.

    Control characters could move the cursor and overwrite earlier output. After a line break, a line could begin with a
    command for the CI system, such as `::error::` in the log of a build.

    Args:
        text: The text.
        keeps_lines: Whether to keep line breaks. Set it only for cells of a table, or if the output is read at a
            terminal.

    Example:
        >>> plain("[red]\x1b[2J\n::error::x").plain
        '[red]\\x1b[2J\\n::error::x'
    """
    if keeps_lines:
        return Text("\n".join(map(one_line, text.expandtabs(4).splitlines())))
    return Text(one_line(text))
