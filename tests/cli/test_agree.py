"""The commands `agree` and `calibrate`: their tables, their JSON, and the inputs that they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.scoring.labels import Sampled
from rubric_integrations.trust import Agreement, Calibration, agreement, calibrate
from tests.cli.commands import run
from tests.cli.trust_files import write_labels, write_run
from tests.trust.runs import binary_rubric, labels_of, run_of

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
    assert "104 labels by Ana, 0 of them blind." in text
    assert "nan" not in text.lower()


@pytest.mark.parametrize("command", ["agree", "calibrate"])
def test_samples_of_one_input_are_grouped_by_their_ids(trusted: Path, command: str) -> None:
    ids = [f"q{place // 4}/{place % 4}" for place in range(len(JUDGE))]
    rows = [row._replace(id=row_id) for row, row_id in zip(run_of(RUBRIC, JUDGE), ids, strict=True)]
    labels = [label.model_copy(update={"id": None}) for label in labels_of(RUBRIC, PEOPLE)]
    files = write_run(trusted / "samples.jsonl", rows), write_labels(trusted / "of_samples.jsonl", labels)
    result = run(command, *files, "--cluster-by", "/", "--json")
    measure = agreement if command == "agree" else calibrate
    expected = measure(rows, labels, cluster=lambda row_id: row_id.split("/")[0])
    figures = json.loads(result.stdout)
    key, value = ("accuracy", expected.accuracy) if isinstance(expected, Agreement) else ("score", expected.score)
    assert figures[key] == value._asdict()
    both = run(command, *files, "--cluster-by", "/", "--cluster", "id")
    assert (both.exit_code, "two ways to say which rows belong together" in both.stderr) == (2, True)
    assert run(command, *files, "--cluster-by", "#").exit_code == 2


def test_agree_with_json_prints_the_record_alone(trusted: Path) -> None:
    result = run("agree", trusted / "run.jsonl", trusted / "labels.jsonl", "--json", "--level", 0.9)
    figures = json.loads(result.stdout, parse_constant=pytest.fail)
    expected = agreement(run_of(RUBRIC, JUDGE), labels_of(RUBRIC, PEOPLE, rater="Ana"), level=0.9)
    assert (figures.pop("panel"), figures.pop("confidence")) == (None, None)
    assert [row["name"] for row in figures.pop("disagreements")] == ["c0", "c1"]
    assert Agreement.model_validate(figures).accuracy == expected.accuracy
    assert figures["criteria"]["c0"]["accuracy"]["low"] == expected.criteria["c0"].accuracy.low
    assert figures["criteria"]["c1"]["kappa"]["n"] == 39


def test_agree_with_the_files_of_two_raters_measures_their_agreement_with_each_other(trusted: Path) -> None:
    second = [["MET", "MET"] if number % 8 == 1 else answers for number, answers in enumerate(PEOPLE)]
    bob = write_labels(trusted / "bob.jsonl", labels_of(RUBRIC, second, rater="Bob"))
    result = run("agree", trusted / "run.jsonl", trusted / "labels.jsonl", bob, "--json")
    criterion = json.loads(result.stdout)["criteria"]["c0"]
    assert criterion["undecided"] == 7
    assert 0.5 < criterion["people_alpha"] < 1
    twice = run("agree", trusted / "run.jsonl", bob, bob)
    assert twice.exit_code == 2
    assert "is the same file as" in twice.stderr


def test_calibrate_prints_the_corrected_score_and_rates(trusted: Path) -> None:
    result = run("calibrate", trusted / "run.jsonl", trusted / "labels.jsonl")
    assert result.exit_code == 0, result.output
    expected = calibrate(run_of(RUBRIC, JUDGE), labels_of(RUBRIC, PEOPLE))
    assert expected.score.value is not None
    assert f"0.750 by the judge, {expected.score.value:.3f} [" in result.stdout
    assert "(n = 52) by human labels." in result.stdout
    assert expected.score_lines[1] in result.stdout
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


def write_labelled_run(path: Path, people: list[list[str]]) -> Path:
    """Write a run whose rows have labels, as those of a file of responses with a column `labels`."""
    write_run(path, run_of(RUBRIC, JUDGE))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line, answers in zip(lines, people, strict=False):
        line["labels"] = dict(zip(("c0", "c1"), answers, strict=True))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("command", ["agree", "calibrate"])
def test_labels_of_the_rows_are_used_without_a_file_of_labels(tmp_path: Path, command: str) -> None:
    people = [["MET", "MET"], ["UNMET", "UNMET"], ["UNMET", "MET"], ["MET", "MET"]] * 20
    path = write_labelled_run(tmp_path / "run.jsonl", people)
    result = run(command, path)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    if command == "agree":
        assert "160 labels, 160 of them blind." in result.stdout
    else:
        assert "(n = 80) by human labels." in result.stdout


@pytest.mark.parametrize("command", ["agree", "calibrate"])
def test_rows_without_labels_or_with_labels_of_a_part_are_refused(tmp_path: Path, command: str) -> None:
    none = write_labelled_run(tmp_path / "none.jsonl", [])
    part = write_labelled_run(tmp_path / "part.jsonl", [["MET", "MET"]] * 9)
    words = {none: "or name a file of labels after the run", part: "the rows have 18 labels, which do not cover all"}
    for path, message in words.items():
        result = run(command, path)
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.output
        assert message in result.stderr


def test_chosen_labels_beside_drawn_ones_are_counted_in_the_shell(trusted: Path) -> None:
    # The same rater overrules other rows than those that were drawn.
    overruled = labels_of(RUBRIC, [[None, None]] * 60 + [["UNMET", None]] * 9, "chosen", rater="Ana")
    mixed = write_labels(trusted / "mixed.jsonl", [*labels_of(RUBRIC, PEOPLE, rater="Ana"), *overruled])
    for command in ("agree", "calibrate"):
        result = run(command, trusted / "run.jsonl", mixed)
        assert (result.exit_code, "`chosen` labels are left out (9)" in result.stderr) == (0, True), result.output
        drawn = run(command, trusted / "run.jsonl", trusted / "labels.jsonl")
        assert result.stdout == drawn.stdout


def test_labels_of_which_only_chosen_ones_belong_to_the_run_are_refused(trusted: Path) -> None:
    labels = [*labels_of(RUBRIC, PEOPLE[:2], "chosen"), *labels_of(RUBRIC, PEOPLE[:3], text="other")]
    path = write_labels(trusted / "mixed.jsonl", labels)
    for command, words in {"agree": "none of its 6 labels, without the `chosen`", "calibrate": "none of the 6"}.items():
        result = run(command, trusted / "run.jsonl", path)
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.output
        assert words in result.stderr


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
        ("run", "chosen", (), "every label is `chosen`"),
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


def test_rows_in_groups_have_wide_intervals_in_the_shell(tmp_path: Path) -> None:
    answers = [["MET", "MET"], ["MET", "UNMET"], ["UNMET", "MET"]] * 20
    rows = [row._replace(metadata={"topic": int(row.id) % 6}) for row in run_of(RUBRIC, answers)]
    path, labels = write_run(tmp_path / "run.jsonl", rows), labels_of(RUBRIC, [["MET", "UNMET"]] * 60)
    files = (path, write_labels(tmp_path / "labels.jsonl", labels))
    for command, expected in (("agree", agreement), ("calibrate", calibrate)):
        result = run(command, *files, "--cluster", "topic", "--json")
        figures = json.loads(result.stdout)
        assert figures["warnings"] == list(expected(rows, labels, cluster="topic").warnings)
        assert "warning: few groups (6)" in " ".join(result.stderr.split())
        refused = run(command, *files, "--cluster", "document")
        assert (refused.exit_code, "it has `id`, `query`, `topic`" in " ".join(refused.stderr.split())) == (2, True)
    assert "Kappa of all judgments in one table is" in " ".join(run("agree", *files).stdout.split())
    plan = json.loads(run("plan", path, "--half-width", 0.1, "--cluster", "topic", "--json").stdout)
    assert [(entry["groups"], entry["labels"]) for entry in plan["labels"]][-1] == (pytest.approx(6), None)
    needs_run = run("plan", "--half-width", 0.1, "--judged", 9, "--rate", 0.5, "--cluster", "topic")
    assert (needs_run.exit_code, "needs a run" in needs_run.stderr) == (2, True)
