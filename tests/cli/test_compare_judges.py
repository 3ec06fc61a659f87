"""The command `compare-judges`: its table, its JSON, its exit codes, and the inputs that it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run
from tests.cli.trust_files import write_labels, write_run
from tests.trust.runs import binary_rubric, labels_of, run_of
from tests.trust.test_judge_pairs import people, wrong_at

TRUTH = people(200)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rubric = binary_rubric()
    answers = {"strong": TRUTH, "cheap": wrong_at(TRUTH, [7]), "poor": wrong_at(TRUTH, range(0, 200, 3))}
    for name, of_judge in answers.items():
        write_run(tmp_path / f"{name}.jsonl", run_of(rubric, [[answer] for answer in of_judge]))
    write_labels(tmp_path / "labels.jsonl", labels_of(rubric, [[answer] for answer in TRUTH]))
    return tmp_path


def test_cheap_judge_that_is_good_enough_passes_the_gate(files: Path) -> None:
    result = run("compare-judges", files / "strong.jsonl", files / "cheap.jsonl", files / "labels.jsonl", "--gate")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "cheap minus strong [95% intervals]" in text
    assert "accuracy │ 1.00 │ 0.99 │ -0.01" in text
    assert "200 labelled judgments of 200 responses. cheap is good enough: it loses less than 0.03" in text


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--gate"], 1)])
def test_judge_that_loses_much_fails_only_the_gate(files: Path, options: list[str], code: int) -> None:
    paths = (files / "strong.jsonl", files / "poor.jsonl", files / "labels.jsonl")
    result = run("compare-judges", *paths, *options)
    assert result.exit_code == code
    assert "poor is not good enough: it loses more than 0.03" in result.stdout
    assert "see `certify`" in result.stdout


def test_json_has_the_record_and_the_sentence(files: Path) -> None:
    paths = (files / "strong.jsonl", files / "poor.jsonl", files / "labels.jsonl")
    result = run("compare-judges", *paths, "--margin", 0.5, "--json")
    figures: dict[str, Any] = json.loads(result.stdout, parse_constant=pytest.fail)
    assert (figures["decision"], figures["margin"], figures["worse"]) == ("good enough", 0.5, ["c0"])
    assert figures["headline"].endswith("but it is significantly worse on c0.")
    assert figures["criteria"]["c0"]["accuracy"]["difference"]["value"] == pytest.approx(-67 / 200)


def test_bad_input_is_refused_in_one_line(files: Path) -> None:
    strong, labels = files / "strong.jsonl", files / "labels.jsonl"
    result = run("compare-judges", strong, strong, labels)
    assert (result.exit_code, "is the same file as" in result.stderr) == (2, True)
    result = run("compare-judges", strong, files / "cheap.jsonl", labels, "--margin", 2)
    assert (result.exit_code, "`margin` must be above 0 and below 1, got 2.0" in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["agree", "calibrate"])
def test_two_runs_in_place_of_labels_are_pointed_to_compare_judges(files: Path, command: str) -> None:
    result = run(command, files / "strong.jsonl", files / "cheap.jsonl")
    assert result.exit_code == 2
    assert "is a run, and not human labels" in result.stderr
    assert "compare-judges RUN RUN LABELS" in result.stderr
