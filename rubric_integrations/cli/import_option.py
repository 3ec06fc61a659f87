"""The option `--import`: Python modules that register custom metrics, which a rubric file may name but not load."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rubric_integrations.cli.console import refuse

if TYPE_CHECKING:
    from rubric_integrations.rubric.rubric import Rubric


def import_modules(names: Sequence[str]) -> None:
    """Import modules by name, from the working directory or the installed packages."""
    if names:
        sys.path.insert(0, str(Path.cwd()))
    for name in names:
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001 -- a module of the user's may raise anything
            reason = str(error).partition("\n")[0]
            refuse(f"`--import` {name!r} cannot be imported: {type(error).__name__}: {reason}")


def refuse_unregistered_metrics(rubric: Rubric, source: str) -> None:
    """Refuse a rubric with a custom metric that is not registered, before calls are paid for."""
    from rubric_integrations.checks.metrics import unregistered_metrics
    from rubric_integrations.reporting.validation import unregistered_fault

    for where, name in unregistered_metrics(rubric)[:1]:
        refuse(f"{source}: {unregistered_fault(where, name)}")
