"""`test` with --mutations, --pairs and --labels: tables, JSON, JUnit, exit codes, limits and the dry run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.commands import run
from tests.openai_server import Call, OpenAIServer, Reply

JUDGE = ("--judge", "openai/mock", "--api-key", "none", "--max-retries", 0, "--max-outage", 0)
CRITERION = "name: margins\ncriteria:\n  - {name: margin, requirement: States the margin, sensitive_to: [tone]}\n"
CASES = """
cases:
  - name: states it
    response: The margin was high in Q4. Sales rose [red]too[/red].
    evidence: The margin was high in Q4.
    expect: {verdicts: {margin: MET}}
  - name: also states it
    response: It rains. The margin was high in Q4.
    evidence: The margin was high in Q4.
    expect: {verdicts: {margin: MET}}
  - name: says nothing
    response: It rains in the city.
    expect: {verdicts: {margin: UNMET}}
"""


def good(call: Call) -> Reply:
    is_met = "The margin was high" in call.prompt and "false: The margin" not in call.prompt
    return Reply(verdict="MET" if is_met else "UNMET")


def blind(call: Call) -> Reply:
    return Reply(verdict="UNMET" if "It rains in" in call.prompt else "MET")


@pytest.fixture
def rubric(tmp_path: Path, server: OpenAIServer) -> Path:
    server.script = good
    path = tmp_path / "rubric.yaml"
    path.write_text(CRITERION + CASES)
    return path


def check(rubric: Path, server: OpenAIServer, *options: object) -> Any:
    return run("test", rubric, *JUDGE, "--api-base", server.url, *options)


def test_mutations_of_a_good_criterion_end_with_0_and_say_what_they_prove(rubric: Path, server: OpenAIServer) -> None:
    result = check(rubric, server, "--mutations")
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "│ margin │ 10/10 │ 0/10, 0/9* │ - │ 0/10, 0/6* │ 0/10* │ 0/15 │ - │" in words
    assert "`margin`: not tested for tone: it is `sensitive_to` it" in words
    assert "0/10 at most 0.26" in words
    assert "0 criteria of 1 with a fault" in words


def test_fault_ends_with_1_and_fails_in_the_junit_file(rubric: Path, server: OpenAIServer, tmp_path: Path) -> None:
    server.script = blind
    result = check(rubric, server, "--mutations", "--junit", tmp_path / "junit.xml")
    assert result.exit_code == 1, result.output
    assert "`margin` is blind: 0 of 10 responses without their evidence" in " ".join(result.stdout.split())
    tests = {test.get("name"): test for test in ElementTree.parse(tmp_path / "junit.xml").iter("testcase")}
    failure = tests["mutations: margin"].find("failure")
    assert failure is not None
    assert "is blind" in str(failure.get("message"))
    assert tests["states it"].find("failure") is None


def test_json_has_the_mutants_and_the_separation(rubric: Path, server: OpenAIServer, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"better": "The margin was high.", "worse": "It rains."}))
    result = check(rubric, server, "--mutations", "--mutants", 5, "--pairs", pairs, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["repeat"] == 5
    assert figures["mutations"]["criteria"]["margin"]["result"]["evidence"]["count"] == 5
    assert figures["mutations"]["requested"] == 5
    assert figures["separation"]["separation"]["counts"]["right"] == 1
    assert figures["separation"]["headline"].startswith("No verdict: 1 independent group")


def test_dry_run_counts_cases_mutants_and_answers(rubric: Path, server: OpenAIServer, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"response": "a", "label": "good"}\n{"response": "b", "label": "bad"}\n')
    planned = json.loads(check(rubric, server, "--mutations", "--labels", labels, "--dry-run", "--json").stdout)
    assert server.calls == []
    text = check(rubric, server, "--mutations", "--labels", labels, "--dry-run").stdout
    assert f"3 cases, 5 times each, {planned['mutants']} mutants, 2 answers: at most {planned['calls']} calls" in text
    assert check(rubric, server, "--mutations", "--labels", labels).exit_code == 0
    assert len(server.calls) == planned["calls"] == 15 + planned["mutants"] + 2


def test_answers_are_separated_without_cases(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = good
    rubric, pairs = tmp_path / "plain.yaml", tmp_path / "pairs.jsonl"
    rubric.write_text(CRITERION)
    rows = [{"better": f"The margin was high {n}.", "worse": f"It rains {n}."} for n in range(40)]
    pairs.write_text("\n".join(map(json.dumps, rows)))
    result = check(rubric, server, "--pairs", pairs)
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "The rubric separates better from worse answers" in words
    assert "number of words alone" in words
    assert "always the most frequent answer │ 0.50" in words
    assert check(rubric, server, "--mutations").exit_code == 2


def test_limit_of_calls_holds_for_cases_and_mutants_together(rubric: Path, server: OpenAIServer) -> None:
    result = check(rubric, server, "--mutations", "--max-calls", 20)
    assert result.exit_code == 4
    assert "`max_calls` of 5 is reached; the unchanged cases had used the rest." in " ".join(result.output.split())
    assert len(server.calls) == 20


def test_ledger_answers_the_second_run(rubric: Path, server: OpenAIServer, tmp_path: Path) -> None:
    options = ("--mutations", "--ledger", tmp_path / "ledger.sqlite")
    assert check(rubric, server, *options).exit_code == 0
    calls = len(server.calls)
    assert check(rubric, server, *options).exit_code == 0
    assert len(server.calls) == calls


def test_judge_that_fails_on_mutants_ends_with_3_and_makes_no_fault(
    rubric: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    server.script = lambda call: Reply(text="no JSON") if "answer is correct" in call.prompt else good(call)
    result = check(rubric, server, "--mutations", "--junit", tmp_path / "junit.xml")
    assert result.exit_code == 3, result.output
    assert "`margin`: the judge failed on" in " ".join(result.stdout.split())
    assert "0 criteria of 1 with a fault" in " ".join(result.stdout.split())
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")


def test_judge_that_fails_on_one_answer_of_the_pairs_ends_with_3(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda call: Reply(text="no JSON") if "It rains 7." in call.prompt else good(call)
    rubric, pairs = tmp_path / "plain.yaml", tmp_path / "pairs.jsonl"
    rubric.write_text(CRITERION)
    rows = [{"better": f"The margin was high {n}.", "worse": f"It rains {n}."} for n in range(40)]
    pairs.write_text("\n".join(map(json.dumps, rows)))
    result = check(rubric, server, "--pairs", pairs, "--junit", tmp_path / "junit.xml")
    assert result.exit_code == 3, result.output
    [test] = ElementTree.parse(tmp_path / "junit.xml").iter("testcase")
    error = test.find("error")
    assert error is not None
    assert error.get("message") == "the judge failed on 1 answer"


@pytest.mark.parametrize("calls", [15, 20])
def test_stopped_mutations_are_an_error_in_the_junit_file(
    rubric: Path, server: OpenAIServer, tmp_path: Path, calls: int
) -> None:
    path = tmp_path / "junit.xml"
    assert check(rubric, server, "--mutations", "--max-calls", calls, "--junit", path).exit_code == 4
    assert ElementTree.parse(path).getroot().get("errors") == "1"


@pytest.mark.parametrize("option", ["--pairs", "--labels"])
def test_unreadable_answers_end_with_2_and_no_traceback(
    rubric: Path, server: OpenAIServer, tmp_path: Path, option: str
) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text("[1]\n")
    for file in (path, tmp_path / "missing.jsonl"):
        result = check(rubric, server, option, file)
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
    assert server.calls == []


def test_pairs_and_labels_together_are_refused(rubric: Path, server: OpenAIServer) -> None:
    assert check(rubric, server, "--pairs", rubric, "--labels", rubric).exit_code == 2
    assert server.calls == []
