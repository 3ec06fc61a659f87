"""Reports: their short representations, and what they show in notebooks and in pandas."""

from __future__ import annotations

import sys

import pytest

from rubric_integrations import Check, Criterion, EvaluationReport, PerCriterionGrader, Rubric
from rubric_integrations.scoring import CriterionReport, Exploration, JudgeError, Vote

RUBRIC = Rubric(
    [
        Criterion(name="number", requirement="Says 42 <b>", weight=3, required=True, check=Check(contains="42")),
        Criterion(requirement="Is short", weight=1, check=Check(max_words=3)),
    ]
)


def graded(text: str) -> EvaluationReport:
    return RUBRIC.grade_sync(text, grader=PerCriterionGrader("offline"))


def test_repr_of_a_report_begins_with_the_score_and_is_short() -> None:
    report = graded("It is 42.")
    assert repr(report).startswith(
        "EvaluationReport(score=1.0, passed=True, coverage=1.0, report=(CriterionReport(name='number'"
    )
    assert "spend" not in repr(report)
    open_report = report.model_copy(update={"score": None, "score_range": (0.25, 1.0), "error": "failed"})
    assert repr(open_report).startswith(
        "EvaluationReport(score_range=(0.25, 1.0), passed=True, coverage=1.0, error='failed', report="
    )


def test_report_of_an_explored_trajectory_shows_how_many_steps_were_judged() -> None:
    part = Exploration(steps=12, total_steps=1_000, characters=9, total_characters=99, requests=3)
    report = graded("It is 42.").model_copy(update={"exploration": part})
    assert ", coverage=1.0, shown='12 of 1,000 steps', report=" in repr(report)
    html = report._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert ", judged by 12 of 1,000 steps. " in html


def test_html_of_a_report_is_escaped_and_shows_the_score() -> None:
    html = graded("It is 41.")._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "score 0.25, not passed, coverage 100%" in html
    assert "Says 42 &lt;b&gt;" in html


def test_data_frame_of_a_report_has_one_row_per_criterion() -> None:
    frame = graded("It is 42.").to_dataframe()
    assert list(frame["name"]) == ["number", "c2"]
    assert list(frame["verdict"]) == ["MET", "MET"]


def test_data_frame_without_pandas_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        graded("It is 42.").to_dataframe()


def test_not_asked_names_the_criteria_without_verdict_or_error() -> None:
    report = graded("It is 42.")
    first, second = report.criteria
    open_row = second.model_copy(update={"verdict": None, "value": None})
    failed_row = open_row.model_copy(update={"error": "transport: lost"})
    assert report.not_asked == ()
    assert report.model_copy(update={"report": (first, open_row)}).not_asked == ("c2",)
    assert report.model_copy(update={"report": (first, failed_row)}).not_asked == ()
    assert report.model_copy(update={"report": None}).criteria == ()


def test_lost_votes_counts_the_judges_that_failed() -> None:
    votes = (Vote(judge="a", verdict="MET", value=1.0), Vote(judge="b", verdict=None, value=None, error="lost"))
    row = CriterionReport(name="c1", requirement="r", weight=1.0, verdict="MET", value=1.0, votes=votes)
    assert row.lost_votes == 1


def test_judge_error_is_a_value_error_with_the_report() -> None:
    report = graded("It is 42.")
    error = JudgeError("`c1` was not judged", report)
    assert isinstance(error, ValueError)
    assert error.report is report
