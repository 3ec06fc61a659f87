"""The JSON Schema of the native format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from rubric_integrations.formats.native import json_schema
from tests.formats.test_linting import EXAMPLES
from tests.rubric.test_check_trajectory import TRAJECTORY
from tests.rubric.test_rubric_tree import TREE

ROOT = Path(__file__).resolve().parents[2]


def test_published_schema_is_current_and_agrees_with_the_reader() -> None:
    published = json.loads((ROOT / "schema/rubric.schema.json").read_text(encoding="utf-8"))
    assert published == json_schema()
    validator: Any = Draft202012Validator(published)
    examples = (TREE, (ROOT / "examples/quarterly_margin/rubric.yaml").read_text(), TRAJECTORY, *EXAMPLES.values())
    for text in examples:
        assert list(validator.iter_errors(yaml.safe_load(text))) == []
    for text in ("- {wieght: 3, requirement: a}", "[]", "- {weight: 3}", "- {requirement: a, check: {max_wrds: 3}}"):
        assert list(validator.iter_errors(yaml.safe_load(text)))
