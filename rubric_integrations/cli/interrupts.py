"""Ends a run on SIGTERM as on Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def sigterm_interrupts() -> Generator[None]:
    """End the block on SIGTERM as on Ctrl-C: containers and CI stop a process with SIGTERM, and it can be resumed."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
