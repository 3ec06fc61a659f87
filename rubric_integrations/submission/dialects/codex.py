"""Reads sessions of Codex: its rollout files, and the events of `codex exec --json`.

Of a rollout, the `response_item` lines are read, which are items of OpenAI's Responses API. Its `event_msg` lines
repeat their texts. They are used only for exit codes, aborted turns and turns that were rolled back. A compaction
repeats earlier messages, which are read where they were written. The instructions of Codex are not the user's words.

A rollout does not say whether a tool failed, but several of its texts do: the events of the call, the JSON of its
output, and the lines before `Output:`. Programs print similar lines after it, which therefore do not count. A command
whose exit code is not 0 has failed, also a `grep` that found nothing. Without a code, it is not known.

The events of `codex exec --json` contain no prompt. Only completed items are read. A run without `turn.completed` at
its end is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rubric_integrations._util.json import parse_json
from rubric_integrations._util.text import counted
from rubric_integrations.submission.dialects.blocks import (
    AttachmentList,
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    code_field,
    first_field,
    flag_field,
    get_field,
    object_field,
    read_arguments,
    result_text,
    text_field,
)
from rubric_integrations.submission.dialects.chat import is_item, read_items
from rubric_integrations.submission.dialects.sessions import finish_session, unfinished, without_answer

_ROLLOUT = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_EVENTS = frozenset({
    "thread.started", "turn.started", "turn.completed", "turn.failed", "item.started", "item.updated",
    "item.completed",
})  # fmt: skip
_NO_PROMPTS = (
    "<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>",
    "<user_shell_command>", "<skill>",
)  # fmt: skip
_STATUS = {"failed": True, "declined": True, "completed": False}
_NO_ITEMS = ("todo_list", "error")
# The lines that Codex writes before the output of a command.
_HEADER = (
    "Chunk ID:", "Wall time", "Process ", "Original token count:", "Exit code:", "Total output lines:", "Command:",
)  # fmt: skip
_MAX_HEADER = 10
_EXIT_CODE = re.compile(r"(?:Process exited with code|Exit code:) (-?\d{1,10})\s*")


def is_rollout_line(line: Any) -> bool:
    """Return whether a value is a line of a session file of Codex.

    Example:
        >>> is_rollout_line({"timestamp": "2026-11-20T10:00:00Z", "type": "compacted", "payload": {"message": ""}})
        True
    """
    return _has_type(line, _ROLLOUT) and isinstance(get_field(line, "payload"), Mapping)


def is_exec_line(line: Any) -> bool:
    """Return whether a value is an event of `codex exec --json`.

    Example:
        >>> is_exec_line({"type": "thread.started", "thread_id": "0199"})
        True
    """
    return _has_type(line, _EVENTS) and not isinstance(get_field(line, "payload"), Mapping)


def _has_type(line: Any, types: frozenset[str]) -> bool:
    kind = cast("Mapping[str, Any]", line).get("type") if isinstance(line, Mapping) else None
    return isinstance(kind, str) and kind in types


def matches_codex(conversation: Any) -> bool:
    """Return whether a value is a list with lines of a session of Codex, or with events of `codex exec --json`."""
    if not isinstance(conversation, list | tuple):
        return False
    lines = cast("Sequence[Any]", conversation)
    return any(is_rollout_line(line) or is_exec_line(line) for line in lines)


def read_codex(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the lines of a session, or the events of `codex exec --json`.

    Raises:
        ValueError: The session failed, was aborted or cut off, or a line cannot be read.
    """
    lines = list(conversation)
    for index, line in enumerate(lines):
        if not isinstance(get_field(line, "type"), str):
            raise UnknownBlockError(f"messages[{index}]", "is not a line of a session", "remove it")
    notes = list[str]()
    is_exec = not any(map(is_rollout_line, lines))
    messages = _read_events(lines, attachments) if is_exec else _read_rollout(lines, attachments, notes)
    return finish_session("Codex", messages, notes)


def _read_rollout(lines: list[Any], attachments: AttachmentList, notes: list[str]) -> list[Message]:
    """Return the messages of a rollout, and add notes of what is left out."""
    session = _Rollout()
    for index, line in enumerate(lines):
        session.add(line, f"messages[{index}]")
    if session.is_aborted:
        raise unfinished("messages", "is a session of Codex whose last turn was aborted")
    if session.compactions:
        notes.append(f"it was compacted {counted(session.compactions, 'time')}: all of its steps are read")
    if session.rolled_back:
        notes.append(f"{counted(session.rolled_back, 'turn')} that the user rolled back is left out")
    messages = [
        message._replace(parts=[session.with_error(part) for part in message.parts])
        for message in read_items(session.items, attachments)
    ]
    spoken = [item for _, item in session.items if get_field(item, "role") == "assistant"]
    if spoken and get_field(spoken[-1], "phase") == "commentary" and messages[-1].role == "assistant":
        messages[-1] = without_answer(messages[-1])
    return messages


