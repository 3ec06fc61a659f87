"""The command `migrate`: an OpenRubricRL file of an older schema becomes valid."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import run


def test_migrate_of_an_old_file_makes_it_valid(files: Path) -> None:
    old = {"name": "old", "scale": {"min": 0, "max": 10}, "criteria": [{"name": "c", "description": "d", "weight": 1}]}
    (files / "old.json").write_text(json.dumps(old))
    assert run("validate", files / "old.json").exit_code == 1
    result = run("migrate", files / "old.json", "--to-version", "2.0.0", "--output", files / "new.json")
    assert (result.exit_code, "`version` 2.0.0 added" in result.stderr) == (0, True)
    assert run("validate", files / "new.json").exit_code == 0


def test_migrate_of_another_format_exits_with_2(files: Path) -> None:
    assert run("migrate", files / "rubric.yaml").exit_code == 2
