"""Files and folders of sessions: a row for each session, with its id, and errors instead of scores."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric
from rubric_integrations.submission import ResponsesError, Row, read_responses
from rubric_integrations.submission import session_files as module
from tests.conftest import SHARED
from tests.submission.sessions import (
    CLAUDE,
    EXEC,
    FAILED,
    META,
    RESULT,
    ROLLOUT,
    SESSION,
    STREAM,
    item,
    model,
    text,
    user,
)

Write = Callable[[str, list[Any]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, lines: list[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line if isinstance(line, str) else f"{json.dumps(line)}\n" for line in lines))
        return path

    return write_file


def rows_of(path: Path, **options: Any) -> dict[str, str | None]:
    """Return the response of each row by its id; for a row with an error, the error."""
    rows = list(read_responses(path, **options))
    answers = {row.id: row.submission.response if row.submission else row.error for row in rows}
    assert len(answers) == len(rows)
    return answers


SESSIONS: dict[str, tuple[list[Any], str, str, int]] = {
    "a session of Claude Code": (CLAUDE, SESSION, "Fixed.", 3),
    "output of `claude -p`": (STREAM, SESSION, "Fixed.", 3),
    "a session of Codex": (ROLLOUT, "0199", "They pass.", 4),
    "output of `codex exec --json`": (EXEC, "0199-bb", "They pass.", 3),
}
"""For each format: the lines, and the id, the answer and the number of steps of the session."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_file_is_one_row_with_the_id_of_its_session(tmp_path: Path, name: str, suffix: str) -> None:
    lines, row_id, answer, steps = SESSIONS[name]
    path = tmp_path / f"f{suffix}"
    path.write_text(json.dumps(lines) if suffix == ".json" else "\n".join(map(json.dumps, lines)))
    [row] = read_responses(path)
    assert (row.id, row.error) == (row_id, None)
    assert row.submission
    assert row.submission.response == answer
    assert row.submission.trajectory
    assert len(row.submission.trajectory.steps) == steps


def test_every_format_has_its_sample() -> None:
    assert [known.name for known in module.SESSION_FORMATS if known.sessions] == list(SESSIONS)
    for name, (lines, *_) in SESSIONS.items():
        claimed = {known.name for line in lines for known in module.SESSION_FORMATS if known.matches(line)}
        assert claimed == {name}


@pytest.mark.filterwarnings("ignore:a session of")
def test_metadata_names_the_model_and_the_cost_but_no_folder(write: Write) -> None:
    [row] = read_responses(write("f.jsonl", CLAUDE))
    assert row.metadata == {"model": "claude-opus-5", "version": "2.1"}
    [row] = read_responses(write("f.jsonl", STREAM))
    assert row.metadata == {"model": "claude-opus-5", "num_turns": 2, "total_cost_usd": 0.25}
    [row] = read_responses(write("f.jsonl", ROLLOUT))
    assert row.metadata == {"cli_version": "0.163.0", "model": "gpt-5.5-codex"}


def test_output_without_its_prompt_is_named_unless_there_is_a_query(
    write: Write, recwarn: pytest.WarningsRecorder
) -> None:
    slash = [user("u1", "<command-name>/init</command-name>"), user("u2", "Do it.", isMeta=True), CLAUDE[-2]]
    for lines, name in ((EXEC, "`codex exec --json`"), ([RESULT], "`claude -p`"), (slash, "a session of Claude Code")):
        path = write("f.jsonl", lines)
        with pytest.warns(UserWarning, match=f"{name}, whose tasks are in the command that began it"):
            assert rows_of(path)
        recwarn.clear()
        [row] = read_responses(path, query="Make the tests pass.")
        assert row.submission
        assert str(row.submission.query).startswith("Make the tests pass.")
        assert rows_of(write("f.jsonl", STREAM))
        assert not recwarn.list


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([FAILED], "says that the run failed: error_max_turns (Reached the number of turns)"),
        (STREAM[:-1], "that was cut off: it has no `result` line"),
        ([*STREAM[:-1], FAILED], "says that the run failed"),
        (EXEC[:-1], "that was cut off: it does not end with `turn.completed`"),
        ([*CLAUDE, '{"type": "assis'], "a line of its file cannot be read, which may be a step: line 16 is not JSON"),
        (['{"type": \n', *CLAUDE], "a line of its file cannot be read, which may be a step: line 1 is not JSON"),
        ([*CLAUDE, "5\n"], "a line of its file cannot be read, which may be a step: line 16 is int"),
        (ROLLOUT[:2], "`messages` is empty"),
        (ROLLOUT[:5], "the last, is of the role 'user'"),
    ],
)
def test_session_without_an_end_is_the_error_of_its_row(write: Write, lines: list[Any], problem: str) -> None:
    [error] = rows_of(write("f.jsonl", lines)).values()
    assert problem in str(error)


