"""What is shown in the place of a reason that a decision model did not give, in every report and export."""

from __future__ import annotations

import io
from typing import Any, cast

from rich.console import Console

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.dspy import feedback
from rubric_integrations.judges import Explained, Question
from rubric_integrations.langchain.feedback import to_feedback
from rubric_integrations.reporting import report_page, report_table
from rubric_integrations.reporting.grades import JUnitReport
from rubric_integrations.reporting.shown_run import show_criterion, show_row, show_run
from rubric_integrations.runs import Graded, RunFile
from rubric_integrations.runs.tables import grade_record
from rubric_integrations.scoring import CriterionReport, EvaluationReport, Judgment, outcomes_of, to_judgment
from tests.fakes import FakeJudge
from tests.reporting.page.test_data import data_of, data_of_page

SHOWN = "probability 0.93, no reason given"
RUBRIC = Rubric([Criterion(name="river", requirement="Names the river", weight=1)])


def decide(question: Question) -> Judgment:
    probabilities = {"MET": 0.07, "UNMET": 0.93}
    return to_judgment(question.criterion, "UNMET").model_copy(update={"probabilities": probabilities})


def graded_by(judge: FakeJudge | Explained) -> tuple[Graded, EvaluationReport]:
    [graded] = grade_many([{"id": "a", "response": "The Nile."}], RUBRIC, PerCriterionGrader(judge))
    assert graded.report is not None
    return graded, graded.report


def printed(*parts: object) -> str:
    console = Console(width=200, file=io.StringIO())
    for part in parts:
        console.print(part)
    return cast("io.StringIO", console.file).getvalue()


def test_every_report_and_export_says_that_no_reason_was_given() -> None:
    graded, report = graded_by(FakeJudge(decide))
    run = RunFile.of("run", [graded])
    junit = JUnitReport("rubric")
    junit.add(graded)
    for text in (
        printed(report_table(graded)),
        printed(*show_run(run, 5)),
        printed(*show_criterion(run, "river")),
        printed(*show_row(run, "a")),
        junit.to_xml(seconds=0),
        cast("Any", report)._repr_html_(),
        feedback(report),
        str(to_feedback(RUBRIC, report, "rubric")[1].comment),
        outcomes_of(report)[1].explanation,
        grade_record(graded)["verdicts"][0]["reason"],
        report.to_dataframe()["reason"][0],
        repr(report.criteria[0]),
    ):
        assert SHOWN in text
    _, (block,) = data_of(run)
    assert block["rows"][0]["grades"][0]["answers"][0][4] == SHOWN


def test_files_do_not_contain_the_text() -> None:
    _, report = graded_by(FakeJudge(decide))
    assert "no reason" not in report.model_dump_json()
    assert report.criteria[0].reason == ""


def test_page_without_texts_does_not_say_it_either() -> None:
    graded, _ = graded_by(FakeJudge(decide))
    _, blocks = data_of_page(report_page([RunFile.of("run", [graded])], redact=True))
    assert "no reason" not in str(blocks)


def test_reason_that_was_given_afterwards_is_shown_as_it_is() -> None:
    def explain(question: Question) -> Judgment:
        return to_judgment(question.criterion, question.given_answer).model_copy(update={"reason": "It is a lake."})

    graded, report = graded_by(Explained(FakeJudge(decide), FakeJudge(explain)))
    text = "given afterwards by FakeJudge: It is a lake."
    assert report.criteria[0].explanation == text
    assert report.criteria[0].probabilities == {"MET": 0.07, "UNMET": 0.93}
    assert text in printed(*show_row(RunFile.of("run", [graded]), "a"))


def test_answer_without_a_probability_of_its_own_has_no_number() -> None:
    row = CriterionReport(
        name="c", requirement="r", weight=1.0, verdict="CANNOT_ASSESS", value=None, probabilities={"MET": 1.0}
    )
    assert row.explanation == "no reason given"
    assert row.model_copy(update={"probabilities": None}).explanation == ""
    assert row.model_copy(update={"error": "lost"}).explanation == "lost"
