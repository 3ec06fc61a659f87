"""In a notebook: a report, a rubric and a run show what matters, as text, whoever wrote it."""

from __future__ import annotations

import sys

import pytest

from rubric_integrations import Check, Criterion, PerCriterionGrader, Rubric, grade_many

EVIL = "<script>alert(1)</script>"
RUBRIC = Rubric(
    [
        Criterion(name="number", requirement=f"Says 42 {EVIL}", weight=3, required=True, check=Check(contains="42")),
        Criterion(requirement="Is short", weight=1, check=Check(max_words=3)),
    ],
    name=f"answers {EVIL}",
)
GRADER = PerCriterionGrader("offline")


def test_what_others_wrote_is_escaped() -> None:
    report = RUBRIC.grade_sync("It is 41.", grader=GRADER)
    for shown in (RUBRIC._repr_html_(), report._repr_html_()):  # pyright: ignore[reportPrivateUsage]
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown
    assert "score 0.25, not passed, coverage 100%" in report._repr_html_()  # pyright: ignore[reportPrivateUsage]


def test_a_report_says_in_a_line_what_matters() -> None:
    report = RUBRIC.grade_sync("It is 42.", grader=GRADER)
    assert repr(report).startswith(
        "EvaluationReport(score=1.0, passed=True, coverage=1.0, report=(CriterionReport(name='number'"
    )
    assert "spend" not in repr(report)


def test_a_run_shows_how_far_it_is() -> None:
    run = grade_many(["It is 42.", "It is 41."], RUBRIC, GRADER)
    list(run)
    assert "<td" in run._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert ">0.625<" in run._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert repr(run).startswith("Run(RunSummary(")


def test_reports_and_runs_as_data_frames() -> None:
    frame = RUBRIC.grade_sync("It is 42.", grader=GRADER).to_dataframe()
    assert list(frame["verdict"]) == ["MET", "MET"]
    run = grade_many(["It is 42.", "It is 41.", " "], RUBRIC, GRADER).to_dataframe()
    assert list(run.columns) == ["id", "score", "passed", "coverage", "cost", "error", "number", "c2"]
    assert list(run["score"].dropna()) == [1.0, 0.25]
    assert list(run["number"].dropna()) == ["MET", "UNMET"]
    assert "is empty" in run["error"][2]


def test_a_missing_pandas_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"rubric-integrations\[pandas\]"):
        RUBRIC.grade_sync("It is 42.", grader=GRADER).to_dataframe()
