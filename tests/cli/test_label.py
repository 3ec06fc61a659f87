"""The command `label`: the page that it writes, and labels from the terminal."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rubric_integrations.cli import app
from rubric_integrations.runs import read_run
from rubric_integrations.scoring.labels import submission_digest
from rubric_integrations.trust import agreement, read_labels
from tests.cli.commands import grade, read_lines, run
from tests.cli.trust_files import write_run
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


def ask(graded: Path, keys: str, *options: object, rater: str = "Ann") -> Result:
    arguments = ["label", graded, "--terminal", "--out", graded.with_name("labels.jsonl"), "--rater", rater, *options]
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, [str(argument) for argument in arguments], input=keys)


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


def test_label_in_the_terminal_is_blind_resumed_and_measures_the_judge(graded: Path) -> None:
    result = ask(graded, "7\nn\nunclear\n1\ns\n2\nq\n")
    assert result.exit_code == 0, result.output
    assert "'7' is no answer" in result.stdout
    assert REASON not in result.stdout
    assert "2 of 6 judgments labelled by Ann." in result.stdout
    path = graded.with_name("labels.jsonl")
    lines = read_lines(path)
    assert [(line["verdict"], line["reason"]) for line in lines] == [("MET", "unclear"), ("UNMET", "")]
    assert {(line["rater"], line["sampled"], line["blind"]) for line in lines} == {("Ann", "random", True)}
    assert {line["digest"] for line in lines} <= {
        submission_digest(row.submission) for row in read_run(graded).rows if row.submission
    }
    assert ask(graded, "1\n1\n1\n1\n").exit_code == 0
    assert ask(graded, "1\n" * 6, rater="Ben").exit_code == 0
    assert read_lines(path)[:2] == lines
    assert ask(graded, "1\nq\n", "--by-verdict", "--n", 1, rater="Cy").exit_code == 0
    assert [line["sampled"] for line in read_lines(path) if line["rater"] == "Cy"] == ["by_verdict"]
    run_file = read_run(graded)
    labels = read_labels(path, run_file)
    measured = agreement(run_file, labels)
    assert (measured.labels, measured.raters) == (13, ("Ann", "Ben", "Cy"))


def test_answers_of_checks_are_not_asked_for(files: Path) -> None:
    assert grade(files, "--out", files / "run.jsonl").exit_code == 0
    result = run("label", files / "run.jsonl", "--output", files / "label.html")
    assert "label.html: 3 judgments to label" in result.stdout, result.output


@pytest.mark.filterwarnings("ignore:.*the later label counts")
def test_later_answer_counts_after_going_back(graded: Path) -> None:
    assert ask(graded, "1\nb\n2\nq\n").exit_code == 0
    (label,) = read_labels(graded.with_name("labels.jsonl"), read_run(graded))
    assert label.verdict == "UNMET"


def test_interrupted_labels_are_written_and_those_of_a_killed_process_are_kept(
    graded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = graded.with_name("labels.jsonl")
    keys = iter(["1", "2"])

    def interrupt(*_: object, **__: object) -> str:
        try:
            return next(keys)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("rich.console.Console.input", interrupt)
    assert ask(graded, "").exit_code == 130
    assert len(read_lines(path)) == 2
    monkeypatch.undo()
    path.rename(path.with_name("labels.jsonl.partial"))
    result = ask(graded, "1\nq\n")
    assert "3 of 6 judgments labelled" in result.stdout, result.output
    assert len(read_lines(path)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--terminal"], "--terminal needs --rater"),
        (["--rater", "Ann"], "--rater is for --terminal"),
        (["--terminal", "--rater", "Ann", "--out", "rubric.yaml"], "exists"),
        (["--terminal", "--rater", "Ann", "--out", "run.jsonl"], "read by this command"),
    ],
)
def test_label_with_bad_options_exits_with_2_and_one_line(graded: Path, options: list[str], message: str) -> None:
    options = [str(graded.with_name(option)) if "." in option else option for option in options]
    result = run("label", graded, *options)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert message in result.stderr


def test_report_with_labels_says_how_far_the_judge_can_be_trusted(graded: Path) -> None:
    path, page = graded.with_name("labels.jsonl"), graded.with_name("page.html")
    assert ask(graded, "1\n" * 6).exit_code == 0
    result = run("report", graded, "--labels", path, "--output", page)
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert "Can you trust this judge?" in text
    assert "6 labels by <bdi>Ann</bdi>" in " ".join(text.split())
    path.write_text('{"criterion": "unknown"}\n')
    refused: Any = run("report", graded, "--labels", path, "--output", page)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1), refused.output