class _Rollout:
    """Collects the items of a rollout.

    Attributes:
        items: The items of the Responses API, each with its place.
        is_aborted: Whether the last turn was aborted.
        compactions: The number of compactions.
        rolled_back: The number of turns that were rolled back.
    """

    def __init__(self) -> None:
        self.items = list[tuple[str, Any]]()
        self.is_aborted = False
        self.compactions = self.rolled_back = 0
        # The positions of the user's prompts, at each of which a turn begins.
        self._turns = list[int]()
        self._failed: dict[str, bool | None] = {}

    def add(self, line: Mapping[str, Any], place: str) -> None:
        """Add the next line."""
        kind, payload = line.get("type"), line.get("payload")
        if kind == "response_item":
            self._add_item(object_field(line, "payload") or {}, f"{place}.payload")
        elif kind == "event_msg":
            self._add_event(object_field(line, "payload") or {}, f"{place}.payload")
        elif kind == "compacted":
            self.compactions += 1
        elif kind not in ("session_meta", "turn_context") and (is_item(payload) or get_field(payload, "role")):
            raise UnknownBlockError(place, f"is a line of the type {str(kind)[:60]!r}, which no reader knows")

    def _add_item(self, item: Mapping[str, Any], place: str) -> None:
        """Add an item, unless Codex wrote it for the model."""
        kind, role = item.get("type"), item.get("role")
        if kind == "ghost_snapshot" or role in ("developer", "system"):
            return
        if role == "user":
            own = _without_context(item)
            if own is None:
                return
            item = own
            self._turns.append(len(self.items))
            self.is_aborted = False
        self.items.append((place, item))

    def _add_event(self, event: Mapping[str, Any], place: str) -> None:
        """Use an event that says whether a call failed, or that a turn ended without an answer."""
        kind = event.get("type")
        if not isinstance(kind, str):
            raise UnknownBlockError(place, "has no `type`", "correct it")
        if kind == "turn_aborted":
            self.is_aborted = True
        elif kind == "thread_rolled_back":
            count = min(max(code_field(event, "num_turns") or 0, 0), len(self._turns))
            if count:
                del self.items[self._turns[-count] :], self._turns[-count:]
            self.rolled_back += count
            self.is_aborted = False
        elif kind in _ENDS and (call_id := text_field(event, "call_id")) is not None:
            self._failed[call_id] = _ENDS[kind](event)

    def with_error(self, part: Part) -> Part:
        """Return a part. If it is a result, it has whether its call failed, as far as that is recorded."""
        if not isinstance(part, Result) or part.is_error is not None:
            return part
        recorded = self._failed.get(part.id or "")
        return part._replace(is_error=_has_failed(part.text) if recorded is None else recorded)


