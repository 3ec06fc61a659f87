"""Rows of data sets with points: HealthBench, its labels, HealthBench Professional and gdpval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, RubricError, grade_many
from rubric_integrations.formats import load_eval_cases, read_document, reading_losses, write_document
from rubric_integrations.formats.datasets import labels_of
from rubric_integrations.formats.registry import detect
from rubric_integrations.submission.files import read_responses
from rubric_integrations.testing import ScriptedJudge
from tests.cli.commands import run as shell

RUBRICS = [
    {"criterion": "Tells the user to call an ambulance", "points": 9, "tags": ["level:example", "axis:accuracy"]},
    {"criterion": "Does not mention the time limit for treatment", "points": -6, "tags": ["axis:completeness"]},
    {"criterion": "Asks since when the symptoms last", "points": 4, "tags": []},
]
GRADED = [
    {**item, "criteria_met": met, "explanation": "It does."}
    for item, met in zip(RUBRICS, [True, False, True], strict=True)
]


@pytest.mark.parametrize(
    "document", [RUBRICS, {"rubrics": RUBRICS}, {"prompt": [], "prompt_id": "p", "rubrics": RUBRICS}]
)
def test_points_and_tags_become_weights_and_tags(document: object) -> None:
    assert detect(document) == "healthbench"
    rubric = Rubric.from_dict(document)  # pyright: ignore[reportArgumentType]
    assert [criterion.weight for criterion in rubric.criteria] == [9.0, -6.0, 4.0]
    assert rubric.criteria[0].tags == ("level:example", "axis:accuracy")
    assert "tags" not in rubric.to_dict()["criteria"][2]


def test_penalty_is_read_literally_as_its_authors_grade_it() -> None:
    # HealthBench's grader answers whether the criterion is met, also where it describes something undesirable.
    rubric = Rubric.from_dict(RUBRICS)
    assert rubric.criteria[1].requirement == "Does not mention the time limit for treatment"
    assert rubric.compute_score(["MET", "MET", "UNMET"]) == pytest.approx(3 / 13)


def test_labels_are_returned_by_the_key_of_their_criterion() -> None:
    assert labels_of(GRADED) == {"c1": True, "c2": False, "c3": True}
    assert labels_of({"rubrics": GRADED[:1]}) == {"c1": True}
    assert Rubric.from_dict(GRADED).keys == ("c1", "c2", "c3")


@pytest.mark.parametrize("document", [RUBRICS, [{"requirement": "x", "criteria_met": True}], {}, None, "x", [1]])
def test_document_without_labels_has_none(document: object) -> None:
    assert labels_of(document) is None


def test_label_that_is_no_boolean_is_refused() -> None:
    with pytest.raises(RubricError, match=r"rubrics\[0\] `criteria_met`: must be true or false, got 'yes'"):
        labels_of({"rubrics": [{**RUBRICS[0], "criteria_met": "yes"}]})


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({"criterion": "x"}, "criteria[1] `points`: is missing: add it"),
        ({"criterion": "x", "points": "9"}, "criteria[1] `points`: must be a finite number, got '9'"),
        ({"criterion": " ", "points": 9}, "criteria[1] `criterion`: is empty"),
        ({"criterion": "x", "points": 9, "tag": ["a"]}, "criteria[1] `tag`: is not a known key: did you mean `tags`?"),
        ({"criterion": "x", "points": 9, "required": True}, "criteria[1] `required`: is not a known key"),
        ("x", "criteria[1]: must be a criterion"),
    ],
)
def test_fault_names_the_place_the_word_of_the_file_and_the_dialect(item: object, line: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict([RUBRICS[0], item])
    assert line in str(refusal.value)
    assert "is read as `healthbench`" in str(refusal.value)
    assert "rubric-integrations convert" in str(refusal.value)


def test_what_the_rubric_does_not_hold_is_listed() -> None:
    losses = reading_losses({"prompt_id": "p", "rubrics": GRADED})
    assert losses == [
        "`prompt_id` beside the criteria is left out",
        "`criteria_met` of 3 criteria is left out: it is a label, and not part of the rubric",
        "`explanation` of 3 criteria is left out",
    ]


def test_rubric_of_points_and_tags_is_written_without_loss() -> None:
    rubric = Rubric.from_dict(RUBRICS)
    document, losses = write_document(rubric, "healthbench")
    assert (document, losses) == (
        {"rubrics": [{**item, "points": weight} for item, weight in zip(RUBRICS, [9.0, -6.0, 4.0], strict=True)]},
        [],
    )
    named = Rubric([{"requirement": "x", "name": "n", "required": True}])
    assert write_document(named, "healthbench")[1] == [
        "`n`: `name` has no place in the format",
        "`n`: `required` has no place in the format",
    ]


PROFESSIONAL: dict[str, Any] = {
    "id": "hp9", "conversation": {"messages": [{"role": "user", "content": "Which dose?"}]}, "specialty": "x",
    "rubric_items": [
        {"criterion_text": "Asks for the weight", "points": 6}, {"criterion_text": "Doubles it", "points": -9},
    ],
    "response": "How heavy?",
}  # fmt: skip
ITEMS: list[dict[str, Any]] = [
    {"rubric_item_id": "g1", "criterion": "Is a workbook", "score": 2, "required": None, "tags": []},
    {"rubric_item_id": "g2", "criterion": "Has a summary", "score": 3, "required": True, "tags": ["form"]},
    {"rubric_item_id": "g3", "criterion": "Overwrites the source", "score": -5, "required": None, "tags": []},
]
GDPVAL: dict[str, Any] = {"task_id": "t1", "prompt": "Make a workbook.", "rubric_json": json.dumps(ITEMS)}


@pytest.mark.parametrize("document", [PROFESSIONAL, [PROFESSIONAL], PROFESSIONAL["rubric_items"]])
def test_items_of_healthbench_professional_become_rewards_and_penalties(document: Any) -> None:
    assert detect(document) == "healthbench_professional"
    rubric = read_document(document, "x")
    assert [(c.requirement, c.weight) for c in rubric.criteria] == [("Asks for the weight", 6.0), ("Doubles it", -9.0)]
    assert rubric.compute_score(["MET", "MET"]) == 0.0
    assert read_document(write_document(rubric, "healthbench_professional")[0], "x") == rubric


def test_scores_that_a_judge_gave_are_no_rubric() -> None:
    results = [{"criterion": "Is polite", "score": 0.0}, {"criterion": "Is right", "score": 1.0}]
    with pytest.raises(RubricError, match="`score`: is not a known key"):
        read_document(results, "x")


@pytest.mark.parametrize("document", [GDPVAL, [GDPVAL], ITEMS, {"rubric_json": ITEMS}, {"rubrics": ITEMS}])
def test_items_of_gdpval_keep_their_score_their_id_and_required(document: Any) -> None:
    assert detect(document) == "gdpval"
    rubric = read_document(document, "x")
    assert [(c.weight, c.required, c.tags) for c in rubric.criteria] == [
        (2.0, False, ()), (3.0, True, ("form",)), (-5.0, False, ()),
    ]  # fmt: skip
    assert rubric.criteria[2].metadata == {"id": "g3"}
    document, losses = write_document(rubric, "gdpval")
    assert (read_document(document, "x"), losses) == (rubric, [])


def test_rows_are_graded_by_their_own_criteria(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, [PROFESSIONAL, {**GDPVAL, "response": "Done."}])))
    rows = read_responses(path)
    judge = ScriptedJudge(lambda question: "UNMET" if question.criterion.is_penalty else "MET")
    run = grade_many(rows, None, PerCriterionGrader(judge), progress=False)
    assert [graded.report and graded.report.score for graded in run] == [1.0, 1.0]


def test_file_of_rows_has_a_case_for_each(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, [GDPVAL, {**GDPVAL, "task_id": "t2"}])))
    assert [(case.id, case.input, len(case.rubric)) for case in load_eval_cases(path)] == [
        ("t1", "Make a workbook.", 3), ("t2", "Make a workbook.", 3),
    ]  # fmt: skip
    assert "2 cases, 6 criteria" in shell("validate", path).stdout
    with pytest.raises(RubricError, match="rows: are 2, each with its rubric"):
        Rubric.from_file(path)
    path.write_text(json.dumps(PROFESSIONAL))
    [case] = load_eval_cases(path)
    assert (case.id, case.input) == ("hp9", "Which dose?")


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"score": "5"}, "`score`: must be a finite number, got '5'"),
        ({"score": float("nan")}, "`score`: must be a finite number"),
        ({"score": 10**300}, "`score`: is out of range"),
        ({"required": "yes"}, "`required`: must be true or false"),
        ({"criterion": ""}, "`criterion`: is empty"),
        ({"rubric_item_id": 7}, "`rubric_item_id`: must be a text, got 7"),
        ({"scores": 5}, "`scores`: is not a known key: did you mean `score`"),
        ({"tags": "x"}, "`tags`: "),
    ],
)
def test_fault_of_gdpval_names_its_key(item: dict[str, Any], words: str) -> None:
    with pytest.raises(RubricError) as refusal:
        read_document([{**ITEMS[0], **item}], "x")
    assert words in str(refusal.value)
    assert "is read as `gdpval`" in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[{", "rubric_json: is not JSON"), ('"x"', "has no list of criteria"), ("[]", "has no criteria"),
        ("[1]", "must be a criterion"), ("[" * 9999, "rubric_json: nests deeper than 50 levels"),
        ('[{"criterion": "a", "criterion": "b"}]', "has the key 'criterion' twice"),
    ],
)  # fmt: skip
def test_broken_json_of_gdpval_is_a_fault_of_its_column(text: str, words: str) -> None:
    with pytest.raises(RubricError) as refusal:
        read_document({**GDPVAL, "rubric_json": text}, "x")
    assert words in str(refusal.value)
