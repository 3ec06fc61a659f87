"""The sections of `agree` about panels, confidence, and where people and the judge differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.runs import GradedRow
from rubric_integrations.trust import PanelReport, Reliability
from tests.cli.commands import run
from tests.cli.trust_files import write_labels, write_run
from tests.trust.panels import panel_run
from tests.trust.runs import binary_rubric, labels_of, run_of

ONE = binary_rubric()
PEOPLE = [["MET"], ["UNMET"], ["MET"], ["UNMET"]] * 10


def files(folder: Path, rows: list[GradedRow], sampled: Any = "random") -> tuple[Path, Path]:
    labels = labels_of(ONE, PEOPLE, sampled, rater="Ana")
    return write_run(folder / "run.jsonl", rows), write_labels(folder / "labels.jsonl", labels)


def confident() -> list[GradedRow]:
    rows: list[GradedRow] = []
    for number, row in enumerate(run_of(ONE, [["MET"], ["MET"], ["MET"], ["UNMET"]] * 10)):
        assert row.report is not None
        reason = "[red]It is \x1b[2J there." + " x" * 200
        entry = row.report.criteria[0].model_copy(
            update={"confidence": 0.6 if number % 4 == 1 else 0.95, "reason": reason}
        )
        rows.append(row._replace(report=row.report.model_copy(update={"report": (entry,)})))
    return rows


def test_panel_has_a_row_for_each_judge(tmp_path: Path) -> None:
    votes = [[["MET"], ["MET"], ["UNMET"]], [["MET"], ["UNMET"], ["UNMET"]]] * 20
    paths = files(tmp_path, panel_run(ONE, votes))
    result = run("agree", *paths)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "panel less judge" in text
    assert "the panel" in text
    assert "votes do not tell the cost of each judge" in text
    assert "agreement among the judges (alpha): c0" in text
    assert "Confidence" not in text
    figures = json.loads(run("agree", *paths, "--json").stdout)
    panel = PanelReport.model_validate(figures["panel"])
    assert panel.judges["b"].accuracy.value == 1.0
    assert figures["confidence"] is None


def test_confidence_has_a_row_for_each_bin(tmp_path: Path) -> None:
    paths = files(tmp_path, confident())
    result = run("agree", *paths)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "0.6 │ 10 │ 0.00 [0.00," in text
    assert "AUROC 1.000" in text
    assert "Panel" not in text
    confidence = Reliability.model_validate(json.loads(run("agree", *paths, "--json").stdout)["confidence"])
    assert [row.accuracy.n for row in confidence.bins] == [10, 30]


def test_disagreements_are_shown_with_short_and_plain_texts(tmp_path: Path) -> None:
    paths = files(tmp_path, confident())
    result = run("agree", *paths, "--disagreements", 1)
    assert "raters say UNMET where the judge says MET: 10 of 20" in result.stdout
    assert "\x1b[2J" not in result.stdout
    assert "judge: [red]It is" in result.stdout
    assert result.stdout.count("  response: ") == 1
    assert max(len(line) for line in result.stdout.splitlines() if not line.startswith("coverage: ")) < 250
    assert run("agree", *paths, "--disagreements", 0).stdout.count("  response: ") == 0
    (row,) = json.loads(run("agree", *paths, "--disagreements", 3, "--json").stdout)["disagreements"]
    assert (row["differ"], len(row["examples"]), row["directions"][0]["times"]) == (10, 3, 10)
    assert (row["examples"][0]["response"], row["requirement"]) == ("response 2", "Does 0")


def test_labels_by_verdict_say_nothing_about_confidence_and_end_in_a_warning(tmp_path: Path) -> None:
    paths = files(tmp_path, confident(), "by_verdict")
    result = run("agree", *paths)
    assert result.exit_code == 0, result.output
    assert "warning: nothing about the confidence: no labelled judgment has a confidence" in result.stderr
    assert "Brier" not in result.stdout


@pytest.mark.parametrize("number", ["-1", "many"])
def test_number_of_disagreements_that_is_none_exits_with_2(tmp_path: Path, number: str) -> None:
    assert run("agree", *files(tmp_path, confident()), "--disagreements", number).exit_code == 2
