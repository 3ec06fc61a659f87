"""Makes rows of the files that coding agents write, one for each session: Claude Code and Codex (`SESSION_FORMATS`).

A file is usually one session, and one row. `/clear` in a session of Claude Code, and several runs that were written to
one file, make several rows. The steps of a session are read by `submission/dialects/`.

A line of a session that cannot be read could be a call. Therefore all sessions of its file are then errors, unless each
line is the result of another run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from rubric_integrations._util.json import JsonObject, parse_json
from rubric_integrations.submission.dialects.chat import is_item
from rubric_integrations.submission.dialects.claude_code import (
    is_claude_code_line,
    is_clear,
    is_prompt,
    is_result,
    is_step,
)
from rubric_integrations.submission.dialects.codex import is_exec_line, is_rollout_line
from rubric_integrations.submission.text_files import LayoutError
from rubric_integrations.submission.tool_answers import (
    RawRow,
    RowFormat,
    Session,
    as_mapping,
    has_no_response,
    short_values,
    unread_rows,
)

MAX_LINES = 200_000
"""The largest number of lines in a file of sessions, which are in memory together."""


def is_session_text(text: str) -> bool:
    """Return whether a text begins with the JSON of a line of a session, or of the output of a coding agent.

    Example:
        >>> is_session_text('{"type": "thread.started", "thread_id": "0199"}'), is_session_text("It is 42.")
        (True, False)
    """
    text = text.lstrip("\ufeff \t\r\n")
    if not text.startswith(("{", "[")):
        return False
    for part in (text.partition("\n")[0], text):
        with suppress(ValueError):
            value = parse_json(part)
            first = cast("list[Any]", value)[0] if isinstance(value, list) and value else value
            return any(matches(first) for matches in (is_claude_code_line, is_rollout_line, is_exec_line))
    return False


def session_rows(
    known: RowFormat, sessions: Callable[[list[RawRow]], Iterable[Session]], path: Path, rows: Iterable[RawRow]
) -> list[RawRow]:
    """Return a row for each session in a file.

    Args:
        known: The format of the sessions.
        sessions: Divides the lines of a file into sessions.
        path: The file. A session without an id gets its name.
        rows: The lines of the file.

    Raises:
        LayoutError: The file has too many lines.
    """
    lines, damage = list[RawRow](), list[RawRow]()
    for row in rows:
        (lines if row.error is None else damage).append(row)
        if len(lines) + len(damage) > MAX_LINES:
            raise LayoutError(f"has more than {MAX_LINES:,} lines of sessions: split it into a file for each")
    ids, answers = _Ids(), list[RawRow]()
    if all(is_result(line.fields) for line in lines):  # Each line is a run, also one that cannot be read.
        answers, damage = damage, []
    for number, session in enumerate(sessions(lines), start=1):
        row_id = ids.unused(session.id or path.stem)
        error = None
        if damage:
            error = f"row {row_id}: a line of its file cannot be read, which may be a step: {damage[0].error}"
        response = [line.fields for line in session.rows]
        fields = {"id": row_id, "response": response, "metadata": session.metadata}
        if "continues" in session.metadata:
            warn_of_continued(row_id, str(session.metadata["continues"]))
        first = session.rows[0]
        answers.append(
            first._replace(fields=fields, error=error, number=number, tool=known, source={"lines": response})
        )
    return answers


def warn_of_continued(row_id: str, earlier: str) -> None:
    """Warn of a session that was resumed or forked from another one."""
    warnings.warn(
        f"session {row_id} continues session {earlier} and repeats its steps: if both are rows, they are not "
        "independent",
        stacklevel=2,
    )


class _Ids:
    """Makes the ids of sessions different: `s`, and `s/2` for the second session of this name."""

    def __init__(self) -> None:
        self._taken, self._numbers = set[str](), dict[str, int]()

    def unused(self, name: str) -> str:
        """Return a name, with a number if a session before it has the name."""
        row_id = name
        while row_id in self._taken:
            self._numbers[name] = self._numbers.get(name, 1) + 1
            row_id = f"{name}/{self._numbers[name]}"
        self._taken.add(row_id)
        return row_id


class SessionsOfFolder:
    """Gives the sessions of several files different ids, and finds those that repeat lines of another one."""

    def __init__(self) -> None:
        self._ids, self._sessions = _Ids(), dict[str, str]()

    def add(self, row: RawRow, name: str) -> RawRow:
        """Add the row of a session, or a row with an error and the name of its file.

        If the session repeats lines of an earlier one, by their `uuid`, its metadata and a warning name that session.
        """
        row_id = self._ids.unused(str(row.fields.get("id") or name))
        fields: dict[str, Any] = {**row.fields, "id": row_id}
        lines: list[JsonObject] = fields.get("response") or []
        firsts = [self._sessions.setdefault(uuid, row_id) for line in lines if (uuid := _text(line, "uuid"))]
        earlier = next((first for first in firsts if first != row_id), None)
        if earlier is not None and "continues" not in fields["metadata"]:
            warn_of_continued(row_id, earlier)
            fields["metadata"] = {**fields["metadata"], "continues": earlier}
        return row._replace(fields=fields)


def session_files(folder: Path) -> list[Path]:
    """Return the files in a folder and below it that may be sessions, sorted. Those of subagents are left out.

    A session of a subagent is graded if its file or the folder that contains it is named.
    """
    files = (path for suffix in ("*.jsonl", "*.json") for path in folder.rglob(suffix) if path.is_file())
    own = [path for path in files if "subagents" not in path.relative_to(folder).parts[:-1]]
    return sorted(path for path in own if folder.name == "subagents" or not path.name.startswith("agent-"))


def _text(fields: JsonObject, *names: str) -> str | None:
    return next((value for name in names if isinstance(value := fields.get(name), str) and value.strip()), None)


def _claude_sessions(rows: list[RawRow]) -> Iterator[Session]:
    """Yield the sessions of a file of Claude Code, which `/clear` separates."""
    parts: list[list[RawRow]] = [[]]
    waiting, has_step = list[RawRow](), False
    for row in rows:
        # Without a step after it, `/clear` is the end of the session before.
        if waiting or (has_step and is_clear(row.fields)):
            waiting.append(row)
        else:
            parts[-1].append(row)
        if is_step(row.fields):
            has_step = True
            if waiting:
                parts.append(waiting)
                waiting = []
    parts[-1] += waiting
    for part in parts:
        messages = [row.fields for row in part if _has_message(row)] or [row.fields for row in part]
        # A file that continues another session repeats its lines.
        ids = dict.fromkeys(own for fields in messages if (own := _text(fields, "sessionId", "session_id")))
        *earlier, row_id = ids or [None]
        agent = _text(messages[0], "agentId")
        if agent is not None and all(fields.get("isSidechain") is True for fields in messages):
            row_id = f"{row_id}/{agent}"
        metadata = _model_of(messages) | short_values(messages[-1], "version")
        yield Session(row_id, part, metadata | ({"continues": earlier[-1]} if earlier else {}))


def _has_message(row: RawRow) -> bool:
    return row.fields.get("type") in ("user", "assistant")


def _model_of(messages: Sequence[JsonObject]) -> dict[str, Any]:
    models = [as_mapping(fields.get("message")).get("model") for fields in messages]
    return short_values({"model": next((model for model in models if isinstance(model, str)), None)})


def _claude_runs(rows: list[RawRow]) -> Iterator[Session]:
    """Yield the runs of `claude -p` in a file by their session. Output of the format `json` is a run for each line."""
    runs, row_id = dict[str | None, list[RawRow]](), None
    for row in rows:
        # A line without a session belongs to the run before it.
        row_id = _text(row.fields, "session_id") or row_id
        runs.setdefault(row_id, []).append(row)
    if None in runs and len(runs) > 1:
        first = runs.pop(None)
        runs[next(iter(runs))][:0] = first
    for row_id, run in runs.items():
        only_results = all(is_result(row.fields) for row in run)
        for part in [[row] for row in run] if only_results else [run]:
            results = [row.fields for row in part if is_result(row.fields)]
            end = short_values(results[-1], "num_turns", "total_cost_usd", "duration_ms") if results else {}
            yield Session(row_id, part, _model_of([row.fields for row in part]) | end)


def _codex_sessions(rows: list[RawRow]) -> Iterator[Session]:
    meta = [as_mapping(row.fields.get("payload")) for row in rows if row.fields.get("type") == "session_meta"]
    contexts = (as_mapping(row.fields.get("payload")) for row in rows if row.fields.get("type") == "turn_context")
    own = meta[0] if meta else {}
    metadata = short_values(own, "cli_version") | short_values(next(contexts, {}), "model", "effort")
    continued = _text(own, "forked_from_id")
    yield Session(_text(own, "id"), rows, metadata | ({"continues": continued} if continued else {}))


def _codex_runs(rows: list[RawRow]) -> Iterator[Session]:
    """Yield the runs of `codex exec --json` in a file, each of which begins with `thread.started`."""
    parts: list[list[RawRow]] = [[]]
    for row in rows:
        if row.fields.get("type") == "thread.started" and parts[-1]:
            parts.append([])
        parts[-1].append(row)
    for part in parts:
        yield Session(_text(part[0].fields, "thread_id"), part, {})


def _is_run_line(row: JsonObject) -> bool:
    return is_claude_code_line(row) and "session_id" in row and "sessionId" not in row and has_no_response(row)


def _is_session_line(row: JsonObject) -> bool:
    # A row of a user may have a `sessionId`, too.
    return is_claude_code_line(row) and not _is_run_line(row) and has_no_response(row)


def _is_bare_item(row: JsonObject) -> bool:
    """Return whether a row is an item of OpenAI's Responses API, of which old sessions of Codex consist."""
    blocks = row.get("content")
    kinds = [as_mapping(block).get("type") for block in cast("list[Any]", blocks)] if isinstance(blocks, list) else []
    is_message = row.get("type") == "message" and any(kind in ("input_text", "output_text") for kind in kinds)
    return (is_item(row) and ("call_id" in row or has_no_response(row))) or (is_message and "role" in row)


