"""Files of labels, and labels that the rows of a run bring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, Option, Rubric, Submission
from rubric_integrations.agreement import LabelsError, read_labels
from rubric_integrations.results import LabelledJudgment
from rubric_integrations.runs import GradedRow
from tests.agreement.runs import report_of

RUBRIC = Rubric(
    [
        Criterion(name="right", requirement="Is right"),
        Criterion(requirement="Tone?", options=[Option(label="plain", value=1), Option(label="x", value=0)]),
    ]
)


def label_line(**fields: Any) -> str:
    defaults = {"criterion": "right", "requirement": "Is right", "verdict": "MET", "submission": {"response": "r"}}
    return json.dumps(defaults | fields)


def test_read_labels_finds_criteria_by_their_key(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    second = label_line(criterion="c2", requirement="Tone?", verdict="plain", reason="So.")
    path.write_text(f"{label_line()}\n\n{second}\n")
    submission = Submission(response="r")
    expected = [
        LabelledJudgment(submission=submission, criterion=RUBRIC.criteria[0], verdict="MET"),
        LabelledJudgment(submission=submission, criterion=RUBRIC.criteria[1], verdict="plain", reason="So."),
    ]
    assert read_labels(path, RUBRIC) == read_labels(str(path), RUBRIC) == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            label_line(criterion="other"),
            r":1: the rubric has no criterion 'other'; it has \['right', 'c2'\]",
        ),
        ('{"criterion": "right", "verdict": "MET"}', "it has no `submission` and no `response`"),
        ('{"criterion": "right", "submission": {"response": "r"}}', ":1: is no label: it has no `verdict`"),
        (label_line(requirement="Was right"), "`right` was 'Was right' when it was labelled, and is 'Is right'"),
        (label_line(verdict="maybe"), "is not a label for this rubric: .*is no verdict"),
        (label_line(submission={"response": " "}), "`response` is empty"),
        ("nope", ":1: is not JSON: .* name a file of labels"),
        ("[]", ":1: is list, not a label: write one object a line"),
        ("", "labels.jsonl: has no labels: it is empty"),
    ],
)
def test_read_labels_of_another_rubric_are_refused(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(LabelsError, match=words):
        read_labels(path, RUBRIC)


def own_rubric_run() -> list[GradedRow]:
    """Make a run in which each row has another criterion of the same name."""
    rubrics = {name: Rubric([Criterion(name="c1", requirement=f"Says {name}")]) for name in ("a", "b")}
    return [GradedRow(name, Submission(response=name), report_of(own, ["MET"]), None) for name, own in rubrics.items()]


def test_read_labels_of_a_run_takes_the_criteria_and_the_submission_of_each_row(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps({"id": name, "criterion": "c1", "verdict": "MET"}) + "\n" for name in "ba"))
    labels = read_labels(path, own_rubric_run())
    assert [(label.criterion.requirement, label.submission.response) for label in labels] == [
        ("Says b", "b"),
        ("Says a", "a"),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"id": "z"}, ":1: is about the row 'z', which the run does not have: name the run that was labelled"),
        ({"response": "a"}, ":1: the run has 2 different criteria 'c1', and the label has no `id` of a row in it"),
        ({}, ":1: is no label: it has no `submission` and no `response`: add one, or the `id` of the row"),
        ({"id": "a", "requirement": "Says b"}, "`c1` was 'Says b' when it was labelled, and is 'Says a' in the row"),
        ({"id": "a", "criterion": "c2"}, r":1: the row 'a' of the run has no criterion 'c2'; it has \['c1'\]"),
    ],
)
def test_read_labels_that_do_not_belong_to_the_run_are_refused(
    tmp_path: Path, line: dict[str, str], words: str
) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(json.dumps({"criterion": "c1", "verdict": "MET"} | line) + "\n")
    with pytest.raises(LabelsError, match=words):
        read_labels(path, own_rubric_run())


def test_read_labels_of_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match="cannot be read: No such file"):
        read_labels(tmp_path / "missing.jsonl", RUBRIC)


def test_label_with_unusual_line_separators_is_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    fields = {"criterion": "right", "verdict": "MET", "submission": {"response": "a\u2028b\u0085c"}}
    path.write_text(json.dumps(fields, ensure_ascii=False) + "\n" + label_line()[:-9], encoding="utf-8")
    with pytest.warns(UserWarning, match="labels.jsonl:2: is cut off"):
        labels = read_labels(path, RUBRIC)
    assert [label.submission.response for label in labels] == ["a\u2028b\u0085c"]


def test_label_with_a_repeated_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(label_line()[:-1] + ', "verdict": "UNMET"}\n')
    with pytest.raises(LabelsError, match=":1: has the key 'verdict' twice in one object"):
        read_labels(path, RUBRIC)
