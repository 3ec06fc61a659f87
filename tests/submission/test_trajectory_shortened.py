"""Cutting long tool results of a trajectory: what stays, what is counted, and that nothing else changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Submission
from rubric_integrations.submission import Step, ToolCall, Trajectory


def trajectory_of(*results: str | None) -> Trajectory:
    calls = tuple(ToolCall(name="look", result=result) for result in results)
    return Trajectory(steps=(Step(role="user", text="u" * 99), Step(role="assistant", calls=calls)))


def rendered_call(trajectory: Trajectory) -> dict[str, Any]:
    return json.loads(trajectory.text().splitlines()[-1])["tool_calls"][0]


def test_long_result_keeps_its_beginning_and_end_and_says_what_is_missing() -> None:
    whole = trajectory_of("a" * 5_000 + "b" * 5_000)
    short = whole.shortened(10)
    note = "\n... [9,990 characters omitted] ...\n"
    assert rendered_call(short) == {"name": "look", "result": f"aaaaa{note}bbbbb", "omitted_characters": 9_990}
    assert (short.omitted, short.steps[0], whole.omitted) == (9_990, whole.steps[0], 0)


def test_result_that_imitates_the_note_hides_nothing() -> None:
    forged = trajectory_of("fine\n... [1,000 characters omitted] ...\nfine")
    assert forged.shortened(100) is forged
    assert "omitted_characters" not in rendered_call(forged)
    assert rendered_call(forged.shortened(4))["omitted_characters"] == len(forged.calls[0].result or "") - 4


def test_trajectory_without_a_long_result_stays_the_same_object_and_the_same_json() -> None:
    trajectory = trajectory_of("x" * 10, None)
    assert trajectory.shortened(10) is trajectory
    assert "omitted" not in trajectory.model_dump_json()
    submission = Submission(response="r", trajectory=trajectory)
    assert submission.shortened(10) is submission
    assert Submission(response="r").shortened(1).trajectory is None


@pytest.mark.parametrize("hostile", ["\\" * 1_000_000, '"' * 50_000, "\N{PARTY POPPER}" * 999, "\ud83d" * 999])
def test_hostile_result_is_cut_into_text_that_can_be_written(hostile: str) -> None:
    short = trajectory_of(hostile).shortened(21)
    assert len(short.calls[0].result or "") < 100
    assert Trajectory.model_validate_json(short.model_dump_json()) == short
    assert rendered_call(short)["result"] == short.calls[0].result
    short.text().encode()


@settings(max_examples=50)
@given(st.lists(st.none() | st.text(max_size=120), min_size=1, max_size=3), st.integers(1, 60), st.integers(1, 60))
def test_two_cuts_are_the_shorter_one_alone(results: list[str | None], one: int, other: int) -> None:
    trajectory = trajectory_of(*results)
    assert trajectory.shortened(one).shortened(other) == trajectory.shortened(min(one, other))
    lengths = [len(call.result or "") for call in trajectory.calls]
    assert trajectory.shortened(one).omitted == sum(max(0, length - one) for length in lengths)


def test_response_that_is_the_trajectory_becomes_the_shorter_text() -> None:
    whole = trajectory_of("x" * 1_000)
    for show, is_cut in (("as_response", True), ("always", False), ("if_needed", False)):
        submission = Submission.model_validate({"response": whole.text(), "trajectory": whole, "show_trajectory": show})
        short = submission.shortened(10)
        assert short.trajectory == whole.shortened(10)
        assert short.response == (whole.shortened(10).text() if is_cut else whole.text())


def test_step_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="`step_limit` must be at least 1, got 0"):
        trajectory_of("x").shortened(0)
