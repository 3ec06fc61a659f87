"""`grade --criterion` and `--tag`: some of the criteria, in the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import grade, read_lines, run

RUBRIC = """
- {name: answer, weight: 3, requirement: Says 42, check: {number: 42}, tags: [facts], required: true}
- {name: brief, weight: 1, requirement: Has two words, check: {max_words: 2}, tags: [style]}
- {name: margin, weight: 2, requirement: Names the margin, check: {contains: margin}, tags: [facts]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    (tmp_path / "responses.jsonl").write_text('{"id": "a", "response": "42"}\n{"id": "b", "response": "a margin"}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("options", "names", "scores"),
    [
        (["--criterion", "answer"], ["answer"], [1.0, 0.0]),
        (["--criterion", "brief", "--criterion", "margin"], ["brief", "margin"], [1 / 3, 1.0]),
        (["--tag", "facts"], ["answer", "margin"], [0.6, 0.4]),
        (["--tag", "style", "--criterion", "answer"], ["answer", "brief"], [1.0, 0.25]),
    ],
)
def test_only_the_selected_criteria_are_graded_and_no_row_passes(
    folder: Path, options: list[str], names: list[str], scores: list[float]
) -> None:
    result = grade(folder, *options, "--out", folder / "run.jsonl")
    assert result.exit_code == 0, result.output
    assert "Only the criteria of --criterion and --tag are graded: no submission can pass" in result.output
    rows = read_lines(folder / "run.jsonl")
    assert [[entry["name"] for entry in row["report"]] for row in rows] == [names, names]
    assert [row["score"] for row in rows] == pytest.approx(scores)
    assert [(row["passed"], row["partial"]) for row in rows] == [(False, True)] * 2
    assert "is not selected" in json.dumps(rows[0]["scoring"])


def test_gates_about_passed_rows_are_refused_with_a_selection_and_the_mean_is_not(folder: Path) -> None:
    for option, *values in (("--gate",), ("--min-pass-rate", "0.5")):
        result = grade(folder, "--criterion", "brief", option, *values)
        assert (result.exit_code, option in result.output) == (2, True)
        assert "no submission can pass" in result.output
    assert grade(folder, "--criterion", "brief", "--min-score", 0.9).exit_code == 0
    assert grade(folder, "--criterion", "margin", "--min-score", 0.9).exit_code == 1


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        ("--criterion", "answr", "no criterion 'answr': did you mean `answer`?"),
        ("--tag", "fact", "no tag 'fact': did you mean `facts`?"),
        ("--criterion", "\x1b[31m", "no criterion '\\x1b[31m'"),
    ],
)
def test_name_that_the_rubric_lacks_is_refused(folder: Path, option: str, name: str, words: str) -> None:
    result = grade(folder, option, name)
    assert (result.exit_code, words in " ".join(result.output.split())) == (2, True), result.output


def test_selection_applies_to_the_rubric_of_a_row_joined_with_the_shared_one(folder: Path) -> None:
    own = [{"name": "own", "requirement": "Says 7", "check": {"number": 7}, "tags": ["facts"]}]
    rows = [{"id": "a", "response": "42 and 7", "rubric": own}, {"id": "b", "response": "7"}]
    (folder / "responses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert grade(folder, "--tag", "facts", "--out", folder / "run.jsonl").exit_code == 0
    graded = read_lines(folder / "run.jsonl")
    assert [[entry["name"] for entry in row["report"]] for row in graded] == [
        ["answer", "margin", "own"], ["answer", "margin"],
    ]  # fmt: skip
    result = grade(folder, "--criterion", "own", "--out", folder / "own.jsonl")
    assert "row b cannot be graded by the selected criteria: the rubric has no criterion 'own'" in result.output
    first, second = read_lines(folder / "own.jsonl")
    assert (first["score"], second["score"]) == (1.0, None)


def test_strict_is_about_the_file_and_not_about_the_selection(folder: Path) -> None:
    assert grade(folder, "--criterion", "brief", "--strict").exit_code == 0


def test_run_of_a_selection_is_not_compared_silently(folder: Path) -> None:
    grade(folder, "--out", folder / "whole.jsonl")
    grade(folder, "--criterion", "answer", "--out", folder / "part.jsonl")
    result = run("compare", folder / "whole.jsonl", folder / "part.jsonl")
    assert (result.exit_code, "cannot be compared" in result.output) == (2, True), result.output
