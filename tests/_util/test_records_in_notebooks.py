"""What rubrics and runs show in notebooks and in pandas; `tests/scoring/test_report.py` has the reports."""

from __future__ import annotations

from rubric_integrations import Check, Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations._util.records import data_frame, html_table

SCRIPT = "<script>alert(1)</script>"
RUBRIC = Rubric(
    [
        Criterion(name="number", requirement=f"Says 42 {SCRIPT}", weight=3, required=True, check=Check(contains="42")),
        Criterion(requirement="Is short", weight=1, check=Check(max_words=3)),
    ],
    name=f"answers {SCRIPT}",
)
GRADER = PerCriterionGrader("offline")


def test_html_table_escapes_all_text_and_formats_numbers() -> None:
    html = html_table(SCRIPT, [SCRIPT], [[SCRIPT], [None], [0.1 + 0.2]])
    assert "<script" not in html
    assert html.count("&lt;script") == 3
    assert ">0.3<" in html


def test_data_frame_has_the_columns_in_order() -> None:
    frame = data_frame([{"b": 1, "a": 2}], ["a", "b"])
    assert list(frame.columns) == ["a", "b"]
    assert list(data_frame([], ["a"]).columns) == ["a"]


def test_html_of_rubric_and_report_escapes_the_text_of_others() -> None:
    report = RUBRIC.grade_sync("It is 41.", grader=GRADER)
    for html in (RUBRIC._repr_html_(), report._repr_html_()):  # pyright: ignore[reportPrivateUsage]
        assert "<script" not in html
        assert "&lt;script&gt;" in html


def test_html_of_a_run_shows_its_summary() -> None:
    run = grade_many(["It is 42.", "It is 41."], RUBRIC, GRADER)
    list(run)
    assert "<td" in run._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert ">0.625<" in run._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert repr(run).startswith("Run(RunSummary(")


def test_data_frame_of_a_run_has_one_row_per_submission() -> None:
    run = grade_many(["It is 42.", "It is 41.", " "], RUBRIC, GRADER).to_dataframe()
    assert list(run.columns) == ["id", "score", "passed", "coverage", "cost", "error", "number", "c2"]
    assert list(run["score"].dropna()) == [1.0, 0.25]
    assert list(run["number"].dropna()) == ["MET", "UNMET"]
    assert "is empty" in run["error"][2]
