"""Files of responses: every row is returned, those that cannot be graded with an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rubric_integrations.submission import ResponsesError, Row, Submission, Trajectory, read_responses
from rubric_integrations.submission.inputs import read_row
from tests.submission.conversations import ANSWER, CHAT, QUESTION


def write_rows(tmp_path: Path, *rows: object) -> list[Row]:
    """Write rows to a JSON Lines file and read them."""
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(read_responses(path, "Q"))


def test_jsonl_rows_with_conversations_are_converted(tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path,
        {"response": CHAT},
        {"messages": CHAT, "respond": "transcript", "query": "Be exact."},
        {"completion": [ANSWER], "prompt": [QUESTION], "respond": None},
        {"response": "text", "respond": "a column like any other"},
    )
    assert [row.error for row in rows] == [None] * 4
    last, transcript, with_prompt, text = [row.submission for row in rows]
    assert last == Submission.from_messages(CHAT, query="Q")
    assert transcript == Submission.from_messages(CHAT, "transcript", query="Be exact.")
    assert with_prompt == Submission.from_messages([ANSWER], query=[QUESTION])
    assert text == Submission(response="text", query="Q")


def test_jsonl_rows_with_a_trajectory_are_converted(tmp_path: Path) -> None:
    react = {"thought_0": "Look.", "tool_name_0": "look", "tool_args_0": {}, "observation_0": "17.2%"}
    rows = write_rows(
        tmp_path,
        {"response": "17.2%", "trajectory": CHAT},
        {"response": "17.2%", "trajectory": json.dumps(CHAT)},
        {"response": "17.2%", "trajectory": react, "respond": "trajectory"},
        {"response": CHAT, "respond": "trajectory"},
        {"response": "17.2%", "trajectory": None, "respond": "trajectory"},
        {"response": "17.2%", "trajectory": "I looked."},
        {"response": "17.2%", "trajectory": [{"role": "user", "content": [{"type": "hologram"}]}]},
    )
    beside, as_json, whole, messages, nothing, *_ = [row.submission for row in rows]
    trajectory = Trajectory.from_messages(CHAT)
    assert beside == as_json == Submission(response="17.2%", query="Q", trajectory=trajectory)
    assert whole is not None
    assert whole.show_trajectory == "as_response"
    assert [json.loads(line)["step"] for line in whole.response.splitlines()] == [1, 2]
    assert messages == Submission.from_messages(CHAT, "trajectory", query="Q")
    assert nothing == Submission(response="17.2%", query="Q")
    assert (rows[5].error or "").startswith("row 6: in the `trajectory`: `messages` must be a list of messages")
    assert "row 7: in the `trajectory`: `messages[0].content[0]` is a block of the type 'hologram'" in (
        rows[6].error or ""
    )


def test_jsonl_rows_with_invalid_conversations_have_an_error(tmp_path: Path) -> None:
    deep = json.loads("[" * 400 + "]" * 400)
    rows = write_rows(
        tmp_path,
        {"id": "a", "response": [QUESTION]},
        {"response": []},
        {"response": [1, 2]},
        {"response": CHAT, "respond": "First"},
        {"response": "x", "query": [{"role": "user"}]},
        {"response": [{"role": "assistant", "content": deep}]},
        {"messages": {"role": "user"}},
        {"response": CHAT},
    )
    errors = [row.error or "" for row in rows]
    assert errors[0].startswith("row a: `messages[0]`, the last, is of the role 'user'")
    assert "is empty" in errors[1]
    assert "`messages[0]` is 1" in errors[2]
    assert "got 'First'" in errors[3]
    assert errors[4].startswith("row 5: in the `query`: `messages[0]` (user) has neither")
    assert "is nested more than 100 levels deep" in errors[5]
    assert errors[6].startswith("row 7: `response` has the unknown keys ['role']: use `thinking` and `output`")
    assert [row.submission is None for row in rows] == [True] * 7 + [False]


def test_jsonl_lines_that_are_not_objects_have_an_error(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('"a text"\n\n{\n[1]\n{"id": 7, "note": "x"}\n')
    rows = list(read_responses(str(path)))
    assert rows[0] == Row("1", Submission(response="a text"))
    assert (rows[1].id, (rows[1].error or "").startswith("line 3 is not JSON")) == ("3", True)
    assert rows[2].error == "line 4 is list, not an object with a `response`"
    assert rows[3] == Row("7", None, "row 7 has no `response` (its fields are ['id', 'note']): nothing to grade")


def test_csv_and_tsv_columns_are_read_under_their_usual_names(tmp_path: Path) -> None:
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        path = tmp_path / f"r{suffix}"
        path.write_text("\n".join(delimiter.join(line) for line in (["id", "output", "question"], ["a", "42", "6x7?"])))
        assert list(read_responses(path)) == [Row("a", Submission(response="42", query="6x7?"))]


def test_other_file_is_one_row_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("\ufeffIt is 42.\n", encoding="utf-8")
    assert list(read_responses(path, "Q")) == [Row("answer", Submission(response="It is 42.\n", query="Q"))]


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResponsesError, match="cannot be read: No such file"):
        list(read_responses(tmp_path / "missing.jsonl"))
    for name, remedy in (
        ("binary.txt", "UTF-8, or"),
        ("r.csv", r"UTF-8 \(in Excel: Save As, `CSV UTF-8`\)"),
    ):
        path = tmp_path / name
        path.write_bytes(b"a\xff")
        with pytest.raises(ResponsesError, match=rf"is not text \(byte 1\): .*{remedy}.*`--encoding cp1252`"):
            list(read_responses(path))


def test_read_row_uses_the_first_name_that_is_present() -> None:
    row = read_row({"answer": None, "output": "first", "text": "first", "query": None, "input": "Q"}, 3)
    assert row == Row("3", Submission(response="first", query="Q"))


@pytest.mark.parametrize("name", ["r.jsonl", "r.json", "r.csv"])
def test_row_with_two_different_responses_is_graded_by_one_with_a_warning_that_names_both(
    tmp_path: Path, name: str
) -> None:
    path, rows = tmp_path / name, [{"id": key, "output": "first", "answer": "second"} for key in "ab"]
    lines = [json.dumps(row) for row in rows]
    path.write_text(
        {".csv": "id,output,answer\na,first,second\nb,first,second\n", ".json": f"[{','.join(lines)}]"}.get(
            path.suffix, "\n".join(lines)
        )
    )
    with pytest.warns(UserWarning, match="both `output` and `answer`: `output` is graded") as caught:
        read = list(read_responses(path))
    assert [row.submission.response for row in read if row.submission] == ["first", "first"]
    assert len({str(warning.message) for warning in caught}) == 1
    assert [row.submission for row in read_responses(path, response_column="answer")] == [
        Submission(response="second"), Submission(response="second")
    ]  # fmt: skip


@pytest.mark.processes
def test_grade_of_rows_with_two_different_responses_warns_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("- {weight: 1, requirement: Says 42, check: {number: 42}}\n")
    (tmp_path / "r.jsonl").write_text('{"output": "42", "answer": "x"}\n{"output": "42", "answer": "y"}\n')
    command = [sys.executable, "-m", "rubric_integrations", "grade", tmp_path / "r.yaml", tmp_path / "r.jsonl", "-q"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, len(process.stderr.splitlines())) == (0, 1), process.stderr
    assert process.stderr.startswith("a row has both `output` and `answer`: `output` is graded")


def test_row_with_a_repeated_key_cannot_be_graded(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(
        '{"response": "a", "response": "b"}\n{"response": "c", "meta": {"x": 1, "x": 2}}\n{"response": "d"}\n'
    )
    rows = list(read_responses(path))
    assert [row.submission.response if row.submission else None for row in rows] == [None, None, "d"]
    assert rows[0].error == (
        "line 1 has the key 'response' twice in one object: remove one of them, since one value would be lost"
    )
    assert "'x' twice" in (rows[1].error or "")


def test_list_with_a_repeated_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('[{"response": "a", "response": "b"}]')
    with pytest.raises(ResponsesError, match="has the key 'response' twice in one object"):
        list(read_responses(path))


def test_id_of_a_row_without_a_response_is_not_used_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": "a"}\n{"id": "a", "response": "b"}\n')
    with pytest.raises(ResponsesError, match="the `id` 'a' is on line 1 and line 2"):
        list(read_responses(path))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".txt"])
def test_device_or_named_pipe_is_refused_before_it_is_read(tmp_path: Path, suffix: str) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    pipe, link = tmp_path / f"pipe{suffix}", tmp_path / f"zero{suffix}"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    for path, words in ((pipe, "is a named pipe"), (link, "is a device")):
        with pytest.raises(ResponsesError, match=words):
            list(read_responses(path))


@pytest.mark.sizes
def test_csv_header_of_many_columns_names_the_repeated_one(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("response," + ",".join(map(str, range(100_000))) + ",Response\n")
    with pytest.raises(ResponsesError, match="the column 'Response' is there twice"):
        list(read_responses(path))


def test_file_whose_first_thousand_lines_are_no_json_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("x\n" * 1000)
    with pytest.raises(ResponsesError, match=r"none of its first 1,000 rows can be read.*line 1 is not JSON"):
        list(read_responses(path))


def test_file_with_a_thousand_bad_lines_after_a_row_keeps_every_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"response": "a"}\n' + "x\n" * 1000)
    assert len(list(read_responses(path))) == 1001
