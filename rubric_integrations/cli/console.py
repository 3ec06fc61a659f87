"""Output streams, exit codes, the display of figures, and how a command ends on invalid input or SIGTERM."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import decimal

if TYPE_CHECKING:
    from rich.table import Table

    from rubric_integrations.trust import GateResult

out = Console()
err = Console(stderr=True)


class Exit(IntEnum):
    """Exit codes. If several apply, a judge failure has priority over bad input, and bad input over a failed gate."""

    DONE = 0
    NOT_PASSED = 1
    BAD_INPUT = 2
    JUDGE_FAILED = 3
    STOPPED = 4
    INTERRUPTED = 130


def refuse(message: str) -> NoReturn:
    """Print what is wrong with the user's input and exit with `Exit.BAD_INPUT`."""
    # A `RubricError` has one line for each fault, which begins with the file. Any other line break comes from user
    # text.
    source = message.partition(": ")[0]
    for number, line in enumerate(message.split(f"\n{source}: ")):
        err.print(plain(f"{source}: {line}" if number else line), style="red", soft_wrap=True)
    raise typer.Exit(Exit.BAD_INPUT)


def unwritable(path: object, error: OSError) -> str:
    """Return the error message for a file that could not be written."""
    return f"{path}: cannot be written: {error.strerror or error}"


UNDEFINED = "-"

# The longest ranking that is printed. `--out` has every submission.
MAX_RANKED = 50

AGREEMENT_WORDS = {
    "coverage": "the share of the labelled judgments that both decided",
    "kappa": "the agreement beyond chance, 1 if full and 0 for guesses",
    "AC1": "such an agreement that stays meaningful where nearly all answers are equal",
    "bias": "the judge's mean minus that of the human labels: above 0, it says MET too often",
}
"""What the figures in tables of agreement mean."""


def figure(value: float | None, digits: int = 3) -> str:
    """Return a figure as text, or a dash if it is undefined."""
    return UNDEFINED if value is None else decimal(value, digits)


def figures_table(title: str, columns: Sequence[str], *, text: Sequence[str] = ()) -> Table:
    """Return an empty table of figures.

    Args:
        title: The title of the table.
        columns: The names of the columns.
        text: The columns with texts, which are aligned left. Figures are aligned right.
    """
    from rich.table import Table

    table = Table(title=plain(title), title_justify="left", title_style="bold")
    for name in columns:
        # Without it, wide figures would fold this heading.
        min_width = len(name) if name == "criterion" else None
        table.add_column(name, justify="left" if name in text else "right", overflow="fold", min_width=min_width)
    return table


def print_lines(lines: Sequence[str]) -> None:
    """Print lines on stdout as plain text. Text that looks like markup, such as `[red]`, is not interpreted."""
    for line in lines:
        out.print(plain(line), soft_wrap=True)


def print_warnings(lines: Sequence[str]) -> None:
    """Print warnings on stderr. Therefore, they do not disturb JSON on stdout."""
    for line in lines:
        err.print(plain(f"warning: {line}"), style="yellow", soft_wrap=True)


def print_gate(result: GateResult, *, baseline: str = "the baseline", quiet: bool = False) -> bool:
    """Print the decision of a gate in one line, and the worst rows on stderr if the build must not go on.

    Args:
        result: The result of the gate.
        baseline: The name of the baseline.
        quiet: Whether to print nothing if the build may go on.

    Returns:
        Whether the build may go on.
    """
    words = {"pass": " passed", "fail": " failed", "inconclusive": " inconclusive"}
    line = f"gate{words.get(result.decision, f': {result.decision}')}: {_with_options(result.message(baseline))}"
    if result.is_accepted:
        print_lines([] if quiet else [line])
    else:
        err.print(plain(line), style="red", soft_wrap=True)
        for row in result.rows:
            err.print(plain(f"  {row}"), soft_wrap=True)
    return result.is_accepted


def _with_options(text: str) -> str:
    """Replace arguments such as `min_score=0.8` in a text by options such as --min-score 0.8."""

    def option(match: re.Match[str]) -> str:
        name, value = match.groups()
        name = {"every_row": "gate"}.get(name, name.replace("_", "-"))
        return f"--{name}{f' {value}' if value and value != 'True' else ''}"

    return re.sub(r"`(\w+)=([^`\s]*)`", option, text)


def print_json(figures: Any) -> None:
    """Print a record or a dictionary as one JSON object on stdout. An undefined figure is null, never NaN."""
    text = json.dumps(_plain(figures), ensure_ascii=False, indent=2, allow_nan=False)
    print(text)  # noqa: T201 -- rich would wrap the lines


def _plain(value: Any) -> Any:
    """Convert records to dictionaries, including named tuples. Pydantic would write these as lists without names."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def sigterm_interrupts() -> Generator[None]:
    """Raise `KeyboardInterrupt` in the block on SIGTERM, the signal with which containers and CI stop a process."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def print_meanings(*names: str) -> None:
    """Print what some figures of `AGREEMENT_WORDS` mean, in one line."""
    print_lines([f"{'; '.join(f'{name}: {AGREEMENT_WORDS[name]}' for name in names)}."])
