"""The condition `json_schema`."""

from __future__ import annotations

import pytest

from rubric_integrations import Check
from rubric_integrations.checks import run_check
from rubric_integrations.results.judgment import JudgeFailure


def test_schema_with_a_reference_to_the_network_is_a_failure() -> None:
    with pytest.raises(JudgeFailure, match="not in it"):
        run_check(Check(json_schema={"$ref": "http://example.com/schema.json"}), "{}")
