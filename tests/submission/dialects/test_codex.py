"""Sessions of Codex: which lines are steps, whether a call failed, and which sessions are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rubric_integrations import Submission
from rubric_integrations.submission import Trajectory
from rubric_integrations.submission.dialects.detect import dialect_of
from tests.submission.dialects.test_claude_code import Outline, outline
from tests.submission.sessions import EXEC, META, ROLLOUT, calls, completed, event, item, returns, says

OUTPUT = "Chunk ID: 1f\nWall time: 1.2 seconds\nProcess exited with code {}\nOutput:\n{}"


def test_items_are_steps_once_and_what_codex_wrote_is_none() -> None:
    assert dialect_of(ROLLOUT) == "codex"
    with pytest.warns(UserWarning, match="a session of Codex: it was compacted 1 time: all of its steps are read"):
        steps = outline(ROLLOUT)
    assert [(role, words) for role, words, _ in steps] == [
        ("user", "Make the tests pass."),
        ("assistant", "[reasoning]\nI run them."),
        ("assistant", ""),
        ("assistant", "They pass."),
    ]
    assert [(name, has_failed) for _, _, own in steps for name, _, has_failed in own] == [
        ("exec_command", True),
        ("exec_command", False),
        ("apply_patch", False),
    ]


def test_prompt_beside_the_context_of_codex_is_read() -> None:
    context = {"type": "input_text", "text": "# AGENTS.md instructions for /x"}
    mixed = item(type="message", role="user", content=[context, {"type": "input_text", "text": "Go."}])
    assert outline([META, mixed, says("assistant", "Done.")]) == [("user", "Go.", []), ("assistant", "Done.", [])]


@pytest.mark.parametrize(
    ("output", "has_failed"),
    [
        (OUTPUT.format(0, "Exit code: 1"), False),
        (OUTPUT.format(1, ""), True),
        (OUTPUT.format("1" * 5_000, ""), None),
        ("Exit code: 2\nWall time: 0 seconds\nOutput:\nx", True),
        ("Wall time: 0 seconds\nProcess running with session ID 3\nOutput:\n", None),
        ("Script completed\nWall time 1.2 seconds\nOutput:\nExit code: 1", None),
        # A program prints such a line, too.
        ("Exit code: 1", None),
        ("make\nExit code: 1\nOutput:\n", None),
        ("Output:\nExit code: 1\nOutput:\n", None),
        ('{"output": "x", "metadata": {"exit_code": 1}}', True),
        ('{"output": "x", "metadata": {"exit_code": true}}', None),
        ('{"exit_code": 1}', None),
        ("{", None),
        ("[" * 5_000, None),
        ("{" + '"a":{' * 5_000, None),
        ("", None),
    ],
)
def test_call_failed_only_if_codex_wrote_an_exit_code(output: str, has_failed: bool | None) -> None:
    lines = [META, says("user", "Go."), calls("c1"), returns("c1", output), says("assistant", "Done.")]
    assert outline(lines)[1][2] == [("exec_command", output, has_failed)]


@pytest.mark.parametrize(
    ("end", "has_failed"),
    [
        (event("exec_command_end", call_id="c1", exit_code=0), False),
        (event("exec_command_end", call_id="c1", exit_code=-9), True),
        (event("exec_command_end", call_id="c2", exit_code=0), True),
        (event("patch_apply_end", call_id="c1", success=True), False),
        (event("mcp_tool_call_end", call_id="c1", result={"Ok": {"content": []}}), False),
        (event("mcp_tool_call_end", call_id="c1", result={"Ok": {"is_error": True}}), True),
        (event("mcp_tool_call_end", call_id="c1", result={"Err": "timeout"}), True),
    ],
)
def test_event_of_a_call_decides_before_its_output(end: dict[str, Any], has_failed: bool) -> None:
    lines = [META, says("user", "Go."), calls("c1"), returns("c1", OUTPUT.format(1, "")), end, says("assistant", "Ok.")]
    assert outline(lines)[1][2][0][2] is has_failed


def test_turns_that_were_rolled_back_are_left_out() -> None:
    turn = [says("user", "Delete it."), calls("c1"), returns("c1", "gone"), says("assistant", "Deleted.")]
    kept = [META, says("user", "Hello."), says("assistant", "Hi.")]
    end = [says("user", "Keep it."), says("assistant", "Kept.")]
    with pytest.warns(UserWarning, match="2 turns that the user rolled back"):
        steps = outline([*kept, *turn, *turn, event("thread_rolled_back", num_turns=2), *end])
    assert steps == outline([*kept, *end])
    with pytest.warns(UserWarning, match="1 turn that"):
        assert outline([META, *turn, event("thread_rolled_back", num_turns=9), *end]) == outline([META, *end])


def test_comment_at_the_end_is_no_answer() -> None:
    lines = [
        META,
        says("user", "Go."),
        calls("c1"),
        returns("c1", "x"),
        says("assistant", "On it.", phase="commentary"),
    ]
    with pytest.raises(ValueError, match="has no text, but with respond='last'"):
        Submission.from_messages(lines)
    assert Submission.from_messages([*lines, says("assistant", "Done.")]).response == "Done."


def test_completed_items_of_a_run_are_steps() -> None:
    expected: Outline = [
        ("assistant", "[reasoning]", [("command_execution", "1 failed", True)]),
        ("assistant", "", [("mcp__docs__look", "timeout", True)]),
        ("assistant", "They pass.", []),
    ]
    assert outline(EXEC) == expected
    assert outline([*EXEC[:5], *EXEC[4:]]) == expected  # a repeated line
    assert Submission.from_messages(EXEC).response == "They pass."


COMMAND = {"kind": "command_execution", "command": "x"}
CONTENT = {"content": [{"type": "text", "text": "x"}]}


@pytest.mark.parametrize(
    ("fields", "calls_made"),
    [
        ({**COMMAND, "exit_code": 0, "status": "completed"}, [("command_execution", "", False)]),
        ({**COMMAND, "exit_code": None, "status": "declined"}, [("command_execution", "", True)]),
        ({**COMMAND, "aggregated_output": "y"}, [("command_execution", "y", None)]),
        ({"kind": "file_change", "changes": [], "status": "failed"}, [("file_change", "failed", True)]),
        ({"kind": "web_search", "query": "x"}, [("web_search", None, None)]),
        ({"kind": "collab_tool_call", "tool": "spawn", "status": "completed"}, [("spawn", "completed", False)]),
        ({"kind": "mcp_tool_call", "tool": "t", "result": CONTENT, "status": "completed"}, [("t", "x", False)]),
        (
            {"kind": "mcp_tool_call", "tool": "t", "result": {**CONTENT, "is_error": True}, "status": "completed"},
            [("t", "x", True)],
        ),
        ({"kind": "error", "message": "a warning"}, []),
    ],
)
def test_item_of_a_run_has_the_error_that_it_records(fields: dict[str, Any], calls_made: list[Any]) -> None:
    steps = outline([*EXEC[:2], completed(1, **fields), *EXEC[-2:]])
    assert [call for _, _, made in steps for call in made] == calls_made


UNREAD: dict[str, tuple[list[Any], str]] = {
    "an aborted turn": ([*ROLLOUT, says("user", "More."), event("turn_aborted")], "whose last turn was aborted"),
    "a run that was cut off": (EXEC[:-1], "`messages` is a run of `codex exec` that was cut off"),
    "a failed run": (
        [*EXEC[:-1], {"type": "turn.failed", "error": {"message": "no\nquota"}}],
        "that failed (no quota)",
    ),
    "a run that went on": ([*EXEC, {"type": "turn.started"}], "that was cut off"),
    "an unknown item": ([*EXEC[:2], completed(9, "hologram"), *EXEC[2:]], "`messages[2].item` is an item of the type"),
    "an unknown event": ([*EXEC, {"type": "hologram", "item": {}}], "is an event of the type 'hologram'"),
    "an unknown line": ([*ROLLOUT, {**ROLLOUT[9], "type": "hologram"}], "`messages[19]` is a line of the type"),
    "an unknown item of a rollout": ([META, item(type="hologram")], "`messages[1].payload`"),
    "a line that is no object": ([*ROLLOUT, None], "`messages[19]` is not a line of a session"),
    "a line without a type": ([*ROLLOUT, {"x": 1}], "`messages[19]` is not a line of a session"),
    "an answer without a text": ([*EXEC[:2], completed(9, "agent_message"), *EXEC[2:]], "has no `text`"),
    "a call without a name": ([*EXEC[:2], completed(9, "mcp_tool_call"), *EXEC[2:]], "is a call without a name"),
}


@pytest.mark.filterwarnings("ignore:a session of Codex")
@pytest.mark.parametrize("name", UNREAD)
def test_session_that_cannot_be_graded_is_an_error(name: str) -> None:
    lines, problem = UNREAD[name]
    with pytest.raises(ValueError, match=re.escape(problem)):
        Submission.from_messages(lines)


@pytest.mark.filterwarnings("ignore:a session of Codex")
def test_aborted_turn_before_the_last_one_is_read() -> None:
    lines = [*ROLLOUT, event("turn_aborted"), says("user", "Again."), says("assistant", "Done.")]
    assert Submission.from_messages(lines).response == "Done."


@pytest.mark.filterwarnings("ignore:a session of Codex")
def test_private_fields_are_in_no_submission() -> None:
    written = Submission.from_messages(ROLLOUT).model_dump_json() + Trajectory.from_messages(ROLLOUT).model_dump_json()
    for private in ("/home/ann", "gAAA", "main", "permissions instructions"):
        assert private not in written
