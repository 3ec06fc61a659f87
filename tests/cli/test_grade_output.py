"""What `grade` prints: the ranking and the worst rows, one line per kind of problem, and little with `--quiet`."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.commands import grade, run
from tests.openai_server import OpenAIServer, Reply


def write_rows(folder: Path, texts: list[str]) -> None:
    lines = [json.dumps({"id": f"r{number}", "response": text}) for number, text in enumerate(texts)]
    (folder / "responses.jsonl").write_text("\n".join(lines))


def test_run_of_three_rows_prints_a_table_for_each(files: Path) -> None:
    write_rows(files, ["42", "41", "42"])
    assert grade(files).stdout.count("verdict ") == 3


def test_run_of_more_rows_prints_the_ranking_and_tables_of_the_three_worst(files: Path) -> None:
    write_rows(files, ["42", "42", "42", "41", "40", "39", "38"])
    stdout = grade(files).stdout
    assert stdout.count("verdict ") == 3
    assert "Ranking" in stdout
    for row in ("r3: 0.000", "r4: 0.000", "r5: 0.000"):
        assert row in stdout
    assert "r0: 1.000" not in stdout


def test_run_of_more_rows_that_all_reach_the_full_score_prints_no_table_of_a_row(files: Path) -> None:
    write_rows(files, ["42"] * 5)
    stdout = grade(files).stdout
    assert (stdout.count("verdict "), "Ranking" in stdout) == (0, True)


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["42"] * 4, "None of 4 submissions is shown: no graded one lost points"),
        (["42", "41", "42", "42"], "Of 4 submissions, only the worst is shown"),
        (["42", "41", "40", "39", "38"], "Of 5 submissions, only the 3 worst are shown"),
    ],
)
def test_run_of_more_than_three_rows_says_which_are_shown_and_names_two_commands_that_run(
    files: Path, texts: list[str], shown: str
) -> None:
    write_rows(files, texts)
    without = grade(files).stdout
    assert f"{shown}. To go on, add `--out run.jsonl`; then: `rubric-integrations show run.jsonl`" in without
    out = files / "my run.jsonl"
    line = next(line for line in grade(files, "--out", out).stdout.splitlines() if line.startswith(shown))
    commands = re.findall("`rubric-integrations ([^`]+)`", line)
    assert [command.split()[0] for command in commands] == ["show", "report"]
    assert run(*shlex.split(commands[0])).exit_code == 0
    assert run(*shlex.split(commands[1]), "--output", files / "page.html").exit_code == 0
    parquet = grade(files, "--out", files / "run.parquet").stdout
    assert "add `--out run.jsonl`" in parquet
    assert shown not in grade(files, "--quiet").stdout


def test_run_of_three_rows_needs_no_further_commands(files: Path) -> None:
    write_rows(files, ["42", "41", "40"])
    assert "rubric-integrations show" not in grade(files).stdout


def test_run_of_very_many_rows_prints_its_worst_rows_and_no_ranking(files: Path) -> None:
    write_rows(files, ["42"] * 80 + ["41"])
    stdout = grade(files).stdout
    assert "Ranking" not in stdout
    assert "r80: 0.000" in stdout


def test_problems_of_the_same_kind_are_printed_once_with_their_rows(files: Path, server: OpenAIServer) -> None:
    server.script = lambda call: Reply(text="nonsense") if "\n41\n" in call.prompt else Reply()
    write_rows(files, ["42", "41"] * 15 + [""] * 20)
    options = ("--judge", "openai/mock", "--api-base", server.url, "--max-retries", 0)
    result = grade(files, *options)
    problems = [line for line in result.stderr.splitlines() if "not judged" in line or "is empty" in line]
    assert len(problems) == 2
    assert "r1: `c2` was not judged" in problems[0]
    assert "and 14 more rows alike: r3, r5, r7" in problems[0]
    assert "and 19 more rows alike" in problems[1]
    assert all(problem.endswith(", ...; `--out FILE` writes all)") for problem in problems)
    problem = grade(files, *options, "--out", files / "run.jsonl").stderr
    assert f", ...; all are in {files / 'run.jsonl'})" in problem


def test_row_whose_judge_failed_is_not_shown_as_passed(files: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text="nonsense")
    write_rows(files, ["42"])
    stdout = grade(files, "--judge", "openai/mock", "--api-base", server.url, "--max-retries", 0).stdout
    assert "yes" not in stdout


def test_quiet_run_prints_the_summary_and_what_needs_attention(files: Path) -> None:
    result = grade(files, "--quiet")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1
    assert "3 of 3 graded" in result.stdout
    assert result.stderr == ""
    failing = grade(files, "--quiet", "--gate")
    assert (failing.exit_code, "gate failed: --gate" in failing.stderr) == (1, True)


def test_scores_of_tags_are_printed_and_written_to_the_file(files: Path) -> None:
    (files / "rubric.yaml").write_text("- {requirement: Says 42, check: {number: 42}, tags: [facts]}\n")
    write_rows(files, ["42", "41"])
    stdout = grade(files, "--out", files / "run.jsonl").stdout
    assert stdout.count("Tags") == 2
    lines = [json.loads(line) for line in (files / "run.jsonl").read_text().splitlines()]
    assert [line["tags"] for line in lines if "tags" in line] == [{"facts": 1.0}, {"facts": 0.0}]
