"""Scales with bands: a text that holds for several numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Criterion, Rubric, RubricError, Scale
from rubric_integrations.judges.prompts.render import describe_scale
from rubric_integrations.rubric.answers import Band


@st.composite
def scales(draw: st.DrawFn) -> Scale:
    """Draw a scale of whole numbers that is divided into bands and single numbers, some of them without a text."""
    low, high = draw(st.integers(-20, 0)), draw(st.integers(1, 20))
    cuts = sorted({low, high + 1, *draw(st.lists(st.integers(low, high), max_size=5))})
    levels = {
        f"{start}-{end - 1}" if end - 1 > start else start: f"from {start}"
        for start, end in pairwise(cuts)
        if draw(st.booleans())
    }
    return Scale.model_validate({"min": low, "max": high, "integer": draw(st.booleans()), "levels": levels})


@given(scales())
def test_text_of_a_band_any_scale_holds_for_each_number_and_changes_no_value(scale: Scale) -> None:
    for level, text in scale.levels.items():
        low, high = level if isinstance(level, Band) else (level, level)
        assert {scale.text_at(number) for number in range(int(low), int(high) + 1)} == {text}
    plain = scale.model_copy(update={"levels": {}})
    for number in range(int(scale.min), int(scale.max) + 1):
        assert scale.value_of(number) == plain.value_of(number)


@given(scales())
def test_bands_any_scale_are_equal_after_writing(scale: Scale) -> None:
    rubric = Rubric([Criterion(requirement="r", scale=scale)])
    assert Rubric.from_yaml(rubric.to_yaml()) == Rubric.from_json(rubric.to_json()) == rubric


def test_bands_are_shown_to_the_judge_in_the_order_of_their_numbers() -> None:
    scale = Scale.model_validate({"min": 1, "max": 5, "levels": {"4 to 5": "good", 3: "fair", "1-2": "poor"}})
    assert describe_scale(scale) == "from 1 to 5, decimals allowed\n1-2: poor\n3: fair\n4-5: good"
    assert (scale.text_at(1.5), scale.text_at(3), scale.text_at(3.5)) == ("poor", "fair", None)


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({"2-1": "x"}, "the band '2-1': write the smaller number first"),
        ({"1-3": "x", "3-4": "y"}, "two texts for 3"),
        ({"1-3": "x", 2: "y"}, "two texts for 2"),
        ({"4-6": "x"}, "6, which is outside 1 to 5"),
        ({"low": "x"}, "'low' is no number and no band of numbers: write a key such as 3 or 1-2"),
        ({"1-2-3": "x"}, "'1-2-3' is no number"),
        ({".nan": "x", "nan": "y"}, "'nan' is no number"),
    ],
)
def test_levels_with_a_faulty_band_are_refused(levels: dict[object, str], words: str) -> None:
    with pytest.raises(RubricError, match=words):
        Rubric.from_dict([{"requirement": "r", "scale": {"min": 1, "max": 5, "levels": levels}}])
