"""The command `plan`: how many labels, and how many submissions, a conclusion needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.cli.trust_files import write_run
from tests.trust.runs import binary_rubric, run_of


def test_plan_prints_how_many_labels_an_interval_needs_and_the_least_that_is_useful() -> None:
    options = ("--half-width", 0.05, "--judged", 1000, "--rate", 0.8)
    result = run("plan", *options, "--correlation", 0.7)
    assert (result.exit_code, " 147 " in result.stdout) == (0, True), result.output
    assert "Fewer than 50 labels are not recommended" in result.stdout
    figures = json.loads(run("plan", *options, "--json").stdout)
    assert [entry["labels"] for entry in figures["labels"]] == [243, 194, 147, 83]
    assert (figures["fewest_labels"], figures["gate"]) == (50, None)


def test_plan_names_the_width_that_is_possible_if_the_one_that_is_wanted_is_not() -> None:
    result = run("plan", "--half-width", 0.01, "--judged", 100, "--rate", 0.5)
    assert result.exit_code == 0, result.output
    assert "impossible; labels for all 100 submissions give \N{PLUS-MINUS SIGN}0.098" in result.stdout
    figures = json.loads(run("plan", "--half-width", 0.01, "--judged", 100, "--rate", 0.5, "--json").stdout)
    assert {entry["labels"] for entry in figures["labels"]} == {None}


def test_plan_of_a_run_takes_the_spread_of_its_scores_and_the_rates_of_its_criteria(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.jsonl", run_of(binary_rubric(2), [["MET", "MET"], ["MET", "UNMET"]] * 200))
    result = run("plan", path, "--half-width", 0.05, "--json")
    figures = {entry["figure"]: entry for entry in json.loads(result.stdout)["labels"]}
    assert list(figures) == ["the mean score", "c0", "c1"]
    assert (figures["c1"]["rate"], figures["c1"]["judged"]) == (0.5, 400)
    assert figures["the mean score"]["sd"] == pytest.approx(0.25, abs=0.001)


def test_plan_of_a_gate_prints_how_many_submissions_it_needs() -> None:
    result = run("plan", "--min-score", 0.9)
    assert result.exit_code == 0, result.output
    assert "needs at least 27 submissions, all perfect, and 43 if it is evaluated after each" in result.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "plan needs --half-width"),
        (("--half-width", 0), "--half-width must be above 0"),
        (("--half-width", 0.05), "plan needs --judged"),
        (("--half-width", 0.05, "--judged", 100, "--rate", 0.5, "--sd", 0.2), "exactly one of --rate and --sd"),
        (("--min-score", 1), "`min_score` must be above 0 and below 1"),
        (("--min-score", 0.9, "--alpha", 0), "`alpha` must be above 0"),
        (("missing.jsonl", "--half-width", 0.05), "No such file"),
        (("missing.jsonl", "--half-width", 0.05, "--judged", 9), "come from the run"),
    ],
)
def test_plan_with_wrong_options_exits_with_2_and_one_line(options: tuple[object, ...], words: str) -> None:
    result = run("plan", *options)
    assert (result.exit_code, result.stdout, words in result.stderr) == (2, "", True), result.output
    assert len(result.stderr.splitlines()) == 1
