"""Runs commands in-process, as a shell would, and holds the inputs that several test files use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from rubric_integrations.cli import app

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = EXAMPLES / "quarterly_margin"
RUBRIC = "- {name: answer, weight: 3, requirement: Says 42, check: {number: 42}}\n- {weight: 1, requirement: Is kind}\n"


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, [str(argument) for argument in arguments])


def grade(folder: Path, *options: object, responses: str = "responses.jsonl", rubric: str = "rubric.yaml") -> Result:
    return run("grade", folder / rubric, folder / responses, *options)


def write_inputs(folder: Path) -> None:
    """Write a rubric and three responses, the last of which is a JSON string."""
    (folder / "rubric.yaml").write_text(RUBRIC)
    (folder / "responses.jsonl").write_text('{"id": "a", "response": "42"}\n\n{"response": "41"}\n"42!"\n')


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
