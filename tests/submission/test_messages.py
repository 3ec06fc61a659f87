"""Rendering and splitting conversations: no text in a message can imitate another message."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from rubric_integrations.submission import Submission, as_submission
from rubric_integrations.submission.messages import (
    is_conversation,
    is_message,
    message_text,
    render_conversation,
    split_conversation,
)
from tests.submission.conversations import ANSWER, CALL, CALL_RESULT, CHAT, QUESTION, TEXTS, parsed_lines

TOOL_CALL = {"type": "tool_call", "name": "look", "args": {}, "id": "c1"}
CALL_ITEM = {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "c1"}
ROLES = st.sampled_from(["user", "assistant", "system", "tool"])


@given(st.lists(st.tuples(ROLES, TEXTS), min_size=1))
def test_render_any_content_cannot_forge_a_message(messages: list[tuple[str, str]]) -> None:
    text = render_conversation([{"role": role, "content": content} for role, content in messages])
    assert [(line["role"], line["content"]) for line in parsed_lines(text)] == messages


@given(TEXTS, TEXTS, TEXTS)
def test_render_any_name_argument_or_type_cannot_forge_a_message(name: str, argument: str, kind: str) -> None:
    call = {"name": "f", "args": {"x": argument}, "id": name}
    part = {"type": f"image{kind}"}
    with pytest.raises(ValueError, match=r"neither the bytes|no reader knows"):
        render_conversation([{"role": "assistant", "content": [part]}])
    message = {"role": "assistant", "name": name, "content": [argument], "tool_calls": [call]}
    (line,) = parsed_lines(render_conversation([message]))
    assert line.get("name", "") == name
    assert line["tool_calls"] == [{"name": "f", "arguments": {"x": argument}}]
    assert line["content"] == argument


def test_render_plain_chat_keeps_its_bytes() -> None:
    """Judgments in ledgers have the text of the conversation in their key."""
    chat = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "6 x 7?\n"}, "Please."]},
        AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "42\u2028"}]),
    ]
    assert render_conversation(chat).splitlines() == [
        '{"role": "system", "content": "Be brief."}',
        r'{"role": "user", "content": "6 x 7?\n\nPlease.", "name": "Ann"}',
        r'{"role": "assistant", "content": "[thinking]\n42\u2028"}',
    ]


def test_render_lone_surrogate_is_escaped() -> None:
    text = render_conversation([{"role": "user", "content": "a\ud800b"}])
    assert text.encode()
    assert parsed_lines(text)[0]["content"] == "a\\ud800b"


def test_render_langchain_messages_and_dictionaries_give_the_same_text() -> None:
    messages = [
        SystemMessage("Be brief."),
        HumanMessage("What was the margin?"),
        AIMessage("", tool_calls=[{"name": "look", "args": {"year": 2024}, "id": "c1"}]),
        ToolMessage("17.2%", tool_call_id="c1", name="look"),
        AIMessage("It was 17.2%."),
    ]
    dictionaries = [{"role": "system", "content": "Be brief."}, *CHAT]
    text = render_conversation(dictionaries)
    assert render_conversation(messages) == text
    assert render_conversation(convert_to_openai_messages(messages)) == text
    assert render_conversation([message.model_dump() for message in messages]) == text
    # Only LangChain's messages tell that no tool failed.
    ours, others = Submission.from_messages(messages), Submission.from_messages(dictionaries)
    assert (ours.response, ours.query) == (others.response, others.query)


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (AIMessageChunk(content="x"), "assistant"),
        (FunctionMessage(content="x", name="f"), "tool"),
        (ChatMessage(content="x", role="user"), "user"),
        ({"role": "developer", "content": "x"}, "system"),
        ({"role": "human", "content": "x"}, "user"),
    ],
)
def test_render_other_names_of_roles_are_mapped(message: Any, role: str) -> None:
    assert parsed_lines(render_conversation([message]))[0]["role"] == role


def test_render_tool_calls_are_included() -> None:
    _, call, _ = parsed_lines(render_conversation(CHAT))
    assert call == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"name": "look", "arguments": {"year": 2024}, "result": "17.2%"}],
    }


def test_render_tool_call_with_other_arguments_than_an_object_is_unchanged() -> None:
    broken = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a": '}}]}
    invalid = AIMessage("", invalid_tool_calls=[{"name": "f", "args": '{"a": ', "id": "c", "error": None}])
    calls = [{"name": "f", "arguments": '{"a": '}]
    assert parsed_lines(render_conversation([broken]))[0]["tool_calls"] == calls
    assert parsed_lines(render_conversation([invalid]))[0]["tool_calls"] == calls
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "[1]"}}
    assert parsed_lines(render_conversation([legacy]))[0]["tool_calls"] == [{"name": "f", "arguments": "[1]"}]
    custom = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}
    message = {"role": "assistant", "tool_calls": [custom]}
    assert parsed_lines(render_conversation([message]))[0]["tool_calls"] == [{"name": "f", "arguments": "x"}]


def test_render_part_that_is_a_file_is_written_as_its_number() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    text = render_conversation([{"role": "user", "content": [{"type": "text", "text": "See"}, image, "this"]}])
    assert parsed_lines(text)[0]["content"] == "See\n[attachment 1]\nthis"


@pytest.mark.parametrize(
    "messages",
    [
        [("user", "What was the margin?"), ("assistant", "It was 17.2%.")],
        [("human", "What was the margin?"), ("ai", [{"type": "text", "text": "It was 17.2%."}])],
        [["user", "What was the margin?"], ["assistant", "It was 17.2%."]],
        [HumanMessage("What was the margin?").model_dump(), ("ai", "It was 17.2%.")],
        [dumpd(HumanMessage("What was the margin?")), dumpd(AIMessageChunk(content="It was 17.2%."))],
    ],
)
def test_render_every_form_of_convert_to_messages_gives_the_same_text(messages: list[Any]) -> None:
    assert parsed_lines(render_conversation(messages)) == [QUESTION, ANSWER]
    assert is_conversation(messages)
    assert as_submission(messages).response == "It was 17.2%."


@pytest.mark.parametrize(
    "value", [("user", "q"), ["user", "q"], [("Ann", "42")], [("user", 3)], [("user", "q", "r")], [TOOL_CALL]]
)
def test_is_conversation_for_other_pairs_is_false(value: Any) -> None:
    assert not is_conversation(value)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (AIMessage("It is 42."), "It is 42."),
        (AIMessageChunk(content="It is 42."), "It is 42."),
        ({"role": "assistant", "content": "It is 42."}, "It is 42."),
        (AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "It is 42."}]), "It is 42."),
        (AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "c"}]), ""),
        (AIMessage([{"type": "thinking", "thinking": "hm"}]), ""),
    ],
)
def test_message_text_is_the_text_without_reasoning_and_calls(message: Any, text: str) -> None:
    assert is_message(message)
    assert message_text(message) == text


@pytest.mark.parametrize(
    "value", ["x", None, {"content": "x"}, {"role": "critic", "content": "x"}, ("user", "q"), TOOL_CALL, CALL_ITEM]
)
def test_is_message_for_other_values_is_false(value: Any) -> None:
    assert not is_message(value)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "`messages` is empty"),
        (["hi"], r"`messages\[0\]` is 'hi', which is not a message"),
        ([QUESTION, 3], r"`messages\[1\]` is 3"),
        ([{"content": "x"}], "not a message"),
        ([{"role": "critic", "content": "x"}], "unknown role 'critic'"),
        ([QUESTION, {"role": "assistant"}], r"`messages\[1\]` \(assistant\) has neither `content` nor `tool_calls`"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "neither"),
        ([{"role": "user", "content": {"text": "x"}}], r"`messages\[0\].content` must be a text or a list"),
        ([{"role": "user", "content": [3]}], r"`messages\[0\].content\[0\]` is 3"),
        ([{"role": "user", "content": [{"type": "text"}]}], "not a part"),
        ([{"role": "assistant", "tool_calls": "look"}], r"`messages\[0\].tool_calls` must be a list"),
        ([{"role": "assistant", "tool_calls": ["look"]}], r"`messages\[0\].tool_calls\[0\]` is 'look', not a call"),
    ],
)
def test_conversation_that_is_invalid_is_refused_with_the_place(messages: list[Any], words: str) -> None:
    for convert in (render_conversation, split_conversation, Submission.from_messages, as_submission):
        with pytest.raises(ValueError, match=words):
            convert(messages)
    with pytest.raises(ValueError, match=words):
        Submission.model_validate({"response": messages})
    for field in ("query", "reference"):
        with pytest.raises(ValueError, match=f"in the `{field}`: .*{words}"):
            Submission.model_validate({"response": "x", field: messages})
    assert not is_conversation(messages)


@pytest.mark.parametrize("messages", ["text", QUESTION, None])
def test_conversation_that_is_not_a_list_is_refused(messages: Any) -> None:
    for convert in (render_conversation, split_conversation, Submission.from_messages):
        with pytest.raises(TypeError, match="`messages` must be a list of messages"):
            convert(messages)
    assert not is_conversation(messages)


def test_render_value_that_is_not_json_is_refused() -> None:
    deep: Any = "end"
    for _ in range(100_000):
        deep = [deep]
    for argument in (deep, {(1, 2): 3}):
        call = {"name": "f", "args": {"x": argument}}
        with pytest.raises(ValueError, match="cannot be written as JSON"):
            render_conversation([{"role": "assistant", "tool_calls": [call]}])


@pytest.mark.processes
def test_render_does_not_import_langchain_or_dspy() -> None:
    code = (
        "import sys; from rubric_integrations.submission.messages import render_conversation;"
        "render_conversation([{'role': 'user', 'content': 'x'}]);"
        "sys.exit(any(name.startswith(('langchain', 'dspy')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([QUESTION], "`messages\\[0\\]`, the last, is of the role 'user'"),
        ([QUESTION, CALL, CALL_RESULT], "is of the role 'tool'"),
        ([QUESTION, CALL], "calls tools and has no text"),
        ([QUESTION, {"role": "assistant", "content": " "}], "has no text"),
        ([QUESTION, {"role": "assistant", "content": [{"type": "thinking"}]}], "has no text"),
    ],
)
def test_split_without_a_last_answer_is_refused(messages: list[Any], words: str) -> None:
    for convert in (split_conversation, Submission.from_messages, as_submission):
        with pytest.raises(ValueError, match=f"{words}.*respond='transcript'"):
            convert(messages)
    assert split_conversation(messages, "transcript") == (render_conversation(messages), None)


def test_split_reasoning_is_left_out_and_the_last_call_is_context() -> None:
    call = {"name": "save", "args": {}, "id": "c"}
    last = AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Done."}], tool_calls=[call])
    response, context = split_conversation([HumanMessage("Save it."), last])
    assert response == "Done."
    assert [line.get("tool_calls") for line in parsed_lines(context)] == [
        None,
        [{"name": "save", "arguments": {}}],
    ]
    submission = Submission.from_messages([HumanMessage("Save it."), last])
    assert (submission.response, submission.query) == (response, context)
    assert parsed_lines(render_conversation([last]))[0]["content"] == "[thinking]\nDone."


def test_unknown_respond_is_refused() -> None:
    wrong: Any = "first"
    for response in (CHAT, "a text"):
        with pytest.raises(ValueError, match="`respond` must be 'last', 'transcript' or 'trajectory', got 'first'"):
            Submission.model_validate({"response": response, "respond": wrong})
    with pytest.raises(ValueError, match="`respond` must be"):
        as_submission({"messages": CHAT, "respond": wrong})
    with pytest.raises(ValueError, match="`respond` must be"):
        split_conversation(CHAT, wrong)
    assert Submission.model_validate({"response": "x", "respond": None}) == Submission(response="x")
