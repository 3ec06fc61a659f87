"""Blocks of content: calls of every provider are rendered alike, with their results; nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage

from rubric_integrations.submission.messages import (
    is_conversation,
    is_message,
    render_conversation,
    split_conversation,
)
from tests.submission.conversations import ANSWER, CHAT, QUESTION, parsed_lines

CALL_LINE = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"name": "look", "arguments": {"year": 2024}}],
}
JOINED_LINE = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"name": "look", "arguments": {"year": 2024}, "result": "17.2%"}],
}
GIF = "R0lGODlh"

ANTHROPIC = [
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"year": 2024}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "17.2%"}]},
]
ANTHROPIC_BLOCKS = [
    ANTHROPIC[0],
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "17.2%"}]}],
    },
]
LANGCHAIN = [
    AIMessage([{"type": "tool_call", "id": "c1", "name": "look", "args": {"year": 2024}}]),
    ToolMessage("17.2%", tool_call_id="c1"),
]
RESPONSES = [
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": '{"year": 2024}'},
    {"type": "function_call_output", "call_id": "c1", "output": "17.2%"},
]


@pytest.mark.parametrize("exchange", [ANTHROPIC, ANTHROPIC_BLOCKS, LANGCHAIN, RESPONSES])
def test_call_and_result_in_any_format_give_the_same_lines(exchange: list[Any]) -> None:
    lines = parsed_lines(render_conversation([QUESTION, *exchange, ANSWER]))
    assert lines == [QUESTION, JOINED_LINE, ANSWER]
    response, context = split_conversation([QUESTION, *exchange, ANSWER])
    assert (response, parsed_lines(context)) == (ANSWER["content"], lines[:2])


def test_call_in_the_content_and_in_the_tool_calls_is_rendered_once() -> None:
    block = {"type": "tool_use", "id": "c1", "name": "look", "input": {}, "partial_json": '{"year": 2024}'}
    calls: list[Any] = [{"name": "look", "args": {"year": 2024}, "id": "c1"}]
    message = AIMessage([{"type": "text", "text": "I look."}, block], tool_calls=calls)
    chunk = AIMessageChunk(content=[block], tool_calls=calls)
    assert parsed_lines(render_conversation([message])) == [{**CALL_LINE, "content": "I look."}]
    assert parsed_lines(render_conversation([chunk])) == [CALL_LINE]


def test_result_beside_a_users_text_is_its_own_line_with_its_error() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "no such year", "is_error": True}
    lines = parsed_lines(
        render_conversation([{"role": "user", "content": [result, {"type": "text", "text": "Well?"}]}])
    )
    assert lines == [
        {"role": "tool", "content": "[error]\nno such year"},
        {"role": "user", "content": "Well?"},
    ]
    failed = ToolMessage("no such year", tool_call_id="c1", status="error")
    assert parsed_lines(render_conversation([failed])) == lines[:1]
    joined = parsed_lines(render_conversation([*ANTHROPIC[:1], failed]))
    assert joined[0]["tool_calls"][0] == {
        "name": "look",
        "arguments": {"year": 2024},
        "result": "no such year",
        "is_error": True,
    }


SERVER_CALLS = [
    {"type": "server_tool_call", "id": "c1", "name": "look", "args": {"year": 2024}},
    {"type": "server_tool_use", "id": "c1", "name": "look", "input": {"year": 2024}},
]
SERVER_RESULTS = [
    {"type": "server_tool_result", "tool_call_id": "c1", "status": "success", "output": "17.2%"},
    {"type": "mcp_tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "17.2%"}]},
]


@pytest.mark.parametrize("call", SERVER_CALLS)
@pytest.mark.parametrize("result", SERVER_RESULTS)
def test_server_call_and_result_are_context_of_the_answer(call: Any, result: Any) -> None:
    answer = AIMessage([call, result, {"type": "text", "text": "It was 17.2%."}])
    response, context = split_conversation([HumanMessage("What was the margin?"), answer])
    assert response == "It was 17.2%."
    assert parsed_lines(context) == [QUESTION, JOINED_LINE]
    assert parsed_lines(render_conversation([QUESTION, answer])) == [QUESTION, JOINED_LINE, ANSWER]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        (
            [{"type": "text", "text": "a"}, {"type": "image", "data": GIF, "mimeType": "image/gif"}, "b"],
            "a\n[attachment 1]\nb",
        ),
        ({"stdout": "a", "return_code": 0}, '{"stdout": "a", "return_code": 0}'),
        (
            [{"type": "web_search_result", "title": "T", "url": "u", "encrypted_content": "AAAA"}],
            '{"type": "web_search_result", "title": "T", "url": "u"}',
        ),
        ([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Fine."}}], "Fine."),
        ([{"type": "computer_screenshot", "image_url": f"data:image/gif;base64,{GIF}"}], "[attachment 1]"),
        (["a", 3], "a\n3"),
    ],
)
def test_result_content_of_any_structure_is_rendered(content: Any, text: str) -> None:
    message = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": content}]}
    assert parsed_lines(render_conversation([message]))[0]["content"] == text


def test_failed_server_result_is_marked() -> None:
    blocks: list[Any] = [
        {"type": "server_tool_result", "tool_call_id": "c1", "status": "error", "output": "down"},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "c1",
            "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
        },
    ]
    first, second = parsed_lines(render_conversation([AIMessage(blocks)]))
    assert first == {"role": "tool", "content": "[error]\ndown"}
    assert second["content"].startswith("[error]")
    assert "max_uses_exceeded" in second["content"]


def test_other_items_of_a_response_are_rendered() -> None:
    items = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "margin"}},
        {"type": "mcp_call", "id": "m", "name": "look", "arguments": '{"year": 2024}', "output": "17.2%"},
        {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "print(1)"},
        {"type": "image_generation_call", "id": "i", "result": GIF},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It was 17.2%."}]},
    ]
    search = {"name": "web_search", "arguments": {"action": {"type": "search", "query": "margin"}}}
    lines = parsed_lines(render_conversation(items))
    assert lines == [
        {
            "role": "assistant",
            "content": "[reasoning]",
            "tool_calls": [search, {"name": "look", "arguments": {"year": 2024}, "result": "17.2%"}],
        },
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"name": "run", "arguments": "print(1)"},
                {"name": "image_generation", "arguments": {}, "result": "[attachment 1]"},
            ],
        },
        ANSWER,
    ]
    assert split_conversation([QUESTION, *items])[0] == "It was 17.2%."


def test_refusal_is_text_and_a_non_standard_block_is_what_it_contains() -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    assert split_conversation([QUESTION, refusal])[0] == "I cannot."
    thinking = {"type": "non_standard", "value": {"type": "redacted_thinking", "data": "AAAA"}}
    answer = {"role": "assistant", "content": [thinking, {"type": "text", "text": "It was 17.2%."}]}
    assert split_conversation([QUESTION, answer])[0] == "It was 17.2%."


def test_reasoning_between_calls_is_never_graded() -> None:
    blocks: list[Any] = [
        {"type": "reasoning", "reasoning": "hm"},
        SERVER_CALLS[0],
        SERVER_RESULTS[0],
        {"type": "thinking", "thinking": "so"},
        {"type": "text", "text": "It was 17.2%."},
        {"type": "image", "url": "https://example.com/a.png"},
    ]
    assert split_conversation([QUESTION, AIMessage(blocks)])[0] == "It was 17.2%.\n[attachment 1]"


def test_call_without_a_name_is_an_error_with_its_place() -> None:
    chunk = {"role": "assistant", "content": [{"type": "tool_call_chunk", "args": '{"a"', "index": 0}, "x"]}
    with pytest.raises(ValueError, match=r"`messages\[0\].content\[0\]` is a block of the type 'tool_call_chunk'"):
        render_conversation([chunk])
    assert is_conversation([chunk])
    assert is_message(chunk)
    assert parsed_lines(render_conversation(CHAT))[1] == JOINED_LINE


def test_calls_with_one_id_in_one_message_are_all_kept() -> None:
    calls: list[Any] = [{"type": "tool_call", "name": "look", "args": {"n": n}, "id": "c"} for n in (1, 2)]
    for message in (AIMessage(calls, tool_calls=calls), AIMessage("", tool_calls=calls), AIMessage(calls)):
        (line,) = parsed_lines(render_conversation([message]))
        assert [call["arguments"] for call in line["tool_calls"]] == [{"n": 1}, {"n": 2}]
