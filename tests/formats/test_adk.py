"""Rubrics of Google's Agent Development Kit: metrics, evaluation sets, and their faults."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, RubricError
from rubric_integrations.formats import load_eval_cases, read_document, reading_losses
from rubric_integrations.formats.registry import detect
from rubric_integrations.testing import ScriptedJudge
from tests.cli.commands import run

FINAL = "rubric_based_final_response_quality_v1"
TOOLS = "rubric_based_tool_use_quality_v1"


def rubric_entry(name: str, **others: Any) -> dict[str, Any]:
    return {"rubricId": name, "rubricContent": {"textProperty": f"The response is {name}."}, **others}


def config(rubrics: Any = None, **others: Any) -> dict[str, Any]:
    """Return a configuration with one metric."""
    entries = [rubric_entry("brief"), rubric_entry("kind")] if rubrics is None else rubrics
    return {"criteria": {FINAL: {"threshold": 0.5, "rubrics": entries, **others}}}


def eval_set(rubrics: Any = (), turn_rubrics: Any = (), turns: int = 1) -> dict[str, Any]:
    """Return an evaluation set with one case."""
    conversation = [
        {
            "invocation_id": f"i{index}",
            "user_content": {"parts": [{"text": "Where is it?"}], "role": "user"},
            "final_response": {"parts": [{"text": "On its way."}]},
            "rubrics": list(turn_rubrics),
        }
        for index in range(turns)
    ]
    return {
        "eval_set_id": "s",
        "eval_cases": [{"eval_id": "e", "conversation": conversation, "rubrics": list(rubrics)}],
    }


def of_case(name: str, kind: Any = "FINAL_RESPONSE_QUALITY") -> dict[str, Any]:
    return {"rubric_id": name, "rubric_content": {"text_property": f"Is {name}."}, "type": kind}


def test_metric_is_validated_graded_and_equal_in_the_native_format(tmp_path: Path) -> None:
    path, native = tmp_path / "test_config.json", tmp_path / "native.yaml"
    path.write_text(json.dumps(config(judgeModelOptions={"numSamples": 3})))
    assert "valid: 2 criteria" in run("validate", path).stdout
    rubric = Rubric.from_file(path)
    assert (rubric.pass_mark, rubric.keys) == (0.5, ("brief", "kind"))
    report = rubric.grade_sync("Yes.", PerCriterionGrader(ScriptedJudge({"brief": "MET", "kind": "UNMET"})))
    assert (report.score, report.passed) == (0.5, True)
    converted = run("convert", path, "--to", "native", "--output", native)
    assert "lost: `judge_model_options`" in converted.stderr
    assert Rubric.from_file(native) == rubric


def test_score_equals_the_mean_of_the_majority_on_random_verdicts() -> None:
    # The same was compared with the aggregators of google-adk 2.13.0 on 1,000 random rubrics and votes.
    chance = random.Random(51)
    for _ in range(1_000):
        rubric = read_document(config([rubric_entry(f"r{index}") for index in range(chance.randint(1, 7))]), "x")
        votes = [[chance.random() < 0.5 for _ in range(chance.randint(1, 5))] for _ in rubric.criteria]
        majority = [2 * sum(own) > len(own) for own in votes]
        verdicts = ["MET" if met else "UNMET" for met in majority]
        assert rubric.compute_score(verdicts) == pytest.approx(sum(majority) / len(majority))


def test_several_metrics_are_cases_of_which_the_shell_converts_one(tmp_path: Path) -> None:
    path = tmp_path / "test_config.json"
    document = config()
    tools = {"threshold": 1.0, "rubrics": [rubric_entry("careful")], "judgeModelOptions": {}}
    document["criteria"] |= {TOOLS: tools, "response_match_score": 1}
    path.write_text(json.dumps(document))
    with pytest.raises(RubricError, match=rf"criteria: are 2 rubrics \({FINAL}, {TOOLS}\).*--case ID"):
        Rubric.from_file(path)
    with pytest.warns(UserWarning, match="`response_match_score` is another metric"):
        cases = {case.id: case.rubric for case in load_eval_cases(path)}
    assert [rubric.pass_mark for rubric in cases.values()] == [0.5, 1.0]
    assert cases[TOOLS].criteria[0].needs == ("trajectory",)
    assert cases[FINAL].criteria[0].needs == ()
    converted = run("convert", path, "--case", TOOLS, "--to", "native")
    assert converted.exit_code == 0
    assert Rubric.from_yaml(converted.stdout) == cases[TOOLS]
    assert "lost: `response_match_score` is another metric" in converted.stderr
    assert f"lost: `judge_model_options` of `{TOOLS}`" in converted.stderr
    assert "2 cases" in run("validate", path).stdout
    both = run("convert", path, "--case", TOOLS, "--from", "adk", "--to", "native")
    assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)
    unknown = run("convert", path, "--case", "tools", "--to", "native")
    assert (unknown.exit_code, f"its cases are '{FINAL}', '{TOOLS}'" in unknown.stderr) == (2, True)


def test_other_metrics_are_left_out_and_no_grade_passes() -> None:
    document = config()
    document["criteria"] |= {"tool_trajectory_avg_score": 1.0, "hallucinations_v1": {"threshold": 0.8}}
    with pytest.warns(UserWarning, match="2 parts of the file are not graded"):
        rubric = read_document(document, "x")
    assert [text.split(" is ")[0] for text in rubric.left_out] == ["`tool_trajectory_avg_score`", "`hallucinations_v1`"]
    report = rubric.grade_sync("Yes.", PerCriterionGrader(ScriptedJudge("MET")))
    assert (report.score, report.passed) == (1.0, False)


def test_rubrics_of_a_case_and_of_its_invocation_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "refunds.evalset.json"
    path.write_text(json.dumps(eval_set([of_case("kind")], [of_case("exact")])))
    [case] = load_eval_cases(path)
    assert (case.id, case.input, case.expected_outcome) == ("e", "Where is it?", "On its way.")
    assert case.rubric.keys == ("kind", "exact")
    assert Rubric.from_file(path) == case.rubric
    assert reading_losses(eval_set([of_case("kind")])) == [
        "the pass mark is not in an evaluation set, but in `test_config.json`"
    ]


def test_each_invocation_and_each_type_of_rubric_is_a_case(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text(json.dumps(eval_set([of_case("kind"), of_case("careful", "TOOL_USE_QUALITY")], turns=2)))
    ids = [(case.id, case.rubric.keys, case.rubric.criteria[0].needs) for case in load_eval_cases(path)]
    assert ids == [
        (f"e i0 {FINAL}", ("kind",), ()), (f"e i0 {TOOLS}", ("careful",), ("trajectory",)),
        (f"e i1 {FINAL}", ("kind",), ()), (f"e i1 {TOOLS}", ("careful",), ("trajectory",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (config(threshold=1.5), f"criteria.{FINAL} `threshold`: must be a number from 0 to 1, got 1.5"),
        (config(threshold=float("nan")), "`threshold`: must be a number from 0 to 1"),
        (config(threshold=None), "`threshold`: must be a number from 0 to 1, got None"),
        (config(threshold=True), "`threshold`: must be a number from 0 to 1, got True"),
        (config(treshold=1), "`treshold`: is not a known key: did you mean `threshold`"),
        (config([rubric_entry("a"), rubric_entry("a")]), "repeats the `name` 'a'"),
        (config([rubric_entry("a", weight=3)]), "rubrics[0] `weight`: is not a known key"),
        (config([rubric_entry("a", rubric_id="b")]), "rubrics[0]: has a key in two spellings"),
        (config([rubric_entry("a", type=3)]), "rubrics[0] `type`: must be a text, got 3"),
        (config([{"rubricId": "a"}]), "`rubricContent`: must be {textProperty: a text}, got None"),
        (config([{"rubricId": "a", "rubricContent": {"textProperty": None}}]), "`rubricContent`: must be"),
        (config([{"rubricId": 1, "rubricContent": {"textProperty": "t"}}]), "`rubricId`: must be a text, got 1"),
        (config([{"rubricId": "a", "rubricContent": {"textProperty": " "}}]), "`requirement`: is empty"),
        (config("x"), "rubrics[0]: must be a rubric"),
        (config([]), "`criteria`: has no metric with `rubrics`"),
        ({"criteria": {"response_match_score": 0.5}}, "`criteria`: has no metric with `rubrics`"),
        ({"criteria": {"my_metric": {"threshold": 1, "rubrics": [rubric_entry("a")]}}}, "has no metric with `rubrics`"),
        ({"eval_cases": [{"conversation": [{"rubric": [1]}]}]}, "`rubric`: is not a known key: did you mean `rubrics`"),
        (eval_set(), "`eval_cases`: has no metric with `rubrics`"),
        (eval_set([of_case("a", None)]), "`type`: must be one of FINAL_RESPONSE_QUALITY"),
        (eval_set([of_case("a", "SPEED")]), "got 'SPEED': the rubric would never count there"),
        (eval_set([of_case("a")], [of_case("a")]), "repeats the `name` 'a'"),
        (eval_set("x"), "eval_cases[0].rubrics[0]: must be a rubric"),
        ({"eval_cases": "x"}, "`eval_cases`: must be a list of cases"),
        ({"eval_cases": ["x"]}, "eval_cases[0]: must be a case with a `conversation`"),
        ({"eval_cases": [{"eval_id": "e", "conversation_scenario": {}}]}, "has a `conversation_scenario`"),
    ],
)
def test_fault_names_the_place_and_the_way(document: Any, words: str) -> None:
    assert detect(document) == "adk"
    with pytest.raises(RubricError) as refusal:
        read_document(document, "x")
    assert words in str(refusal.value)
