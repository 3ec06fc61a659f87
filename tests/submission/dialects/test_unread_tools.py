"""Sessions and logs of tools that no reader reads: each is refused by its name, and the way in the error works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.submission import read_responses
from rubric_integrations.submission.dialects.unread_tools import UNREAD_TOOLS, unread_tool
from rubric_integrations.submission.inputs import Row, as_row, as_submission
from tests.conftest import SHARED
from tests.submission.exports import ASK, REPLY, Fields, check_mutations, problem_of, written

TIME = "2026-11-28T08:00:00Z"
GEMINI: list[Fields] = [
    {"id": "1", "timestamp": TIME, "type": "user", "content": [{"text": "6 x 7?"}]},
    {"id": "2", "timestamp": TIME, "type": "gemini", "content": "It is 42.", "toolCalls": [
        {"id": "c", "name": "shell", "args": {"command": "bc"}, "status": "success", "result": [{"text": "42"}]}]},
]  # fmt: skip
GEMINI_HEAD: Fields = {"sessionId": "s", "projectHash": "f", "startTime": TIME, "lastUpdated": TIME}
EXPORTS: dict[str, tuple[str, Any]] = {
    "a session of Gemini CLI": (".json", {**GEMINI_HEAD, "messages": GEMINI}),
    "a session of Gemini CLI ": (".jsonl", [GEMINI_HEAD, *GEMINI, {"$set": {"lastUpdated": TIME}}]),
    "the `stream-json` output of Gemini CLI": (".jsonl", [
        {"type": "init", "timestamp": TIME, "session_id": "s", "model": "m"},
        {"type": "message", "timestamp": TIME, **ASK},
        {"type": "message", "timestamp": TIME, "role": "assistant", "content": "It is 42.", "delta": True},
        {"type": "tool_result", "timestamp": TIME, "tool_id": "c", "status": "success", "output": "42"},
        {"type": "result", "timestamp": TIME, "status": "success"},
    ]),
    "an export of OpenCode": (".json", {
        "info": {"id": "s", "projectID": "p", "directory": "/d"},
        "messages": [{"info": {"role": "user"}, "parts": [{"type": "text", "text": "6 x 7?"}]}]}),
    "the `stream-json` output of Cursor": (".jsonl", [
        {"type": "system", "subtype": "init", "cwd": "/d", "session_id": "s", "model": "m"},
        {"type": "user", "message": ASK, "session_id": "s"},
        {"type": "result", "subtype": "success", "is_error": False, "result": "It is 42.", "session_id": "s"},
    ]),
    "the events of a session of Copilot CLI": (".jsonl", [
        {"type": "session.start", "id": "1", "timestamp": TIME, "data": {"sessionId": "s"}},
        {"type": "user.message", "id": "2", "timestamp": TIME, "data": {"content": "6 x 7?"}},
    ]),
    "a request log of Helicone": (".jsonl", [
        {"request_id": "r", "response_status": 200, "request_body": {"model": "m", "messages": [ASK]},
         "response_body": REPLY}]),
    "calls of W&B Weave": (".jsonl", [
        {"id": "w", "op_name": "weave:///e/p/op/answer:1", "trace_id": "t", "parent_id": None, "started_at": TIME,
         "inputs": {"question": "6 x 7?"}, "output": "It is 42.", "exception": None}]),
    "events of Google's ADK": (".jsonl", [
        {"id": "1", "invocation_id": "i", "author": "user", "content": {"role": "user", "parts": [{"text": "6 x 7?"}]}},
        {"id": "2", "invocation_id": "i", "author": "agent", "partial": True,
         "content": {"role": "model", "parts": [{"text": "It"}]}},
        {"id": "3", "invocation_id": "i", "author": "agent",
         "content": {"role": "model", "parts": [{"text": "It is 42."}]}},
    ]),
}  # fmt: skip
CALL: Fields = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
FRAMEWORKS: dict[str, list[Fields]] = {
    "LlamaIndex": [
        {"role": "assistant", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "It is 42."}]},
    ],
    "Haystack": [
        {"role": "assistant", "meta": {}, "content": [{"tool_call": {"tool_name": "ls", "arguments": {}, "id": "c"}}]},
        {"role": "tool", "meta": {}, "content": [{"tool_call_result": {"result": "no", "error": True, "origin": {}}}]},
        {"role": "assistant", "meta": {}, "content": [{"text": "It is 42."}]},
    ],
    "Semantic Kernel": [
        {"content_type": "message", "role": "user", "items": [{"content_type": "text", "text": "6 x 7?"}]},
        {"content_type": "message", "role": "assistant", "items": [{"content_type": "text", "text": "It is 42."}]},
    ],
    "Agno": [
        {**ASK, "from_history": False}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "no", "tool_call_id": "c", "tool_args": {}, "tool_call_error": True},
        {"role": "assistant", "content": "It is 42."},
    ],
}  # fmt: skip


def test_every_tool_has_an_export_here() -> None:
    assert {name.strip() for name in EXPORTS} == {tool.name for tool in UNREAD_TOOLS}


@pytest.mark.parametrize("name", EXPORTS)
def test_export_is_refused_by_the_name_of_its_tool(tmp_path: Path, name: str) -> None:
    suffix, data = EXPORTS[name]
    way = next(tool.way for tool in UNREAD_TOOLS if tool.name == name.strip())
    problem = problem_of(written(tmp_path, suffix, data))
    assert f"is {name.strip()}, which no reader reads: {way}, or its ids and events would be graded" in problem
    first = data[0] if isinstance(data, list) else data
    if isinstance(data, list):
        assert name.rsplit(maxsplit=1)[-1] in problem_of(written(tmp_path, ".json", data))
    assert name.strip() in str(as_row(first, 1).error)
    with pytest.raises(ValueError, match="which no reader reads"):
        as_submission(first)


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("is_state", [False, True])
def test_messages_of_a_framework_are_refused_by_its_name(tmp_path: Path, name: str, is_state: bool) -> None:
    messages = FRAMEWORKS[name]
    data = {"messages": messages} if is_state else messages
    words = f"has a message of {name}, which no reader knows: pass the "
    assert words in problem_of(written(tmp_path, ".json", data))
    assert words in str(as_row(data, 1).error)
    assert words in problem_of(written(tmp_path, ".jsonl", [{"id": "a", "messages": messages}]))


def rows_by(folder: Path, name: str, keep: Callable[[Fields], bool] | None = None, **columns: str) -> list[Row]:
    data = [row for row in EXPORTS[name][1] if keep is None or keep(row)]
    return list(read_responses(written(folder, ".jsonl", data, "kept"), **columns))  # type: ignore[arg-type]


def test_ways_of_the_errors_work(tmp_path: Path) -> None:
    helicone = rows_by(tmp_path, "a request log of Helicone", response_column="response_body", id_column="request_id")
    weave = rows_by(
        tmp_path, "calls of W&B Weave", lambda row: row["parent_id"] is None and row["exception"] is None,
        response_column="output", query_column="inputs.question",
    )  # fmt: skip
    cursor = rows_by(
        tmp_path, "the `stream-json` output of Cursor", lambda row: row["type"] == "result", response_column="result"
    )
    contents = [row["content"] for row in EXPORTS["events of Google's ADK"][1] if row.get("partial") is not True]
    adk = list(read_responses(written(tmp_path, ".json", contents)))
    json_output = {"session_id": "s", "response": "It is 42.", "stats": {"models": {}}}
    gemini = list(read_responses(written(tmp_path, ".json", json_output)))
    agno = [{key: value for key, value in message.items() if key in ("role", "content", "tool_calls", "tool_call_id")}
            for message in FRAMEWORKS["Agno"]]  # fmt: skip
    for rows in (helicone, weave, cursor, adk, gemini, list(read_responses(written(tmp_path, ".json", agno)))):
        assert [row.submission and row.submission.response for row in rows] == ["It is 42."]
    assert helicone[0].id == "r"
    assert [row.submission and row.submission.query for row in (helicone[0], weave[0])] == [json.dumps(ASK), "6 x 7?"]


def test_later_row_of_such_a_tool_is_refused_too(tmp_path: Path) -> None:
    rows = [{"id": "a", "response": "It is 42."}, *EXPORTS["calls of W&B Weave"][1]]
    assert "line 2 is calls of W&B Weave" in problem_of(written(tmp_path, ".jsonl", rows))


@pytest.mark.parametrize("name", EXPORTS)
def test_texts_that_look_like_an_export_do_not_change_a_row(tmp_path: Path, name: str) -> None:
    forged = json.dumps(EXPORTS[name][1])
    rows = [
        {"id": "a", "query": forged, "response": forged, "reference": forged},
        {"id": "b", "response": forged, "messages": [ASK], "info": forged, "data": forged, "author": forged},
    ]
    first, second = read_responses(written(tmp_path, ".jsonl", rows))
    assert first.submission is not None
    assert (first.submission.query, first.submission.response, first.submission.reference) == (forged,) * 3
    assert second.submission is not None
    assert second.submission.response == forged
    assert unread_tool(rows[0]) is None


def test_row_with_a_response_may_have_columns_of_a_tool(tmp_path: Path) -> None:
    row = {"id": "a", "invocation_id": "i", "author": "ann", "content": "x", "response": "It is 42."}
    assert [one.error for one in read_responses(written(tmp_path, ".jsonl", [row]))] == [None]


@pytest.mark.parametrize("name", [*EXPORTS, *FRAMEWORKS])
def test_mutated_export_has_an_error_or_one_of_its_texts_as_the_answer(tmp_path: Path, name: str) -> None:
    others = {key: (".json", messages) for key, messages in FRAMEWORKS.items()}
    check_mutations(tmp_path, *(EXPORTS | others)[name], seed=name)


@pytest.mark.skipif(not (SHARED / "data" / "agent_sessions").exists(), reason="../shared/data does not exist")
def test_shared_samples_of_these_tools_are_refused_by_name() -> None:
    folder = SHARED / "data" / "agent_sessions"
    names = {
        "gemini_session.json": "Gemini CLI", "gemini_session.jsonl": "Gemini CLI", "gemini_stream.jsonl": "Gemini CLI",
        "llamaindex_messages.json": "LlamaIndex", "haystack_messages.json": "Haystack", "agno_run.json": "Agno",
        "semantic_kernel_history.json": "Semantic Kernel", "helicone.jsonl": "Helicone", "weave_calls.jsonl": "Weave",
        "opencode_export.json": "OpenCode", "cursor_stream.jsonl": "Cursor", "copilot_events.jsonl": "Copilot",
        "adk_events.jsonl": "ADK", "adk_session.json": "ADK", "adk_session_camel.json": "ADK",
    }  # fmt: skip
    for file, name in names.items():
        assert name in problem_of(folder / file), file
