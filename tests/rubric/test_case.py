"""Test cases of a rubric: how they are read, checked and written, and what ignores them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.formats import read_with_cases, write_document
from rubric_integrations.formats.native import json_schema
from rubric_integrations.rubric import Case, Expectation, RubricError
from rubric_integrations.rubric.case import find_evidence
from rubric_integrations.runs import open_ledger, rescore
from rubric_integrations.runs.files import run_line
from rubric_integrations.submission import Attachment, Submission
from rubric_integrations.testing import ScriptedJudge

CRITERIA: list[dict[str, Any]] = [
    {"name": "margin", "requirement": "States the margin", "weight": 10},
    {"name": "tone", "requirement": "How", "options": [{"label": "cold", "value": 0}, {"label": "Warm", "value": 1}]},
    {"name": "facts", "requirement": "Facts", "scale": {"min": 1, "max": 5, "integer": True}},
    {"name": "refund", "requirement": "Refunds", "applies_when": "The user asks for a refund"},
    {"name": "slips", "requirement": "Slips", "weight": -2, "per": "occurrence", "cap": 3},
]
CASE: dict[str, Any] = {
    "name": "states it",
    "response": "Hello.\nThe margin was 17.2%.",
    "evidence": "The margin was 17.2%.",
    "expect": {"verdicts": {"margin": "met"}, "min_score": 0.5},
}


def rubric_with(*cases: Any) -> Rubric:
    return Rubric.from_dict({"criteria": CRITERIA, "cases": list(cases)})


def fault_of(*cases: Any) -> str:
    with pytest.raises(RubricError) as raised:
        rubric_with(*cases)
    return str(raised.value)


def expecting(**verdicts: Any) -> dict[str, Any]:
    return {"name": "one", "response": "It was.", "expect": {"verdicts": verdicts}}


@pytest.mark.parametrize(
    ("criterion", "written", "normalized"),
    [
        ("margin", "met", "MET"),
        ("margin", "Cannot assess", "CANNOT_ASSESS"),
        ("tone", "warm", "Warm"),
        ("tone", "CANNOT_ASSESS", "CANNOT_ASSESS"),
        ("facts", 4, 4),
        ("facts", "4", 4.0),
        ("facts", [2, 4.5], (2, 4.5)),
        ("refund", "not applicable", "NOT_APPLICABLE"),
        ("refund", "NOT_APPLICABLE", "NOT_APPLICABLE"),
        ("slips", 2, 2),
        ("slips", [2, 9], (2, 9)),
    ],
)
def test_expected_verdict_in_any_accepted_form_is_normalized(criterion: str, written: Any, normalized: Any) -> None:
    rubric = rubric_with(expecting(**{criterion: written}))
    assert rubric.cases[0].expect.verdicts == {criterion: normalized}
    # A normalized case is read as itself, from a file and in Python.
    assert Rubric.from_yaml(rubric.to_yaml()).cases == rubric.with_cases(rubric.cases).cases == rubric.cases


@pytest.mark.parametrize(
    ("verdicts", "message"),
    [
        ({"margn": "MET"}, "the case 'one' names 'margn', which is not a criterion: did you mean 'margin'?"),
        ({"xyz": "MET"}, "use one of margin, tone, facts, refund, slips"),
        ({"margin": "MED"}, "the case 'one' expects 'MED', which is not a verdict: did you mean 'MET'?"),
        ({"margin": 1}, "which is not a verdict"),
        ({"margin": [0, 1]}, "expects the range [0, 1] of a criterion with MET and UNMET"),
        ({"margin": "NOT_APPLICABLE"}, "it has no `applies_when`"),
        ({"tone": "warmer"}, "the case 'one' expects 'warmer', which is not an option: did you mean 'Warm'?"),
        ({"tone": [0, 1]}, "expects the range [0, 1] of a criterion with options"),
        ({"facts": 9}, "9 is not between 1 and 5"),
        ({"facts": 2.5}, "2.5 is not a whole number"),
        ({"facts": [2, 9]}, "which is not on the scale from 1 to 5"),
        ({"facts": [4, 2]}, "the smaller number first"),
        ({"facts": [1, 2, 3]}, "a range such as [3, 5]"),
        ({"facts": float("nan")}, "is no verdict, got nan"),
        ({"facts": float("inf")}, "is no verdict, got inf"),
        ({"facts": [True, 3]}, "is no verdict, got [True, 3]"),
        ({"margin": True}, "put an option's label in quotes, because YAML converts yes and no"),
        ({"margin": None}, "is no verdict, got None"),
        ({"margin": " "}, "is no verdict"),
        ({"margin": {"is": "MET"}}, "is no verdict"),
        ({"slips": -1}, "-1 is not between 0 and 3"),
    ],
)
def test_expected_verdict_that_is_impossible_is_a_fault_that_names_it(verdicts: Any, message: str) -> None:
    assert message in fault_of(expecting(**verdicts))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expect": {}}, "expects nothing, and such a case could not fail"),
        ({"expect": {"verdicts": {}}}, "expects nothing"),
        ({"expect": {"min_score": 0.8, "max_score": 0.2}}, "`min_score` 0.8 above the `max_score` 0.2"),
        ({"expect": {"min_score": 80}}, "`cases.0.expect.min_score`: is out of range, got 80"),
        ({"expect": {"passed": "yes"}}, "must be true or false"),
        ({"expect": {"min_scor": 0.8}}, "did you mean `min_score`?"),
        ({"respons": "x"}, "did you mean `response`?"),
        ({"response": " "}, "`response` is empty: there is nothing to grade"),
        ({"response": 42}, "`cases.0.response`: must be text"),
        ({"name": ""}, "`cases.0.name`"),
        ({"name": " "}, "is blank"),
        ({"evidence": "The margin was 9%."}, "which is not in its `response`"),
        ({"evidence": 2}, "has step 2 as its `evidence`, and no `trajectory`"),
        ({"evidence": 0}, "is no evidence, got 0"),
        ({"evidence": True}, "is no evidence, got True"),
        ({"evidence": {"tone": "Hello."}}, "has evidence for 'tone', of which it expects no verdict"),
        ({"evidence": {"ton": "Hello."}}, "names 'ton', which is not a criterion: did you mean 'tone'?"),
        ({"trajectory": 3}, "`trajectory`"),
        ({"attachments": [{"path": "chart.png"}]}, "`attachments`"),
    ],
)
def test_case_that_cannot_be_tested_is_a_fault_with_its_place(changes: dict[str, Any], message: str) -> None:
    assert message in fault_of({**CASE, **changes})


@pytest.mark.parametrize("expected", [10**400, [1, 10**400]])
def test_expected_number_without_a_float_is_a_fault(expected: Any) -> None:
    with pytest.raises(ValueError, match="is no verdict"):
        Expectation(verdicts={"facts": expected})


def test_every_impossible_verdict_of_a_file_is_a_fault_of_its_own() -> None:
    lines = fault_of(expecting(margin="MED", tone="wrm"), {**CASE, "name": "one"}).splitlines()
    assert [line.split("`")[1] for line in lines] == [
        "cases.1.name", "cases.0.expect.verdicts.margin", "cases.0.expect.verdicts.tone",
    ]  # fmt: skip


@pytest.mark.parametrize("cases", ["other.yaml", 3, None, {"name": "one"}])
def test_cases_that_are_no_list_name_where_another_file_belongs(cases: Any) -> None:
    with pytest.raises(RubricError, match=r"`cases`: must be a list of test cases, got .*next to the rubric"):
        Rubric.from_dict({"criteria": CRITERIA, "cases": cases})


def test_more_than_a_thousand_cases_are_refused() -> None:
    cases = [{**CASE, "name": str(number)} for number in range(1_001)]
    assert len(rubric_with(*cases[1:]).cases) == 1_000
    assert "has 1,001 cases, more than 1,000" in fault_of(*cases)


def test_case_of_an_agent_has_its_steps_and_files_in_its_submission() -> None:
    steps = [{"role": "user", "content": "Look it up"}, {"role": "assistant", "content": "17.2%"}]
    case = Case(
        name="agent",
        response="17.2%",
        query="What was it?",
        reference="17.2%",
        context=["The margin was 17.2%."],
        attachments=[Attachment(data=b"GIF89a", name="a.gif")],
        trajectory=steps,
        evidence={"margin": 2},
        expect=Expectation(verdicts={"margin": "MET"}),
    )
    submission = case.submission
    assert (submission.query, submission.reference) == ("What was it?", "17.2%")
    assert submission.context == ("The margin was 17.2%.",)
    assert submission.trajectory
    assert len(submission.trajectory.steps) == 2
    assert [file.mime_type for file in submission.attachments] == ["image/gif"]
    assert (case.evidence_of("margin"), case.evidence_of("tone")) == (2, None)
    rubric = Rubric(CRITERIA, cases=[case])
    assert Rubric.from_json(rubric.to_json()).cases[0].submission == submission


def test_bare_evidence_belongs_to_the_criteria_with_an_expected_verdict() -> None:
    case = rubric_with(CASE).cases[0]
    assert (case.evidence_of("margin"), case.evidence_of("tone")) == ("The margin was 17.2%.", None)


@given(
    st.lists(st.text("ab.", min_size=1), min_size=1), st.lists(st.sampled_from([" ", "\n", "\t\n", "  "])), st.data()
)
def test_evidence_is_recognized_with_any_white_space(words: list[str], gaps: list[str], data: st.DataObject) -> None:
    gap = st.sampled_from([" ", "\n", "\t\n", "  "])
    sentence = "".join(word + data.draw(gap) for word in words)
    text = "".join(gaps) + sentence
    places = find_evidence(text, " ".join(words))
    assert places
    assert all(text[place].split() == words for place in places)
    assert find_evidence(text, "c") == []


def test_evidence_in_a_long_response_takes_linear_time() -> None:
    # A search that copies the rest of the response at each of these places would take minutes.
    assert find_evidence("the  dog " * 200_000 + "the cat", "the cat") == [slice(1_800_000, 1_800_007)]


def test_files_of_a_case_are_read_from_the_folder_of_the_rubric(tmp_path: Path) -> None:
    (tmp_path / "chart.gif").write_bytes(b"GIF89a")
    (tmp_path / "rubric.json").write_text(
        json.dumps({"criteria": CRITERIA, "cases": [{**CASE, "attachments": [{"path": "chart.gif"}]}]})
    )
    assert Rubric.from_file(tmp_path / "rubric.json").cases[0].submission.attachments[0].name == "chart.gif"
    (tmp_path / "chart.gif").unlink()
    with pytest.raises(RubricError, match=r"cases\[0\] `attachments`"):
        Rubric.from_file(tmp_path / "rubric.json")


def test_cases_next_to_the_rubric_are_read_only_with_the_cases(tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text(rubric_with(CASE).to_yaml())
    (tmp_path / "rubric.cases.yaml").write_text(json.dumps([{**CASE, "name": "beside"}]))
    (tmp_path / "other.yaml").write_text(json.dumps({"cases": [{**CASE, "name": "other"}]}))
    assert [case.name for case in Rubric.from_file(path).cases] == ["states it"]
    assert [case.name for case in read_with_cases(path).cases] == ["states it", "beside"]
    assert [case.name for case in read_with_cases(path, tmp_path / "other.yaml").cases] == ["states it", "other"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is no file of test cases"),
        ("", "is no file of test cases"),
        ("3", "is no file of test cases"),
        ('{"cases": [], "criteria": []}', "is no file of test cases"),
        (json.dumps([CASE]), "'states it' is the name of an earlier case"),
        (json.dumps([expecting(margn="MET")]), "`cases.0.expect.verdicts.margn`"),
        ("[", "is not"),
    ],
)
def test_file_of_cases_with_a_fault_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rubric.yaml").write_text(rubric_with(CASE).to_yaml())
    (tmp_path / "rubric.cases.yaml").write_text(text)
    with pytest.raises(RubricError) as raised:
        read_with_cases(tmp_path / "rubric.yaml")
    assert str(raised.value).startswith(f"{tmp_path / 'rubric.cases.yaml'}: ")
    assert message in str(raised.value)


def test_rubrics_that_differ_in_their_cases_are_equal_and_hash_alike() -> None:
    rubric = rubric_with(CASE)
    assert rubric == rubric.without_cases() == rubric_with({**CASE, "name": "other"})
    assert rubric != rubric.with_weights({"margin": 3.0})
    plain = Rubric.from_dict([{"name": "a", "requirement": "Says 42"}])
    tested = plain.with_cases([{"name": "x", "response": "42", "expect": {"passed": True}}])
    assert {plain, tested} == {plain}
    assert tested != plain.with_weights({"a": 3.0})
    assert tested.without_cases().cases == ()


def test_copies_and_pickles_of_a_rubric_keep_its_cases() -> None:
    rubric = rubric_with(CASE)
    assert pickle.loads(pickle.dumps(rubric)).cases == rubric.cases
    assert rubric.with_weights({"margin": 3.0}, 0.5).cases == rubric.cases
    assert Rubric.from_dict(rubric.to_dict()).cases == rubric.cases


def test_joined_rubrics_with_cases_of_one_name_keep_both() -> None:
    rubrics = [Rubric.from_dict({
        "criteria": [{"name": name, "requirement": name}],
        "cases": [{"name": "good" * 50, "response": name, "expect": {"verdicts": {name: "MET"}}}],
    }) for name in "abc"]  # fmt: skip
    joined = rubrics[0] + rubrics[1] + rubrics[2]
    assert [case.name[-7:] for case in joined.cases] == ["oodgood", "ood (2)", "ood (3)"]
    assert [list(case.expect.verdicts) for case in joined.cases] == [["a"], ["b"], ["c"]]
    assert "evidence" not in joined.to_dict()["cases"][0]


def test_joined_rubrics_have_the_cases_of_both_under_the_new_names_and_without_scores() -> None:
    unnamed = Rubric(
        [{"requirement": "Says 42"}],
        cases=[
            {"name": "left", "response": "It is 42.", "evidence": {"c1": "It is 42."},
             "expect": {"verdicts": {"c1": "MET"}, "min_score": 0.8}},
            {"name": "score", "response": "It is 42.", "expect": {"passed": True}},
        ],
    )  # fmt: skip
    right = Rubric(
        [{"requirement": "Is kind"}],
        cases=[{"name": "right", "response": "Dear", "evidence": "Dear", "expect": {"verdicts": {"c1": "UNMET"}}}],
    )
    joined = unnamed + right
    assert [(case.name, case.expect.verdicts) for case in joined.cases] == [
        ("left", {"c1": "MET"}), ("right", {"c2": "UNMET"}),
    ]  # fmt: skip
    assert joined.cases[0].expect.min_score is None
    assert [case.evidence for case in joined.cases] == [{"c1": "It is 42."}, "Dear"]


def test_cases_of_grouped_criteria_name_the_leaves() -> None:
    group = {"name": "form", "requirement": "Form", "criteria": [{"name": "short", "requirement": "Is short"}]}
    case = {"name": "x", "response": "x", "expect": {"verdicts": {"short": "MET"}}}
    rubric = Rubric.from_dict({"criteria": [group], "cases": [case]})
    assert rubric.tree
    assert Rubric.from_dict(rubric.to_dict()).cases == rubric.cases
    with pytest.raises(RubricError, match="names 'form', which is not a criterion"):
        rubric.with_cases([{**case, "expect": {"verdicts": {"form": "MET"}}}])


@pytest.mark.parametrize("form", ["criteria", "sections", "rubric"])
def test_cases_are_read_next_to_every_form_of_criteria(form: str) -> None:
    criteria: Any = [{"criteria": CRITERIA}] if form == "sections" else CRITERIA
    assert len(Rubric.from_dict({form: criteria, "cases": [CASE]}).cases) == 1


def test_schema_accepts_the_cases_that_the_reader_accepts() -> None:
    validator = Draft202012Validator(json_schema())
    steps = [{"role": "user", "content": "Look it up"}]
    rich = {**CASE, "name": "b", "context": "c", "evidence": {"margin": 1}, "trajectory": steps}
    document = {"criteria": CRITERIA, "cases": [CASE, rich, expecting(facts=[2, 4], tone="warm", slips=2)]}
    assert list(validator.iter_errors(document)) == []
    assert len(Rubric.from_dict(document).cases) == 3
    for wrong in ({**CASE, "respons": "x"}, {**CASE, "expect": {"min_score": 2}}, {**CASE, "evidence": []}):
        assert list(validator.iter_errors({"criteria": CRITERIA, "cases": [wrong]}))


@pytest.mark.parametrize("to", ["agentv", "checklist", "healthbench", "openrubricrl", "paperbench", "promptfoo", "rar"])
def test_conversion_to_a_format_without_cases_names_the_loss(to: str) -> None:
    rubric = Rubric([CRITERIA[0]], cases=[CASE])
    document, losses = write_document(rubric, to)
    assert [loss for loss in losses if loss.startswith("`cases` has no place")]
    assert "states it" not in str(document)


def test_no_text_of_a_case_reaches_a_judge_a_run_or_a_ledger(tmp_path: Path) -> None:
    needle = "NEEDLE-7f3a"
    secret = {
        "name": needle, "response": f"{needle} 1.", "query": needle, "reference": needle, "context": [needle],
        "evidence": f"{needle} 1.", "expect": {"verdicts": {"margin": "MET"}},
    }  # fmt: skip
    rubric = Rubric([CRITERIA[0]], guidelines="Be strict.", cases=[secret])
    judge = ScriptedJudge("MET")
    own = Rubric(
        [{"name": "kind", "requirement": "Is kind"}], cases=[{**secret, "expect": {"verdicts": {"kind": "MET"}}}]
    )
    rows = [{"id": "a", "response": "It was 17.2%."}, {"id": "b", "response": "Dear", "rubric": own.to_dict()}]
    ledger = tmp_path / "run.sqlite"
    with open_ledger(ledger) as opened:
        opened.record_submission("c", Submission(response="Hi"), own)
    results = list(grade_many(rows, rubric, PerCriterionGrader(judge), ledger=ledger))
    lines = [run_line(result) for result in results]
    written = [repr(judge.questions), *lines, *map(repr, results), *(repr(result.rubric) for result in results)]
    written += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    assert len(results) == 2
    assert not any(needle in text for text in written)
    # The same judgments are stored for a rubric with other cases.
    again = ScriptedJudge("MET")
    list(grade_many(rows, rubric.without_cases(), PerCriterionGrader(again), ledger=ledger))
    assert not again.questions
    assert [result.missing for result in rescore(ledger, rubric)] == [2, 0, 0]
