"""A folder with a rubric and responses."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import typer.testing
from typer.main import get_command

from tests.cli.commands import write_inputs

# Typer would make all commands again, from their signatures, for each one that a test runs.
typer.testing._get_command = cache(get_command)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_inputs(tmp_path)
    return tmp_path
