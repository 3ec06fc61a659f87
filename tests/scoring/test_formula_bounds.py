"""The range of a score, compared with the scores of all possible answers to the open criteria."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Option, Rubric, Scale
from rubric_integrations.scoring import CannotAssess, WeightedValue, score_parts, score_range

VALUES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
WEIGHTS = st.sampled_from([-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])


@st.composite
def any_criterion(draw: st.DrawFn) -> Criterion:
    weight = draw(WEIGHTS)
    values = draw(st.lists(VALUES, min_size=2, max_size=3, unique=True))
    kind = draw(st.sampled_from(["binary", "options", "scale"]))
    options = tuple(Option(label=f"o{index}", value=value) for index, value in enumerate(values))
    return Criterion(
        requirement="r",
        weight=weight,
        options=options if kind == "options" else None,
        scale=Scale(min=0, max=1) if kind == "scale" else None,
    )


def possible_values(criterion: Criterion) -> list[float | None]:
    """Return the values of all possible answers; for a scale, of three numbers and the abstention."""
    if criterion.options is not None:
        return [*(option.value for option in criterion.options), None]
    return [0.0, 0.5, 1.0, None] if criterion.scale is not None else [0.0, 1.0, None]


@given(
    st.lists(any_criterion(), min_size=1, max_size=6).filter(lambda criteria: any(c.weight for c in criteria)),
    st.data(),
    st.sampled_from(["skip", "zero", "partial", "fail", 0.0, 0.3, 1.0]),
)
def test_score_range_equals_the_extremes_of_all_possible_answers(
    criteria: list[Criterion], data: st.DataObject, policy: CannotAssess
) -> None:
    rubric = Rubric(criteria)
    known = {
        index: data.draw(st.sampled_from(possible_values(criterion)))
        for index, criterion in enumerate(criteria)
        if data.draw(st.booleans())
    }
    possible: list[float | None] = []
    open_criteria = [criterion for index, criterion in enumerate(criteria) if index not in known]
    for combination in itertools.product(*map(possible_values, open_criteria)):
        remaining = iter(combination)
        values = [known[index] if index in known else next(remaining) for index in range(len(criteria))]
        parts = [WeightedValue(c.weight, value, c.worst_value) for c, value in zip(criteria, values, strict=True)]
        possible.append(score_parts(parts, policy).normalized)
    scores = [score for score in possible if score is not None]
    low, high = score_range(rubric, known, policy)
    assert low == (min(scores) if len(scores) == len(possible) else None)
    assert high == max(scores, default=0.0)


def test_score_range_of_open_criteria_includes_their_weights() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=3), Criterion(requirement="b", weight=1)])
    assert score_range(rubric, {0: 1.0}) == (0.75, 1.0)
    assert score_range(rubric, {}) == (None, 1.0)
    assert score_range(rubric, {}, "zero") == (0.0, 1.0)
    assert score_range(rubric, {0: 1.0, 1: 0.0}) == (0.75, 0.75)
