"""The time limit of patterns."""

from __future__ import annotations

import json

import pytest

from rubric_integrations import Check
from rubric_integrations.checks import run_check, structure, text
from rubric_integrations.scoring import JudgeFailure


@pytest.mark.parametrize("check", [Check(regex=r"^(a|aa)+$"), Check(json_schema={"pattern": r"^(a|aa)+$"})])
def test_catastrophic_pattern_is_a_failure_and_does_not_hang(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (text, structure):
        monkeypatch.setattr(module, "PATTERN_SECONDS", 0.1)
    with pytest.raises(JudgeFailure, match=r"check: .*took longer"):
        run_check(check, json.dumps("a" * 60 + "!") if check.json_schema else "a" * 60 + "!")
