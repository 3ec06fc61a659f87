"""The command `grade`: tables, report files, exit codes, and one clear line for bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import EXAMPLE, grade, read_lines, run
from tests.openai_server import OpenAIServer, Reply


def test_grade_of_the_example_ranks_the_responses_and_prints_the_tables(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    result = run("grade", EXAMPLE / "rubric.yaml", EXAMPLE / "responses.jsonl", "--out", out)
    assert result.exit_code == 0, result.output
    reports = read_lines(out)
    ranked = [report["id"] for report in sorted(reports, key=lambda report: -report["score"])]
    assert ranked[:4] == ["excellent", "good", "figure-only", "wrong-base"]
    assert set(ranked[4:]) == {"hostile", "wrong"}
    assert [report["id"] for report in reports if report["passed"]] == ["excellent", "good"]
    assert "uses no model" in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.strip()]) == 1
    for words in ("verdict", "weight", "requirement", "reason", "Ranking", "6 of 6 graded"):
        assert words in result.stdout


def test_out_file_holds_one_full_report_per_line_and_is_not_overwritten_unrequested(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    first = read_lines(files / "run.jsonl")[0]
    assert (first["id"], first["score"], first["submission"]) == ("a", 1.0, {"response": "42"})
    assert [row["verdict"] for row in first["report"]] == ["MET", "CANNOT_ASSESS"]
    assert first["coverage"] == 0.75
    again = grade(files, "--out", files / "run.jsonl")
    assert (again.exit_code, "--overwrite" in again.stderr) == (2, True)
    assert grade(files, "--out", files / "run.jsonl", "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.csv", 'id,response,query\na,"42, of course",why\nb,41,\n'),
        ("r.tsv", "id\tresponse\na\t42\nb\t41\n"),
        ("r.jsonl", '{"id": "a", "output": "42", "input": "why"}\n{"id": "b", "response": "41", "extra": 1}\n'),
    ],
)
def test_responses_in_each_table_format_are_graded(files: Path, name: str, content: str) -> None:
    (files / name).write_text(content)
    result = grade(files, "--out", files / "run.jsonl", responses=name)
    assert result.exit_code == 0, result.output
    reports = read_lines(files / "run.jsonl")
    assert [(report["id"], report["score"]) for report in reports] == [("a", 1.0), ("b", 0.0)]


def test_run_says_in_its_first_line_who_sends_its_requests(
    files: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = lambda _call: Reply("MET")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    result = grade(files, "--judge", "openai/mock", "--judge", "openai/other")
    assert result.exit_code == 0, result.output
    path = f"sent by this library to {server.url}"
    assert result.stderr.splitlines()[0] == f"openai/mock: {path}; openai/other: {path}"
    assert path not in grade(files, "--judge", "openai/mock", "--quiet").stderr


def test_text_file_is_graded_as_one_response(files: Path) -> None:
    (files / "answer.txt").write_text("It is 42.")
    result = grade(files, "--query", "What?", responses="answer.txt")
    assert (result.exit_code, "answer: 1.000, passed" in result.stdout) == (0, True)


def test_rubric_with_a_tree_prints_the_values_of_its_groups(files: Path) -> None:
    (files / "tree.yaml").write_text(
        "- requirement: The figures\n  criteria:\n  - {requirement: a, check: {number: 42}}\n"
        "  - {requirement: b, weight: 30, check: {number: 7}}\n- {requirement: c, check: {max_words: 3}}\n"
    )
    result = grade(files, rubric="tree.yaml")
    assert result.exit_code == 0, result.output
    assert "Groups" in result.stdout
    assert "0.250" in result.stdout


def test_gate_with_a_submission_that_does_not_pass_exits_with_1(files: Path) -> None:
    assert grade(files).exit_code == 0
    assert grade(files, "--gate").exit_code == 1
    (files / "good.jsonl").write_text('{"response": "42"}\n')
    assert grade(files, "--gate", responses="good.jsonl").exit_code == 0


BAD_INPUT = {
    "no rubric": ("nowhere.yaml", "responses.jsonl", "No such file"),
    "a broken rubric": ("broken.yaml", "responses.jsonl", "`wieght`"),
    "a binary rubric": ("binary.yaml", "responses.jsonl", "not text"),
    "no responses": ("rubric.yaml", "nowhere.jsonl", "No such file"),
    "a binary file": ("rubric.yaml", "binary.jsonl", "not text"),
    "an empty file": ("rubric.yaml", "empty.jsonl", "nothing to grade"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_clear_line_and_exits_with_2(files: Path, case: str) -> None:
    rubric, responses, words = BAD_INPUT[case]
    (files / "broken.yaml").write_text("- {wieght: 3, requirement: a}")
    for name in ("binary.yaml", "binary.jsonl"):
        (files / name).write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff")
    (files / "empty.jsonl").write_text("\n")
    result = grade(files, rubric=rubric, responses=responses)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", ["rubric.yaml", "rubric.json", "broken.yaml", "fault.yaml"])
def test_rubric_without_responses_is_refused_with_the_remedy(files: Path, name: str) -> None:
    (files / "rubric.json").write_text('[{"requirement": "Says 42", "weight": 2}]')
    (files / "broken.yaml").write_text("- {wieght: 1}")
    (files / "fault.yaml").write_text("criteria: [{wieght: 1}]")
    result = run("grade", files / name)
    assert (result.exit_code, result.stderr) == (
        2, f"{files / name}: is a rubric: name the file of responses after it, such as {files / name} responses.csv\n"
    )  # fmt: skip


def test_rows_in_yaml_without_a_shared_rubric_are_not_taken_for_a_rubric(files: Path) -> None:
    rows = files / "rows.yaml"
    rows.write_text("- {id: a, response: It is 42.}")
    assert "row a has no `rubric`" in run("grade", rows).stderr
    rows.write_text("- {id: a, response: It is 42., rubric: [{requirement: Says 42, check: {contains: '42'}}]}")
    assert run("grade", rows).exit_code == 0


@pytest.mark.parametrize("own", ['"rubric": [{"requirement": "Says 42"}]', '"rubrics": ["Says 42"]'])
def test_json_file_of_rows_with_rubrics_of_their_own_needs_no_other_file(files: Path, own: str) -> None:
    (files / "rows.json").write_text(f'[{{"response": "42", {own}}}]')
    assert "1 of 1 graded" in run("grade", files / "rows.json").stdout


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"response": ""}', "`response` is empty"),
        ('{"response": [3]}', "row 2"),
        ('{"reply": "x"}', "no `response`"),
        ("{", "line 2 is not JSON"),
        ("[1]", "line 2 is list"),
        ('{"response": "' + "x" * 5_000_000 + '"}', "5,000,000 characters"),
    ],
)
def test_bad_row_is_reported_and_the_other_rows_are_graded(files: Path, row: str, words: str) -> None:
    (files / "mixed.jsonl").write_text(f'{{"response": "42"}}\n{row}\n{{"response": "41"}}\n')
    result = grade(files, "--out", files / "run.jsonl", responses="mixed.jsonl")
    assert result.exit_code == 2
    assert words in result.stderr
    reports = read_lines(files / "run.jsonl")
    assert [report["score"] for report in reports] == [1.0, None, 0.0]
    assert words in reports[1]["error"]
    assert "2 of 3 graded" in result.stdout


def test_judge_failure_exits_with_3_and_the_other_rows_are_graded(files: Path, server: OpenAIServer) -> None:
    server.script = lambda call: Reply(status=401) if "\n41\n" in call.prompt else Reply("MET")
    result = grade(files, "--judge", "openai/mock", "--api-base", server.url, "--out", files / "run.jsonl", "--gate")
    assert result.exit_code == 3
    assert "401" in result.stderr
    assert "Traceback" not in result.output
    reports = read_lines(files / "run.jsonl")
    assert [report["score"] for report in reports] == [1.0, None, 1.0]
    assert [row["verdict"] for row in reports[1]["report"]] == ["UNMET", None]
    assert "2 of 3 graded" in result.stdout


@pytest.mark.parametrize(
    ("reply", "calls", "words"),
    [
        (Reply(status=401), 2, "the judge cannot be used: "),
        (Reply(text="I cannot say."), 2 * 50, "20 submissions failed: the judge gave no verdict: 'I cannot say.'"),
    ],
)
def test_judge_that_cannot_be_used_exits_with_3_and_its_reason_in_one_line_after_few_calls(
    files: Path, server: OpenAIServer, reply: Reply, calls: int, words: str
) -> None:
    server.script = lambda _call: reply
    (files / "many.jsonl").write_text("".join(f'{{"response": "{number}"}}\n' for number in range(50)))
    result = grade(files, "--judge", "openai/mock", "--api-base", server.url, responses="many.jsonl")
    assert (result.exit_code, result.stdout) == (3, "")
    assert len(server.calls) <= calls
    _sender, reason = result.stderr.splitlines()
    assert reason.startswith("No row was graded: ")
    assert words in result.stderr


def test_judge_that_dies_during_a_run_exits_with_3_and_the_run_can_be_resumed(
    files: Path, server: OpenAIServer
) -> None:
    server.script = lambda call: Reply(status=401) if call.number >= 30 else Reply("MET")
    (files / "many.jsonl").write_text("".join(f'{{"response": "{number}"}}\n' for number in range(200)))
    options = ("--judge", "openai/mock", "--api-base", server.url, "--max-concurrency", 4, "--out", files / "run.jsonl")
    result = grade(files, *options, responses="many.jsonl")
    assert result.exit_code == 3
    # Submissions are counted when their grades end: the eight in progress may each have sent their one call.
    assert len(server.calls) <= 30 + 20 + 8
    assert "Stopped: the last 20 submissions failed: [openai/mock] HTTP 401: scripted status 401" in result.stderr
    assert "To go on: rubric-integrations" in result.stderr
    server.script = lambda _call: Reply("MET")
    again = grade(files, *options, "--resume", responses="many.jsonl")
    assert again.exit_code == 0
    assert "200 of 200 graded" in again.stdout


def test_judge_failure_under_worst_case_counts_as_unmet(files: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text="nonsense")
    options = ("--judge", "openai/mock", "--api-base", server.url, "--on-failure", "worst_case", "--max-retries", 0)
    result = grade(files, *options)
    assert result.exit_code == 0
    assert "UNMET (fallback)" in result.stdout


def test_summary_line_reports_calls_tokens_and_an_unknown_price(files: Path, server: OpenAIServer) -> None:
    result = grade(files, "--judge", "openai/mock", "--api-base", server.url)
    assert result.exit_code == 0, result.output
    assert "3 calls" in result.stdout
    assert " 0 tokens" not in result.stdout
    assert "price unknown" in result.stdout


def test_summary_line_of_a_server_that_reports_no_usage_has_unknown_tokens(files: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply("MET", has_usage=False)
    result = grade(files, "--judge", "openai/mock", "--api-base", server.url)
    assert result.exit_code == 0, result.output
    assert "tokens unknown" in result.stdout


def test_control_characters_and_markup_are_not_interpreted_by_the_terminal(files: Path) -> None:
    (files / "evil.jsonl").write_text(json.dumps({"id": "[red]x\u001b[2J", "response": "42"}) + "\n")
    result = grade(files, responses="evil.jsonl")
    assert result.exit_code == 0
    assert "\u001b[2J" not in result.output
    assert "[red]x" in result.output


def test_bad_usage_exits_with_2_and_help_names_the_exit_codes() -> None:
    assert run("grade").exit_code == 2
    assert run("grade", "a", "b", "--cannot-assess", "maybe").exit_code == 2
    text = run("grade", "--help").output
    for words in ("0 done", "1 not passed", "2 bad usage", "3 a judge failed"):
        assert words in " ".join(text.split())


def test_grade_restores_the_signal_handler_of_the_process(files: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert grade(files).exit_code == 0
    assert signal.getsignal(signal.SIGTERM) == before


def test_stop_when_decided_skips_the_criteria_that_cannot_change_passed(tmp_path: Path) -> None:
    rubric = tmp_path / "rubric.yaml"
    rubric.write_text(
        "- {weight: 5, requirement: States 42, check: {number: 42}, required: true}\n"
        "- {weight: 1, requirement: Is kind}\n"
    )
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"id": "no", "response": "It is 41."}\n{"id": "yes", "response": "It is 42. Please."}\n')
    result = run("grade", str(rubric), str(answers), "--stop-when-decided", "--gate")
    assert result.exit_code == 1, result.output
    assert "not asked" in result.output
    assert "0.000..0.167" in result.output


@pytest.mark.processes
def test_installed_command_grades_many_rows(files: Path) -> None:
    (files / "many.jsonl").write_text("".join(f'{{"response": "{40 + i % 4}"}}\n' for i in range(300)))
    command = [sys.executable, "-m", "rubric_integrations", "grade", "rubric.yaml", "many.jsonl", "--out", "run.jsonl"]
    process = subprocess.run(command, cwd=files, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert process.returncode == 0, process.stderr
    reports = read_lines(files / "run.jsonl")
    assert [report["id"] for report in reports] == [str(number) for number in range(1, 301)]
    assert sum(report["score"] for report in reports) == 75.0
