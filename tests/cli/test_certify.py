"""The command `certify`: its table, its JSON, its exit codes, and the inputs that it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Submission
from rubric_integrations.judges.thresholds import read_thresholds
from tests.cli.commands import run
from tests.cli.trust_files import write_labels, write_run
from tests.trust.runs import binary_rubric, run_of
from tests.trust.test_certification import SURE, WRONG, cheap_run, truth_labels


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_run(tmp_path / "cheap.jsonl", cheap_run(SURE))
    write_labels(tmp_path / "labels.jsonl", truth_labels(WRONG))
    write_run(tmp_path / "strong.jsonl", run_of(binary_rubric(), [["UNMET" if error else "MET"] for error in WRONG]))
    return tmp_path


@pytest.mark.parametrize(("truth", "words"), [("labels.jsonl", "labels"), ("strong.jsonl", "the strong judge")])
def test_certify_prints_the_threshold_for_both_kinds_of_truth(files: Path, truth: str, words: str) -> None:
    result = run("certify", files / "cheap.jsonl", files / truth)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "Certified: use `escalate_below=0.99`" in text
    assert f"wrong by {words}" in text
    assert "0.99 │ 80% │ 80 │ 0 │ 0.028 │ yes" in text
    assert "which no threshold separates" in result.stderr


def test_certify_with_json_prints_the_record_alone(files: Path) -> None:
    result = run("certify", files / "cheap.jsonl", files / "labels.jsonl", "--json", "--alpha", 0.2)
    figures: dict[str, Any] = json.loads(result.stdout, parse_constant=pytest.fail)
    assert (figures["threshold"], figures["alpha"], figures["truth"]) == (0.99, 0.2, "labels")
    assert figures["steps"][0]["kept"] == 80


def test_certify_of_nothing_exits_with_1_and_says_how_many_labels_are_needed(files: Path) -> None:
    write_labels(files / "few.jsonl", truth_labels([False] * 20))
    result = run("certify", files / "cheap.jsonl", files / "few.jsonl")
    assert result.exit_code == 1
    assert "About 22 labelled submissions would do." in result.stdout
    assert json.loads(run("certify", files / "cheap.jsonl", files / "few.jsonl", "--json").stdout)["threshold"] is None


def test_certify_counts_one_judgment_of_each_group_of_a_column(files: Path) -> None:
    rows = [
        row._replace(submission=Submission(response=f"response {row.id}", query=f"topic {int(row.id) % 12}"))
        for row in cheap_run(SURE)
    ]
    write_run(files / "topics.jsonl", rows)
    arguments = ("certify", files / "topics.jsonl", files / "labels.jsonl", "--alpha", 0.3, "--json")
    assert json.loads(run(*arguments).stdout)["n"] == 100
    grouped = json.loads(run(*arguments, "--cluster", "query").stdout)
    assert grouped["n"] == 12
    assert "cluster" in run(*arguments).stderr
    assert "cluster" not in " ".join(grouped["warnings"])


def test_certify_refuses_bad_input_in_one_line(files: Path) -> None:
    (files / "empty.jsonl").write_text("")
    cases: list[tuple[str, str, tuple[str, ...], str]] = [
        ("cheap.jsonl", "cheap.jsonl", (), "is the same file as"),
        ("cheap.jsonl", "labels.jsonl", ("--alpha", "1.5"), "`alpha` must be above 0 and below 1, got 1.5"),
        ("cheap.jsonl", "labels.jsonl", ("--delta", "nan"), "`delta` must be above 0 and below 1"),
        ("cheap.jsonl", "labels.jsonl", ("--cluster", "topic"), "`cluster` is 'topic', and the row '1' has no such"),
        ("labels.jsonl", "cheap.jsonl", (), "is no grade"),
        ("cheap.jsonl", "empty.jsonl", (), "empty.jsonl"),
        ("cheap.jsonl", "absent.jsonl", (), "absent.jsonl"),
    ]
    for cheap, truth, options, words in cases:
        result = run("certify", files / cheap, files / truth, *options)
        assert result.exit_code == 2, result.output
        assert words in result.stderr
        assert "Traceback" not in result.stderr


def test_certify_by_criterion_writes_a_file_that_names_its_judge(files: Path) -> None:
    arguments = ("certify", files / "cheap.jsonl", files / "labels.jsonl", "--by", "criterion", "--alpha", 0.05)
    result = run(*arguments, "--delta", 0.05, "--out", files / "judge.json", "--judge", "openai/gpt-4.1-nano")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "c0 │ MET │ 0.99 │ 100 │ 0 of 80" in text
    assert "c0 │ UNMET │ - │ 0 │ 0 of 0 │ - │ 72" in text
    assert "These promises hold one by one, and not jointly." in text
    thresholds = read_thresholds(files / "judge.json")
    assert (thresholds.judge, thresholds.criteria[0].met, len(thresholds.trained_on)) == (
        "openai/gpt-4.1-nano", 0.99, 100,
    )  # fmt: skip
    assert run(*arguments, "--out", files / "judge.json").exit_code == 2
    figures: dict[str, Any] = json.loads(run(*arguments, "--json").stdout, parse_constant=pytest.fail)
    assert figures["criteria"]["c0"]["met"]["threshold"] == 0.99


def test_certify_by_criterion_of_nothing_exits_with_1_and_writes_nothing(files: Path) -> None:
    write_labels(files / "few.jsonl", truth_labels([False] * 20))
    arguments = ("certify", files / "cheap.jsonl", files / "few.jsonl", "--by", "criterion")
    result = run(*arguments, "--out", files / "judge.json")
    assert result.exit_code == 1
    assert "thresholds: not written" in result.stdout
    assert not (files / "judge.json").exists()


def test_file_of_thresholds_alone_needs_the_option_by(files: Path) -> None:
    result = run("certify", files / "cheap.jsonl", files / "labels.jsonl", "--out", files / "judge.json")
    assert result.exit_code == 2
    assert "`--out` and `--judge` need `--by criterion`" in result.stderr
