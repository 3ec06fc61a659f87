"""Sections with a weight, and the faults of groups with penalties."""

from __future__ import annotations

import jsonschema
import pytest

from rubric_integrations import Rubric
from rubric_integrations.formats import write_document
from rubric_integrations.formats.native import json_schema
from rubric_integrations.rubric import RubricError

CONTENT = {"name": "Content", "weight": 3, "criteria": [{"requirement": "a", "weight": 4}, {"requirement": "b"}]}
FORM = {"title": "Form", "description": "How it looks", "weight": 1, "criteria": [{"requirement": "c"}]}


def test_weight_of_a_section_is_shared_among_its_criteria() -> None:
    rubric = Rubric.from_dict({"sections": [CONTENT, FORM]})
    assert [criterion.weight for criterion in rubric.criteria] == pytest.approx([12 / 14, 30 / 14, 1])
    assert [(node.name, node.requirement) for node in rubric.tree or ()] == [("Content", "Content"), (None, "Form")]
    assert rubric.compute_score(["MET", "MET", "UNMET"]) == 0.75
    assert Rubric.from_dict(rubric.to_dict()) == rubric


def test_sections_without_a_weight_are_one_list() -> None:
    sections = [{key: value for key, value in section.items() if key != "weight"} for section in (CONTENT, FORM)]
    rubric = Rubric.from_dict({"sections": sections})
    assert rubric.tree is None
    assert [criterion.weight for criterion in rubric.criteria] == [4, 10, 10]


def test_group_of_penalties_has_its_cap_as_its_weight() -> None:
    group = {"name": "Style", "penalty_cap": 5, "criteria": [{"requirement": "b", "weight": -3}] * 2}
    document = {"sections": [{"name": "A", "weight": 10, "criteria": [{"requirement": "a"}]}, group]}
    rubric = Rubric.from_dict(document)
    assert [criterion.weight for criterion in rubric.criteria] == [10, -3, -3]
    assert rubric.compute_score(["MET", "MET", "MET"]) == 0.5
    written = rubric.to_dict()
    assert written["criteria"][1]["weight"] == -5
    jsonschema.validate(written, json_schema())


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([CONTENT, {"name": "Form", "criteria": [{"requirement": "c"}]}],
         "sections[1] `weight`: is missing, and another section has one: give each section a weight, or none"),
        ([{**CONTENT, "wieght": 3}], "sections[0] `wieght`: is not a key of a section"),
        ([{**CONTENT, "penalty_cap": 3}], "sections[0]: has a `penalty_cap` and no penalty"),
        ([{**CONTENT, "penalty_cap": -3}], "sections[0] `penalty_cap`: must be a number above 0, got -3"),
        ([{**CONTENT, "weight": "x"}], "sections[0] `weight`: must be a finite number, got 'x'"),
        ([{"weight": 1, "criteria": [{"requirement": "a", "weight": -1}]}], "sections[0]: has only penalties: set"),
        ([{"weight": 1, "penalty_cap": 2, "criteria": [{"requirement": "a", "weight": -1}]}],
         "sections[0]: has only penalties, and the weight 1: remove it"),
        ([{"weight": -1, "criteria": [{"requirement": "a"}, {"requirement": "b", "weight": -1}]}],
         "sections[0]: has a negative weight and a penalty in it, which would earn points"),
    ],
)  # fmt: skip
def test_inconsistent_sections_are_refused_with_their_place(entries: list[object], fault: str) -> None:
    with pytest.raises(RubricError) as error:
        Rubric.from_dict({"sections": entries})
    assert fault in str(error.value)


def test_conversion_to_agentv_lists_a_cap_as_a_loss() -> None:
    group = {"requirement": "p", "penalty_cap": 5, "criteria": [{"requirement": "b", "weight": -3}] * 2}
    inner = {"requirement": "g", "weight": 1, "criteria": [{"requirement": "a"}, group]}
    _, losses = write_document(Rubric.from_dict([inner]), "agentv")
    assert "`penalty_cap` has no place in the format: penalties take more than before" in losses