@pytest.mark.filterwarnings("ignore")
def test_result_object_of_claude_is_its_answer_and_not_json(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps(RESULT, indent=1))
    assert rows_of(path) == {SESSION: "Fixed."}
    path.write_text(json.dumps(FAILED, indent=1))
    assert "says that the run failed" in str(rows_of(path)[SESSION])
    rubric = Rubric.from_dict([{"requirement": "Runs nothing", "weight": 1, "check": {"tool_forbidden": "Bash"}}])
    path.write_text(json.dumps(RESULT))
    [row] = read_responses(path)
    assert row.submission
    with pytest.raises(Exception, match="needs the submission's `trajectory`"):
        rubric.grade_sync(row.submission, PerCriterionGrader("offline"))


@pytest.mark.filterwarnings("ignore")
def test_several_sessions_in_a_file_are_several_rows(write: Write) -> None:
    second = {**RESULT, "session_id": "other", "result": "Second."}
    assert rows_of(write("f.jsonl", [RESULT, second, RESULT])) == {
        SESSION: "Fixed.", f"{SESSION}/2": "Fixed.", "other": "Second."
    }  # fmt: skip
    assert rows_of(write("f.jsonl", [*STREAM, *({**line, "session_id": "b"} for line in STREAM)])) == {
        SESSION: "Fixed.", "b": "Fixed."
    }  # fmt: skip
    cut = rows_of(write("f.jsonl", [RESULT, '{"type"\n', second]))
    assert (cut[SESSION], cut["other"], str(cut["2"])[:18]) == ("Fixed.", "Second.", "line 2 is not JSON")
    again = [{"type": "thread.started", "thread_id": "0200"}, *EXEC[1:]]
    assert rows_of(write("f.jsonl", [*EXEC, *again, *EXEC])) == dict.fromkeys(
        ("0199-bb", "0200", "0199-bb/2"), "They pass."
    )
    clear = user("u7", "<command-name>/clear</command-name>\n<command-message>clear</command-message>")
    more = [user("u8", "Hello."), model("a8", "m8", text("Hi."))]
    assert rows_of(write("f.jsonl", [*CLAUDE, clear, *more, clear])) == {SESSION: "Fixed.", f"{SESSION}/2": "Hi."}
    assert rows_of(write("f.jsonl", [clear, *CLAUDE])) == {SESSION: "Fixed."}


@pytest.mark.filterwarnings("ignore:a session of")
def test_session_that_continues_another_is_named(write: Write) -> None:
    resumed = [
        *CLAUDE,
        *({**line, "sessionId": "new"} for line in (user("u9", "More."), model("a9", "m9", text("Ok.")))),
    ]
    with pytest.warns(UserWarning, match=f"session new continues session {SESSION} and repeats its steps"):
        [row] = read_responses(write("f.jsonl", resumed))
    assert (row.id, (row.metadata or {})["continues"]) == ("new", SESSION)
    forked = [{**META, "payload": {"id": "0199", "forked_from_id": "0001"}}, *ROLLOUT[1:]]
    with pytest.warns(UserWarning, match="session 0199 continues session 0001"):
        [row] = read_responses(write("f.jsonl", forked))
    assert (row.metadata or {})["continues"] == "0001"


