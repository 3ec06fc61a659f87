"""A criterion in several groups: judged once, scored in each."""

from __future__ import annotations

import math
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, PerCriterionGrader, Rubric
from rubric_integrations.formats.native import json_schema
from rubric_integrations.rubric import Node, RubricError
from rubric_integrations.scoring import score_many, score_range, score_values
from tests.fakes import FakeJudge

WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 5.0])
VALUES = st.sampled_from([1.0, 0.0, None])
DOCUMENT: dict[str, Any] = {
    "criteria": [
        {"weight": 3.0, "requirement": "A", "criteria": [
            {"name": "x", "weight": 1.0, "requirement": "x"}, {"weight": 2.0, "requirement": "y"}]},
        {"weight": 1.0, "requirement": "B", "criteria": [
            {"ref": "x", "weight": 1.0}, {"weight": 1.0, "requirement": "z"}]},
    ]
}  # fmt: skip


def test_criterion_in_two_groups_is_judged_once_and_scored_in_both() -> None:
    rubric = Rubric.from_dict(DOCUMENT)
    assert [criterion.weight for criterion in rubric.criteria] == [1.5, 2.0, 0.5]
    judge = FakeJudge({"x": "MET", "y": "UNMET", "z": "UNMET"})
    report = rubric.grade_sync("text", PerCriterionGrader(judge))
    assert sorted(judge.requirements) == ["x", "y", "z"]
    assert report.score == (3 * (1 / 3) + 1 * (1 / 2)) / 4
    assert rubric.to_dict() == DOCUMENT
    jsonschema.validate(DOCUMENT, json_schema())


def documents() -> st.SearchStrategy[tuple[list[Any], list[Any]]]:
    """Draw a rubric with references, and the same rubric with copies of the criterion in their place."""

    @st.composite
    def draw_both(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
        shared = {"name": "x", "requirement": "x", "weight": draw(WEIGHTS)}
        criteria = [shared, {"requirement": "y", "weight": draw(WEIGHTS)}]
        first = {"requirement": "A", "weight": draw(WEIGHTS), "criteria": criteria}
        weight, group = draw(WEIGHTS), {"requirement": "B", "weight": draw(WEIGHTS)}
        other = {"requirement": "z", "weight": draw(WEIGHTS)}
        referring, copied = {"ref": "x", "weight": weight}, {"requirement": "x", "weight": weight}
        in_group = draw(st.booleans())
        both: list[Any] = [
            [first, {**group, "criteria": [entry, other]} if in_group else entry, *([] if in_group else [other])]
            for entry in (referring, copied)
        ]
        return both[0], both[1]

    return draw_both()


@given(documents(), VALUES, VALUES, VALUES, st.sampled_from(["skip", "zero", "partial", "fail"]))
def test_reference_scores_like_a_copy_with_the_same_verdict(
    both: tuple[list[Any], list[Any]], x: float | None, y: float | None, z: float | None, policy: Any
) -> None:
    rubric, copy = map(Rubric.from_dict, both)
    score = score_values(rubric, [x, y, z], policy)
    expected = score_values(copy, [x, y, x, z], policy)
    assert score == pytest.approx(expected)
    numbers = [[math.nan if value is None else value for value in (x, y, z)]]
    assert score_many(rubric, numbers, cannot_assess=policy)[0] == pytest.approx(
        math.nan if score.normalized is None else score.normalized, nan_ok=True
    )
    assert Rubric.from_dict(rubric.to_dict()) == rubric
    low, high = score_range(rubric, {0: x}, policy)
    assert low is None or (score.normalized is not None and low <= score.normalized + 1e-9)
    assert score.normalized is None or score.normalized <= high + 1e-9


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"ref": "w"}, "criteria[1] `ref`: 'w' is not the `name` of a criterion above"),
        ({"ref": 5}, "criteria[1] `ref`: 5 is not the `name` of a criterion above"),
        ({"ref": "x", "weight": "a"}, "criteria[1] `weight`: must be a finite number, got 'a'"),
        ({"ref": "x", "required": True}, "criteria[1] `required`: is not a known key"),
        ({"ref": "x", "weight": -1}, "criteria[1] `weight`: makes 'x' a penalty here and none elsewhere"),
    ],
)
def test_invalid_reference_is_refused_with_its_place(entry: object, fault: str) -> None:
    with pytest.raises(RubricError) as error:
        Rubric.from_dict([{"name": "x", "requirement": "x", "weight": 1}, entry])
    assert fault in str(error.value)


def test_criterion_in_two_groups_without_a_name_is_refused() -> None:
    leaf = Node(requirement="x", weight=1, leaf=0)
    with pytest.raises(RubricError, match=r"has `criteria\[0\]` in two groups of its `tree`: give it a `name`"):
        Rubric([Criterion(requirement="x", weight=2)], tree=[leaf, leaf])
