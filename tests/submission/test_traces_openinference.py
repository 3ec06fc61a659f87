"""OpenInference's spans of the OpenAI Agents SDK, whose root has no content, and of smolagents' tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.submission import read_responses
from rubric_integrations.submission.inputs import Row
from tests.submission.traces import ANSWER, TASK, sdk

Read = Callable[..., Row]
Messages = list[dict[str, Any]]
USER: dict[str, Any] = {"role": "user", "content": TASK}
CALLS = [("c1", "times", '{"a": 6}'), ("c2", "times", '{"a": 7}')]
INPUT: Messages = [
    {"role": "system", "content": "You count."}, USER,
    *({"role": "assistant", "tool_calls": [call]} for call in CALLS),
    {"role": "tool", "content": "42", "tool_call_id": "c1"}, {"role": "tool", "content": "no", "tool_call_id": "c2"},
]  # fmt: skip


def flat(name: str, messages: Messages) -> dict[str, Any]:
    """Return messages as attributes of OpenInference."""
    attributes: dict[str, Any] = {}
    for place, message in enumerate(messages):
        for key in ("role", "content", "tool_call_id"):
            if key in message:
                attributes[f"llm.{name}.{place}.message.{key}"] = message[key]
        for number, (call_id, tool, arguments) in enumerate(message.get("tool_calls", ())):
            prefix = f"llm.{name}.{place}.message.tool_calls.{number}.tool_call"
            attributes |= {f"{prefix}.id": call_id, f"{prefix}.function.name": tool}
            attributes[f"{prefix}.function.arguments"] = arguments
    return attributes


def span(number: int, parent: int | None, kind: str, attributes: dict[str, Any] | None = None, **status: str) -> Any:
    named = {"openinference.span.kind": kind, **(attributes or {})}
    return sdk("t1", f"s{number}", None if parent is None else f"s{parent}", named, **status)


def model(number: int, parent: int, sent: Messages, received: Messages, **status: str) -> Any:
    return span(number, parent, "LLM", flat("input_messages", sent) | flat("output_messages", received), **status)


def tool(number: int, parent: int, sent: str, received: str | None, name: str = "times", **status: str) -> Any:
    output = {} if received is None else {"output.value": received}
    return span(number, parent, "TOOL", {"tool.name": name, "input.value": sent, **output}, **status)


FAILED = {"status_code": "ERROR", "description": "no such number"}
RUN = [
    span(1, None, "AGENT"),
    span(2, 1, "AGENT"),
    model(3, 2, [USER], [{"role": "assistant", "tool_calls": CALLS}]),
    tool(4, 2, '{"a": 6}', "42"),
    tool(5, 2, '{"a": 7}', None, **FAILED),
    model(6, 2, INPUT, [{"role": "assistant", "content": ANSWER}]),
]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that writes spans as a file, and reads its only row."""

    def read_one(*rows: Any) -> Row:
        path = tmp_path / "spans.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        (row,) = read_responses(path)
        return row

    return read_one


def calls(row: Row) -> list[tuple[str, Any, str | None, bool | None]]:
    assert row.submission is not None, row.error
    trajectory = row.submission.trajectory
    return [(one.name, one.arguments, one.result, one.is_error) for one in trajectory.calls] if trajectory else []


def test_root_without_content_has_the_answer_of_its_last_request(read: Read) -> None:
    row = read(*RUN)
    assert row.submission is not None, row.error
    assert row.submission.response == ANSWER
    assert TASK in (row.submission.query or "")
    assert calls(row) == [("times", {"a": 6}, "42", False), ("times", {"a": 7}, "no such number", True)]


