"""AgentV's eval files and their cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubric_integrations import Rubric, RubricError
from rubric_integrations.dspy import to_examples
from rubric_integrations.formats import load_eval_cases

EVAL_FILE = Path(__file__).resolve().parents[2] / "examples/agentv/code_review.yaml"


def test_case_of_an_eval_file_has_the_shared_criteria_and_its_own() -> None:
    cases = list(load_eval_cases(EVAL_FILE))
    assert [(case.id, len(case.rubric)) for case in cases] == [("shell-injection", 4), ("off-by-one", 3)]
    assert cases[0].input.startswith("Review: `os.system")
    assert cases[0].rubric.criteria[-1].requirement.startswith("Proposes a call")
    examples = to_examples(cases)
    assert examples[0].inputs().keys() == ["input"]
    assert (examples[1].rubric, examples[1].expected_outcome) == (
        cases[1].rubric,
        "Finds that the last element is skipped",
    )
    langsmith_example = cases[0].as_langsmith()
    assert langsmith_example["inputs"] == {"input": cases[0].input}
    assert Rubric.from_dict(json.loads(json.dumps(langsmith_example))["metadata"]["rubric"]) == cases[0].rubric


def test_eval_file_with_several_rubrics_read_as_one_rubric_is_refused() -> None:
    with pytest.raises(RubricError, match="load_eval_cases"):
        Rubric.from_file(EVAL_FILE)


def test_case_without_rubrics_has_its_expected_outcome_as_the_only_criterion(tmp_path: Path) -> None:
    path = tmp_path / "evals.yaml"
    path.write_text(
        "evalcases: [{input: [{role: system, content: s}, {role: user, content: u}], expected_outcome: Greets}]"
    )
    [case] = load_eval_cases(path)
    assert (case.id, case.input, case.rubric.criteria[0].requirement) == ("1", "system: s\nuser: u", "Greets")
    path.write_text("evalcases: [{id: x, input: u}]")
    with pytest.raises(RubricError, match="case x"):
        list(load_eval_cases(path))
