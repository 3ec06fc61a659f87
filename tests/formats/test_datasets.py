"""HealthBench's rubrics: criteria with points and tags, and the labels in them."""

from __future__ import annotations

import pytest

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import reading_losses, write_document
from rubric_integrations.formats.datasets import labels_of
from rubric_integrations.formats.registry import detect

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
