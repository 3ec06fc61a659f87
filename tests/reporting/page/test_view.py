"""The data of the report page: every row of a run is there, also where several have one id."""

from __future__ import annotations

from rubric_integrations.reporting.page.figures import compare, criterion_figures
from rubric_integrations.reporting.page.view import page_data
from tests.reporting.page.runs import run_of


def test_rows_with_an_equal_id_are_all_shown_and_matched_in_their_order() -> None:
    first = run_of("first", "right=MET", "right=UNMET", "right=MET error=MET")
    second = run_of("second", "right=UNMET", "right=UNMET")
    first, second = (run._replace(rows=tuple(row._replace(id="a") for row in run.rows)) for run in (first, second))
    rows = page_data([first, second])["rows"]
    assert [(row["id"], row.get("copy"), row["response"]) for row in rows] == [
        ("a", None, "right=MET"), ("a", 2, "right=UNMET"), ("a", 3, "right=MET error=MET")
    ]  # fmt: skip
    assert [grade and grade["answers"][0][2] for grade in rows[0]["grades"]] == ["MET", "UNMET"]
    assert [grade and grade["answers"][0][2] for grade in rows[1]["grades"]] == ["UNMET", "UNMET"]
    assert rows[2]["grades"][1] is None
    comparison = compare(first, second)
    assert comparison
    assert (comparison.pairs, comparison.flips) == (2, 1)


def test_criterion_that_does_not_apply_has_a_state_of_its_own() -> None:
    run = run_of("run", "right=MET")
    [row] = run.rows
    assert row.report
    verdict = {"verdict": "NOT_APPLICABLE", "value": None, "not_applicable": True, "passed": True}
    first, *others = row.report.criteria
    report = row.report.model_copy(update={"report": (first.model_copy(update=verdict), *others)})
    run = run._replace(rows=(row._replace(report=report),))
    [answer, *_] = page_data([run])["rows"][0]["grades"][0]["answers"]
    assert answer[1:4] == ["inapplicable", "NOT_APPLICABLE", None]
    figures = next(figure for figure in criterion_figures(run) if figure.name == first.name)
    assert (figures.inapplicable, figures.abstained, figures.open, figures.failed) == (1, 0, 0, 0)
