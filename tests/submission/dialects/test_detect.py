"""The same conversation in every dialect is the same for a judge, and no text in it can imitate a step."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any, cast

import dspy
import pytest
from hypothesis import given, settings
from langchain_core.load import dumpd
from langchain_core.messages import messages_to_dict

from rubric_integrations import Submission
from rubric_integrations.submission import ToolCall, Trajectory
from rubric_integrations.submission.dialects.detect import DIALECTS, dialect_of, read_conversation
from rubric_integrations.submission.inputs import as_row
from rubric_integrations.submission.messages import is_conversation, render_conversation
from rubric_integrations.submission.steps import render_steps
from tests.submission.conversations import TEXTS, parsed_lines
from tests.submission.dialects.examples import (
    ANSWER,
    ATIF,
    EXAMPLES,
    FAIL,
    FAILURE,
    LANGCHAIN,
    LOOK,
    OPENAI,
    PLAN,
    QUESTION,
    REFUSED,
    STEPS,
    Example,
    claude_code_line,
    openai_call,
    tau2_call,
)

UNKNOWN: dict[str, Any] = {"type": "hologram"}
UNKNOWN_PART: dict[str, Any] = {"hologram": {}}
UNKNOWN_KIND: dict[str, Any] = {"part_kind": "hologram"}
TEXT: dict[str, Any] = {"type": "text", "text": "TEXT"}
ROLE: dict[str, Any] = {"role": "assistant", "content": [TEXT, UNKNOWN]}

# One message with a text in each dialect, and a block that its reader does not know.
WITH_UNKNOWN_BLOCK: dict[str, Any] = {
    "openai_chat": [ROLE],
    "openai_responses": [{"type": "reasoning", "summary": []}, ROLE],
    "anthropic": [{"role": "assistant", "content": [{"type": "thinking"}, TEXT, UNKNOWN]}],
    "langchain": [{"type": "ai", "content": [TEXT, UNKNOWN]}],
    "claude_code": [claude_code_line("u", ROLE)],
    "codex": [{"type": "response_item", "payload": {"type": "message", **ROLE}}],
    "gemini": [{"role": "model", "parts": [{"text": "TEXT"}, UNKNOWN_PART]}],
    "opentelemetry": [{"role": "assistant", "parts": [{"type": "text", "content": "TEXT"}, UNKNOWN]}],
    "atif": {"steps": [{"source": "agent", "message": [TEXT, UNKNOWN]}]},
    "agentv": [{"v": 1, "agent": "a", "type": "assistant", "content": [TEXT, UNKNOWN]}],
    "inspect_ai": {"output": {}, "messages": [ROLE]},
    "dspy_history": dspy.History(messages=[ROLE]),
    "dspy_react": {"thought_0": "TEXT", "thought_1": UNKNOWN},
    "openhands": [{"source": "agent", "action": "message", "args": {"content": "TEXT", "image_urls": [UNKNOWN]}}],
    "swe_agent": [{**ROLE, "agent": "main", "message_type": "action"}],
    "tau2": [{**ROLE, "tool_calls": [tau2_call("c1", LOOK)]}],
    "bedrock": [{"role": "assistant", "content": [{"text": "TEXT"}, UNKNOWN_PART]}],
    "vercel": [{"role": "assistant", "parts": [TEXT, UNKNOWN]}],
    "pydantic_ai": [{"kind": "response", "parts": [{"part_kind": "text", "content": "TEXT"}, UNKNOWN_KIND]}],
    "openhands_sdk": [
        {"kind": "MessageEvent", "source": "agent", "llm_message": {"role": "assistant", "content": [TEXT, UNKNOWN]}}
    ],
    "mini_swe_agent": [{**ROLE, "extra": {"actions": [{"command": "ls"}]}}],
    "autogen": [{"type": "MultiModalMessage", "source": "a", "content": ["TEXT", UNKNOWN]}],
    "smolagents": [{"step_number": 1, "model_output": "TEXT", "error": UNKNOWN}],
    "reply": {"model": "m", "message": ROLE, "done": True},
}


def with_text(conversation: Any, text: str) -> Any:
    """Return a conversation with another text, and without the block that no reader knows."""
    if conversation == "TEXT":
        return text
    if isinstance(conversation, dspy.History):
        return dspy.History(messages=with_text(conversation.messages, text))
    if isinstance(conversation, list):
        items = cast("list[Any]", conversation)
        return [with_text(item, text) for item in items if item not in (UNKNOWN, UNKNOWN_PART, UNKNOWN_KIND)]
    if isinstance(conversation, dict):
        entries = cast("dict[str, Any]", conversation)
        return {key: with_text(value, text) for key, value in entries.items() if value != UNKNOWN}
    return conversation


def test_every_dialect_has_its_examples() -> None:
    assert set(DIALECTS) - {"refused"} == set(EXAMPLES) == set(WITH_UNKNOWN_BLOCK)


def readers_of(conversation: Any) -> list[str]:
    """Return the dialects that match; the chat reader reads what no other matches."""
    return [name for name, dialect in DIALECTS.items() if name != "openai_chat" and dialect.matches(conversation)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_conversation_is_claimed_by_the_reader_of_its_dialect_alone(name: str) -> None:
    for conversation in (EXAMPLES[name].conversation, WITH_UNKNOWN_BLOCK[name]):
        assert readers_of(conversation) == ([] if name == "openai_chat" else [name])


@pytest.mark.parametrize("name", REFUSED)
def test_form_that_is_not_read_is_refused_by_its_name(name: str) -> None:
    assert readers_of(REFUSED[name]) == ["refused"]
    for refuse in (read_conversation, Trajectory.from_messages):
        with pytest.raises(ValueError, match=re.escape(f"`messages` has {name}, which no reader knows")):
            refuse(REFUSED[name])
    with pytest.raises(ValueError, match="no reader knows"):
        Submission.model_validate({"response": "x", "trajectory": REFUSED[name]})


DAMAGED: dict[str, list[dict[str, Any]]] = {
    "SWE-agent's `.traj`": [
        {"history": [], "trajectory": [], "info": {"submission": "diff"}},
        {"history": [{"role": "user", "agent": "main"}, 5], "trajectory": [], "info": None},
    ],
    "ATIF": [
        {"schema_version": "ATIF-v1.4", "steps": "x"},
        {"steps": [{"step_id": 1, "source": "user", "message": ""}, {}]},
    ],
    "Gemini's response": [{"candidates": [{"index": 0}], "modelVersion": "g"}],
    "mini-swe-agent's trajectory": [{"trajectory_format": "mini-swe-agent-1", "messages": None}],
    "AutoGen's state": [{"type": "AssistantAgentState", "llm_context": {"messages": []}}],
    "OpenHands' `output.jsonl`": [{"instance_id": "a", "history": [{"source": "agent"}], "test_result": {}}],
}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, values in DAMAGED.items() for data in values])
def test_damaged_document_is_refused_by_its_name_and_not_graded_as_json(name: str, data: dict[str, Any]) -> None:
    assert readers_of(data) == ["refused"]
    row = as_row({"id": "a", "response": data}, 1)
    assert row.error
    assert row.error.startswith(f"row a: `messages` has a damaged document of {name}, which no reader knows")


@pytest.mark.parametrize(
    "data",
    [
        {"history": ["Rome fell in 476."], "info": {"pages": 3}},
        {"trajectory": "up", "info": {"status": "fine"}},
        {"steps": [{"step_id": 1, "text": "Boil water."}, {"step_id": 2, "text": "Wait."}]},
        {"schema_version": "2.0", "steps": []},
        {"candidates": [{"name": "Ann"}, {"name": "Ben"}]},
        {"contents": "a list of chapters"},
        {"type": "UnitedState", "capital": "Albany"},
        {"instance_id": "a", "history": []},
        {"trajectory_format": "csv"},
    ],
)
def test_own_object_with_a_key_of_a_document_is_graded_as_json(data: dict[str, Any]) -> None:
    assert readers_of(data) == []
    row = as_row({"id": "a", "response": data}, 1)
    assert row.submission
    assert json.loads(row.submission.response) == data


@pytest.mark.parametrize(
    "data",
    [
        [{"source": "web", "action": "delete", "message": "x"}],
        [{"source": "agent", "action": "delete"}],
        [{"type": "ClickEvent", "source": "web"}],
        [{"kind": "ClickEvent", "source": "web"}],
        [{"step_number": 1, "task": "Boil water."}],
        [{"role": "assistant", "agent": "main"}],
        [{"kind": "request", "url": "/"}],
        [{"action": "a", "observation": "b"}],
        [{"task_id": "1", "reward": 1.0}],
    ],
)
def test_data_that_resembles_a_dialect_is_no_conversation(data: Any) -> None:
    assert readers_of(data) == []
    assert not is_conversation(data)


@pytest.mark.parametrize("name", EXAMPLES)
def test_same_conversation_in_every_dialect_is_the_same_text(name: str) -> None:
    conversation, steps = EXAMPLES[name]
    assert dialect_of(conversation) == name
    trajectory = Trajectory.from_messages(conversation)
    assert trajectory.text() == render_steps(steps, numbered=True)
    assert render_steps(trajectory.steps) == render_steps(steps)
    # Where a dialect records it, a check sees that a call did not fail, which the text leaves out.
    errors = [call.is_error for step in steps for call in step.calls]
    assert all(call.is_error in (error, None) for call, error in zip(trajectory.calls, errors, strict=True))


@pytest.mark.parametrize("name", EXAMPLES)
def test_block_of_an_unknown_type_is_an_error_with_its_place(name: str) -> None:
    conversation = WITH_UNKNOWN_BLOCK[name]
    with pytest.raises(ValueError, match=r"^`\w.*convert it to a text or remove it, or evidence would be missing"):
        read_conversation(conversation)
    for field in ({"response": conversation}, {"response": "x", "trajectory": conversation}):
        with pytest.raises(ValueError, match="convert it to a text or remove it"):
            Submission.model_validate(field)


@settings(max_examples=50)
@given(TEXTS)
def test_any_text_in_any_dialect_cannot_forge_a_step(text: str) -> None:
    for name, conversation in WITH_UNKNOWN_BLOCK.items():
        trajectory = Trajectory.from_messages(with_text(conversation, text or "x"))
        (line,) = parsed_lines(trajectory.text())
        line.pop("tool_calls", None)
        # The placeholder of reasoning, where the example has some.
        notes = {"openai_responses": "[reasoning]\n", "anthropic": "[thinking]\n"}.get(name, "")
        assert line == {"step": 1, "role": "assistant", "content": notes + (text or "x")}


def test_langchain_serialized_and_mixed_messages_are_read() -> None:
    expected = Trajectory.from_messages(LANGCHAIN).text()
    for messages in (
        [dumpd(message) for message in LANGCHAIN],
        [message.model_dump() for message in LANGCHAIN],
        {"messages": LANGCHAIN, "files": {}},
        [("user", QUESTION), *LANGCHAIN[1:]],
        [{"type": entry["type"], **entry["data"]} for entry in messages_to_dict(LANGCHAIN)],
    ):
        assert Trajectory.from_messages(messages).text() == expected
    assert dialect_of(LANGCHAIN) == "langchain"


def test_tokens_of_a_message_that_is_several_steps_are_counted_once_and_known_for_each() -> None:
    content: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "s1", "name": "look", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "text", "text": "It was 8.4%."},
    ]
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    steps = Trajectory.from_messages([{"type": "ai", "content": content, "usage_metadata": usage}]).steps
    assert [step.tokens for step in steps] == [120, 0]


def test_tokens_costs_and_times_are_read() -> None:
    atif = Trajectory.from_messages(ATIF).steps
    assert (atif[1].tokens, atif[1].cost, atif[1].milliseconds) == (120, 0.25, 2500)
    assert (atif[0].milliseconds, atif[2].milliseconds, atif[2].tokens) == (0, None, None)
    assert Trajectory.from_messages(EXAMPLES["agentv"].conversation).steps[1].tokens == 120
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    message = {"type": "ai", "content": "x", "usage_metadata": usage}
    assert Trajectory.from_messages([message]).steps[0].tokens == 120
    assert all(step.tokens is None for step in Trajectory.from_messages(OPENAI).steps)


def test_agentv_raw_rows_and_documents_are_read() -> None:
    rows: list[dict[str, Any]] = [
        {"message_index": 0, "role": "user", "content": QUESTION},
        {
            "message_index": 1,
            "role": "assistant",
            "tool_calls": [{"tool": "look", "input": LOOK, "output": "17.2%", "status": "ok"}],
            "token_usage": {"input": 1, "output": 2},
            "duration_ms": 40,
        },
        {"message_index": 2, "role": "assistant", "content": ANSWER},
    ]
    steps = Trajectory.from_messages(rows).steps
    assert [step.text for step in steps] == [QUESTION, "", ANSWER]
    assert (steps[1].calls[0].result, steps[1].tokens, steps[1].milliseconds) == ("17.2%", 3, 40)
    turns = {"schema_version": "agentv.transcript.v1", "turns": EXAMPLES["agentv"].conversation}
    assert Trajectory.from_messages(turns).text() == render_steps(STEPS, numbered=True)


def test_history_without_calls_is_read_field_by_field() -> None:
    turns = [
        {"question": "What?", "reasoning": "hm", "answer": "17.2%"},
        {"question": "Sure?", "answer": "Yes.", "n": 2},
    ]
    steps = Trajectory.from_messages(dspy.History(messages=turns)).steps
    assert [(step.role, step.text) for step in steps] == [
        ("user", "What?"),
        ("assistant", "[reasoning]\n17.2%"),
        ("user", "Sure?"),
        ("assistant", "answer: Yes.\nn: 2"),
    ]


def result(call_id: str | None, text: str, name: str | None = None) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}


def calls(*made: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


@pytest.mark.parametrize(
    ("messages", "lines"),
    [
        # A result without a call, and a second result of one call, are steps of their own.
        ([result("c9", "lost", "look")], [{"role": "tool", "name": "look", "content": "lost"}]),
        (
            [calls(openai_call("c1", {})), result("c1", "first"), result("c1", "second")],
            [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"name": "look", "arguments": {}, "result": "first"}],
                },
                {"role": "tool", "content": "second"},
            ],
        ),
        # A result without an id never belongs to a call with one.
        (
            [calls(openai_call("c1", {})), result(None, "whose?")],
            [
                {"role": "assistant", "content": "", "tool_calls": [{"name": "look", "arguments": {}}]},
                {"role": "tool", "content": "whose?"},
            ],
        ),
        # An id that is used again belongs to the newest message.
        (
            [calls(openai_call("0", {"n": 1})), calls(openai_call("0", {"n": 2})), result("0", "two")],
            [
                {"role": "assistant", "content": "", "tool_calls": [{"name": "look", "arguments": {"n": 1}}]},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"name": "look", "arguments": {"n": 2}, "result": "two"}],
                },
            ],
        ),
        # Without ids, the earliest open call of the name.
        (
            [
                {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "[1]"}},
                {"role": "function", "name": "look", "content": "one"},
            ],
            [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"name": "look", "arguments": "[1]", "result": "one"}],
                }
            ],
        ),
    ],
)
def test_result_is_joined_only_to_its_own_call(messages: list[Any], lines: list[Any]) -> None:
    assert parsed_lines(render_conversation(messages)) == lines


@pytest.mark.parametrize(
    "arguments",
    ['{"a": ', "[1]", "null", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000, '{"a":' * 200 + "1" + "}" * 200],
)
def test_arguments_that_are_no_object_stay_text(arguments: str) -> None:
    call = {"id": "c1", "function": {"name": "look", "arguments": arguments}}
    submission = Submission.from_messages([calls(call)], respond="trajectory")
    assert submission.trajectory is not None
    assert submission.trajectory.calls[0].arguments == arguments
    assert Submission.model_validate_json(submission.model_dump_json()) == submission


@pytest.mark.parametrize(
    ("conversation", "words"),
    [
        ({"steps": [{"source": "agent", "message": "x", "observation": "17.2%"}]}, r"`steps\[0\].observation` has no"),
        ({"steps": [{"source": "robot", "message": "x"}]}, "unknown source 'robot'"),
        ({"steps": [{"source": "agent", "message": "x", "tool_calls": {"a": 1}}]}, "must be a list, got dict"),
        ([{"role": "user", "parts": [{"text": "x"}]}, {"role": "user", "content": "y"}], "has no `parts`"),
        ([{"role": [], "parts": [{"text": "x"}]}], r"unknown role \[\]"),
        ([{"role": "user", "parts": [{"type": "text"}]}], r"parts\[0\]` is a part of the type 'text'"),
        ([{"role": "user", "content": [{"type": []}]}], "not a part"),
        ({"contents": []}, "is empty"),
        ({"messages": []}, "is empty"),
        ([{"type": "mcp_approval_response", "approve": True}, {"type": "reasoning"}], "unknown role"),
        ([{**calls(), "tool_calls": False}], "tool_calls` must be a list, got bool"),
        ([calls(openai_call("c1", {})), result(["c1"], "x")], r"`tool_call_id` must be a text, got \['c1'\]"),  # pyright: ignore[reportArgumentType]
        ([calls({"function": "look"})], "not a call"),
        ([{"role": "assistant", "content": [{"toolUse": "look"}]}], "'look' in place of an object with `toolUseId`"),
        ({"steps": [{"source": "agent", "message": "x", "tool_calls": ["look"]}]}, "'look' in place of an object"),
        ([{"type": "ToolCallRequestEvent", "source": "a", "content": "look"}], "content` must be a list, got str"),
        ([{"v": 2, "agent": "a", "type": "user", "content": "x"}], "has the version 2 of AgentV's transcripts"),
        ([{"role": "user", "content": "x", "agent": "a", "is_demo": "no"}], "`is_demo` must be true or false"),
        ([{"observation": "run", "content": "x", "extras": {"exit_code": "1"}}], "`exit_code` must be a whole number"),
    ],
)
def test_message_that_cannot_be_read_is_an_error_with_its_place(conversation: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Trajectory.from_messages(conversation)


def test_ids_and_flags_that_are_numbers_and_empty_lists_of_calls_are_read() -> None:
    call = {"type": "tool_use", "id": 1, "name": "look", "input": {}}
    failed = {"type": "tool_result", "tool_use_id": 1, "content": "no", "is_error": 1}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [failed]}]
    assert Trajectory.from_messages(messages).calls == (
        ToolCall(name="look", arguments={}, result="no", is_error=True),
    )
    for empty in (None, [], {}, ""):
        assert Trajectory.from_messages([{"role": "assistant", "content": "x", "tool_calls": empty}]).calls == ()


def test_agentv_results_in_rows_of_their_own_are_joined() -> None:
    rows: list[dict[str, Any]] = [
        {"message_index": 0, "role": "assistant", "tool_calls": [{"id": "a", "tool": "look", "input": LOOK}]},
        {"message_index": 1, "role": "tool", "name": "look", "content": "17.2%"},
    ]
    (step,) = Trajectory.from_messages(rows).steps
    assert step.calls[0].result == "17.2%"


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> Any:
    value: dict[str, Any] = {"type": "text"}
    value["content"] = [value]
    return value


BACKSLASHES = "\\" * 1_000_000


@pytest.mark.parametrize("hostile", [deep(100_000), cyclic(), [cyclic()]])
@pytest.mark.parametrize("name", ["openai_chat", "anthropic", "openai_responses", "langchain", "gemini"])
def test_content_that_contains_itself_or_is_deep_is_an_error(name: str, hostile: Any) -> None:
    forms: dict[str, Any] = {
        "openai_chat": [result("c1", hostile)],
        "anthropic": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": hostile}]}],
        "openai_responses": [{"type": "function_call_output", "call_id": "c1", "output": hostile}],
        "langchain": [{"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {"x": hostile}, "id": "c"}]}],
        "gemini": [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"x": hostile}}}]}],
    }
    with pytest.raises(ValueError, match=r"nested too deeply|contains itself|cannot be written as JSON"):
        read_conversation(forms[name])


@pytest.mark.sizes
def test_a_megabyte_of_backslashes_and_many_open_calls_are_read() -> None:
    arguments = json.dumps({"x": BACKSLASHES})
    messages = [{"role": "user", "content": BACKSLASHES}, calls(openai_call("c1", {"x": BACKSLASHES}))]
    messages += [result("c1", BACKSLASHES), calls({"id": "c2", "function": {"name": "f", "arguments": arguments[:-1]}})]
    steps = Trajectory.from_messages(messages).steps
    assert steps[0].text == steps[1].calls[0].result == BACKSLASHES
    assert steps[2].calls[0].arguments == arguments[:-1]
    same = [openai_call("c", {}) for _ in range(3_000)]
    results = [result("c", str(number)) for number in range(3_000)]
    joined = Trajectory.from_messages([calls(*same), *results]).calls
    assert [call.result for call in joined] == [str(number) for number in range(3_000)]


def test_lone_surrogate_is_written_as_its_escape_everywhere() -> None:
    half = "a\ud800"
    messages = [
        {"role": "user", "name": half, "content": half},
        calls({"id": "c1", "function": {"name": half, "arguments": {half: [half]}}}),
        result("c1", half),
        calls({"id": "c2", "function": {"name": "f", "arguments": half}}),
    ]
    submission = Submission.from_messages(messages, respond="trajectory")
    assert submission.model_dump_json().encode()
    assert parsed_lines(submission.response)[1]["tool_calls"] == [
        {"name": "a\\ud800", "arguments": {"a\\ud800": ["a\\ud800"]}, "result": "a\\ud800"}
    ]


def test_respond_trajectory_grades_the_numbered_steps() -> None:
    submission = Submission.from_messages(OPENAI, respond="trajectory", query="Be exact.")
    assert submission.trajectory is not None
    assert (submission.response, submission.query) == (submission.trajectory.text(), "Be exact.")
    assert submission.show_trajectory == "as_response"
    assert parsed_lines(submission.response)[1]["step"] == 2
    again = Submission.model_validate(submission.model_dump())
    assert again == submission == Submission.model_validate_json(submission.model_dump_json())
    for form in ({"messages": OPENAI, "respond": "trajectory"}, OPENAI):
        data = {"response": form, "respond": "trajectory", "query": "Be exact."}
        assert Submission.model_validate(data) == submission


def test_respond_last_and_transcript_have_the_trajectory_if_needed() -> None:
    last = Submission.from_messages(OPENAI)
    assert (last.response, last.show_trajectory) == (ANSWER, "if_needed")
    assert last.query == render_conversation(OPENAI[:-1])
    transcript = Submission.from_messages(OPENAI, respond="transcript")
    assert (transcript.response, transcript.show_trajectory) == (render_conversation(OPENAI), "if_needed")
    assert last.trajectory == transcript.trajectory == Trajectory.from_messages(OPENAI)


def test_show_trajectory_of_a_conversation_is_kept() -> None:
    for respond, show in (("last", "always"), ("transcript", "always"), (None, "if_needed")):
        data = {"response": OPENAI, "respond": respond, "show_trajectory": show}
        assert Submission.model_validate(data).show_trajectory == show
    for show in ("always", "as_response"):  # the steps are the response, and are not shown a second time
        whole = {"response": OPENAI, "respond": "trajectory", "show_trajectory": show}
        assert Submission.model_validate(whole) == Submission.from_messages(OPENAI, respond="trajectory")
    with pytest.raises(ValueError, match=r"`show_trajectory` is 'as_response'.*respond='trajectory'"):
        Submission.model_validate({"response": OPENAI, "show_trajectory": "as_response"})
    with pytest.raises(ValueError, match="'always', 'if_needed' or 'as_response'"):
        Submission.model_validate({"response": OPENAI, "show_trajectory": "never"})


def test_trajectory_beside_a_response_is_read_in_any_dialect() -> None:
    for conversation, steps in EXAMPLES.values():
        submission = Submission.model_validate({"response": "17.2%", "trajectory": conversation})
        assert submission.trajectory is not None
        assert submission.trajectory.text() == render_steps(steps, numbered=True)
        assert submission.show_trajectory == "always"
    react = {"response": "17.2%", "trajectory": EXAMPLES["dspy_react"].conversation, "respond": "trajectory"}
    whole = Submission.model_validate(react)
    assert parsed_lines(whole.response)[-1] == {"step": 4, "role": "assistant", "content": "17.2%"}
    assert whole.show_trajectory == "as_response"
    assert Submission.model_validate({"response": "x", "trajectory": {}}).trajectory is None
    with pytest.raises(ValueError, match="neither a conversation nor a `trajectory`"):
        Submission.model_validate({"response": "x", "respond": "trajectory"})
    with pytest.raises(ValueError, match="in the `trajectory`: `messages` must be a list of messages, got str"):
        Submission.model_validate({"response": "x", "trajectory": "I looked it up."})


@pytest.mark.parametrize("value", ["text", None, 3, {"a": 1}, object()])
def test_value_that_is_no_conversation_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="`messages` must be a list of messages"):
        Trajectory.from_messages(value)


def test_examples_record_every_kind_of_step() -> None:
    example: Example = EXAMPLES["anthropic"]
    assert [len(step.calls) for step in example.steps] == [0, 2, 1, 0]
    assert [call.arguments for call in example.steps[1].calls] == [LOOK, FAIL]
    assert (example.steps[1].text, example.steps[1].calls[1].result) == (PLAN, FAILURE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Trajectory.from_messages(example.conversation).calls[1].is_error is True
