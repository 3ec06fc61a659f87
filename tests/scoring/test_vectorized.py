"""Scores of arrays equal those of `Rubric.compute_score`, for any rubric and any verdicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Option, Rubric, Scale
from rubric_integrations.scoring import score_many

WEIGHTS = st.floats(-100, 100).filter(lambda weight: abs(weight) > 1e-3)
OPTIONS = [Option(label=label, value=value) for label, value in (("low", 0), ("mid", 0.3), ("top", 1))]
KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "binary": ({}, ["MET", "UNMET", "CANNOT_ASSESS", "**met**"]),
    "options": ({"options": OPTIONS}, ["low", "mid", "top", "CANNOT_ASSESS"]),
    "scale": ({"scale": Scale(min=0, max=10)}, ["0", "2.5", "10", "CANNOT_ASSESS"]),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Rubric, list[list[str]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6))
    criteria = [Criterion(requirement="r", weight=draw(WEIGHTS), **KINDS[kind][0]) for kind in kinds]
    row = st.tuples(*(st.sampled_from(KINDS[kind][1]) for kind in kinds)).map(list)
    return Rubric(criteria), draw(st.lists(row, min_size=1, max_size=8))


@given(cases(), st.sampled_from(["skip", "zero", "partial", "fail"]) | st.floats(0, 1), st.booleans())
def test_score_many_any_row_equals_compute_score(
    case: tuple[Rubric, list[list[str]]], policy: Any, normalize: bool
) -> None:
    rubric, rows = case
    scores = score_many(rubric, rows, normalize=normalize, cannot_assess=policy)
    for row, score in zip(rows, scores, strict=True):
        expected = rubric.compute_score(row, normalize=normalize, cannot_assess=policy)
        assert math.isnan(score) if expected is None else score == pytest.approx(expected, abs=1e-9)


def test_score_many_numbers_are_values_and_nan_is_an_abstention() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=3), Criterion(requirement="b", weight=1)])
    assert score_many(rubric, [[1, 0], [0.5, 0.5]]).tolist() == [0.75, 0.5]
    assert score_many(rubric, np.array([[np.nan, 1.0]])).tolist() == [1.0]
    assert score_many(rubric, np.zeros((0, 2))).tolist() == []


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        ([["MET"]], r"the shape \(1, 1\), but the rubric has 2"),
        (["MET", "UNMET"], r"the shape \(2,\)"),
        ([["MET", "PERHAPS"]], "`c2`: 'PERHAPS' is no verdict"),
        ([[1, 7]], r"outside \[0, 1\]"),
    ],
)
def test_score_many_invalid_verdicts_are_refused(verdicts: Any, words: str) -> None:
    rubric = Rubric([Criterion(requirement="a"), Criterion(requirement="b")])
    with pytest.raises(ValueError, match=words):
        score_many(rubric, verdicts)