@pytest.mark.filterwarnings("ignore:a session of")
def test_folder_of_sessions_is_a_row_for_each(write: Write, tmp_path: Path) -> None:
    agent = [
        {**line, "isSidechain": True, "agentId": "a1"} for line in (user("v1", "List."), model("b1", "m", text("x")))
    ]
    write("project/5b0c.jsonl", CLAUDE)
    write("project/copy.jsonl", [{**line, "sessionId": "new"} if "sessionId" in line else line for line in CLAUDE])
    write("project/5b0c/subagents/agent-a1.jsonl", agent)
    write("2026/11/rollout.jsonl", ROLLOUT)
    write("project/notes.jsonl", [{"response": "x"}])
    write("project/cut.jsonl", [*STREAM[:3], '{"type'])
    (tmp_path / "project" / "latin.jsonl").write_bytes(b'{"type": "user", "x": "\xe9"}')
    (tmp_path / "readme.txt").write_text("x")
    with pytest.warns(UserWarning, match=f"session new continues session {SESSION}"):
        answers = rows_of(tmp_path)
    names = ["0199", SESSION, "new", f"{SESSION}/2", "project/latin.jsonl", "project/notes.jsonl"]
    assert set(answers) == set(names)
    assert [answers[name] for name in names[:3]] == ["They pass.", "Fixed.", "Fixed."]
    assert "a line of its file cannot be read" in str(answers[f"{SESSION}/2"])
    assert "is not a session of a coding agent" in str(answers["project/notes.jsonl"])
    assert "is not text (byte 23)" in str(answers["project/latin.jsonl"])
    assert rows_of(tmp_path / "project" / "5b0c" / "subagents") == {f"{SESSION}/a1": "x"}


@pytest.mark.filterwarnings("ignore")
def test_damaged_result_in_a_folder_is_a_row_with_the_name_of_its_file(write: Write, tmp_path: Path) -> None:
    write("runs/f.jsonl", ["5\n", RESULT, "{\n"])
    answers = rows_of(tmp_path)
    assert answers[SESSION] == "Fixed."
    assert "line 1 is int" in str(answers["runs/f.jsonl"])
    assert "line 3 is not JSON" in str(answers["runs/f.jsonl/2"])


def test_folder_without_sessions_is_refused(write: Write, tmp_path: Path) -> None:
    write("a.jsonl", [{"response": "x"}])
    with pytest.raises(ResponsesError, match="is a folder: name one of its files"):
        rows_of(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_line_of_a_session_below_other_rows_is_refused(write: Write) -> None:
    for lines, *_ in SESSIONS.values():
        with pytest.raises(ResponsesError, match="and the first row is not one"):
            rows_of(write("f.jsonl", [{"response": "x"}, *lines]))
    # A chosen column is read as it is.
    assert rows_of(write("f.jsonl", [RESULT]), response_column="result", id_column="uuid") == {"r": "Fixed."}


@pytest.mark.parametrize("value", [RESULT, [STREAM[0], RESULT], EXEC[0], META, CLAUDE[0]])
def test_session_in_a_text_file_is_refused_and_not_graded_as_json(tmp_path: Path, value: Any) -> None:
    for name in ("f.txt", "f.log", "f"):
        path = tmp_path / name
        for content in (f"{json.dumps(value)}\nmore\n", json.dumps(value, indent=1)):
            path.write_text(content)
            with pytest.raises(ResponsesError, match=r"rename it to `\.jsonl`"):
                rows_of(path)


@pytest.mark.parametrize("words", ['{"type": "result"}', "[]", "{", "[1]", '{"type": ["user"]}', '{"result": "x"}'])
def test_json_in_a_text_file_is_one_text(tmp_path: Path, words: str) -> None:
    (tmp_path / "f.txt").write_text(words)
    assert rows_of(tmp_path / "f.txt") == {"f": words}


@pytest.mark.parametrize(
    "row",
    [
        {"type": "qa", "sessionId": "s", "uuid": "u", "response": "x"},
        {"type": "result", "subtype": "success", "session_id": "s", "result": "y", "response": "x"},
        {"type": "user", "uuid": "u", "message": {"content": "y"}, "output": "x"},
        {"type": "reasoning", "response": "x"},
    ],
)
@pytest.mark.filterwarnings("ignore:an input has")
def test_row_of_a_user_that_resembles_a_session_is_read_as_it_is(write: Write, row: dict[str, Any]) -> None:
    assert rows_of(write("f.jsonl", [row])) == {"1": "x"}


def test_items_without_their_rollout_are_refused_as_lines(write: Write) -> None:
    items = [line["payload"] for line in ROLLOUT if line["type"] == "response_item"]
    with pytest.raises(ResponsesError, match="write its lines as one list"):
        rows_of(write("f.jsonl", items))
    with pytest.raises(ResponsesError, match="write its lines as one list"):
        rows_of(write("f.jsonl", [item(type="function_call_output", call_id="c", output="x")["payload"]]))


def test_file_of_too_many_lines_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 10)
    with pytest.raises(ResponsesError, match="has more than 10 lines of sessions"):
        rows_of(write("f.jsonl", CLAUDE))


