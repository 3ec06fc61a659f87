"""The rubrics of RaR and ResearchRubrics: titles, descriptions, importance, and pitfalls with the right sign."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import reading_losses, write_document
from rubric_integrations.formats.registry import detect

RAR = [
    {"title": "Right scan", "description": "Essential Criteria: Names a CT scan without contrast", "weight": 5},
    {"title": "Radiation", "description": "Optional Criteria: Weighs the dose of radiation", "weight": 2},
    {"title": "No delay", "description": "Pitfall Criteria: Does not advise to wait for fluids", "weight": -2},
    {"title": "Alternatives", "description": "Pitfall Criteria: Does not mention ultrasound", "weight": -1},
    {"title": "Wrong scan", "description": "Pitfall Criteria: Recommends an X-ray first", "weight": -1},
]
RESEARCH = [
    {"criterion": "Describes one application for each stage", "weight": 5.0, "axis": "Explicit Criteria"},
    {"criterion": "Does not name its sources", "weight": -4.0, "axis": "Implicit Criteria"},
]


@pytest.mark.parametrize("document", [RAR, RESEARCH, {"rubric": RAR}, {"rubrics": RESEARCH}])
def test_list_is_detected(document: Any) -> None:
    assert detect(document) == "rar"


def test_title_description_and_weight_become_a_criterion() -> None:
    first = Rubric.from_dict(RAR).criteria[0]
    assert (first.name, first.requirement, first.weight) == ("Right scan", "Names a CT scan without contrast", 5.0)


def test_pitfall_asks_for_the_mistake_whichever_way_it_is_phrased() -> None:
    # RaR's texts describe the mistake or its avoidance, with the same negative weight: no reading of the words alone
    # can tell "Does not advise to wait" (good) from "Does not mention ultrasound" (bad). MET must be the mistake.
    rubric = Rubric.from_dict(RAR)
    for criterion, text in zip(rubric.criteria[2:], RAR[2:], strict=True):
        assert criterion.requirement.startswith("Makes this mistake ")
        assert criterion.requirement.endswith(str(text["description"]).removeprefix("Pitfall Criteria: "))
        assert criterion.weight < 0
    assert rubric.compute_score(["MET", "MET", "UNMET", "UNMET", "UNMET"]) == 1.0
    assert rubric.compute_score(["MET", "MET", "MET", "UNMET", "UNMET"]) == pytest.approx(5 / 7)


def test_pitfall_with_a_positive_weight_earns_it_by_avoiding_the_mistake() -> None:
    # RaR's paper gives pitfalls a positive weight: a response that avoids the mistake satisfies the criterion.
    [item] = Rubric.from_dict([{"title": "t", "description": "Pitfall: Recommends an X-ray", "weight": 0.9}]).criteria
    assert item.requirement.startswith("Avoids this mistake ")
    assert item.weight == 0.9


def test_negative_criterion_of_researchrubrics_is_read_literally() -> None:
    rubric = Rubric.from_dict(RESEARCH)
    assert rubric.criteria[1].requirement == "Does not name its sources"
    assert (rubric.criteria[1].weight, rubric.criteria[1].tags) == (-4.0, ("Implicit Criteria",))


@pytest.mark.parametrize(
    ("word", "weight"),
    [
        ("Essential", 10.0),
        ("important", 7.0),
        ("Optional Criteria", 3.0),
        ("Pitfall", -8.0),
        ("4", 4.0),
        ("-1.5", -1.5),
    ],
)
def test_weight_in_words_becomes_a_number(word: str, weight: float) -> None:
    [criterion] = Rubric.from_dict([{"title": "t", "description": "Names it", "weight": word}]).criteria
    assert criterion.weight == weight
    assert criterion.requirement.startswith("Makes this mistake ") == (weight < 0)


def test_missing_weight_is_taken_from_the_prefix_or_refused() -> None:
    assert Rubric.from_dict([{"title": "t", "description": "Important Criteria: x"}]).criteria[0].weight == 7.0
    with pytest.raises(RubricError, match=r"criteria\[0\] `weight`: is missing: add a number, or one of Essential, "):
        Rubric.from_dict([{"title": "t", "description": "x"}])
    with pytest.raises(RubricError, match=r"criteria\[0\] `weight`: is 'Huge': write a number, or one of Essential, "):
        Rubric.from_dict([{"title": "t", "description": "x", "weight": "Huge"}])


def test_word_and_sign_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(RubricError, match="is negative, but the text begins with 'Essential'"):
        Rubric.from_dict([{"title": "t", "description": "Essential Criteria: Names it", "weight": -5}])


@pytest.mark.parametrize(("word", "prefix"), [("Essential", "Pitfall"), ("Pitfall", "Important")])
def test_pitfall_in_only_one_of_weight_and_text_is_refused(word: str, prefix: str) -> None:
    item = {"title": "t", "description": f"{prefix} Criteria: Does not name it", "weight": word}
    with pytest.raises(RubricError, match=f"`weight`: is '{word}', but the text begins with '{prefix}'"):
        Rubric.from_dict([item])


def test_pitfall_in_words_asks_for_the_mistake_in_every_dialect() -> None:
    document = [{"criterion": "Does not name it", "weight": "Pitfall", "axis": "a"}, RESEARCH[1]]
    rubric = Rubric.from_dict(document)
    assert rubric.criteria[0].requirement.startswith("Makes this mistake ")
    assert rubric.criteria[1].requirement == "Does not name its sources"


@pytest.mark.parametrize(
    "document",
    [
        [{"title": "t", "description": "Pitfall Criteria: ", "weight": -1}],
        [{"operator": "contradiction", "criteria": " "}],
        [{"type": "not-llm-rubric", "value": " "}],
    ],
)
def test_text_that_is_empty_but_for_the_words_around_it_is_refused(document: Any) -> None:
    with pytest.raises(RubricError, match="is empty: write what the judge should look for"):
        Rubric.from_dict(document)


def test_repeated_title_gets_a_number() -> None:
    rubric = Rubric.from_dict([RAR[0], RAR[0], {**RAR[1], "title": ""}])
    assert rubric.keys == ("Right scan", "Right scan (2)", "c3")
    assert "`Right scan (2)`: the title is repeated, and gets a number" in reading_losses([RAR[0], RAR[0]])


def test_each_reworded_pitfall_is_listed() -> None:
    losses = reading_losses(RAR)
    assert [loss.partition(":")[0] for loss in losses[:-1]] == ["`No delay`", "`Alternatives`", "`Wrong scan`"]
    assert "asks for the mistake" in losses[0]
    assert losses[-1].startswith("2 texts lose their prefix ('Essential Criteria:', ")
    assert reading_losses([{**RAR[0], "description": "Names a CT scan"}]) == []


def test_pitfalls_are_written_as_they_were_read() -> None:
    rubric = Rubric.from_dict(RAR)
    document, losses = write_document(rubric, "rar")
    assert losses == []
    assert document["rubrics"][2] == {
        "title": "No delay",
        "description": "Pitfall Criteria: Does not advise to wait for fluids",
        "weight": -2.0,
    }
    assert Rubric.from_dict(document) == rubric
    literal = write_document(Rubric([{"requirement": "x"}, {"requirement": "Insults", "weight": -4}]), "rar")
    assert "`c2`: becomes a pitfall" in literal[1][0]
