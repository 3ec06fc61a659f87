"""The condition `json_schema`."""

from __future__ import annotations

import pytest

from rubric_integrations import Check
from rubric_integrations.checks import run_check
from rubric_integrations.scoring import JudgeFailure


def test_schema_with_a_reference_to_the_network_is_a_failure() -> None:
    with pytest.raises(JudgeFailure, match="not in it"):
        run_check(Check(json_schema={"$ref": "http://example.com/schema.json"}), "{}")


@pytest.mark.parametrize("response", ["NaN", "Infinity", "-Infinity", "[0.5, NaN]"])
def test_number_that_json_does_not_have_is_not_json(response: str) -> None:
    check = Check(json_schema={"minimum": 0, "maximum": 1})
    assert (run_check(check, response).verdict, run_check(check, "0.5").verdict) == ("UNMET", "MET")
    assert "is not JSON" in run_check(check, response).reason