def no_session(_: JsonObject) -> Iterable[RawRow]:
    """Return no rows, because a line of a session is never a row."""
    return ()


_PROMPT = "the command that began it"
SESSION_FORMATS = (
    RowFormat(
        "a session of Claude Code", _is_session_line, no_session, _PROMPT, has_all_calls=True,
        sessions=_claude_sessions,
    ),
    RowFormat("output of `claude -p`", _is_run_line, no_session, _PROMPT, has_all_calls=True, sessions=_claude_runs),
    RowFormat("a session of Codex", is_rollout_line, no_session, has_all_calls=True, sessions=_codex_sessions),
    RowFormat(
        "output of `codex exec --json`", is_exec_line, no_session, _PROMPT, has_all_calls=True, sessions=_codex_runs,
    ),
    RowFormat(
        "a file of items of OpenAI's Responses API", _is_bare_item,
        unread_rows("a line of one conversation", "write its lines as one list in a `.json` file"),
    ),
)  # fmt: skip
"""The formats of sessions. All lines of a file are read together."""


def lacks_prompt(answers: Iterable[RawRow]) -> bool:
    """Return whether a session of a file has no prompt of the user, such as one that began with a slash command."""
    return any(not any(map(is_prompt, answer.fields["response"])) for answer in answers if answer.fields)
