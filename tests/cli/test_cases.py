"""The command `test`: its tables, JSON and JUnit file, its exit codes, the ledger and `--dry-run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.commands import run
from tests.openai_server import Call, OpenAIServer, Reply

JUDGE = ("--judge", "openai/mock", "--api-key", "none", "--max-retries", 0, "--max-outage", 0)
RUBRIC = """
name: margins
criteria:
  - {name: margin, weight: 10, requirement: States the margin}
  - {name: short, weight: 1, requirement: Is short, check: {max_words: 5}}
cases:
  - name: states it
    response: The margin was 17.2%.
    expect: {verdicts: {margin: MET, short: MET}, min_score: 0.8, passed: true}
  - name: says nothing
    response: It was [red]fine[/red].
    expect: {verdicts: {margin: UNMET}, passed: false}
"""


def answer(call: Call) -> Reply:
    return Reply(verdict="MET" if "17.2%" in call.prompt else "UNMET")


@pytest.fixture
def rubric(tmp_path: Path, server: OpenAIServer) -> Path:
    server.script = answer
    path = tmp_path / "rubric.yaml"
    path.write_text(RUBRIC)
    return path


def check(rubric: Path, server: OpenAIServer, *options: object) -> Any:
    return run("test", rubric, *JUDGE, "--api-base", server.url, *options)


def test_cases_as_expected_end_with_0_and_list_every_expectation(rubric: Path, server: OpenAIServer) -> None:
    result = check(rubric, server)
    assert result.exit_code == 0, result.output
    assert "2 cases: 6 of 6 expectations as expected. 2 calls" in result.stdout
    assert len(server.calls) == 2
    assert "states it │ score" in " ".join(result.stdout.split())


def test_difference_ends_with_1_and_shows_expected_and_obtained(rubric: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(verdict="MET")
    result = check(rubric, server)
    assert result.exit_code == 1
    assert "says nothing │ margin │ UNMET │ MET │ different │ as scripted" in " ".join(result.stdout.split())
    assert "2 cases: 4 of 6 expectations as expected, 2 different." in result.stdout


@pytest.mark.parametrize("reply", [Reply(text="no JSON"), Reply(status=500), Reply(status=401)])
def test_failed_judge_ends_with_3_and_is_no_difference(rubric: Path, server: OpenAIServer, reply: Reply) -> None:
    server.script = lambda _call: reply
    result = check(rubric, server, "--json")
    assert result.exit_code == 3
    figures = json.loads(result.stdout)
    assert {row["outcome"] for row in figures["results"]} <= {"failed", "as expected"}
    assert figures["criteria"]["margin"]["failed"] == 2


def test_failure_has_priority_over_a_difference(rubric: Path, server: OpenAIServer) -> None:
    server.script = lambda call: Reply(verdict="UNMET") if "17.2%" in call.prompt else Reply(text="no JSON")
    assert check(rubric, server).exit_code == 3


def test_limit_of_calls_ends_with_4(rubric: Path, server: OpenAIServer) -> None:
    result = check(rubric, server, "--max-calls", 1)
    assert result.exit_code == 4
    assert "without an answer, because the run was stopped" in result.stdout
    assert "Stopped: " in result.stderr


def test_run_without_any_grade_prints_one_reason_and_no_table(rubric: Path, server: OpenAIServer) -> None:
    result = check(rubric, server, "--max-calls", 0)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "No case was graded: " in result.stderr
    assert not server.calls


def test_rubric_of_checks_runs_without_a_judge(tmp_path: Path) -> None:
    text = RUBRIC.replace("requirement: States the margin", "requirement: States it, check: {number: 17.2%}")
    (tmp_path / "rubric.yaml").write_text(text)
    result = run("test", tmp_path / "rubric.yaml")
    assert result.exit_code == 0, result.output
    assert "0 calls" in result.stdout
    assert result.stderr == ""


def test_rubric_that_needs_a_judge_names_what_to_pass(rubric: Path) -> None:
    result = run("test", rubric)
    assert result.exit_code == 2
    assert "`--judge` is missing: `margin` has no `check`" in result.stderr
    rubric.write_text("criteria:\n- {name: a, requirement: r, check: {number: 1}, applies_when: It is asked}\n" + CASES)
    assert "`--judge` is missing: `The following is the case here" in run("test", rubric).stderr


CASES = "cases:\n- {name: x, response: '1', expect: {passed: true}}\n"


def test_offline_judge_runs_if_it_is_named(rubric: Path) -> None:
    rubric.write_text(RUBRIC.replace("States the margin", "States 17.2%"))
    result = run("test", rubric, "--judge", "offline")
    assert result.exit_code == 0, result.output
    assert "The offline judge uses no model" in result.stderr


def test_cases_next_to_the_rubric_and_of_the_option_are_added(rubric: Path, server: OpenAIServer) -> None:
    beside = rubric.with_name("rubric.cases.yaml")
    beside.write_text("- {name: beside, response: Hm., expect: {verdicts: {margin: UNMET}}}\n")
    other = rubric.with_name("other.yaml")
    other.write_text("- {name: other, response: Hm., expect: {verdicts: {margin: UNMET}}}\n")
    assert "beside" in check(rubric, server).stdout
    result = check(rubric, server, "--cases", other)
    assert "other" in result.stdout
    assert "beside" not in result.stdout
    other.write_text("- {name: other, response: Hm., expect: {verdicts: {margn: UNMET}}}\n")
    result = check(rubric, server, "--cases", other)
    assert result.exit_code == 2
    assert f"{other}: `cases.0.expect.verdicts.margn`: the case 'other' names 'margn'" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RUBRIC.partition("cases:")[0], "the rubric has no test cases: write them under `cases`"),
        (RUBRIC.replace("margin: UNMET", "margin: UNMETT"), "did you mean 'UNMET'?"),
        ("[", "is not YAML"),
    ],
)
def test_rubric_with_a_fault_is_refused_in_lines_with_its_name(
    rubric: Path, server: OpenAIServer, text: str, message: str
) -> None:
    rubric.write_text(text)
    result = check(rubric, server)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{rubric}: ")
    assert message in result.stderr
    assert not server.calls


def test_overall_strategy_refuses_expected_verdicts(rubric: Path, server: OpenAIServer) -> None:
    result = check(rubric, server, "--strategy", "holistic")
    assert result.exit_code == 2
    assert "expects verdicts" in result.stderr


def test_repetitions_are_counted_and_stored(rubric: Path, server: OpenAIServer) -> None:
    ledger = rubric.with_name("cases.sqlite")
    server.script = lambda call: Reply(verdict="UNMET" if call.number == 2 else answer(call).verdict)
    first = check(rubric, server, "--repeat", 3, "--ledger", ledger)
    assert "flips [95% interval]" in first.stdout
    assert len(server.calls) == 6
    again = check(rubric, server, "--repeat", 3, "--ledger", ledger)
    assert len(server.calls) == 6
    assert (
        again.stdout.partition(" calls")[0].rpartition(". ")[0]
        == first.stdout.partition(" calls")[0].rpartition(". ")[0]
    )


def test_judge_that_fails_in_a_later_repetition_ends_with_3(rubric: Path, server: OpenAIServer) -> None:
    server.script = lambda call: answer(call) if len(server.calls) <= 2 else Reply(text="no JSON")
    path = rubric.with_name("junit.xml")
    result = check(rubric, server, "--repeat", 2, "--junit", path)
    assert result.exit_code == 3, result.output
    assert "6 of 6 expectations as expected" in result.stdout
    suite = ElementTree.fromstring(path.read_text())
    assert (suite.get("errors"), suite.get("failures")) == ("2", "0")
    assert "1 repetition without an answer" in path.read_text()


def test_dry_run_calls_nothing_and_counts_only_missing_answers(rubric: Path, server: OpenAIServer) -> None:
    ledger = rubric.with_name("cases.sqlite")
    price = ("--price", "openai/mock=1,2")
    result = check(rubric, server, "--dry-run", "--repeat", 3, "--ledger", ledger, *price)
    assert result.exit_code == 0
    assert "2 cases, 3 times each: at most 6 calls for at most $" in result.stdout
    assert not server.calls
    assert not ledger.exists()
    check(rubric, server, "--ledger", ledger)
    result = check(rubric, server, "--dry-run", "--repeat", 3, "--ledger", ledger, "--json")
    figures = json.loads(result.stdout)
    assert (figures["calls"], figures["stored"], figures["cost"]) == (4, 2, None)
    assert len(server.calls) == 2


def test_junit_file_has_a_test_for_each_case_by_its_outcome(rubric: Path, server: OpenAIServer) -> None:
    path = rubric.with_name("junit.xml")
    server.script = lambda _call: Reply(verdict="UNMET")
    assert check(rubric, server, "--junit", path).exit_code == 1
    suite = ElementTree.fromstring(path.read_text())
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("margins", "2", "1")
    [failed, passed] = suite.iter("testcase")
    assert failed.get("name") == "states it"
    failure = failed.find("failure")
    assert failure is not None
    assert "states it: margin: expected MET, obtained UNMET: as scripted" in str(failure.text)
    assert passed.find("system-out") is not None
    server.script = lambda _call: Reply(text="no JSON")
    assert check(rubric, server, "--junit", path).exit_code == 3
    assert ElementTree.fromstring(path.read_text()).get("errors") == "2"


def test_error_of_the_junit_file_is_the_failure_and_not_a_difference(rubric: Path, server: OpenAIServer) -> None:
    rubric.write_text(
        "criteria: [{name: a, requirement: Is A}, {name: b, requirement: Is B}]\n"
        "cases: [{name: one, response: text, expect: {verdicts: {a: MET, b: MET}}}]\n"
    )
    server.script = lambda call: Reply(verdict="UNMET") if "Is A" in call.prompt else Reply(text="no JSON")
    path = rubric.with_name("junit.xml")
    assert check(rubric, server, "--junit", path).exit_code == 3
    [error] = ElementTree.fromstring(path.read_text()).iter("error")
    assert str(error.get("message")).startswith("one: b: expected MET, obtained no answer")


def test_interrupted_run_ends_with_130_and_hides_the_password_of_its_ledger(
    rubric: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object, **_settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rubric_integrations.trust.cases.run_cases", interrupt)
    result = check(rubric, server, "--ledger", "postgresql://me:secret@host/db")
    assert result.exit_code == 130
    assert "The answers so far are in postgresql://host/db: repeat the command to go on." in result.stderr
    assert "secret" not in result.output


def test_junit_file_never_replaces_another_file(rubric: Path, server: OpenAIServer) -> None:
    result = check(rubric, server, "--junit", rubric)
    assert result.exit_code == 2
    assert rubric.read_text() == RUBRIC
    assert not server.calls
