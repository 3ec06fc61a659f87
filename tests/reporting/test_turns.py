"""The turns of conversations: found in a text only if they are all of it, and shortened to a line for tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import TextLimits
from rubric_integrations.reporting.turns import as_line, first_lines, read_turns, shown_trajectory_text
from rubric_integrations.runs import RunFile
from rubric_integrations.submission import Step, Submission, ToolCall
from rubric_integrations.submission.steps import render_steps

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
CALLS = st.builds(
    ToolCall,
    name=TEXTS.filter(bool),
    arguments=st.none() | TEXTS | st.dictionaries(TEXTS, st.integers() | TEXTS | st.floats(allow_nan=False)),
    result=st.none() | TEXTS,
    is_error=st.none() | st.just(True),
)
STEPS = st.lists(
    st.builds(
        Step,
        role=st.sampled_from(["user", "assistant", "system", "tool"]),
        text=TEXTS,
        name=st.none() | TEXTS.filter(bool),
        calls=st.lists(CALLS, max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=4,
)
CHAT = [
    {"role": "system", "content": "Be **brief**."},
    {"role": "user", "content": "# What\n- is *6 x 7*?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 12345678901234567890}'}}
    ]},
    {"role": "tool", "tool_call_id": "1", "content": "x" * 900},
    {"role": "assistant", "content": "It is `42`."},
]  # fmt: skip


@given(steps=STEPS, is_numbered=st.booleans(), before=st.sampled_from(["", "The task", "Two\n\nlines\n"]))
def test_steps_of_any_content_are_read_back_from_their_text(steps: list[Step], is_numbered: bool, before: str) -> None:
    text = render_steps(steps, numbered=is_numbered)
    conversation = read_turns(f"{before}\n\n{text}" if before else text)
    assert conversation
    assert (list(conversation.steps), conversation.is_numbered) == (steps, is_numbered)
    assert conversation.before == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is 42.",
        '{"role": "user"}',
        '{"role": "user", "content": "a", "secret": 1}',
        '{"role": "admin", "content": "a"}',
        '{"role":"user","content":"a"}',
        'text right before\n{"role": "user", "content": "a"}',
        '{"role": "user", "content": "a"}\nafter',
        '{"step": 2, "role": "user", "content": "a"}',
        '{"role": "user", "content": "a", "tool_calls": 7}',
        '{"role": "user", "content": "a", "tool_calls": [{"name": "b", "omitted_characters": -1}]}',
        '{"role": "user", "role": "user", "content": "a"}',
        '{"role": "user", "content": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_text_of_which_turns_would_lose_a_part_is_no_conversation(text: str) -> None:
    assert read_turns(text) is None


@pytest.mark.parametrize("respond", ["last", "transcript", "trajectory"])
def test_first_lines_of_a_conversation_are_the_message_of_its_user_and_the_last_text(respond: Any) -> None:
    assert first_lines(Submission.from_messages(CHAT, respond=respond), 80) == ("What is 6 x 7?", "It is 42.")
    with_task = Submission.from_messages(CHAT, respond=respond, query="The **task**")
    assert first_lines(with_task, 80) == ("The task", "It is 42.")


def test_first_line_of_a_run_without_an_answer_names_its_last_calls() -> None:
    run = Submission.model_validate({"response": CHAT[:4], "respond": "trajectory"})
    assert first_lines(run, 80) == ("What is 6 x 7?", "calls multiply")


@pytest.mark.parametrize(
    "text",
    [
        "`a" * 20_000,
        "[" * 20_000,
        "*a **b _c " * 9_000,
        "|" * 20_000,
        "a**b" * 9_000,
        "> " * 9_000,
        "#" * 9_000,
        "\n" * 9_000,
    ],
)
def test_line_of_a_hostile_text_has_its_length(text: str) -> None:
    assert len(as_line(text, 160)) <= 160


@given(TEXTS)
def test_line_of_a_text_is_one_line_and_no_longer(text: str) -> None:
    line = as_line(text, 20)
    assert len(line) <= 20
    assert line.split() == line.split(" ") or not line


def test_text_that_the_judge_read_has_the_results_that_the_limit_shortens() -> None:
    rubric = Rubric([{"name": "answer", "requirement": "States 42", "check": {"contains": "42"}}])
    rows = [Submission.from_messages(CHAT, respond="trajectory")]
    for limit in (None, 100):
        grader = PerCriterionGrader("offline", text_limits=TextLimits(step_limit=limit))
        (row,) = RunFile.of("run", grade_many(rows, rubric, grader)).rows
        assert row.submission
        text = shown_trajectory_text(row) or ""
        assert (text == row.submission.response) == (limit is None)
        calls = [call for line in text.splitlines() for call in json.loads(line).get("tool_calls", [])]
        assert [call.get("omitted_characters") for call in calls] == [None if limit is None else 800]
