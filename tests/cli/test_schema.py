"""The command `schema`."""

from __future__ import annotations

import json

from tests.cli.commands import run


def test_schema_prints_the_json_schema_of_a_rubric() -> None:
    result = run("schema")
    assert (result.exit_code, json.loads(result.stdout)["title"]) == (0, "Rubric")
