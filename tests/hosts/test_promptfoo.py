"""The assertion of `examples/promptfoo`, called as promptfoo calls it."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from rubric_integrations import JudgeError
from rubric_integrations.graders import Grader
from tests.hosts.six_responses import QUERY, ROWS, RUBRIC, make_grader

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/promptfoo"
VERDICTS = [row for row in ROWS if row.score is not None]
FAILING = ROWS[-1]


@pytest.fixture
def promptfoo(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the assertion, which is loaded by its path as promptfoo does it."""
    monkeypatch.chdir(EXAMPLE)
    return runpy.run_path("rubric_assert.py")


def test_promptfoo_assertion_grades_the_examples_of_its_configuration(promptfoo: dict[str, Any]) -> None:
    configuration = yaml.safe_load(Path("promptfooconfig.yaml").read_text(encoding="utf-8"))
    [assertion] = configuration["defaultTest"]["assert"]
    assert assertion["value"] == "file://rubric_assert.py"
    right, wrong = (
        promptfoo["get_assert"](test["vars"]["response"], {"vars": test["vars"], "config": assertion["config"]})
        for test in configuration["tests"]
    )
    assert (right["pass"], wrong["pass"]) == (True, False)
    assert right["namedScores"]["rubric.margin"] == 1.0
    assert len(right["componentResults"]) == len(right["namedScores"])
    assert json.loads(json.dumps(right)) == right


def test_promptfoo_assertion_about_six_responses_raises_for_the_one_whose_judge_failed(
    promptfoo: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "rubric.json").write_text(json.dumps(RUBRIC.to_dict()))
    get_assert = promptfoo["get_assert"]

    def six_grader(_judge: str, _ledger: str | None) -> Grader:
        return make_grader()

    get_assert.__globals__["grader_of"] = six_grader
    context = {"vars": {"query": QUERY}, "config": {"rubric": str(tmp_path / "rubric.json"), "judge": "unused"}}
    for row in VERDICTS:
        assert get_assert(row.response, context)["score"] == pytest.approx(row.score)
    unclear = get_assert(ROWS[4].response, context)
    assert set(unclear["namedScores"]) == {"rubric.sourced", "rubric.rude"}
    with pytest.raises(JudgeError, match="`right` was not judged"):
        get_assert(FAILING.response, context)


def test_promptfoo_assertion_with_a_ledger_stores_its_judgments(promptfoo: dict[str, Any], tmp_path: Path) -> None:
    ledger = tmp_path / "judgments.sqlite"
    config = {"rubric": "../quarterly_margin/rubric.yaml", "judge": "offline", "ledger": os.fspath(ledger)}
    promptfoo["get_assert"]("The operating margin was 17.2%.", {"vars": {}, "config": config})
    assert ledger.stat().st_size > 0
