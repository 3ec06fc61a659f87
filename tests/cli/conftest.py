"""A folder with a rubric and responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import write_inputs


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_inputs(tmp_path)
    return tmp_path
