"""Sessions of Claude Code: which lines are steps, and which sessions are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubric_integrations import Submission
from rubric_integrations.submission import Trajectory
from rubric_integrations.submission.dialects.claude_code import without_marks
from rubric_integrations.submission.dialects.detect import dialect_of
from tests.submission.sessions import (
    CLAUDE,
    FAILED,
    RESULT,
    STREAM,
    model,
    result,
    stream,
    text,
    use,
    user,
)

Outline = list[tuple[str, str, list[tuple[str, str | None, bool | None]]]]


def outline(lines: Any) -> Outline:
    """Return the role, the text and the calls of each step."""
    return [
        (step.role, step.text, [(call.name, call.result, call.is_error) for call in step.calls])
        for step in Trajectory.from_messages(lines).steps
    ]


WHOLE: Outline = [
    ("user", "Fix the total.", []),
    ("assistant", "[thinking]\nI look.", [("Read", "def total(): ...", False), ("Bash", "Exit code 1", True)]),
    ("assistant", "Fixed.", []),
]


@pytest.mark.filterwarnings("ignore:a session of Claude Code")
@pytest.mark.parametrize("lines", [CLAUDE, STREAM], ids=["session", "stream"])
def test_blocks_of_one_message_are_one_step_with_the_results_of_its_calls(lines: list[Any]) -> None:
    assert dialect_of(lines) == "claude_code"
    assert outline(lines) == WHOLE
    steps = Trajectory.from_messages(lines).steps
    # The usage of a message is repeated by its lines, and the last one is complete.
    assert [step.tokens for step in steps] == [None, 100, 100]
    assert steps[1].calls[0].arguments == {"file_path": "~/shop/cart.py"}
    submission = Submission.from_messages(lines)
    assert (submission.response, submission.query, submission.show_trajectory) == ("Fixed.", "Fix the total.", "always")
    assert "SECRET FILE" not in submission.model_dump_json()


def test_compaction_is_named_and_its_summary_is_no_step() -> None:
    with pytest.warns(UserWarning, match="a session of Claude Code: it was compacted 1 time: the steps before"):
        assert outline(CLAUDE) == WHOLE


def test_branches_that_the_user_rewound_are_left_out_and_named() -> None:
    lines = [
        user("u1", "Name a port."),
        model("a1", "m1", text("8080."), parent="u1"),
        user("u2", "Why?", "a1"),
        model("a2", "m2", text("It is common."), parent="u2"),
        user("u3", "Another one?", "a1"),
        model("a3", "m3", text("8090."), parent="u3"),
    ]
    with pytest.warns(UserWarning, match="1 branch that the user rewound is left out, from 'u2'"):
        assert [words for _, words, _ in outline(lines)] == ["Name a port.", "8080.", "Another one?", "8090."]
    # The last line decides, and not the last prompt.
    with pytest.warns(UserWarning, match="from 'u3'"):
        back = outline([*lines, model("a4", "m4", text("Very."), parent="a2")])
    assert [words for _, words, _ in back] == ["Name a port.", "8080.", "Why?", "It is common.", "Very."]


def test_prompts_without_a_parent_are_no_rewind() -> None:
    lines = [user("u1", "Go."), model("a1", "m1", text("Gone.")), user("u2", "Back."), model("a2", "m2", text("Here."))]
    with pytest.warns(UserWarning, match="2 prompts in it have no line before them: all are read"):
        assert [words for _, words, _ in outline(lines)] == ["Go.", "Gone.", "Back.", "Here."]
    # The lines of a stream have no parents.
    turns = [*map(stream, lines), RESULT]
    assert [words for _, words, _ in outline(turns)] == ["Go.", "Gone.", "Back.", "Here.", "Fixed."]


@pytest.mark.filterwarnings("error")
def test_results_with_one_parent_are_parallel_and_no_rewind() -> None:
    lines = [
        user("u1", "Look."),
        model("a1", "m1", use("c1"), use("c2"), parent="u1"),
        user("u2", result("c1", "one"), "a1"),
        user("u3", result("c2", "two"), "a1"),
        model("a2", "m2", text("Done."), parent="u3"),
    ]
    assert outline(lines)[1] == ("assistant", "", [("Bash", "one", False), ("Bash", "two", False)])


def test_subagent_in_a_session_is_left_out_and_alone_is_a_session() -> None:
    own = [user("v1", "List it.", isSidechain=True), model("b1", "m8", text("It."), parent="v1", isSidechain=True)]
    assert [words for _, words, _ in outline(own)] == ["List it.", "It."]
    with pytest.warns(UserWarning, match="2 lines of subagents are left out: grade their own file"):
        assert outline([*CLAUDE[3:4], *own, model("a9", "m9", text("Fixed."))])[-1][1] == "Fixed."
    streamed = [*STREAM[:4], stream(model("a7", "m7", use("x1")), parent="c1"), *STREAM[4:]]
    with pytest.warns(UserWarning, match="1 line of subagents is left out"):
        assert outline(streamed) == WHOLE


@pytest.mark.parametrize(
    ("words", "own"),
    [
        ("<system-reminder>Be brief.</system-reminder>\nFix it.", "Fix it."),
        ("<command-name>/init</command-name>\n<command-message>init</command-message>", ""),
        ("<system-reminder>never closed", ""),
        ("Explain <system-reminder>x</system-reminder>", "Explain <system-reminder>x</system-reminder>"),
        ("  indented", "  indented"),
    ],
)
def test_marks_at_the_beginning_are_not_the_words_of_the_user(words: str, own: str) -> None:
    assert without_marks(words) == own
    lines = [user("u1", [text(words)]), user("u2", "Go.", "u1"), model("a1", "m1", text("Done."))]
    expected = [own, "Go."] if own else ["Go."]
    assert [shown for role, shown, _ in outline(lines) if role == "user"] == expected[-2:]


@given(st.text())
def test_text_without_marks_is_unchanged(words: str) -> None:
    assert without_marks(f"x{words}") == f"x{words}"


def test_result_of_a_call_in_the_background_does_not_show_whether_it_failed() -> None:
    lines = [
        user("u1", "Serve."),
        model("a1", "m1", use("c1", command="serve", run_in_background=True), use("c2")),
        user("u2", result("c1", "Command running")),
        user("u3", result("c2")),
        model("a2", "m2", text("It runs.")),
    ]
    assert outline(lines)[1][2] == [("Bash", "Command running", None), ("Bash", "ok", False)]


def test_each_uuid_counts_once_and_a_message_that_another_replaces_does_not() -> None:
    lines = [user("u1", "Go."), model("a1", "m1", use("c1")), user("u2", result("c1"))]
    end = model("a2", "m2", text("Done."))
    assert outline([*lines, *lines, end]) == outline([*lines, end])
    replaced = model("a0", "m0", text("Lost."))
    assert outline([lines[0], replaced, {**end, "supersedes": ["a0"]}]) == outline([lines[0], end])


def test_text_before_calls_at_the_end_is_no_answer() -> None:
    lines = [user("u1", "Go."), model("a1", "m1", text("I look."), use("c1"))]
    with pytest.raises(ValueError, match="the last, calls tools and has no text"):
        Submission.from_messages(lines)
    with pytest.warns(UserWarning, match="ends without an answer"):
        submission = Submission.model_validate({"response": lines})
    assert submission.show_trajectory == "as_response"
    assert "I look." in submission.response


def test_answer_of_a_run_is_its_result() -> None:
    assert Submission.from_messages(RESULT).response == "Fixed."
    changed = [*STREAM[:-1], {**RESULT, "result": "Another end."}]
    assert Submission.from_messages(changed).response == "Another end."
    assert outline(changed)[-2:] == [WHOLE[-1], ("assistant", "Another end.", [])]
    structured = {**RESULT, "result": "", "structured_output": {"files": 3}}
    assert Submission.from_messages(structured).response == '{"files": 3}'


def test_task_of_a_session_is_its_prompts_and_its_steps_may_be_long() -> None:
    lines = [
        user("u1", "Look."),
        model("a1", "m1", use("c1"), parent="u1"),
        user("u2", result("c1", "x" * 1_500_000), "a1"),
        user("u3", "And?", "u2"),
        model("a2", "m2", text("Done."), parent="u3"),
    ]
    submission = Submission.from_messages(lines)
    assert submission.query == '{"role": "user", "content": "Look."}\n{"role": "user", "content": "And?"}'
    assert submission.trajectory
    assert len(submission.trajectory.calls[0].result or "") == 1_500_000
    chosen = Submission.model_validate({"response": lines, "query": "Be brief.", "show_trajectory": "if_needed"})
    assert (str(chosen.query)[:10], chosen.show_trajectory) == ("Be brief.\n", "if_needed")


def test_answer_without_steps_has_no_trajectory() -> None:
    # Otherwise `tool_forbidden` would be met by every run.
    assert Submission.from_messages(RESULT).trajectory is None
    for respond in ("transcript", "trajectory"):
        with pytest.raises(ValueError, match="has only the answer of a run"):
            Submission.from_messages(RESULT, respond=respond)
    with pytest.raises(ValueError, match="has only the answer of a run"):
        Trajectory.from_messages(RESULT)


UNREAD: dict[str, tuple[Any, str]] = {
    "a failed run": (FAILED, "`messages[0]` says that the run failed: error_max_turns (Reached the number of turns)"),
    "an error as the result": ({**RESULT, "is_error": True}, "says that the run failed: success (Fixed.)"),
    "a result without a text": ({**RESULT, "result": None}, "`messages[0]` has no `result`"),
    "a run that was cut off": (STREAM[:-1], "output of `claude -p` that was cut off: it has no `result` line"),
    "a run that went on": ([*STREAM, stream(user("u9", "More."))], "is not the end of the run, which was cut off"),
    "an error of the API": (
        [user("u1", "Go."), model("a1", "m1", text("API Error"), isApiErrorMessage=True)],
        "`messages[1].message` is an error of the API",
    ),
    "an unknown line": ([*CLAUDE, {**CLAUDE[3], "type": "hologram"}], "is a line of the type 'hologram'"),
    "a call of Cursor": ([*STREAM[:2], {"type": "tool_call", "call_id": "t"}, *STREAM[2:]], "of the type 'tool_call'"),
    "a line that is no object": ([*CLAUDE, 5], "`messages[15]` is not a line of a session"),
    "a line without a type": ([*CLAUDE, {"x": 1}], "`messages[15]` is not a line of a session"),
    "a message without content": (
        [*CLAUDE[:4], model("a", "m", use("c")) | {"message": {"role": "assistant", "content": {}}}],
        "`messages[4].message.content` is neither a text nor a list of blocks",
    ),
    "a message of another role": ([*CLAUDE[:4], {**CLAUDE[4], "type": "assistant", "message": {"role": "user"}}],
                                  "has no message of its type"),
    "one uuid twice": ([*CLAUDE, user("u1", "Other words.")], "has the `uuid` of another message"),
    "a session after another": (
        [*CLAUDE, user("u8", "<command-name>/clear</command-name>"), user("u9", "Go on.")],
        "is `/clear`, after which another session begins",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:a session of Claude Code")
@pytest.mark.parametrize("name", UNREAD)
def test_session_that_cannot_be_graded_is_an_error(name: str) -> None:
    lines, problem = UNREAD[name]
    with pytest.raises(ValueError, match=re.escape(problem)):
        Submission.from_messages(lines)
    with pytest.raises(ValueError, match=re.escape(problem)):
        Submission.model_validate({"response": lines})


def test_error_does_not_show_the_other_fields_of_a_line() -> None:
    with pytest.raises(ValueError, match="`isMeta` must be true or false") as caught:
        outline([{**CLAUDE[3], "isMeta": "x"}])
    assert "/home/ann" not in str(caught.value)
