"""Assertions of promptfoo and of current AgentV, read as the criteria of a rubric."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import load_eval_cases, reading_losses, write_document
from rubric_integrations.formats.registry import detect
from rubric_integrations.rubric.check import CONDITIONS

AGENTV: dict[str, Any] = {
    "name": "summaries",
    "tests": [
        {
            "id": "margin",
            "criteria": "Summarizes faithfully",
            "input": [{"role": "user", "content": "Summarize the note."}],
            "assert": [
                "Is one paragraph",
                {
                    "type": "llm-rubric",
                    "value": [
                        {"id": "revenue", "operator": "correctness", "outcome": "States the revenue", "weight": 3},
                        {"id": "guard", "operator": "contradiction", "outcome": "The margin fell to 42%"},
                        {"id": "style", "outcome": "Is plain", "required": False},
                    ],
                },
            ],
        }
    ],
}
PROMPTFOO: dict[str, Any] = {
    "prompts": ["{{question}}"],
    "providers": ["openai:gpt-5-mini"],
    "defaultTest": {"assert": [{"type": "llm-rubric", "value": "Is polite", "metric": "tone"}]},
    "tests": [
        {
            "description": "landing",
            "vars": {"question": "When did it land?", "year": 1969},
            "assert": [
                {"type": "javascript", "value": "output.length < 99"},
                {"type": "llm-rubric", "value": "Names {{ year }} as the year", "weight": 2},
                {"type": "not-llm-rubric", "value": "Blames the user"},
            ],
        }
    ],
}


def read(document: Any) -> Rubric:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Rubric.from_dict(document)


def test_current_agentv_file_is_read_with_its_defaults() -> None:
    assert detect(AGENTV) == "agentv"
    rubric = Rubric.from_dict(AGENTV)
    assert [c.required for c in rubric.criteria] == [True, True, True, False]
    assert rubric.criteria[2].requirement.startswith("Makes no claim that contradicts this statement")
    assert rubric.criteria[2].requirement.endswith("The margin fell to 42%")
    # A text weighs as much as a whole list of items, which share the weight of their assertion.
    assert [c.weight for c in rubric.criteria] == pytest.approx([1, 0.6, 0.2, 0.2])
    assert reading_losses(AGENTV) == []


def test_generation_with_assertions_and_criteria_is_read() -> None:
    document = {
        "tests": [{"id": "a", "assertions": [{"type": "rubrics", "criteria": [{"outcome": "x", "weight": 2}]}]}]
    }
    [criterion] = Rubric.from_dict(document).criteria
    assert (criterion.requirement, criterion.weight, criterion.required) == ("x", 2.0, True)


def test_items_with_score_ranges_are_gated_by_min_score_alone() -> None:
    ranges = {"0": "wrong", "6": "nearly", "10": "right"}
    free = {"id": "a", "outcome": "x", "score_ranges": ranges}
    items = [free, {**free, "id": "b", "min_score": 0.7}]
    document = {"tests": [{"assert": [{"type": "llm-rubric", "value": items}]}]}
    assert [criterion.is_gate for criterion in Rubric.from_dict(document).criteria] == [False, True]


def test_finance_agents_operators_are_read() -> None:
    document = [
        {"operator": "correctness", "criteria": "14.56%"},
        {"operator": "contradiction", "criteria": "It grew."},
    ]
    assert detect(document) == "agentv"
    rubric = Rubric.from_dict(document)
    assert rubric.criteria[0].requirement == "14.56%"
    assert rubric.criteria[1].requirement.startswith("Makes no claim that contradicts")
    assert all(criterion.weight == 1.0 and not criterion.required for criterion in rubric.criteria)
    with pytest.raises(RubricError, match="`operator`: is 'equals': use correctness or contradiction"):
        Rubric.from_dict([{"operator": "equals", "criteria": "x"}])


def test_promptfoo_assertions_become_required_criteria() -> None:
    assert detect(PROMPTFOO) == "promptfoo"
    rubric = read(PROMPTFOO)
    assert [(c.weight, c.required) for c in rubric.criteria] == [(1.0, True), (2.0, True), (1.0, True)]
    # A metric of promptfoo is the name of a sum over assertions, several of which may have it.
    assert (rubric.criteria[0].name, rubric.criteria[0].tags) == (None, ("tone",))
    assert rubric.criteria[1].requirement == "Names 1969 as the year"
    assert rubric.criteria[2].requirement == "This is not true of the response: Blames the user"


def test_assertion_that_is_not_read_is_warned_of_and_listed() -> None:
    with pytest.warns(UserWarning, match="1 part of the file is not graded"):
        Rubric.from_dict(PROMPTFOO)
    loss, reworded = reading_losses(PROMPTFOO)
    assert reworded.startswith("`c3`: the assertion is negated, and its text now begins with 'This is not true")
    assert loss.startswith("`tests[0].assert[0]`: `javascript` is not read")
    assert read(PROMPTFOO).left_out == (loss,)


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        ("trajectory:tool-used", "tool_used"),
        ("not-trajectory:tool-used", "tool_forbidden"),
        ("tool_trajectory", "tool_calls"),
        ("latency", "max_seconds"),
    ],
)
def test_assertion_on_a_trajectory_that_is_not_read_names_the_condition_of_a_check(kind: str, condition: str) -> None:
    [loss] = reading_losses({"assert": [{"type": kind, "value": "search"}, {"type": "llm-rubric", "value": "Is kind"}]})
    assert condition in CONDITIONS
    assert f"a `check` with `{condition}` may decide the same" in loss


def test_threshold_of_a_promptfoo_test_replaces_the_gates() -> None:
    test = {**PROMPTFOO["tests"][0], "threshold": 0.5}
    rubric = read({**PROMPTFOO, "tests": [test]})
    assert rubric.pass_mark == 0.5
    assert not any(criterion.required for criterion in rubric.criteria)


def test_list_of_assertions_of_a_row_is_read() -> None:
    assertions = [{"type": "llm-rubric", "value": "Is polite"}, {"type": "g-eval", "value": ["Is short", "Is true"]}]
    assert detect(assertions) == "promptfoo"
    assert [c.requirement for c in Rubric.from_dict(assertions).criteria] == ["Is polite", "Is short", "Is true"]


def test_file_of_several_tests_is_read_as_cases(tmp_path: Path) -> None:
    two = {**PROMPTFOO, "tests": [PROMPTFOO["tests"][0], {"vars": {"question": "Who?"}, "assert": []}]}
    path = tmp_path / "promptfooconfig.json"
    path.write_text(json.dumps(two))
    with pytest.warns(UserWarning, match="not graded"):
        cases = list(load_eval_cases(path))
    assert [(case.id, len(case.rubric)) for case in cases] == [("landing", 3), ("2", 1)]
    assert cases[1].input == "Who?"
    three = {**two, "tests": [two["tests"][0], two["tests"][0]]}
    with pytest.raises(RubricError, match="load_eval_cases"):
        read(three)
    path.write_text(json.dumps(AGENTV))
    [case] = load_eval_cases(path)
    assert (case.id, case.input, case.expected_outcome) == ("margin", "Summarize the note.", "Summarizes faithfully")


def test_set_of_assertions_shares_its_weight_and_loses_its_threshold() -> None:
    inner = [{"type": "llm-rubric", "value": "x", "weight": 0.3}, {"type": "llm-rubric", "value": "y", "weight": 0.7}]
    document = {"tests": [{"assert": [
        {"type": "llm-rubric", "value": "z"}, {"type": "assert-set", "weight": 2, "threshold": 0.5, "assert": inner},
    ]}]}  # fmt: skip
    rubric = read(document)
    assert [c.weight for c in rubric.criteria] == pytest.approx([1, 0.6, 1.4])
    assert [c.required for c in rubric.criteria] == [True, False, False]
    assert reading_losses(document) == ["`tests[0].assert[1]`: `threshold` of a set has no place in a rubric"]
    del document["tests"][0]["assert"][1]["threshold"]
    assert all(c.required for c in read(document).criteria)
    items = {"type": "llm-rubric", "value": [{"outcome": "x"}]}
    sets = [{"type": "assert-set", "threshold": 1, "assert": [items]}, {"type": "assert-set", "assert": [items]}]
    criteria = read({"tests": [{"assert": sets}]}).criteria
    assert [(c.name, c.required) for c in criteria] == [(None, False), (None, True)]
    assert reading_losses(document) == []


def test_metric_of_a_set_is_a_tag_of_each_of_its_criteria() -> None:
    inner = [
        {"type": "llm-rubric", "value": "Is kind", "metric": "own"},
        {"type": "contains", "value": "Dear", "metric": "tone"},
        {"type": "llm-rubric", "value": ["Is calm", "Is warm"], "metric": "mood"},
    ]
    held = {"type": "assert-set", "metric": "tone", "assert": inner}
    document = {"tests": [{"assert": [held, {"type": "llm-rubric", "value": "Is short"}]}]}
    tags = [("own", "tone"), ("tone",), ("mood", "tone"), ("mood", "tone"), ()]
    assert [criterion.tags for criterion in read(document).criteria] == tags
    assert reading_losses(document) == []
    with pytest.raises(RubricError, match=r"tests\[0\].assert\[0\] `metric`: must be a text, got 3"):
        read({"tests": [{"assert": [{**held, "metric": 3}]}]})


def test_negated_assertion_of_agentv_is_listed_as_reworded_and_gives_no_warning() -> None:
    document = {"assertions": [{"type": "llm-rubric", "value": "Is rude", "negate": True}, "Is kind"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Rubric.from_dict(document).criteria) == 2
    [loss] = reading_losses(document)
    assert loss.startswith("`c1`: the assertion is negated")


def test_assertion_without_weight_is_no_gate_and_an_empty_variable_is_not_filled_in() -> None:
    assertions = [
        {"type": "llm-rubric", "value": "{{ empty }}", "weight": 0},
        {"type": "llm-rubric", "value": "y", "weight": 1},
    ]
    rubric = read({"tests": [{"vars": {"empty": " "}, "assert": assertions}]})
    assert [(c.requirement, c.required) for c in rubric.criteria] == [("{{ empty }}", False), ("y", True)]


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 1e300, "2", True])
def test_weight_of_a_list_that_is_no_weight_is_refused(weight: Any) -> None:
    assertion = {"type": "llm-rubric", "value": [{"outcome": "x"}], "weight": weight}
    with pytest.raises(RubricError, match=r"tests\[0\].assert\[1\] `weight`: must be a finite number"):
        read({"tests": [{"assert": ["y", assertion]}]})


def test_assertion_with_a_prompt_of_its_own_is_left_out() -> None:
    document = {"tests": [{"assert": ["Is short", {"type": "llm-rubric", "prompt": "file://safety.md"}]}]}
    assert [c.requirement for c in read(document).criteria] == ["Is short"]
    [loss] = reading_losses(document)
    assert loss.startswith("`tests[0].assert[1]`: has a `prompt` and no `value`")


def test_item_of_score_ranges_without_an_outcome_is_named_by_its_id() -> None:
    item = {"id": "factual_accuracy", "score_ranges": {"0": "wrong", "10": "right"}}
    [criterion] = Rubric.from_dict({"tests": [{"assert": [{"type": "llm-rubric", "value": [item]}]}]}).criteria
    assert (criterion.name, criterion.requirement) == ("factual_accuracy", "factual accuracy")


@pytest.mark.parametrize(
    ("assertion", "line"),
    [
        ({"type": "llm-rubric"}, "tests[0].assert[0] `value`: is missing"),
        ({"type": "llm-rubric", "value": "file://rubric.txt"}, "names the file 'file://rubric.txt', which is not read"),
        ({"type": "llm-rubric", "value": 7}, "tests[0].assert[0] `value`: must be a text or a list"),
        (7, "tests[0].assert[0]: must be an assertion"),
        ({"type": "llm-rubric", "value": "x", "weight": "2"}, "tests[0].assert[0] `weight`"),
    ],
)
def test_fault_of_an_assertion_is_named(assertion: Any, line: str) -> None:
    with pytest.raises(RubricError) as refusal:
        read({"tests": [{"assert": [assertion]}]})
    assert line in str(refusal.value)


def test_file_without_an_assertion_that_is_read_is_refused() -> None:
    with pytest.raises(RubricError, match="has no assertion that is read"):
        read({"tests": [{"assert": [{"type": "javascript", "value": "true"}]}]})


def test_rubric_is_written_as_assertions() -> None:
    rubric = Rubric([{"requirement": "Is polite", "tags": ["tone"], "weight": 2.0, "required": True}])
    document, losses = write_document(rubric, "promptfoo")
    assert document == {
        "tests": [{"assert": [{"type": "llm-rubric", "value": "Is polite", "weight": 2.0, "metric": "tone"}]}]
    }
    assert losses == []
    assert Rubric.from_dict(document) == rubric
    tagged = Rubric([{"requirement": "x", "tags": ["a", "b"], "weight": 1.0, "required": True}])
    assert write_document(tagged, "promptfoo")[1] == ["`c1`: `tags` has no place in the format"]
