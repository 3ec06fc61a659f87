"""The gates of `grade`: what fails each, the rows and criteria that it names, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import grade, run
from tests.openai_server import OpenAIServer, Reply

GATED = (
    "- {name: answer, weight: 3, requirement: Says 42, check: {number: 42}}\n"
    "- {name: short, weight: 1, requirement: Is short, check: {max_words: 3}}\n"
)


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    """Rows `a` (1.0, passes), `b` (0.25) and `c` (0.75, passes): the mean is 0.667, two of three pass."""
    (tmp_path / "rubric.yaml").write_text("pass_mark: 0.5\ncriteria:\n" + GATED)
    rows = '{"id": "a", "response": "42"}\n{"id": "b", "response": "41"}\n{"id": "c", "response": "it is really 42"}\n'
    (tmp_path / "responses.jsonl").write_text(rows)
    return tmp_path


@pytest.mark.parametrize(
    ("option", "passes", "fails", "message"),
    [
        ("--min-score", "0.66", "0.7", "the mean score is 0.667"),
        ("--min-pass-rate", "0.66", "0.7", "2 of 3 rows passed"),
    ],
)
def test_gate_that_fails_exits_with_1_and_names_rows_and_criteria(
    gated: Path, option: str, passes: str, fails: str, message: str
) -> None:
    assert grade(gated, option, passes).exit_code == 0
    result = grade(gated, option, fails)
    assert result.exit_code == 1
    assert f"gate failed: {option} {fails}: {message}" in result.stderr
    assert "b: score 0.250; not met: answer" in result.stderr
    assert "a: score" not in result.stderr


def test_gate_of_every_row_names_the_rows_that_did_not_pass(gated: Path) -> None:
    result = grade(gated, "--gate")
    assert result.exit_code == 1
    assert "gate failed: --gate: 2 of 3 rows passed" in result.stderr
    assert "b: score 0.250; not met: answer" in result.stderr
    assert "c: score" not in result.stderr


def test_gate_on_a_mean_that_is_the_limit_but_for_rounding_passes(gated: Path) -> None:
    (gated / "ten.jsonl").write_text(
        '{"response": "42"}\n' * 7 + '{"response": "no number at all, in many words"}\n' * 3
    )
    assert grade(gated, "--min-score", "0.7", "--min-pass-rate", "0.7", responses="ten.jsonl").exit_code == 0


def test_gate_on_a_run_without_a_score_fails(gated: Path) -> None:
    (gated / "vague.yaml").write_text("- {requirement: Is kind}\n- {requirement: Is apt}\n")
    result = grade(gated, "--min-score", "0", rubric="vague.yaml")
    assert result.exit_code == 1
    assert "no row has a score" in result.stderr


def test_gate_on_coverage_names_the_criteria_that_were_not_assessed(gated: Path) -> None:
    (gated / "open.yaml").write_text(GATED + "- {name: kind, weight: 4, requirement: Is kind}\n")
    assert grade(gated, "--min-coverage", "0.5", rubric="open.yaml").exit_code == 0
    result = grade(gated, "--min-coverage", "0.6", rubric="open.yaml")
    assert result.exit_code == 1
    assert "gate failed: --min-coverage 0.6: the mean coverage is 0.500" in result.stderr
    assert "a: coverage 0.500; not assessed: kind" in result.stderr


def test_max_failed_allows_that_many_judge_failures_and_names_them_beyond(files: Path, server: OpenAIServer) -> None:
    server.script = lambda call: Reply(text="nonsense") if "\n41\n" in call.prompt else Reply("MET")
    options = ("--judge", "openai/mock", "--api-base", server.url, "--max-retries", 0)
    assert grade(files, *options).exit_code == 3
    allowed = grade(files, *options, "--max-failed", 1)
    assert allowed.exit_code == 0
    assert "`c2` was not judged" in allowed.stderr
    beyond = grade(files, *options, "--max-failed", 0)
    assert beyond.exit_code == 3
    assert "gate failed: --max-failed 0: the judge failed on 1 of 3 rows" in beyond.stderr
    # A row that is allowed to fail has still not passed.
    assert grade(files, *options, "--max-failed", 1, "--gate").exit_code == 1


def test_gates_that_fail_together_are_all_reported_and_long_lists_are_cut(gated: Path) -> None:
    (gated / "many.jsonl").write_text('{"response": "41"}\n' * 40)
    result = grade(gated, "--gate", "--min-score", "0.9", "--min-pass-rate", "0.9", responses="many.jsonl")
    assert result.exit_code == 1
    assert result.stderr.count("gate failed: ") == 3
    assert "and 35 more rows" in result.stderr
    assert "criteria: answer in 40 rows" in result.stderr


@pytest.mark.parametrize("option", ["--min-score", "--min-pass-rate", "--min-coverage"])
def test_gate_out_of_range_is_refused(gated: Path, option: str) -> None:
    assert grade(gated, option, "80").exit_code == 2


def test_help_of_grade_lists_the_gates() -> None:
    text = run("grade", "--help").output
    for option in ("--min-score", "--min-pass-rate", "--min-coverage", "--max-failed", "--junit", "--quiet"):
        assert option in text


@pytest.mark.parametrize("option", [["--min-score", "0.8"], ["--gate"], ["--min-score", "0.8", "--alpha", "0.05"]])
def test_missing_answers_pass_no_gate_under_abstain(gated: Path, option: list[str]) -> None:
    # A check on steps fails without a trajectory, as a judge that does not reply does.
    steps = "- {weight: 9, requirement: Is quick, check: {max_steps: 3}}\n"
    (gated / "lost.yaml").write_text("- {requirement: Says 42, check: {number: 42}}\n" + steps)
    (gated / "all.jsonl").write_text('{"response": "42"}\n' * 30)
    result = grade(gated, "--on-failure", "abstain", *option, rubric="lost.yaml", responses="all.jsonl")
    assert result.exit_code == 1
    assert "mean 1.000, 0 passed" in result.stdout
    if option == ["--min-score", "0.8"]:
        assert "the mean score is 0.000, where 30 rows count as 0" in result.stderr


def test_row_on_which_the_judge_only_abstains_counts_as_0_in_the_mean(tmp_path: Path) -> None:
    rubrics = ('{"requirement": "Says 42", "check": {"number": 42}}', '{"requirement": "Is kind"}')
    path = tmp_path / "own.jsonl"
    path.write_text("".join(f'{{"response": "42", "rubric": [{rubric}]}}\n' for rubric in rubrics))
    assert run("grade", path, "--min-score", 0.5).exit_code == 0
    result = run("grade", path, "--min-score", 0.6)
    assert result.exit_code == 1
    assert "the mean score is 0.500, where 1 row counts as 0" in result.stderr
    assert "score undefined; coverage 0% too low" in result.stderr
