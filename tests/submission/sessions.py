"""Sessions of Claude Code and Codex, as their lines, for the tests of their readers."""

from __future__ import annotations

from typing import Any

SESSION = "5b0c"


def user(uuid: str, content: Any, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a line of the user in a session file of Claude Code."""
    return _line(uuid, parent, {"role": "user", "content": content}, fields)


def model(uuid: str, message: str, *blocks: Any, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a line with blocks of the model; several lines may have one message."""
    usage = {"input_tokens": 2, "cache_read_input_tokens": 90, "output_tokens": fields.pop("output", 8)}
    own = {"id": message, "role": "assistant", "model": "claude-opus-5", "content": list(blocks), "usage": usage}
    return _line(uuid, parent, own, fields)


def _line(uuid: str, parent: str | None, message: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    own = {"type": message["role"], "uuid": uuid, "parentUuid": parent, "isSidechain": False, "sessionId": SESSION}
    return {**own, "version": "2.1", "cwd": "/home/ann/shop", "message": message, **fields}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call_id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any = "ok", **fields: Any) -> list[dict[str, Any]]:
    """Return the content of a line with the result of a call."""
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}]


CLAUDE: list[dict[str, Any]] = [
    {"type": "summary", "summary": "Totals", "leafUuid": "x"},
    {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}, "isSnapshotUpdate": False},
    user("u0", "<local-command-caveat>Caveat.</local-command-caveat>", isMeta=True),
    user("u1", "Fix the total.", "u0"),
    {"type": "attachment", "uuid": "at", "parentUuid": "u1", "sessionId": SESSION, "attachment": {"content": "x"}},
    model("a1", "m1", {"type": "thinking", "thinking": "Hm.", "signature": "s"}, parent="at", output=1),
    model("a2", "m1", text("I look."), parent="a1", output=1),
    model("a3", "m1", use("c1", "Read", file_path="/home/ann/shop/cart.py"), parent="a2", output=1),
    model("a4", "m1", use("c2", command="pytest -q"), parent="a3"),
    user("u2", result("c1", "def total(): ..."), "a3", toolUseResult={"file": {"content": "SECRET FILE"}}),
    user("u3", result("c2", "Exit code 1", is_error=True), "a4"),
    {"type": "system", "subtype": "compact_boundary", "uuid": "s1", "parentUuid": None, "logicalParentUuid": "u3",
     "sessionId": SESSION, "content": "Conversation compacted"},
    user("u4", "This session is continued.", "s1", isCompactSummary=True),
    model("a5", "m2", text("Fixed."), parent="u4"),
    {"type": "system", "subtype": "turn_duration", "uuid": "s2", "sessionId": SESSION, "durationMs": 5},
]  # fmt: skip
"""A session file: two parallel calls, one of which fails, a compaction, and lines that are not steps."""


def stream(line: dict[str, Any], parent: str | None = None) -> dict[str, Any]:
    """Return a line of a session file as `claude -p --output-format stream-json` writes it."""
    own = {key: line[key] for key in ("type", "uuid", "message")}
    return {**own, "session_id": SESSION, "parent_tool_use_id": parent}


RESULT: dict[str, Any] = {
    "type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "result": "Fixed.",
    "session_id": SESSION, "total_cost_usd": 0.25, "uuid": "r",
}  # fmt: skip
FAILED: dict[str, Any] = {
    **RESULT, "subtype": "error_max_turns", "is_error": True, "result": None, "errors": ["Reached the number of turns"]
}  # fmt: skip
STREAM: list[dict[str, Any]] = [
    {"type": "system", "subtype": "init", "session_id": SESSION, "uuid": "i", "model": "claude-opus-5", "tools": []},
    *(stream(line) for line in (CLAUDE[3], *CLAUDE[5:11])),
    {"type": "stream_event", "session_id": SESSION, "uuid": "e", "event": {"type": "message_stop"}},
    stream(CLAUDE[13]),
    RESULT,
]
"""The output of `claude -p --output-format stream-json --verbose`."""


def item(**fields: Any) -> dict[str, Any]:
    """Return a line of a rollout of Codex with an item of the Responses API."""
    return {"timestamp": "2026-11-20T10:00:00Z", "type": "response_item", "payload": fields}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"timestamp": "2026-11-20T10:00:00Z", "type": "event_msg", "payload": {"type": kind, **fields}}


def says(role: str, words: str, **fields: Any) -> dict[str, Any]:
    """Return a line of a rollout with a message."""
    kind = "output_text" if role == "assistant" else "input_text"
    return item(type="message", role=role, content=[{"type": kind, "text": words}], **fields)


def calls(call_id: str, command: str = "pytest -q") -> dict[str, Any]:
    return item(type="function_call", name="exec_command", arguments=f'{{"cmd": "{command}"}}', call_id=call_id)


def returns(call_id: str, output: Any) -> dict[str, Any]:
    return item(type="function_call_output", call_id=call_id, output=output)


META: dict[str, Any] = {
    "timestamp": "2026-11-20T10:00:00Z", "type": "session_meta",
    "payload": {"id": "0199", "cwd": "/home/ann/shop", "cli_version": "0.163.0", "git": {"branch": "main"}},
}  # fmt: skip
ROLLOUT: list[dict[str, Any]] = [
    META,
    says("developer", "<permissions instructions>"),
    says("user", "<environment_context><cwd>/home/ann/shop</cwd></environment_context>"),
    {"timestamp": "2026-11-20T10:00:00Z", "type": "turn_context", "payload": {"cwd": "/x", "model": "gpt-5.5-codex"}},
    says("user", "Make the tests pass."),
    event("user_message", message="Make the tests pass."),
    item(type="reasoning", summary=[], encrypted_content="gAAA"),
    says("assistant", "I run them.", phase="commentary"),
    event("agent_message", message="I run them."),
    calls("c1"),
    calls("c2", "git status"),
    returns("c1", "Chunk ID: 1f\nWall time: 1.2 seconds\nProcess exited with code 1\nOutput:\n1 failed"),
    returns("c2", "Chunk ID: 20\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n"),
    {"timestamp": "2026-11-20T10:00:00Z", "type": "compacted", "payload": {
        "message": "", "replacement_history": [{"type": "message", "role": "user", "content": []}]}},
    item(type="custom_tool_call", call_id="c3", name="apply_patch", input="*** Begin Patch"),
    item(type="custom_tool_call_output", call_id="c3", output='{"output":"Success","metadata":{"exit_code":0}}'),
    item(type="ghost_snapshot", ghost_commit={"id": "x"}),
    says("assistant", "They pass.", phase="final_answer"),
    event("task_complete", last_agent_message="They pass."),
]  # fmt: skip
"""A rollout of Codex: two parallel calls, one of which fails, a compaction, and lines that are not steps."""


def completed(number: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": f"item_{number}", "type": kind, **fields}}


EXEC: list[dict[str, Any]] = [
    {"type": "thread.started", "thread_id": "0199-bb"},
    {"type": "turn.started"},
    completed(0, "reasoning", text="Run the tests."),
    {"type": "item.started", "item": {"id": "item_1", "type": "command_execution", "command": "pytest -q"}},
    completed(1, "command_execution", command="pytest -q", aggregated_output="1 failed", exit_code=1, status="failed"),
    completed(2, "todo_list", items=[]),
    completed(3, "mcp_tool_call", server="docs", tool="look", arguments={"q": "x"}, result=None,
              error={"message": "timeout"}, status="failed"),
    completed(4, "agent_message", text="They pass."),
    {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
]  # fmt: skip
"""The output of `codex exec --json`: two failed calls."""
