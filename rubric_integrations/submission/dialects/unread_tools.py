"""Sessions and logs of tools that no reader reads (`UNREAD_TOOLS`), to refuse them by their name.

Each error has a way that works today. Without this module, most of these files would lack a `response` column, and some
would be graded as one JSON text. A tool is recognized by keys at the top level of an object, never by a text in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

_Marker = Callable[[Mapping[str, Any]], bool]


class UnreadTool(NamedTuple):
    """An export of a tool: the test of its marks in a line or in the document, and what to grade instead."""

    name: str
    matches: _Marker
    way: str


def _has_texts(row: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    return all(isinstance(row.get(name), str) for name in names)


def _is_gemini_session(row: Mapping[str, Any]) -> bool:
    return "projectHash" in row and ("sessionId" in row or "startTime" in row)


def _is_gemini_stream(row: Mapping[str, Any]) -> bool:
    return row.get("type") == "init" and _has_texts(row, ("session_id", "model", "timestamp"))


def _is_opencode(row: Mapping[str, Any]) -> bool:
    info, messages = row.get("info"), row.get("messages")
    parts = [item.get("parts") if isinstance(item, Mapping) else None for item in _items(messages)]
    is_session = isinstance(info, Mapping) and "projectID" in info and ("directory" in info or "messages" in row)
    return is_session or ("info" in row and bool(parts) and all(isinstance(part, list) for part in parts))


def _items(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _is_cursor_stream(row: Mapping[str, Any]) -> bool:
    """Return whether a row is the first line of Cursor's stream. The one of Claude Code also has its `tools`."""
    is_first = row.get("type") == "system" and row.get("subtype") == "init"
    return is_first and _has_texts(row, ("session_id", "cwd", "model")) and not {"tools", "uuid"} & row.keys()


def _is_copilot(row: Mapping[str, Any]) -> bool:
    data = row.get("data")
    return row.get("type") == "session.start" and isinstance(data, Mapping) and "sessionId" in data


def _is_helicone(row: Mapping[str, Any]) -> bool:
    has_reply = "response_body" in row or "response_status" in row
    return _has_texts(row, ("request_id",)) and "request_body" in row and has_reply


def _is_weave(row: Mapping[str, Any]) -> bool:
    return _has_texts(row, ("op_name", "trace_id")) and "inputs" in row and "parent_id" in row and "started_at" in row


def _is_adk_event(row: Mapping[str, Any]) -> bool:
    is_event = any(isinstance(row.get(name), str) for name in ("invocation_id", "invocationId"))
    return is_event and _has_texts(row, ("author",)) and ("content" in row or "actions" in row)


_MESSAGES = "write its messages as a list of `{'role': ..., 'content': ..., 'tool_calls': ...}` in a `.json` file"
_JSON = "run it with `--output-format json`, whose `response` is read without the calls"

UNREAD_TOOLS = (
    UnreadTool("a session of Gemini CLI", _is_gemini_session, f"{_JSON}, or {_MESSAGES}"),
    UnreadTool("the `stream-json` output of Gemini CLI", _is_gemini_stream, f"{_JSON}, or {_MESSAGES}"),
    UnreadTool(
        "an export of OpenCode", _is_opencode, f"save the output of `opencode run` as a `.txt` file, or {_MESSAGES}",
    ),
    UnreadTool(
        "the `stream-json` output of Cursor", _is_cursor_stream,
        "keep its last line (`jq -c 'select(.type == \"result\")'`) and name the answer (`--response-column result`), "
        f"or {_MESSAGES}",
    ),
    UnreadTool(
        "the events of a session of Copilot CLI", _is_copilot,
        f"save the output of `copilot -p` as a `.txt` file, or {_MESSAGES}",
    ),
    UnreadTool(
        "a request log of Helicone", _is_helicone,
        "name the reply, whose request is then read, too (`--response-column response_body --id-column request_id`)",
    ),
    UnreadTool(
        "calls of W&B Weave", _is_weave,
        "keep the root calls (`jq -c 'select(.parent_id == null and .exception == null)'`) and name the columns, such "
        "as `--response-column output --query-column inputs.question`",
    ),
    UnreadTool(
        "events of Google's ADK", _is_adk_event,
        "write the contents of one run as a list (`jq -s '[.[] | select(.partial != true) | .content]'`) into a "
        "`.json` file",
    ),
)  # fmt: skip
"""The tools. The first one that matches is named."""

# Each tool has at least one of these keys, which most rows lack.
_MARKS = frozenset({
    "projectHash", "session_id", "info", "data", "request_body", "op_name", "invocation_id", "invocationId",
})  # fmt: skip


# No tool writes such a key beside its marks: the row is a user's own, with more columns.
_ANSWERS = frozenset({"response", "answer", "completion", "text"})


def unread_tool(value: object) -> str | None:
    """Return the problem of an export that no reader reads, with a way that works, or None for any other value.

    Example:
        >>> unread_tool({"request_id": "h1", "request_body": {}, "response_body": {}})[:50]
        'is a request log of Helicone, which no reader read'
        >>> unread_tool({"response": '{"request_id": "h1", "request_body": {}}'})
    """
    if not isinstance(value, Mapping) or _MARKS.isdisjoint(cast("Mapping[str, Any]", value)):
        return None
    row = cast("Mapping[str, Any]", value)
    if not _ANSWERS.isdisjoint(row):
        return None
    tool = next((tool for tool in UNREAD_TOOLS if tool.matches(row)), None)
    return None if tool is None else (
        f"is {tool.name}, which no reader reads: {tool.way}, or its ids and events would be graded as an answer"
    )  # fmt: skip
