"""A folder with a rubric and responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import RUBRIC


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    (tmp_path / "responses.jsonl").write_text('{"id": "a", "response": "42"}\n\n{"response": "41"}\n"42!"\n')
    return tmp_path
