"""The meaning of answers to criteria of every kind."""

from __future__ import annotations

import re

import pytest

from rubric_integrations import Criterion, Option, Scale
from rubric_integrations.scoring import Judgment, to_judgment
from rubric_integrations.scoring.judgment import extreme_judgment

CLARITY = (Option(label="muddled", value=0.0), Option(label="passable", value=0.4), Option(label="clear", value=1.0))
OPTIONS = Criterion(requirement="Mood?", options=CLARITY)
WITH_NA = Criterion(requirement="Mood?", options=(*CLARITY, Option(label="N/A", na=True)), scale_type="nominal")
SCALE = Criterion(requirement="Mark?", scale=Scale(min=1, max=5, integer=True))


@pytest.mark.parametrize(
    ("criterion", "answer", "verdict", "value"),
    [
        (OPTIONS, " CLEAR ", "clear", 1.0),
        (OPTIONS, "cannot assess", "CANNOT_ASSESS", None),
        (WITH_NA, "n/a", "N/A", None),
        (WITH_NA, "CANNOT_ASSESS", "N/A", None),
        (SCALE, 3, "3", 0.5),
        (SCALE, "5", "5", 1.0),
        (SCALE, "CANNOT_ASSESS", "CANNOT_ASSESS", None),
    ],
)
def test_answer_of_every_kind_has_a_verdict_and_a_value(
    criterion: Criterion, answer: object, verdict: str, value: float | None
) -> None:
    judgment = to_judgment(criterion, answer)
    assert (judgment.verdict, judgment.value) == (verdict, value)


@pytest.mark.parametrize(
    ("criterion", "answer"),
    [
        (OPTIONS, "murky"),
        (OPTIONS, "MET"),
        (SCALE, 0),
        (SCALE, 6),
        (SCALE, 2.5),
        (SCALE, "nan"),
        (SCALE, True),
        (SCALE, "3/5"),
    ],
)
def test_answer_that_does_not_fit_is_refused_and_never_replaced_by_the_nearest(
    criterion: Criterion, answer: object
) -> None:
    with pytest.raises(ValueError, match=re.escape(str(answer))):
        to_judgment(criterion, answer)


def test_abstention_from_options_is_refused_if_judges_may_not_abstain() -> None:
    with pytest.raises(ValueError, match="no option"):
        to_judgment(OPTIONS, "CANNOT_ASSESS", may_abstain=False)
    assert to_judgment(WITH_NA, "CANNOT_ASSESS", may_abstain=False).value is None


def test_extreme_judgment_is_the_answer_with_the_lowest_or_highest_value() -> None:
    penalty = Criterion(requirement="r", weight=-1, options=CLARITY)
    assert (OPTIONS.worst_option.label, penalty.worst_option.label) == ("muddled", "clear")
    assert [extreme_judgment(OPTIONS, end).verdict for end in ("worst", "low", "high")] == [
        "muddled", "muddled", "clear",
    ]  # fmt: skip
    assert extreme_judgment(SCALE, "worst").verdict == "1"
    scaled_penalty = Criterion(requirement="r", weight=-1, scale=Scale())
    assert extreme_judgment(scaled_penalty, "worst") == Judgment(verdict="10", value=1.0)