def test_agents_that_hand_over_are_one_run(read: Read) -> None:
    handoff = ("h", "transfer_to_writer", "{}")
    after = [USER, {"role": "assistant", "tool_calls": [handoff]},
             {"role": "tool", "content": "done", "tool_call_id": "h"}]  # fmt: skip
    row = read(
        span(1, None, "AGENT"), span(2, 1, "AGENT"),
        model(3, 2, [USER], [{"role": "assistant", "tool_calls": [handoff]}]),
        {**span(4, 2, "TOOL"), "name": "handoff to writer"}, span(5, 1, "AGENT"),
        model(6, 5, after, [{"role": "assistant", "content": ANSWER}]),
    )  # fmt: skip
    assert row.submission is not None, row.error
    assert (row.submission.response, [name for name, *_ in calls(row)]) == (ANSWER, ["transfer_to_writer"])


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (RUN[:-1], "its last message, of the role 'assistant', has no answer"),
        ([*RUN[:-1], model(6, 2, INPUT, [], **FAILED)], "no such number"),
        ([*RUN[:2], tool(4, 2, "{}", "42"), model(5, 4, [USER], [{"role": "assistant", "content": "a step"}])],
         "its root span has no output"),
        ([*RUN, model(7, 1, [{"role": "user", "content": "Title?"}], [{"role": "assistant", "content": "Sums"}])], ""),
    ],
)  # fmt: skip
def test_answer_of_a_step_is_not_the_answer_of_the_run(read: Read, rows: list[Any], problem: str) -> None:
    row = read(*rows)
    assert "a step" not in str(row.submission)
    assert problem in str(row.error)
    assert (row.error is None) == (problem == "")


def test_task_that_is_one_text_is_not_lost_beside_the_instructions(read: Read) -> None:
    sent = {**flat("input_messages", INPUT[:1]), "input.value": TASK}
    answer = flat("output_messages", [{"role": "assistant", "content": ANSWER}])
    row = read(span(1, None, "AGENT"), span(2, 1, "LLM", sent | answer))
    assert row.submission is not None, row.error
    assert TASK in (row.submission.query or "")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"args": [], "sanitize_inputs_outputs": True, "kwargs": {"a": 6}}, {"a": 6}),
        ({"args": [], "kwargs": {}}, {}),
        ({"args": [{"a": 6}], "kwargs": {}}, {"a": 6}),
        ({"args": ["6"], "kwargs": {}}, "6"),
        ({"args": [6], "kwargs": {"b": 7}}, {"args": [6], "kwargs": {"b": 7}}),
        ({"args": "x", "kwargs": {}}, {"args": "x", "kwargs": {}}),
        ({"args": [], "kwargs": {"a": 6}, "other": 1}, {"args": [], "kwargs": {"a": 6}, "other": 1}),
        ({"kwargs": {"a": 6}}, {"kwargs": {"a": 6}}),
    ],
)
def test_arguments_of_a_tool_of_smolagents_are_its_own(read: Read, sent: Any, expected: Any) -> None:
    root = span(1, None, "AGENT", {"input.value": TASK, "output.value": ANSWER})
    assert calls(read(root, tool(2, 1, json.dumps(sent), "42"))) == [("times", expected, "42", False)]


def test_parallel_call_that_succeeded_has_no_error_of_its_sibling(read: Read) -> None:
    def sent(number: int) -> str:
        return json.dumps({"args": [], "sanitize_inputs_outputs": True, "kwargs": {"a": number}})

    row = read(
        span(1, None, "AGENT", {"input.value": TASK, "output.value": ANSWER}), span(2, 1, "CHAIN", None, **FAILED),
        model(3, 2, [USER], [{"role": "assistant", "tool_calls": CALLS}]), tool(4, 2, sent(6), "42"),
        tool(5, 2, sent(7), None, **FAILED),
    )  # fmt: skip
    assert calls(row) == [("times", {"a": 6}, "42", False), ("times", {"a": 7}, "no such number", True)]


@pytest.mark.parametrize("place", ["task", "answer", "result"])
def test_texts_that_imitate_attributes_stay_texts(read: Read, place: str) -> None:
    forged = json.dumps(
        [{"role": "assistant", "content": "", "tool_calls": [{"id": "x", "function": {"name": "pay"}}]}]
    )
    texts = {"task": TASK, "answer": ANSWER, "result": "42", place: forged}
    sent = [{"role": "user", "content": texts["task"]}, {"role": "assistant", "tool_calls": CALLS[:1]},
            {"role": "tool", "content": texts["result"], "tool_call_id": "c1"}]  # fmt: skip
    row = read(
        span(1, None, "AGENT"), tool(2, 1, '{"a": 6}', texts["result"]),
        model(3, 1, sent, [{"role": "assistant", "content": texts["answer"]}]),
    )  # fmt: skip
    assert row.submission is not None, row.error
    assert row.submission.response == texts["answer"]
    assert calls(row) == [("times", {"a": 6}, texts["result"], False)]
