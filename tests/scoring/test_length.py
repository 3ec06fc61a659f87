"""The penalty for long responses."""

from __future__ import annotations

from typing import Any

import pytest

from rubric_integrations import LengthPenalty, Submission
from rubric_integrations.scoring import compute_length_penalty, word_count
from tests.submission.conversations import CHAT


def test_word_count_splits_at_white_space() -> None:
    assert [word_count(text) for text in ("", " a  b\tc\n", "a-b")] == [0, 3, 1]


@pytest.mark.parametrize(("count", "penalty"), [(0, 0.0), (10, 0.0), (15, 0.1), (20, 0.4), (99, 0.4)])
def test_penalty_grows_from_the_budget_to_the_cap(count: int, penalty: float) -> None:
    settings = LengthPenalty(free_budget=10, max_cap=20, penalty_at_cap=0.4, exponent=2.0)
    assert settings.penalty_for(count) == pytest.approx(penalty)


@pytest.mark.parametrize(
    "fields",
    [
        {"free_budget": 10, "max_cap": 10},
        {"free_budget": -1},
        {"penalty_at_cap": -0.1},
        {"penalty_at_cap": float("nan")},
        {"exponent": 0},
    ],
)
def test_settings_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        LengthPenalty(**fields)


@pytest.mark.parametrize(("part", "words"), [("ALL", 3), ("OUTPUT_ONLY", 1), ("THINKING_ONLY", 2)])
def test_penalty_type_selects_the_part_that_is_counted(part: Any, words: int) -> None:
    settings = LengthPenalty(free_budget=0, max_cap=4, penalty_at_cap=4.0, exponent=1.0, penalty_type=part)
    for response in ({"thinking": "two words", "output": "one"}, Submission(response="one", thinking="two words")):
        assert compute_length_penalty(response, settings) == words


def test_penalty_of_a_conversation_counts_the_last_answer() -> None:
    assert compute_length_penalty(CHAT, LengthPenalty(free_budget=1, max_cap=3)) == 0.5


@pytest.mark.parametrize("count", [-1, 2.5, True, None])
def test_count_that_is_not_a_length_is_refused(count: Any) -> None:
    with pytest.raises(ValueError, match="count_fn"):
        compute_length_penalty("text", LengthPenalty(count_fn=lambda _text: count))
