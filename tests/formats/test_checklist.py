"""Plain checklists, WritingBench's criteria with score bands, and tau2's assertions."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import Rubric, RubricError
from rubric_integrations.formats import write_document
from rubric_integrations.formats.registry import detect

BANDED = {
    "name": "Plot",
    "criteria_description": "Whether the plot holds together",
    "1-2": "No plot",
    "3-4": "Breaks",
    "5-6": "Gaps",
    "7-8": "Holds",
    "9-10": "Surprises and holds",
}


@pytest.mark.parametrize(
    "document",
    [
        {"checklist": ["Greets", "Says goodbye"]},
        {"nl_assertions": ["Greets", "Says goodbye"]},
        {"id": "1", "evaluation_criteria": {"actions": [], "nl_assertions": ["Greets", "Says goodbye"]}},
    ],
)
def test_entries_of_a_checklist_become_criteria_of_equal_weight(document: Any) -> None:
    assert detect(document) == "checklist"
    rubric = Rubric.from_dict(document)
    assert [(c.requirement, c.weight) for c in rubric.criteria] == [("Greets", 1.0), ("Says goodbye", 1.0)]


@pytest.mark.parametrize("document", [[BANDED], {"checklist": [BANDED]}])
def test_bands_become_the_levels_of_a_scale(document: Any) -> None:
    assert detect(document) == "checklist"
    [criterion] = Rubric.from_dict(document).criteria
    assert (criterion.name, criterion.requirement) == ("Plot", "Whether the plot holds together")
    assert criterion.scale is not None
    assert (criterion.scale.min, criterion.scale.max, criterion.scale.integer) == (1.0, 10.0, True)
    assert (criterion.scale.levels[3], criterion.scale.levels[4]) == ("Breaks", "Breaks")


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"checklist": []}, "has no criteria: add at least one"),
        ({"checklist": "x"}, "`checklist`: must be a list of texts, got 'x'"),
        ({"checklist": ["x", 1]}, "checklist[1]: must be a text"),
        ({"checklist": [{**BANDED, "2-5": "x"}]}, "checklist[0]: the bands must cover"),
        ({"checklist": [{"criteria_description": "x"}]}, "checklist[0]: the bands must cover"),
    ],
)
def test_fault_of_a_checklist_is_named(document: Any, line: str) -> None:
    with pytest.raises(RubricError) as refusal:
        Rubric.from_dict(document)
    assert line in str(refusal.value)
    assert "is read as `checklist`" in str(refusal.value)


def test_weights_have_no_place_in_a_checklist() -> None:
    document, losses = write_document(
        Rubric([{"requirement": "x", "weight": 3}, {"requirement": "y", "weight": 1}]), "checklist"
    )
    assert document == {"checklist": ["x", "y"]}
    assert losses == ["`c1`: `weight` 3 becomes 1"]
