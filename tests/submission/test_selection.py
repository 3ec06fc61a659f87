"""Selected steps of a trajectory keep their numbers, and every gap between them is stated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Submission
from rubric_integrations.submission import ShownStep, Step, StepSelection, ToolCall, Trajectory

TOTAL = 40


def selected(numbers: list[int]) -> Trajectory:
    steps = tuple(Step(role="user", text=str(number)) for number in numbers)
    shown = tuple(ShownStep(number=number) for number in numbers)
    return Trajectory(steps=steps, selection=StepSelection(steps=shown, total=TOTAL))


@given(st.sets(st.integers(1, TOTAL)).map(sorted))
def test_every_step_is_shown_or_named_as_not_shown_exactly_once(numbers: list[int]) -> None:
    covered: list[int] = []
    for line in selected(numbers).text().split("\n"):
        words = [int(word) for word in line.replace(",", " ").split() if word.isdigit()]
        covered += range(words[0], words[-1] + 1) if line.startswith("[") else words[:1]
    assert covered == list(range(1, TOTAL + 1))
    assert list(selected(numbers).numbers) == numbers


@pytest.mark.parametrize("numbers", [[2, 1], [1, 1], [0], [TOTAL + 1]])
def test_numbers_that_do_not_increase_or_do_not_exist_are_refused(numbers: list[int]) -> None:
    with pytest.raises(ValueError, match=r"must increase|greater than or equal to 1"):
        selected(numbers)


def test_selection_needs_one_entry_for_each_step() -> None:
    selection = StepSelection(steps=(ShownStep(number=1),), total=2)
    with pytest.raises(ValueError, match="one entry for each step"):
        Trajectory(steps=(), selection=selection)
    with pytest.raises(ValueError, match="has no steps"):
        Trajectory(steps=())


def test_shortened_selection_keeps_its_numbers() -> None:
    call = ToolCall(name="open", result="x" * 100)
    selection = StepSelection(steps=(ShownStep(number=7),), total=9)
    short = Trajectory(steps=(Step(role="assistant", calls=(call,)),), selection=selection).shortened(10)
    assert short.numbers == (7,)
    assert short.text().startswith('[steps 1 to 6 not shown]\n{"step": 7, ')


def test_selection_survives_json_and_is_left_out_of_a_complete_trajectory() -> None:
    trajectory = selected([3])
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
    assert "selection" not in Trajectory(steps=(Step(role="user", text="x"),)).model_dump()


def conversation(size: int, last: str = "Done.") -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    return [
        {"role": "user", "content": "Build it."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "x" * size},
        {"role": "assistant", "content": last},
    ]


TASK = '{"role": "user", "content": "Build it."}'


@pytest.mark.parametrize(("query", "shown"), [(None, TASK), ("The task", "The task")])
def test_long_conversation_stands_in_the_trajectory_and_not_in_the_query(query: str | None, shown: str) -> None:
    whole = Submission.from_messages(conversation(2_000_000), query=query)
    assert (whole.query, whole.show_trajectory) == (shown, "always")
    assert whole.without_conversation() == whole
    assert Submission.model_validate_json(whole.model_dump_json()) == whole


@pytest.mark.parametrize(("query", "shown"), [(None, TASK), ("The task", "The task")])
def test_short_conversation_can_be_left_out_of_the_query(query: str | None, shown: str) -> None:
    whole = Submission.from_messages(conversation(2_000), query=query)
    assert len(whole.query or "") > 2_000
    own = whole.without_conversation()
    assert (own.query, own.show_trajectory) == (shown, "always")


def test_long_query_of_any_other_kind_is_still_refused() -> None:
    cases: list[dict[str, Any]] = [{"query": "x" * 1_000_001}, {"query": "x" * 1_000_001, "trajectory": selected([1])}]
    for fields in cases:
        with pytest.raises(ValueError, match="has 1,000,001 characters"):
            Submission(response="Done.", **fields)


def test_query_without_the_steps_of_the_trajectory_is_kept() -> None:
    for whole in (
        Submission(response="Done.", query="Build it.", trajectory=selected([1])),
        Submission(response="Done.", query="Build it."),
        Submission(response="Done.", trajectory=Trajectory(steps=(Step(role="user", text="a"),))),
    ):
        assert whole.without_conversation() is whole