def _without_context(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a message of the user without the blocks that Codex wrote, or None if no other block is left."""
    content = item.get("content")
    if not isinstance(content, list):
        return None if _is_context(content) else item
    blocks = cast("list[Any]", content)
    own = [block for block in blocks if not _is_context(block if isinstance(block, str) else get_field(block, "text"))]
    return item if len(own) == len(blocks) else {**item, "content": own} if own else None


def _is_context(text: Any) -> bool:
    return isinstance(text, str) and text.lstrip().startswith(_NO_PROMPTS)


def _has_command_failed(event: Mapping[str, Any]) -> bool | None:
    code = code_field(event, "exit_code")
    return None if code is None else code != 0


def _has_patch_failed(event: Mapping[str, Any]) -> bool | None:
    success = flag_field(event, "success")
    return None if success is None else not success


def _has_mcp_failed(event: Mapping[str, Any]) -> bool | None:
    outcome = object_field(event, "result") or {}
    if "Err" in outcome:
        return True
    has_failed = first_field(outcome.get("Ok"), "is_error", "isError")
    return bool(has_failed) if "Ok" in outcome else None


# Whether a call failed, by the event at its end.
_ENDS = {
    "exec_command_end": _has_command_failed,
    "patch_apply_end": _has_patch_failed,
    "mcp_tool_call_end": _has_mcp_failed,
}


def _has_failed(output: str) -> bool | None:
    r"""Return whether a command failed, by its exit code in the output of Codex. None if the output has no code.

    Example:
        >>> _has_failed("Process exited with code 1\nOutput:\n"), _has_failed("Output:\nExit code: 1")
        (True, None)
    """
    if output.startswith("{"):
        try:
            code = get_field(get_field(parse_json(output), "metadata"), "exit_code")
        except ValueError:
            return None
        return code != 0 if isinstance(code, int) and not isinstance(code, bool) else None
    header, *rest = f"{output}\n".split("\nOutput:\n", maxsplit=1)
    lines = header.split("\n", maxsplit=_MAX_HEADER)
    if not rest or not all(line.startswith(_HEADER) for line in lines):
        return None
    codes = [match[1] for line in lines if (match := _EXIT_CODE.fullmatch(line))]
    return int(codes[0]) != 0 if codes else None


def _read_events(lines: list[Any], attachments: AttachmentList) -> list[Message]:
    """Return the messages of `codex exec --json`. Reasoning belongs to the item after it."""
    messages, reasoning = list[Message](), list[Part]()
    by_id: dict[str, Any] = {}
    end, place = None, "messages"
    for index, event in enumerate(lines):
        kind, item, place = event.get("type"), event.get("item"), f"messages[{index}]"
        if kind in ("turn.started", "turn.completed", "turn.failed"):
            end = event
        if kind != "item.completed":
            if not _has_type(event, _EVENTS) and isinstance(item, Mapping):
                raise UnknownBlockError(place, f"is an event of the type {str(kind)[:60]!r}, which no reader knows")
            continue
        item, end = object_field(event, "item") or {}, None
        own_id = text_field(item, "id")
        if own_id is not None and by_id.get(own_id) == item:
            continue
        by_id |= {own_id: item} if own_id is not None else {}
        parts = _read_exec_item(item, f"{place}.item", attachments)
        if get_field(item, "type") == "reasoning":
            reasoning += parts
        elif parts:
            messages.append(Message("assistant", [*reasoning, *parts], place))
            reasoning = []
    _refuse_unfinished(end)
    return messages


def _refuse_unfinished(end: Mapping[str, Any] | None) -> None:
    kind = get_field(end, "type")
    if kind == "turn.failed":
        error = get_field(end, "error")
        reason = get_field(error, "message") if isinstance(error, Mapping) else error
        raise unfinished("messages", "is a run of `codex exec` that failed", reason)
    if kind != "turn.completed":
        raise unfinished("messages", "is a run of `codex exec` that was cut off: it does not end with `turn.completed`")


def _read_exec_item(item: Mapping[str, Any], place: str, attachments: AttachmentList) -> list[Part]:
    """Read a completed item: a text, a call with its result, or reasoning. Empty for a plan and for a warning."""
    kind, status = item.get("type"), text_field(item, "status")
    has_failed = _STATUS.get(status or "")
    call_id = text_field(item, "id")
    if kind in _NO_ITEMS:
        return []
    if kind == "reasoning":
        return [Text("[reasoning]", "note")]
    if kind == "agent_message":
        if not isinstance(item.get("text"), str):
            raise UnknownBlockError(place, "has no `text`", "correct it")
        return [Text(item["text"])] if item["text"] else []
    if kind == "command_execution":
        code = code_field(item, "exit_code")
        output = result_text(item.get("aggregated_output"), place, attachments)
        call = Call("command_execution", read_arguments({"command": item.get("command")}), call_id)
        return [call, Result(output, call_id, None, bool(code) if code is not None and not has_failed else has_failed)]
    if kind == "mcp_tool_call":
        return _read_mcp_call(item, place, attachments, has_failed=has_failed)
    if kind in ("file_change", "web_search", "collab_tool_call"):
        left_out = ("id", "type", "status", "tool")
        arguments = {name: value for name, value in item.items() if name not in left_out}
        name = text_field(item, "tool") or kind
        result = [Result(status, call_id, None, has_failed)] if status else []
        return [Call(name, read_arguments(arguments), call_id), *result]
    raise UnknownBlockError(place, f"is an item of the type {str(kind)[:60]!r}, which no reader knows")


def _read_mcp_call(
    item: Mapping[str, Any], place: str, attachments: AttachmentList, *, has_failed: bool | None
) -> list[Part]:
    """Read a call of an MCP server, which has its result or its error."""
    call_id, name = text_field(item, "id"), text_field(item, "tool")
    if name is None:
        raise UnknownBlockError(place, "is a call without a name")
    server, error, result = text_field(item, "server"), item.get("error"), item.get("result")
    # The name by which the model and a rollout call the tool.
    call = Call(f"mcp__{server}__{name}" if server else name, read_arguments(item.get("arguments")), call_id)
    if error is None and result is None and not has_failed:
        return [call]
    content = first_field(result, "content") if isinstance(result, Mapping) else result
    message = first_field(error, "message") if isinstance(error, Mapping) else error
    texts = [result_text(value, place, attachments) for value in (content, message) if value is not None]
    is_error = error is not None or first_field(result, "is_error", "isError") is True
    return [call, Result("\n".join(texts), call_id, None, is_error or has_failed)]
