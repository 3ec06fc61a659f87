"""The command line as a user meets it: tables, files, exit codes, and one clear line for whatever is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rubric_integrations.cli import app
from tests.openai_server import OpenAIServer, Reply

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quarterly_margin"
RUBRIC = "- {name: answer, weight: 3, requirement: Says 42, check: {number: 42}}\n- {weight: 1, requirement: Is kind}\n"


def run(*args: object) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, [str(arg) for arg in args])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    (tmp_path / "responses.jsonl").write_text('{"id": "a", "response": "42"}\n\n{"response": "41"}\n"42!"\n')
    return tmp_path


def grade(files: Path, *options: object, responses: str = "responses.jsonl", rubric: str = "rubric.yaml") -> Result:
    return run("grade", files / rubric, files / responses, *options)


def test_the_example_ranks_plainly_right(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    result = run("grade", EXAMPLE / "rubric.yaml", EXAMPLE / "responses.jsonl", "--out", out)
    assert result.exit_code == 0, result.output
    reports = [json.loads(line) for line in out.read_text().splitlines()]
    ranked = [report["id"] for report in sorted(reports, key=lambda report: -report["score"])]
    assert ranked[:4] == ["excellent", "good", "figure-only", "wrong-base"]
    assert set(ranked[4:]) == {"hostile", "wrong"}
    assert [report["id"] for report in reports if report["passed"]] == ["excellent", "good"]
    assert "uses no model" in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.strip()]) == 1
    for words in ("verdict", "weight", "requirement", "reason", "Ranking", "6 of 6 graded"):
        assert words in result.stdout


def test_a_run_file_holds_one_full_report_a_line(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    first = json.loads((files / "run.jsonl").read_text().splitlines()[0])
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
def test_every_table_format(files: Path, name: str, content: str) -> None:
    (files / name).write_text(content)
    result = grade(files, "--out", files / "run.jsonl", responses=name)
    assert result.exit_code == 0, result.output
    reports = [json.loads(line) for line in (files / "run.jsonl").read_text().splitlines()]
    assert [(report["id"], report["score"]) for report in reports] == [("a", 1.0), ("b", 0.0)]


def test_a_text_file_is_one_response(files: Path) -> None:
    (files / "answer.txt").write_text("It is 42.")
    result = grade(files, "--query", "What?", responses="answer.txt")
    assert (result.exit_code, "answer: 1.000, passed" in result.stdout) == (0, True)


def test_groups_are_shown_with_what_they_come_to(files: Path) -> None:
    (files / "tree.yaml").write_text(
        "- requirement: The figures\n  criteria:\n  - {requirement: a, check: {number: 42}}\n"
        "  - {requirement: b, weight: 30, check: {number: 7}}\n- {requirement: c, check: {max_words: 3}}\n"
    )
    result = grade(files, rubric="tree.yaml")
    assert result.exit_code == 0, result.output
    assert "Groups" in result.stdout
    assert "0.250" in result.stdout


def test_the_gate_turns_not_passed_into_an_exit_code(files: Path) -> None:
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
def test_bad_input_is_one_clear_line_and_exit_2(files: Path, case: str) -> None:
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


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"response": ""}', "`response` is empty"),
        ('{"response": 3}', "`response` input should be a valid string"),
        ('{"reply": "x"}', "no `response`"),
        ("{", "line 2 is not JSON"),
        ("[1]", "line 2 is list"),
        ('{"response": "' + "x" * 5_000_000 + '"}', "5,000,000 characters"),
    ],
)
def test_a_bad_row_is_told_and_the_others_are_graded(files: Path, row: str, words: str) -> None:
    (files / "mixed.jsonl").write_text(f'{{"response": "42"}}\n{row}\n{{"response": "41"}}\n')
    result = grade(files, "--out", files / "run.jsonl", responses="mixed.jsonl")
    assert result.exit_code == 2
    assert words in result.stderr
    reports = [json.loads(line) for line in (files / "run.jsonl").read_text().splitlines()]
    assert [report["score"] for report in reports] == [1.0, None, 0.0]
    assert words in reports[1]["error"]
    assert "2 of 3 graded" in result.stdout


def test_a_judge_failure_is_exit_3_and_loses_nothing(files: Path, server: OpenAIServer) -> None:
    server.script = lambda call: Reply(status=401) if "\n41\n" in call.prompt else Reply("MET")
    result = grade(files, "--judge", "openai/mock", "--api-base", server.url, "--out", files / "run.jsonl", "--gate")
    assert result.exit_code == 3
    assert "401" in result.stderr
    assert "Traceback" not in result.output
    reports = [json.loads(line) for line in (files / "run.jsonl").read_text().splitlines()]
    assert [report["score"] for report in reports] == [1.0, None, 1.0]
    assert [row["verdict"] for row in reports[1]["report"]] == ["UNMET", None]
    assert "2 of 3 graded" in result.stdout


def test_a_judge_failure_may_count_as_the_worst(files: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text="nonsense")
    options = ("--judge", "openai/mock", "--api-base", server.url, "--on-failure", "worst_case", "--max-retries", 0)
    result = grade(files, *options)
    assert result.exit_code == 0
    assert "UNMET (fallback)" in result.stdout


def test_tokens_are_reported(files: Path, server: OpenAIServer) -> None:
    result = grade(files, "--judge", "openai/mock", "--api-base", server.url)
    assert result.exit_code == 0, result.output
    assert "3 calls" in result.stdout
    assert " 0 tokens" not in result.stdout
    assert "price unknown" in result.stdout


def test_untrusted_text_cannot_paint_the_terminal(files: Path) -> None:
    (files / "evil.jsonl").write_text(json.dumps({"id": "[red]x\u001b[2J", "response": "42"}) + "\n")
    result = grade(files, responses="evil.jsonl")
    assert result.exit_code == 0
    assert "\u001b[2J" not in result.output
    assert "[red]x" in result.output


def test_validate_gives_a_line_a_fault(files: Path) -> None:
    (files / "broken.yaml").write_text("- {wieght: 3, requirement: a}\n- {weight: x, requirement: ''}\n")
    assert run("validate", files / "rubric.yaml").exit_code == 0
    result = run("validate", files / "rubric.yaml", files / "broken.yaml", files / "nowhere.yaml")
    assert result.exit_code == 1
    assert "rubric.yaml: sound: 2 criteria" in result.stdout
    assert "3 files: 1 sound, 2 broken" in result.stdout
    faults = result.stderr.splitlines()
    assert len(faults) == 4
    assert "broken.yaml: criteria[0] `wieght`" in faults[0]
    assert "broken.yaml: criteria[1] `weight`" in faults[1]


def test_validate_warns_and_tells_machines(files: Path) -> None:
    (files / "vague.yaml").write_text("- {requirement: Is good and nice}\n- {requirement: Says why}\n")
    (files / "broken.yaml").write_text("- {wieght: 3, requirement: a}")
    text = run("validate", files / "vague.yaml")
    assert (text.exit_code, "warning: criteria[0]: asks for several things" in text.stdout) == (0, True)
    assert "warning" not in run("validate", files / "vague.yaml", "--no-warnings").stdout
    result = run("validate", files / "vague.yaml", files / "broken.yaml", "--format", "json")
    assert result.exit_code == 1
    vague, broken = json.loads(result.stdout)
    assert (vague["sound"], [w["rule"] for w in vague["warnings"]]) == (True, ["compound", "vague"])
    assert (broken["sound"], broken["faults"][0]["field"]) == (False, "wieght")
    log = json.loads(run("validate", files / "vague.yaml", files / "broken.yaml", "--format", "sarif").stdout)
    assert log["version"] == "2.1.0"
    results = log["runs"][0]["results"]
    assert [(r["ruleId"], r["level"]) for r in results] == [
        ("compound", "warning"), ("vague", "warning"), ("broken", "error"),
    ]  # fmt: skip
    rules = {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    assert {r["ruleId"] for r in results} <= rules
    assert results[2]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("broken.yaml")


def test_validate_reads_every_case_of_an_eval_file() -> None:
    path = EXAMPLE.parent / "agentv" / "code_review.yaml"
    result = run("validate", path, EXAMPLE.parent / "openrubricrl" / "dialogue.yaml")
    assert (result.exit_code, "2 cases, 7 criteria" in result.stdout) == (0, True)


def test_convert_writes_a_format_and_lists_what_it_loses(files: Path) -> None:
    to_agentv = run("convert", files / "rubric.yaml", "--to", "agentv", "--output", files / "agentv.json")
    assert to_agentv.exit_code == 0
    assert json.loads((files / "agentv.json").read_text())["rubrics"][0]["id"] == "answer"
    assert "lost: `answer`: `check`" in to_agentv.stderr
    back = run("convert", files / "agentv.json", "--to", "native")
    assert (back.exit_code, back.stderr) == (0, "")
    assert "requirement: Says 42" in back.stdout
    for path, words in [("nowhere.yaml", "No such file"), ("responses.jsonl", "JSON")]:
        bad = run("convert", files / path, "--to", "native")
        assert (bad.exit_code, words in bad.stderr or "YAML" in bad.stderr) == (2, True)
    unwritable = run("convert", files / "rubric.yaml", "--to", "native", "--output", files / "no" / "where.yaml")
    assert (unwritable.exit_code, "cannot be written" in unwritable.stderr) == (2, True)


def test_migrate_brings_an_old_file_up_to_date(files: Path) -> None:
    old = {"name": "old", "scale": {"min": 0, "max": 10}, "criteria": [{"name": "c", "description": "d", "weight": 1}]}
    (files / "old.json").write_text(json.dumps(old))
    assert run("validate", files / "old.json").exit_code == 1
    result = run("migrate", files / "old.json", "--to-version", "2.0.0", "--output", files / "new.json")
    assert (result.exit_code, "`version` 2.0.0 added" in result.stderr) == (0, True)
    assert run("validate", files / "new.json").exit_code == 0
    assert run("migrate", files / "rubric.yaml").exit_code == 2


def test_schema_prints_the_schema() -> None:
    result = run("schema")
    assert (result.exit_code, json.loads(result.stdout)["title"]) == (0, "Rubric")


def test_usage_errors_and_help() -> None:
    assert run("grade").exit_code == 2
    assert run("grade", "a", "b", "--cannot-assess", "maybe").exit_code == 2
    text = run("grade", "--help").output
    for words in ("0 done", "1 not passed", "2 bad usage", "3 a judge failed"):
        assert words in " ".join(text.split())


def test_the_installed_command_and_many_rows(files: Path) -> None:
    (files / "many.jsonl").write_text("".join(f'{{"response": "{40 + i % 4}"}}\n' for i in range(300)))
    command = [sys.executable, "-m", "rubric_integrations", "grade", "rubric.yaml", "many.jsonl", "--out", "run.jsonl"]
    done = subprocess.run(command, cwd=files, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in (files / "run.jsonl").read_text().splitlines()]
    assert [report["id"] for report in reports] == [str(number) for number in range(1, 301)]
    assert sum(report["score"] for report in reports) == 75.0


def test_probe_tells_the_rate_and_keeps_the_report(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda _call: Reply("UNMET")
    result = run("probe", "--judge", "openai/m", "--api-base", server.url, "--out", tmp_path / "probe.json")
    assert result.exit_code == 0
    assert "structural attacks got through" in result.stdout
    assert json.loads((tmp_path / "probe.json").read_text())["breaches"] == []
    again = run("probe", "--judge", "openai/m", "--api-base", server.url, "--out", tmp_path / "probe.json")
    assert (again.exit_code, "exists" in again.stderr) == (2, True)
    server.script = lambda _call: Reply(status=401)
    assert run("probe", "--judge", "openai/m", "--api-base", server.url).exit_code == 3


def test_a_gate_asks_no_more_than_it_needs(tmp_path: Path) -> None:
    rubric = tmp_path / "rubric.yaml"
    rubric.write_text(
        "- {weight: 5, requirement: States 42, check: {number: 42}, required: true}\n"
        "- {weight: 1, requirement: Is kind}\n"
    )
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"id": "no", "response": "It is 41."}\n{"id": "yes", "response": "It is 42. Please."}\n')
    done = run("grade", str(rubric), str(answers), "--stop-when-decided", "--gate")
    assert done.exit_code == 1, done.output
    assert "not asked" in done.output
    assert "0.000..0.167" in done.output
