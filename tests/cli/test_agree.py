"""The commands `agree` and `calibrate`: their tables, their JSON, and the inputs that they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.agreement import Agreement, Calibration, agreement, calibrate
from rubric_integrations.results.labels import Sampled
from tests.agreement.runs import binary_rubric, labels_of, run_of
from tests.cli.commands import run
from tests.cli.trust_files import write_labels, write_run

RUBRIC = binary_rubric(2)
JUDGE = [["MET", "MET"], ["MET", "UNMET"], ["UNMET", "MET"], ["MET", "CANNOT_ASSESS"]] * 20
PEOPLE = [["MET", "MET"], ["UNMET", "UNMET"], ["UNMET", "MET"], ["MET", "MET"]] * 13


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    write_run(tmp_path / "run.jsonl", run_of(RUBRIC, JUDGE))
    write_labels(tmp_path / "labels.jsonl", labels_of(RUBRIC, PEOPLE, rater="Ana"))
    return tmp_path


def test_agree_prints_each_criterion_and_the_totals(trusted: Path) -> None:
    result = run("agree", trusted / "run.jsonl", trusted / "labels.jsonl")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "0.75 [0.62," in text
    assert "75%" in text  # the judge abstains on every fourth of `c1`, whose accuracy is 1
    assert "Scores of 39 submissions" not in text
    assert "104 labels by Ana." in text
    assert "nan" not in text.lower()


def test_agree_with_json_prints_the_record_alone(trusted: Path) -> None:
    result = run("agree", trusted / "run.jsonl", trusted / "labels.jsonl", "--json", "--level", 0.9)
    figures = json.loads(result.stdout, parse_constant=pytest.fail)
    expected = agreement(run_of(RUBRIC, JUDGE), labels_of(RUBRIC, PEOPLE, rater="Ana"), level=0.9)
    assert (figures.pop("panel"), figures.pop("confidence")) == (None, None)
    assert [row["name"] for row in figures.pop("disagreements")] == ["c0", "c1"]
    assert Agreement.model_validate(figures).accuracy == expected.accuracy
    assert figures["criteria"]["c0"]["accuracy"]["low"] == expected.criteria["c0"].accuracy.low
    assert figures["criteria"]["c1"]["kappa"]["n"] == 39


def test_calibrate_prints_the_corrected_score_and_rates(trusted: Path) -> None:
    result = run("calibrate", trusted / "run.jsonl", trusted / "labels.jsonl")
    assert result.exit_code == 0, result.output
    expected = calibrate(run_of(RUBRIC, JUDGE), labels_of(RUBRIC, PEOPLE))
    assert expected.score.value is not None
    assert f"0.750 by the judge, {expected.score.value:.3f} [" in result.stdout
    assert "corrected by 52 labelled submissions" in result.stdout
    assert "of the labels that the same interval would need without it" in result.stdout
    as_json = run("calibrate", trusted / "run.jsonl", trusted / "labels.jsonl", "--json")
    assert Calibration.model_validate_json(as_json.stdout).score == expected.score


def test_calibrate_with_labels_by_verdict_corrects_the_rates_and_warns(trusted: Path) -> None:
    labels = write_labels(trusted / "some.jsonl", labels_of(RUBRIC, PEOPLE, "by_verdict"))
    result = run("calibrate", trusted / "run.jsonl", labels)
    assert result.exit_code == 0, result.output
    assert "warning: labels were drawn by the judge's verdict" in result.stderr
    assert "these labels do not correct it" in result.stdout


def test_labels_of_another_run_are_counted_or_refused(trusted: Path) -> None:
    other = labels_of(RUBRIC, PEOPLE[:2], text="other")
    write_labels(trusted / "mixed.jsonl", [*labels_of(RUBRIC, PEOPLE), *other])
    mixed = run("agree", trusted / "run.jsonl", trusted / "mixed.jsonl")
    assert (mixed.exit_code, "4 of 108 labels belong to no judgment" in mixed.stderr) == (0, True), mixed.output
    write_labels(trusted / "other.jsonl", other)
    for command in ("agree", "calibrate"):
        result = run(command, trusted / "run.jsonl", trusted / "other.jsonl", "--json")
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        assert "none of its 4 labels" in result.stderr or "none of the 4 labels" in result.stderr


def files_of(folder: Path) -> dict[str, Path]:
    sampled: Sampled = "chosen"
    write_labels(folder / "chosen.jsonl", labels_of(RUBRIC, PEOPLE, sampled))
    (folder / "empty.jsonl").write_text("")
    (folder / "cut.jsonl").write_text('{"id": 1\n{}\n')
    names = ("run", "labels", "chosen", "empty", "cut", "missing")
    return {"folder": folder, **{name: folder / f"{name}.jsonl" for name in names}}


@pytest.mark.parametrize("command", ["agree", "calibrate"])
@pytest.mark.parametrize(
    ("first", "second", "options", "words"),
    [
        ("missing", "labels", (), "No such file"),
        ("run", "missing", (), "No such file"),
        ("folder", "labels", (), "directory"),
        ("run", "folder", (), "directory"),
        ("empty", "labels", (), "is empty"),
        ("run", "empty", (), "has no labels"),
        ("run", "run", (), "is the same file"),
        ("labels", "run", (), "is no grade"),
        ("run", "cut", (), "cut.jsonl:1"),
        ("run", "chosen", (), "are `chosen`"),
        ("run", "labels", ("--level", 1), "--level must be above 0 and below 1"),
        ("run", "labels", ("--rubric", "none.yaml"), "none.yaml"),
    ],
)
def test_wrong_input_exits_with_2_and_one_line(
    trusted: Path, command: str, first: str, second: str, options: tuple[Any, ...], words: str
) -> None:
    files = files_of(trusted)
    result = run(command, files[first], files[second], *options)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
