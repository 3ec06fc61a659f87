"""The command `label`: the page that it writes, and the commands that read the labels."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.runs import read_run
from rubric_integrations.scoring import LabelledJudgment
from tests.cli.commands import grade, run
from tests.cli.trust_files import write_labels, write_run
from tests.trust.runs import binary_rubric, run_of

REASON = "The judge has its reasons."


@pytest.fixture
def graded(files: Path) -> Path:
    rows = run_of(binary_rubric(2), [["MET", "UNMET"], ["UNMET", "UNMET"], ["MET", "MET"]])
    reports = [row.report for row in rows if row.report]
    with_reasons = [
        report.model_copy(
            update={"report": tuple(entry.model_copy(update={"reason": REASON}) for entry in report.criteria)}
        )
        for report in reports
    ]
    graded = [row._replace(report=report) for row, report in zip(rows, with_reasons, strict=True)]
    return write_run(files / "run.jsonl", graded)


@pytest.fixture
def labels(graded: Path) -> Path:
    """A file in which Ann has labelled every judgment of the run MET."""
    rows = [row for row in read_run(graded).rows if row.submission and row.report]
    return write_labels(
        graded.with_name("labels.jsonl"),
        [
            LabelledJudgment(
                submission=row.submission, criterion=criterion, verdict="MET", id=row.id, rater="Ann", sampled="random"
            )
            for row in rows
            for criterion in binary_rubric(2).criteria
            if row.submission
        ],
    )


def test_label_writes_a_page_and_opens_it_only_on_demand(graded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page = graded.with_name("label.html")
    result = run("label", graded, "--output", page, "--n", 2)
    assert (result.exit_code, opened) == (0, []), result.output
    assert "4 judgments to label. Open it in a browser." in result.stdout
    assert '<section id="label"' in page.read_text(encoding="utf-8")
    assert run("label", graded, "--output", page, "--open").exit_code == 0
    assert opened == [page.as_uri()]


def test_answers_of_checks_are_not_asked_for(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    result = run("label", files / "run.jsonl", "--output", files / "label.html")
    assert "label.html: 3 judgments to label" in result.stdout, result.output


@pytest.mark.parametrize(
    "command",
    [
        ["agree", "run.jsonl", "labels.jsonl"],
        ["calibrate", "run.jsonl", "labels.jsonl"],
        ["report", "run.jsonl", "--labels", "labels.jsonl", "--output", "page.html", "--overwrite"],
        ["compare", "run.jsonl", "after.jsonl", "--labels", "labels.jsonl"],
    ],
)
def test_every_command_reads_a_file_with_invalid_lines_without_them_and_strict_refuses_it(
    graded: Path, labels: Path, command: list[str]
) -> None:
    folder, path = graded.parent, labels
    (folder / "after.jsonl").write_text(graded.read_text())
    arguments = [folder / word if "." in word else word for word in command]
    before = run(*arguments)
    text = path.read_text()
    path.write_text(text.replace("\n", '\n{"criterion": "c0", "verdict": "99", "id": "1", "rater": "B"}\n', 1))
    result = run(*arguments)
    assert (before.exit_code, result.exit_code) == (0, 0), result.output
    assert result.stdout == before.stdout
    first, second = result.stderr.removeprefix(before.stderr).splitlines()[:2]
    assert "labels.jsonl: 1 of 7 labels cannot be used and are left out" in first
    assert "labels.jsonl:2: is not a label for this rubric: '99' is no verdict" in second
    refused = run(*arguments, "--strict")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1), refused.output


def test_report_with_labels_says_how_far_the_judge_can_be_trusted(graded: Path, labels: Path) -> None:
    page = graded.with_name("page.html")
    result = run("report", graded, "--labels", labels, "--output", page)
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert "Can you trust this judge?" in text
    assert "6 labels by <bdi>Ann</bdi>" in " ".join(text.split())
    labels.write_text('{"criterion": "unknown"}\n')
    refused: Any = run("report", graded, "--labels", labels, "--output", page)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1), refused.output
