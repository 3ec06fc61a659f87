"""Tables of grades for a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.table import Table

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.reporting import ranking_table, report_table, tags_table
from rubric_integrations.runs import Graded
from rubric_integrations.scoring import Exploration
from tests.reporting.page.runs import RUBRIC, EchoJudge


def lines_of(table: Table) -> list[str]:
    console = Console(file=StringIO(), width=160)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def grades(*responses: str, rubric: Rubric = RUBRIC, on_failure: str = "raise") -> list[Graded]:
    grader = PerCriterionGrader(EchoJudge(), max_retries=0, on_failure="raise" if on_failure == "raise" else "abstain")
    return list(grade_many(responses, rubric, grader))


def test_ranking_table_orders_by_score_and_puts_rows_without_a_score_last() -> None:
    rows = grades("right=UNMET error=MET tone=x", "right=fails", " ", "right=MET error=UNMET tone=plain")
    table = lines_of(ranking_table(rows))
    ids = [line.split("│")[2].strip() for line in table if line.startswith("│")]
    assert ids == ["4", "1", "2", "3"]
    assert "failed" in next(line for line in table if line.startswith("│") and line.split("│")[2].strip() == "2")
    assert any("nothing to grade" in line for line in table)


def test_report_table_of_a_passing_submission_has_a_row_per_criterion() -> None:
    table = lines_of(report_table(grades("right=MET error=UNMET tone=plain")[0]))
    assert table[0].startswith("1: 1.000, passed")
    assert [line.split("│")[1].strip() for line in table if line.startswith("│")] == ["MET", "UNMET", "plain"]


def test_report_table_says_how_many_characters_judges_were_not_shown() -> None:
    graded = grades("right=MET error=UNMET tone=plain")[0]
    assert graded.report is not None
    cut = graded._replace(report=graded.report.model_copy(update={"omitted_characters": 9_900}))
    tables = [" ".join(" ".join(lines_of(report_table(row))).split()) for row in (graded, cut)]
    assert ["passed, 9,900 characters of tool results omitted" in table for table in tables] == [False, True]


def test_report_table_says_how_many_steps_judges_were_shown() -> None:
    graded = grades("right=MET error=UNMET tone=plain")[0]
    assert graded.report is not None
    part = Exploration(steps=12, total_steps=1_000, characters=9, total_characters=99, requests=8, ran_out=True)
    explored = graded._replace(report=graded.report.model_copy(update={"exploration": part}))
    table = " ".join(" ".join(lines_of(report_table(explored))).split())
    assert "passed, judged by 12 of 1,000 steps, exploration unfinished" in table


def test_report_table_names_the_required_criterion_that_is_unmet() -> None:
    assert "not passed (required: right)" in lines_of(report_table(grades("right=UNMET error=UNMET tone=x")[0]))[0]


def test_report_table_of_a_judge_failure_shows_which_criterion_failed() -> None:
    table = "\n".join(lines_of(report_table(grades("right=MET error=fails tone=x", on_failure="abstain")[0])))
    assert "FAILED" in table
    assert "no reply" in table


def test_tags_table_has_a_score_for_each_tag() -> None:
    criteria = [{"requirement": 'Says "42"', "tags": ["facts"]}, {"requirement": "Is it good?", "tags": ["style"]}]
    rubric = Rubric.from_dict(criteria)
    [graded] = grade_many(["42"], rubric, PerCriterionGrader("offline"))
    table = [line.split("│")[1:3] for line in lines_of(tags_table(graded)) if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in table] == [["1.000", "facts"], ["-", "style"]]
