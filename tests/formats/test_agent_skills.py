"""The evals of Agent Skills: criteria, cases, their rows in the shell, and each refusal."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, RubricError
from rubric_integrations.cli import app
from rubric_integrations.formats import load_eval_cases, read_document, reading_losses, write_document
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.testing import ScriptedJudge
from tests.conftest import SHARED
from tests.formats.samples import SKILL, SKILLS

SAMPLE = SHARED / "data/rubric_formats/skill_evals.json"
ENTRY = SKILL["evals"][0]


def skill_of(**fields: Any) -> dict[str, Any]:
    entry = {key: value for key, value in {**ENTRY, **fields}.items() if value is not None}
    return {"skill_name": "report", "evals": [entry]}


@pytest.mark.parametrize("key", ["assertions", "expectations"])
def test_texts_become_criteria_and_the_expected_output_their_context(key: str) -> None:
    texts = ["Names the North", "Names a figure"]
    rubric = Rubric.from_dict(skill_of(**{"expectations": None, key: texts}))
    assert rubric == Rubric(
        [Criterion(requirement=text, weight=1, context="The North leads.") for text in texts], name="report"
    )
    assert reading_losses(skill_of()) == [
        "`files` of `evals[0]` are not opened: the judge sees only what a row of responses has",
        "`prompt` of `evals[0]` is the query: give it to each row of responses as `query`",
    ]


def test_score_is_the_share_of_the_texts_that_passed() -> None:
    chance = random.Random(3)
    for _ in range(200):
        texts = [f"Names {number}" for number in range(chance.randrange(1, 9))]
        passed = [chance.random() < 0.5 for _ in texts]
        rubric = Rubric.from_dict(skill_of(expectations=texts))
        judge = ScriptedJudge({t: "MET" if p else "UNMET" for t, p in zip(texts, passed, strict=True)})
        score = rubric.grade_sync("x", PerCriterionGrader(judge)).score
        assert score == pytest.approx(sum(passed) / len(passed))


def test_evals_of_a_file_are_cases_with_their_ids_and_prompts(tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    path.write_text(json.dumps(SKILLS))
    first, second = load_eval_cases(path, strict=True)
    assert (first.id, first.input, first.expected_outcome) == ("1", "Sum up the sales.", "The North leads.")
    assert (second.id, second.input, second.expected_outcome) == ("b", "Plot.", "")
    path.write_text(json.dumps({**SKILLS, "evals": [{**ENTRY, "id": number} for number in (0, 1, None, "")]}))
    assert [case.id for case in load_eval_cases(path)] == ["0", "1", "3", "4"]
    assert (first.rubric, second.rubric.criteria[0].context) == (Rubric.from_dict(SKILL), None)


def test_eval_without_texts_is_left_out_with_a_warning_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    bare = {"id": 2, "prompt": "Plot.", "expected_output": "A plot"}
    path.write_text(json.dumps({**SKILL, "evals": [ENTRY, bare]}))
    with pytest.warns(UserWarning, match="eval 2 has no `assertions`, and is left out"):
        [case] = load_eval_cases(path)
    assert case.id == "1"
    missing = r"evals\[1\] `assertions`: is missing \(its keys are `expected_output`, `id`, `prompt`\)"
    with pytest.raises(RubricError, match=missing):
        list(load_eval_cases(path, strict=True))
    path.write_text(json.dumps({**SKILL, "evals": [bare]}))
    with pytest.raises(RubricError, match="`expected_output` alone is not graded"):
        list(load_eval_cases(path))
    path.write_text(json.dumps({**SKILL, "evals": []}))
    with pytest.raises(RubricError, match="is empty: there is no case"):
        list(load_eval_cases(path))


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (SKILLS, "evals: are 2, each with its rubric: read the file with `load_eval_cases`"),
        ({**SKILL, "evals": []}, "evals: must be a list of evals, each with a `prompt`"),
        ({**SKILL, "evals": ["Plot."]}, "evals[0]: must be an eval with a `prompt` and `assertions`, got 'Plot.'"),
        (skill_of(assertions=["a"]), "`assertions`: stands beside `expectations`: keep one of the lists"),
        (skill_of(expectations=None), "evals[0] `assertions`: is missing (its keys are"),
        (skill_of(expectations=None, checks=["a"]), "`assertions`: is missing (its keys are `checks`,"),
        (skill_of(expectations=None, expect="a", fail="b"), "`assertions`: is missing (its keys are `expect`,"),
        (skill_of(expectations=None, assertion=["a"]), "evals[0] `assertion`: is not a known key: did you mean"),
        (skill_of(expectations=[]), "evals[0] `expectations`: must be a list of texts, got []"),
        (skill_of(expectations="Names it"), "evals[0] `expectations`: must be a list of texts, got 'Names it'"),
        (skill_of(expectations=[{"text": "a"}]), "evals[0].expectations[0]: must be a text, got {'text': 'a'}"),
        (skill_of(expectations=[" "]), "evals[0].expectations[0] `requirement`: is empty"),
        (skill_of(prompt=["a"]), "evals[0] `prompt`: must be a text, got ['a']"),
        (skill_of(expected_output={"a": 1}), "evals[0] `expected_output`: must be a text, got {'a': 1}"),
    ],
)
def test_eval_of_another_form_is_refused_by_its_place(document: Any, line: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict(document)
    assert line in str(refusal.value)


def test_repeated_id_is_refused_because_rows_are_joined_by_it(tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    path.write_text(json.dumps({**SKILL, "evals": [ENTRY, {**ENTRY, "id": "1"}]}))
    with pytest.raises(RubricError, match="evals `id`: has '1' 2 times: responses are joined by it"):
        list(load_eval_cases(path))


def test_written_rubric_is_equal_after_reading_and_lists_its_losses() -> None:
    rubric = Rubric.from_dict(SKILL)
    document, losses = write_document(rubric, "agent_skills")
    assert losses == ["`prompt` is empty: write the task of the eval into it"]
    assert read_document(document, "again") == rubric
    other = Rubric([{"requirement": "a", "weight": 3, "required": True}, {"requirement": "b"}])
    _, losses = write_document(other, "agent_skills")
    assert losses[:3] == [
        "`c1`: `weight` 3 becomes 1",
        "`c1`: `required` has no place in the format",
        "`c2`: `weight` 10 becomes 1",
    ]


@pytest.mark.parametrize("document", [SKILLS, {"tests": [
    {"id": 1, "assert": [{"type": "llm-rubric", "value": "Names the North"}]},
    {"id": "b", "assert": [{"type": "llm-rubric", "value": "Has a plot"}]},
]}])  # fmt: skip
def test_rows_are_joined_by_id_with_the_cases_of_a_file(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    path.write_text(json.dumps(document))
    rubrics = RowRubrics(None, path)
    assert rubrics.of("row", 1).criteria[0].requirement == "Names the North"
    assert rubrics.of("row", "b").criteria[0].requirement == "Has a plot"
    for row_id in (2, "c"):
        with pytest.raises(ValueError, match=r"which names none \(the library has \['1', 'b'\]\)"):
            rubrics.of("row", row_id)


def test_shell_grades_responses_by_the_evals_with_their_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quoted = {"id": 2, "prompt": "Plot.", "assertions": ['Contains "chart.png"']}
    Path("evals.json").write_text(json.dumps({**SKILL, "evals": [{**ENTRY, "expectations": ['Says "North"']}, quoted]}))
    rows = [{"id": 1, "response": "The North"}, {"id": "2", "response": "nothing"}, {"id": 3, "response": "x"}]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--library", "evals.json", "--rubric-column", "id", "--judge", "offline", "--out", "run.jsonl")
    result = CliRunner().invoke(app, ["grade", "rows.jsonl", *options])
    assert result.exit_code == 2, result.output
    assert "3: row 3 has the `rubric` '3', which names none (the library has ['1', '2'])" in result.output
    graded = [json.loads(line) for line in Path("run.jsonl").read_text().splitlines()]
    assert [(line["id"], line["score"]) for line in graded] == [("1", 1.0), ("2", 0.0), ("3", None)]
    assert "2 cases, 2 criteria" in CliRunner().invoke(app, ["validate", "evals.json"]).output
    refused = CliRunner().invoke(app, ["grade", "evals.json", "rows.jsonl"])
    assert (refused.exit_code, "name it with `--library`" in refused.output) == (2, True)


@pytest.mark.skipif(not SAMPLE.exists(), reason="../shared/data/rubric_formats does not exist")
def test_sample_is_read_and_graded() -> None:
    first, second = load_eval_cases(SAMPLE)
    assert ([len(case.rubric) for case in (first, second)], second.rubric.criteria[0].context) == (
        [2, 1],
        "A bar chart",
    )
    judge = ScriptedJudge({"The output names the North as the top region": "MET"}, default="UNMET")
    assert first.rubric.grade_sync("North", PerCriterionGrader(judge)).score == 0.5
