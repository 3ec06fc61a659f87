"""Human judgments: files of labels, and the selection of few-shot examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, Option, Rubric, Submission
from rubric_integrations.results import LabelledJudgment, read_labels
from rubric_integrations.results.labels import LabelsError, examples_of_criterion, select_examples

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
        ('{"criterion": "right", "verdict": "MET"}', "has no 'submission'"),
        (label_line(requirement="Was right"), "`right` was 'Was right' when it was labelled, and is 'Is right'"),
        (label_line(verdict="maybe"), "is not a label for this rubric: .*is no verdict"),
        (label_line(submission={"response": " "}), "`response` is empty"),
        ("nope", ":1: is not JSON: .* name a file of labels"),
        ("[]", "is not a label for this rubric"),
    ],
)
def test_read_labels_of_another_rubric_are_refused(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(LabelsError, match=words):
        read_labels(path, RUBRIC)


def test_read_labels_of_rows_with_their_own_rubrics_go_to_the_rubric_of_their_row(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    rubrics = {name: Rubric([Criterion(requirement=f"Says {name}")]) for name in ("a", "b")}
    path.write_text("".join(label_line(id=name, criterion="c1", requirement=f"Says {name}") + "\n" for name in "ba"))
    labels = read_labels(path, rubrics)
    assert [label.criterion for label in labels] == [rubrics["b"].criteria[0], rubrics["a"].criteria[0]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (label_line(id="z"), ":1: is about the row 'z', which has no rubric in `rubric`: pass the rubrics of the run"),
        (label_line(), ":1: has no `id`, which says which row's rubric it belongs to"),
        (label_line(id="a", criterion="c1", requirement="Says b"), "`c1` was 'Says b' when it was labelled"),
    ],
)
def test_read_labels_of_a_row_without_its_rubric_are_refused(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(LabelsError, match=words):
        read_labels(path, {"a": Rubric([Criterion(requirement="Says a")])})


def test_read_labels_of_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match="cannot be read: No such file"):
        read_labels(tmp_path / "missing.jsonl", RUBRIC)


def label(response: str, verdict: str, criterion: Criterion = RUBRIC.criteria[0]) -> LabelledJudgment:
    return LabelledJudgment(submission=Submission(response=response), criterion=criterion, verdict=verdict)


def test_label_that_does_not_answer_its_criterion_is_refused() -> None:
    with pytest.raises(ValueError, match="no verdict"):
        label("text", "PARTLY")


def test_select_examples_balances_verdicts_and_keeps_the_order() -> None:
    examples = [label(f"met {i}", "MET") for i in range(5)] + [label("unmet", "UNMET")]
    selected = select_examples(examples, "binary", 4, "x")
    assert [example.verdict for example in selected] == ["MET", "MET", "MET", "UNMET"]
    assert [example.verdict for example in select_examples(examples, "binary", 2, "x")] == ["MET", "UNMET"]
    assert select_examples([], "binary", 4, "x") == []


def test_select_examples_leaves_out_other_kinds_and_the_graded_response() -> None:
    examples = [label("graded", "MET"), label("other", "UNMET"), label("text", "plain", RUBRIC.criteria[1])]
    assert select_examples(examples, "binary", 4, " graded ") == [examples[1]]
    assert select_examples(examples, "ordinal", 4, "graded") == [examples[2]]
    assert select_examples(examples, "scaled", 4, "graded") == []


def test_examples_of_criterion_are_those_of_the_rubric_without_the_graded_response() -> None:
    criterion = Criterion.model_validate(
        {
            "requirement": "How good, from 0 to 10?",
            "scale": {"min": 0, "max": 10},
            "examples": [
                {"output": "good", "score": 9.0, "explanation": "So.", "input": "Q"},
                {"output": "graded", "score": 1},
                {"output": " ", "score": 1},
            ],
        }
    )
    (example,) = examples_of_criterion(criterion, " graded")
    assert (example.submission, example.verdict) == (Submission(response="good", query="Q"), "9")
    assert (example.criterion, example.reason) == (criterion, "So.")


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
