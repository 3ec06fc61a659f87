"""Parts of long responses: nothing is lost, none is too long, and steps stay whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Submission
from rubric_integrations.submission import Step, Trajectory
from rubric_integrations.submission.submission import split_response


@settings(max_examples=50)
@given(st.text(alphabet="ab \n\N{PARTY POPPER}", max_size=300).filter(str.strip), st.integers(3, 60))
def test_parts_of_a_text_are_short_and_lose_only_blank_ones(text: str, chunk_size: int) -> None:
    parts = split_response(Submission(response=text, thinking="t"), chunk_size)
    assert all(part.strip() and len(part) <= chunk_size for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
    if len(text) <= chunk_size:
        assert parts == [text]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("one\n\ntwo three\n\nfour", ["one\n\ntwo three\n\n", "four"]),
        ("one two\nthree four", ["one two\n", "three four"]),
        ("a" * 25, ["a" * 15, "a" * 10]),
    ],
)
def test_text_is_split_at_paragraphs_before_lines_and_words(text: str, parts: list[str]) -> None:
    assert split_response(Submission(response=text), 17 if "\n\n" in text else 15) == parts


@settings(max_examples=50)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=8), st.integers(80, 300))
def test_trajectory_is_split_between_steps_that_keep_their_numbers(texts: list[str], chunk_size: int) -> None:
    trajectory = Trajectory(steps=tuple(Step(role="assistant", text=text) for text in texts))
    submission = Submission(response=trajectory.text(), trajectory=trajectory, show_trajectory="as_response")
    parts = split_response(submission, chunk_size)
    assert "\n".join(parts) == trajectory.text()
    assert all(len(part) <= chunk_size or "\n" not in part for part in parts)
