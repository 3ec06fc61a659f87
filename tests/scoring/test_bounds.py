"""The range of a score against every way in which the open criteria could still be answered."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, Option, Rubric, Scale
from rubric_integrations.scoring.bounds import score_range
from rubric_integrations.scoring.formula import CannotAssess, WeightedValue, score_parts

VALUES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
WEIGHTS = st.sampled_from([-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])


@st.composite
def criteria(draw: st.DrawFn) -> Criterion:
    weight = draw(WEIGHTS)
    values = draw(st.lists(VALUES, min_size=2, max_size=3, unique=True))
    kind = draw(st.sampled_from(["binary", "options", "scale"]))
    options = tuple(Option(label=f"o{place}", value=value) for place, value in enumerate(values))
    return Criterion(
        requirement="r",
        weight=weight,
        options=options if kind == "options" else None,
        scale=Scale(min=0, max=1) if kind == "scale" else None,
    )


def answers_to(criterion: Criterion) -> list[float | None]:
    """All answers where there are few, and some of a scale's."""
    if criterion.options is not None:
        return [*(option.value for option in criterion.options), None]
    return [0.0, 0.5, 1.0, None] if criterion.scale is not None else [0.0, 1.0, None]


@given(
    st.lists(criteria(), min_size=1, max_size=6).filter(lambda found: any(c.weight for c in found)),
    st.data(),
    st.sampled_from(["skip", "zero", "partial", "fail"]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
@settings(max_examples=300, deadline=None)
def test_the_range_is_that_of_all_possible_answers(
    found: list[Criterion], data: st.DataObject, policy: CannotAssess, credit: float
) -> None:
    rubric = Rubric(found)
    known = {
        place: data.draw(st.sampled_from(answers_to(criterion)))
        for place, criterion in enumerate(found)
        if data.draw(st.booleans())
    }
    possible: list[float | None] = []
    for rest in itertools.product(*(answers_to(c) for place, c in enumerate(found) if place not in known)):
        left = iter(rest)
        values = [known[place] if place in known else next(left) for place in range(len(found))]
        parts = [WeightedValue(c.weight, value, c.worst_value) for c, value in zip(found, values, strict=True)]
        possible.append(score_parts(parts, policy, credit).normalized)
    scores = [score for score in possible if score is not None]
    low, high = score_range(rubric, known, policy, credit)
    assert low == (min(scores) if len(scores) == len(possible) else None)
    assert high == max(scores, default=0.0)


def test_a_weight_that_is_still_open_is_in_the_range() -> None:
    rubric = Rubric([Criterion(requirement="a", weight=3), Criterion(requirement="b", weight=1)])
    assert score_range(rubric, {0: 1.0}) == (0.75, 1.0)
    assert score_range(rubric, {}) == (None, 1.0)
    assert score_range(rubric, {}, "zero") == (0.0, 1.0)
    assert score_range(rubric, {0: 1.0, 1: 0.0}) == (0.75, 0.75)
