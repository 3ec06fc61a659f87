"""Reads sessions of Claude Code: its session files, and the output of `claude -p` as `json` and as `stream-json`.

- A message of the model is several lines with one `message.id`, one block each. They are joined at the first of them.
- Results are blocks of lines of the user. Without `is_error`, a tool did not fail. The result of a command in the
  background says only that the command was started: whether it failed is not known.
- Lines of other types, `isMeta` lines, summaries of a compaction, and the marks that Claude Code writes into the user's
  texts, such as `<system-reminder>`, are not steps. Each `uuid` counts once.
- The order is the order of the file. Two prompts of the user with one parent are a rewind: only the branch of the last
  line is read. Parallel results also have one parent, and are all read.
- The messages of subagents (`isSidechain`, `parent_tool_use_id`) are not part of a session. A list that contains only
  such messages is the session of a subagent.
- The output of `claude -p` needs its `result` line. Without it the run was cut off, and is refused.

The format of session files is undocumented and changes. Therefore a line of an unknown type that has a message is
refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from rubric_integrations._util.text import counted
from rubric_integrations.submission.dialects.blocks import (
    AttachmentList,
    Call,
    Message,
    Part,
    Result,
    Text,
    UnknownBlockError,
    count_field,
    data_text,
    flag_field,
    get_field,
    list_field,
    read_block,
    text_field,
)
from rubric_integrations.submission.dialects.sessions import finish_session, unfinished

_MESSAGES = ("user", "assistant")
# Types of lines that are not steps, although some of them contain a message.
_LEFT_OUT = frozenset({
    "summary", "ai-title", "custom-title", "agent-name", "last-prompt", "file-history-snapshot", "queue-operation",
    "attachment", "progress", "system", "stream_event", "result",
})  # fmt: skip
_MARKS = (
    "system-reminder", "local-command-caveat", "local-command-stdout", "local-command-stderr", "command-name",
    "command-message", "command-args", "command-contents", "bash-input", "bash-stdout", "bash-stderr",
)  # fmt: skip
_CLEAR = "<command-name>/clear</command-name>"


def is_claude_code_line(line: Any) -> bool:
    """Return whether a value is a line of a session file or of the output of `claude -p`.

    Example:
        >>> is_claude_code_line({"type": "summary", "summary": "Fix totals", "leafUuid": "u1"})
        True
    """
    if not isinstance(line, Mapping):
        return False
    fields = cast("Mapping[str, Any]", line)
    kind, has_session = fields.get("type"), "sessionId" in fields or "session_id" in fields
    if kind in _MESSAGES and isinstance(fields.get("message"), Mapping):
        # Cursor writes similar lines without ids.
        return "uuid" in fields or "parentUuid" in fields
    if kind == "result":
        return has_session and "subtype" in fields and ("result" in fields or "is_error" in fields)
    if kind == "summary":
        return "leafUuid" in fields
    if kind == "file-history-snapshot":
        return "snapshot" in fields
    return has_session and (_is_left_out(kind) or "uuid" in fields) and ("uuid" in fields or "sessionId" in fields)


def is_result(line: Any) -> bool:
    """Return whether a value is the `result` line of `claude -p`, which is also the output of the format `json`."""
    return get_field(line, "type") == "result" and is_claude_code_line(line)


def has_only_results(conversation: Any) -> bool:
    """Return whether a session has only `result` lines, without the steps of the run."""
    lines = [conversation] if isinstance(conversation, Mapping) else list(conversation)
    return not any(get_field(line, "type") in _MESSAGES for line in lines)


def is_clear(line: Mapping[str, Any]) -> bool:
    """Return whether a line is the command `/clear`, after which the agent knows nothing of the session before."""
    content = get_field(line.get("message"), "content")
    return line.get("type") == "user" and isinstance(content, str) and content.lstrip().startswith(_CLEAR)


def is_step(line: Mapping[str, Any]) -> bool:
    """Return whether a line has a message of the model, results of calls, or a prompt of the user."""
    return line.get("type") == "assistant" or _has_results(line) or is_prompt(line)


def is_prompt(line: Mapping[str, Any]) -> bool:
    """Return whether a line is a prompt of the user: it has more than results and marks of Claude Code."""
    if line.get("type") != "user" or line.get("isMeta") is True or line.get("isCompactSummary") is True:
        return False
    return not _has_results(line) and any(map(_is_own, _blocks(line)))


def _has_results(line: Mapping[str, Any]) -> bool:
    return line.get("type") == "user" and any(get_field(block, "type") == "tool_result" for block in _blocks(line))


def _blocks(line: Mapping[str, Any]) -> list[Any]:
    content = get_field(line.get("message"), "content")
    return cast("list[Any]", content) if isinstance(content, list) else [content]


def _is_own(block: Any) -> bool:
    text = block if isinstance(block, str) else get_field(block, "text")
    if get_field(block, "type") not in (None, "text"):
        return True
    return isinstance(text, str) and bool(without_marks(text).strip())


def matches_claude_code(conversation: Any) -> bool:
    """Return whether a value is a list of lines with a message or a result, or the object of `claude -p`."""
    if isinstance(conversation, Mapping):
        return is_result(conversation)
    if not isinstance(conversation, list | tuple):
        return False
    lines = cast("Sequence[Any]", conversation)
    return any(get_field(line, "type") in (*_MESSAGES, "result") and is_claude_code_line(line) for line in lines)


def read_claude_code(conversation: Any, attachments: AttachmentList) -> list[Message]:
    """Read the lines of a session, or the object that `claude -p --output-format json` writes.

    Raises:
        ValueError: The session failed or was cut off, a line cannot be read, or it contains `/clear`.
    """
    lines = [conversation] if isinstance(conversation, Mapping) else list(conversation)
    kept = _without_repeats(lines)
    steps, notes = _without_subagents(kept)
    steps = _without_branches(steps, lines, notes)
    compactions = sum(line.get("subtype") == "compact_boundary" for line in lines if line.get("type") == "system")
    if compactions:
        notes.append(f"it was compacted {counted(compactions, 'time')}: the steps before are read, the summary is not")
    _refuse_clear(steps)
    messages = _join_lines(steps, attachments)
    answer = _final_answer(lines, steps[-1].number if steps else -1)
    if answer is not None and (not messages or _last_answer(messages) != answer):
        messages.append(Message("assistant", [Text(answer)], "result"))
    return finish_session("Claude Code", messages, notes)


class _Line(NamedTuple):
    """A line with a message.

    Attributes:
        number: The position of the line in the session, from 0.
        fields: The line.
        message: Its message.
        is_subagent: Whether a subagent wrote it.
    """

    number: int
    fields: Mapping[str, Any]
    message: Mapping[str, Any]
    is_subagent: bool

    @property
    def place(self) -> str:
        """The place of the message, for errors."""
        return f"messages[{self.number}].message"


def _without_repeats(lines: Sequence[Any]) -> list[_Line]:
    """Return the lines with a message, each `uuid` once, without meta lines and without those that others replace."""
    replaced, seen = set[str](), dict[str, Mapping[str, Any]]()
    for index, line in enumerate(lines):
        if not isinstance(get_field(line, "type"), str):
            raise UnknownBlockError(f"messages[{index}]", "is not a line of a session", "remove it")
        if line.get("supersedes") is not None:
            replaced |= {str(uuid) for uuid in list_field(line, "supersedes", f"messages[{index}]")}
    kept = list[_Line]()
    for index, fields in enumerate(cast("Sequence[Mapping[str, Any]]", lines)):
        kind, place = fields.get("type"), f"messages[{index}]"
        if kind not in _MESSAGES:
            if kind == "tool_call" or (fields.get("message") is not None and not _is_left_out(kind)):
                raise UnknownBlockError(place, f"is a line of the type {str(kind)[:60]!r}, which no reader knows")
            continue
        message, uuid = fields.get("message"), _text(fields, "uuid")
        if not isinstance(message, Mapping) or cast("Mapping[str, Any]", message).get("role", kind) != kind:
            raise UnknownBlockError(place, "has no message of its type", "correct it")
        is_subagent = _flag(fields, "isSidechain") or _text(fields, "parent_tool_use_id") is not None
        if _flag(fields, "isMeta") or _flag(fields, "isCompactSummary") or uuid in replaced:
            continue
        message = cast("Mapping[str, Any]", message)
        if uuid is not None and uuid in seen:
            if seen[uuid] != message:
                raise UnknownBlockError(place, "has the `uuid` of another message", "correct it")
            continue
        seen |= {uuid: message} if uuid is not None else {}
        kept.append(_Line(index, fields, message, is_subagent))
    return kept


def _flag(fields: Mapping[str, Any], key: str) -> bool:
    # Without the other fields, which an error would show.
    return bool(flag_field({key: fields.get(key)}, key))


def _text(fields: Mapping[str, Any], key: str) -> str | None:
    return text_field({key: fields.get(key)}, key)


def _is_left_out(kind: object) -> bool:
    return isinstance(kind, str) and kind in _LEFT_OUT


def _without_subagents(lines: list[_Line]) -> tuple[list[_Line], list[str]]:
    """Return the lines of the session itself, and a note if others were left out."""
    own = [line for line in lines if not line.is_subagent]
    if not own or len(own) == len(lines):
        return lines, []
    count = counted(len(lines) - len(own), "line")
    return own, [f"{count} of subagents {'is' if len(lines) - len(own) == 1 else 'are'} left out: grade their own file"]


def _without_branches(kept: list[_Line], lines: Sequence[Mapping[str, Any]], notes: list[str]) -> list[_Line]:
    """Return the lines without the branches that the user rewound. A note names the first line of each."""
    children, roots = defaultdict[str, list[str]](list), 0
    for line in kept:
        uuid, parent = line.fields.get("uuid"), _parent_of(line.fields)
        if isinstance(uuid, str) and is_prompt(line.fields):
            roots += parent is None and "parentUuid" in line.fields
            if parent is not None:
                children[parent].append(uuid)
    if roots > 1:  # Old versions of Claude Code also wrote this after a compaction.
        notes.append(
            f"{roots} prompts in it have no line before them: all are read, also if the user rewound the first"
        )
    rewound = [uuids for uuids in children.values() if len(uuids) > 1]
    if not rewound:
        return kept
    parents = {uuid: _parent_of(line) for line in lines if isinstance(uuid := line.get("uuid"), str)}
    ancestors = set[str]()
    uuid = cast("str | None", kept[-1].fields.get("uuid"))
    while uuid is not None and uuid not in ancestors:
        ancestors.add(uuid)
        uuid = parents.get(uuid)
    left = {uuid for uuids in rewound for uuid in uuids if uuid not in ancestors}
    # If the last line is on none of the branches, the last of them is kept.
    left -= {uuids[-1] for uuids in rewound if ancestors.isdisjoint(uuids)}
    in_branch = _descendants(left, parents)
    names = ", ".join(repr(uuid[:40]) for uuid in sorted(left)[:5])
    verb = "is" if len(left) == 1 else "are"
    branches = counted(len(left), "branch", "branches")
    notes.append(f"{branches} that the user rewound {verb} left out, from {names}")
    return [line for line in kept if not in_branch.get(str(line.fields.get("uuid")), False)]


def _parent_of(line: Mapping[str, Any]) -> str | None:
    # A compaction has its parent under another name.
    return _text(line, "parentUuid") or _text(line, "logicalParentUuid")


def _descendants(roots: set[str], parents: Mapping[str, str | None]) -> dict[str, bool]:
    """Return for each line whether it is one of several lines or below one of them. Each line is visited once."""
    is_below = dict.fromkeys(roots, True)
    for first in parents:
        path, uuid = list[str](), cast("str | None", first)
        while uuid is not None and uuid not in is_below:
            is_below[uuid] = False  # also ends a circle
            path.append(uuid)
            uuid = parents.get(uuid)
        if uuid is not None and is_below[uuid]:
            is_below.update(dict.fromkeys(path, True))
    return is_below


def _refuse_clear(lines: list[_Line]) -> None:
    place, has_step = None, False
    for line in lines:
        if is_clear(line.fields):
            place = line.place if has_step else None
        elif is_step(line.fields):
            has_step = True
            if place is not None:
                raise UnknownBlockError(place, "is `/clear`, after which another session begins", "pass one session")


def _join_lines(lines: list[_Line], attachments: AttachmentList) -> list[Message]:
    """Return the messages. The lines of one message of the model are joined at the first of them."""
    messages, positions, started = list[Message](), dict[str, int](), set[str]()
    for line in lines:
        own_id, kind = _text(line.message, "id"), line.fields["type"]
        if _flag(line.fields, "isApiErrorMessage"):
            if line is lines[-1]:
                raise unfinished(line.place, "is an error of the API, by which the session ended")
            continue
        parts = _read_parts(line, attachments, started)
        if not parts:
            continue
        usage = line.message.get("usage")
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        tokens = count_field(usage, *names) if isinstance(usage, Mapping) else None
        position = positions.get(own_id) if own_id is not None and kind == "assistant" else None
        if position is None:
            if own_id is not None and kind == "assistant":
                positions[own_id] = len(messages)
            messages.append(Message(kind, parts, line.place, tokens=tokens))
        else:
            earlier = messages[position]
            earlier.parts.extend(parts)
            messages[position] = earlier._replace(tokens=earlier.tokens if tokens is None else tokens)
    return messages


def _read_parts(line: _Line, attachments: AttachmentList, started: set[str]) -> list[Part]:
    """Return the parts of a line.

    Args:
        line: The line.
        attachments: Collects the files.
        started: The ids of calls that only start something in the background. The ids of such calls are added.
    """
    content, place = line.message.get("content"), f"{line.place}.content"
    if not isinstance(content, str | list):
        raise UnknownBlockError(place, "is neither a text nor a list of blocks", "correct it")
    blocks = [content] if isinstance(content, str) else cast("list[Any]", content)
    parts = list[Part]()
    for number, block in enumerate(blocks):
        for part in read_block(block, f"{place}[{number}]", attachments):
            if isinstance(part, Text) and part.kind == "text" and line.fields["type"] == "user":
                text = without_marks(part.text)
                parts += [Text(text)] if text.strip() else []
                continue
            if isinstance(part, Call) and part.id and get_field(part.arguments, "run_in_background") is True:
                started.add(part.id)
            is_unknown = isinstance(part, Result) and part.id in started and not part.is_error
            parts.append(part._replace(is_error=None) if isinstance(part, Result) and is_unknown else part)
    return parts


def without_marks(text: str) -> str:
    r"""Return a text of the user without the marks at its beginning that Claude Code writes, such as reminders.

    Example:
        >>> without_marks("<system-reminder>Be brief.</system-reminder>\nFix the total.")
        'Fix the total.'
    """
    begin = _skip_space(text, 0)
    while mark := next((mark for mark in _MARKS if text.startswith(f"<{mark}>", begin)), None):
        end = text.find(f"</{mark}>", begin)
        begin = _skip_space(text, len(text) if end < 0 else end + len(mark) + 3)
        if begin >= len(text):
            return ""
    return text[begin:] if begin and text[:begin].strip() else text


def _skip_space(text: str, begin: int) -> int:
    while begin < len(text) and text[begin].isspace():
        begin += 1
    return begin


def _final_answer(lines: Sequence[Mapping[str, Any]], last: int) -> str | None:
    """Return the answer of the last `result` line. None for a session file, which has none.

    Args:
        lines: The lines.
        last: The position of the last line with a step.

    Raises:
        UnknownBlockError: The run failed, or was cut off before or after the last `result` line.
    """
    results = [index for index, line in enumerate(lines) if line.get("type") == "result"]
    if not results:
        if any("session_id" in line and "sessionId" not in line for line in lines):
            raise unfinished("messages", "is output of `claude -p` that was cut off: it has no `result` line")
        return None
    place, result = f"messages[{results[-1]}]", lines[results[-1]]
    if results[-1] < last:
        raise unfinished(place, "is not the end of the run, which was cut off after it")
    if result.get("subtype") != "success" or _flag(result, "is_error"):
        problem = f"says that the run failed: {str(result.get('subtype'))[:60]}"
        raise unfinished(place, problem, result.get("errors") or result.get("result"))
    answer, structured = _text(result, "result"), result.get("structured_output")
    if answer is None and structured is not None:
        return data_text(structured)
    if answer is None:
        raise unfinished(place, "has no `result`")
    return answer


def _last_answer(messages: list[Message]) -> str:
    return messages[-1].answer() if messages[-1].role == "assistant" else ""