# The steps of the shared samples: the role and the calls, each with whether it failed.
STEPS: dict[str, list[tuple[str, list[tuple[str, bool | None]]]]] = {
    "claude_code_session.jsonl": [
        ("user", []), ("assistant", [("Read", False), ("Bash", True)]), ("assistant", [("Agent", False)]),
        ("assistant", [("Edit", False)]), ("assistant", []),
    ],
    "claude_code_agent-a1b2c3d4.jsonl": [("user", []), ("assistant", [("Grep", False)]), ("assistant", [])],
    "claude_code_rewind.jsonl": [("user", []), ("assistant", []), ("user", []), ("assistant", [])],
    "claude_p_stream.jsonl": [("user", []), ("assistant", [("Bash", False)]), ("assistant", [])],
    "claude_p_verbose.json": [("user", []), ("assistant", [("Bash", False)]), ("assistant", [])],
    "codex_rollout.jsonl": [
        ("user", []), ("assistant", [("exec_command", True), ("exec_command", False)]),
        ("assistant", [("apply_patch", False)]), ("assistant", [("local_shell", False)]),
        ("assistant", [("web_search", None)]), ("assistant", []),
    ],
    "codex_rollout_exec_script.jsonl": [("user", []), ("assistant", [("exec", None)]), ("assistant", [])],
    "codex_exec.jsonl": [
        ("assistant", [("command_execution", True)]), ("assistant", [("file_change", False)]),
        ("assistant", [("mcp__docs__lookup", True)]), ("assistant", []),
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not (SHARED / "data" / "agent_sessions").is_dir(), reason="needs the samples in ../shared")
@pytest.mark.parametrize("name", STEPS)
def test_shared_sample_has_the_steps_of_its_list(name: str) -> None:
    [row] = read_responses(SHARED / "data" / "agent_sessions" / name)
    assert row.submission
    assert row.submission.trajectory
    steps = row.submission.trajectory.steps
    assert [(step.role, [(call.name, call.is_error) for call in step.calls]) for step in steps] == STEPS[name]


def test_rows_are_the_same_when_they_are_checked_first(write: Write) -> None:
    from rubric_integrations.submission.files import ResponsesFile
    from rubric_integrations.submission.tables import Layout

    file = ResponsesFile(write("f.jsonl", [RESULT, FAILED]), "Go.", Layout())
    checked: list[Row] = list(file.check())
    assert [row.id for row in checked] == [row.id for row in file.rows()] == [SESSION, f"{SESSION}/2"]
    assert file.description
    assert (file.description.tool, file.description.dialect) == ("output of `claude -p`", "claude_code")
    assert re.fullmatch("JSON Lines", file.description.format)
