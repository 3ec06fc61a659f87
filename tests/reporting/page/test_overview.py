"""The overview: scores by metadata and by tag, how a run was graded, links to rows, and the page on paper."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import PerCriterionGrader, Rubric, grade_many
from rubric_integrations.reporting import report_page
from rubric_integrations.reporting.page.overview_figures import FactFigures, GroupFigures, GroupTable, RunFacts
from rubric_integrations.runs import RunFile
from rubric_integrations.runs.files import read_run, run_line
from rubric_integrations.trust.means import estimate_scores
from tests.reporting.page.runs import FIRST, RUBRIC, EchoJudge, criterion_figures, own_rubrics, summarize

ANSWERS = ("right=MET error=UNMET tone=plain", "right=UNMET error=MET tone=x", "right=MET error=fails", "right=MET")


def run_with(*metadata: dict[str, Any], answers: tuple[str, ...] = ANSWERS, rubric: Rubric = RUBRIC) -> RunFile:
    """Return a run with one row for each metadata, whose answers repeat."""
    rows = [
        {"id": f"s{number}", "query": "Why?", "response": answers[number % len(answers)], "metadata": each}
        for number, each in enumerate(metadata)
    ]
    grader = PerCriterionGrader(EchoJudge(), max_retries=0)
    return RunFile.of("run", grade_many(rows, rubric, grader), rubric=rubric.name, judge="echo")


def tables_of(run: RunFile) -> dict[str, GroupTable]:
    figures = GroupFigures()
    for row in run.rows:
        figures.add(row)
    return {table.name: table for table in figures.tables}


def facts_of(run: RunFile) -> RunFacts:
    figures = FactFigures(run)
    for row in run.rows:
        figures.add(row)
    return figures.facts


def test_group_has_the_mean_of_its_rows_with_the_interval_of_trust() -> None:
    run = run_with(*[{"model": "ab"[number % 3 == 0], "id": f"u{number}"} for number in range(24)])
    tables = tables_of(run)
    assert list(tables) == ["model"]  # 24 values are no groups
    for group in tables["model"].groups:
        rows = [row for row in run.rows if row.metadata and row.metadata["model"] == group.value]
        scores = [row.report.score for row in rows if row.report and row.is_graded and row.report.score is not None]
        assert group.score == estimate_scores(scores)
        assert group.submissions == len(rows)
        assert group.passed == sum(row.report.passed for row in rows if row.report and row.is_graded)
    assert [(group.value, group.score.n, group.submissions) for group in tables["model"].groups] == [
        ("a", 12, 16), ("b", 6, 8)
    ]  # fmt: skip


def test_groups_of_numbers_are_in_their_order_and_say_when_rows_are_few() -> None:
    run = run_with(*[{"step": step} for step in (10, 2, 2, 2, 10)], answers=(ANSWERS[0], ANSWERS[2], ANSWERS[0]))
    assert [(group.value, group.note) for group in tables_of(run)["step"].groups] == [
        ("2", "few rows"), ("10", "too few rows for an interval")
    ]  # fmt: skip
    many = run_with(*[{"step": n % 2} for n in range(20)], answers=ANSWERS[:1])
    assert [group.note for group in tables_of(many)["step"].groups] == ["", ""]
    lost = run_with({"step": 1}, {"step": 2}, answers=ANSWERS[2:3])
    assert [group.note for group in tables_of(lost)["step"].groups] == ["no score"] * 2


def test_groups_by_tag_have_the_scores_of_the_tags() -> None:
    table = tables_of(own_rubrics("own", 4, "MET", "UNMET"))["tag"]
    assert [(group.value, group.score.value, group.passed) for group in table.groups] == [
        ("facts", 0.5, None), ("style", 0.5, None)
    ]  # fmt: skip
    assert "tag" not in tables_of(FIRST)


def test_equal_rubrics_have_an_equal_hash_and_others_have_another() -> None:
    first, second = facts_of(FIRST), facts_of(run_with({}, {}))
    assert len(first.rubric_hash) == 12
    assert first.rubric_hash == second.rubric_hash
    others = (Rubric(RUBRIC.criteria, pass_mark=0.9), Rubric(RUBRIC.criteria[:2]))
    assert len({first.rubric_hash, *(facts_of(run_with({}, rubric=other)).rubric_hash for other in others)}) == 3
    assert facts_of(own_rubrics("old", 3, "MET")).rubric_hash == ""  # these lines record no rubric


def test_facts_are_what_the_file_records_and_unknown_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    grader = PerCriterionGrader(EchoJudge(), cannot_assess="zero")
    path.write_text("".join(map(run_line, grade_many(["right=MET"], RUBRIC, grader))), encoding="utf-8")
    os.utime(path, (1_790_000_000, 1_790_000_000))
    facts = facts_of(read_run(path))
    assert facts.written == "2026-09-21 14:13 UTC"
    ((count, settings),) = facts.settings
    assert count == 1
    words = dict(settings)
    assert words["strategy"] == "PerCriterionGrader"
    assert words["an answer that cannot be judged"] == "counts 0 (cannot_assess: zero)"
    assert words["rubric: pass mark"] == "0.8"
    assert facts_of(FIRST).written == ""
    assert "<dt>date</dt><dd>unknown</dd>" in report_page([FIRST])
    ((_, unrecorded),) = facts_of(own_rubrics("old", 2, "MET")).settings
    assert unrecorded[0][1].startswith("not recorded")


def test_links_and_digits_of_the_overview_show_the_rows_that_they_count(show: Callable[..., Any]) -> None:
    page = show(run_with(*[{"model": "a&b=c" if n % 2 else "plain", "topic": n % 5} for n in range(20)]))
    count = "document.getElementById('count').textContent"
    for link, shown in (("[data-worst] >> nth=0", 5), (".tiles a:has-text('answers')", 10), (".alarm a >> nth=0", 5)):
        page.evaluate("location.hash = '#overview'")
        page.click(link)
        page.wait_for_selector("#rows li")
        assert page.evaluate(count).startswith(f"{shown} of 20"), link
    page.keyboard.press("g")
    page.click("text=a&b=c")
    page.wait_for_selector("#rows li")
    assert page.evaluate(count).startswith("10 of 20")
    page.keyboard.press("g")
    name = page.inner_text(".costs tr:has(kbd:text-is('2')) .key")
    page.keyboard.press("c")
    page.keyboard.press("2")
    page.wait_for_selector("#rows li")
    assert page.eval_on_selector("#f-criterion", "control => control.selectedOptions[0].textContent") == name
    page.keyboard.press("g")
    assert page.inner_text("section[aria-labelledby=groups] tbody th >> nth=0") == "a&b=c"
    page.select_option("#group-name", label="topic")
    assert page.inner_text(".groups:visible tbody").split()[0] == "0"


def test_page_shows_the_figures_of_python(show: Callable[..., Any]) -> None:
    run = run_with(*[{"model": "ab"[n % 2]} for n in range(20)])
    page = show(run)
    summary, figures = summarize(run), sorted(criterion_figures(run), key=lambda criterion: -criterion.loss)
    assert summary.score
    assert page.inner_text(".tiles dd >> nth=0").split()[0] == f"{summary.score.value:.3f}"
    rows = page.eval_on_selector_all(
        ".costs tbody tr", "rows => rows.map(row => ['.key', '.cost span', '.answers'].map(name => "
        "row.querySelector(name).textContent))",
    )  # fmt: skip
    assert rows == [
        [of.name, f"{of.cost:.3f}", ", ".join(words for words, _ in of.answers)] for of in figures
    ]  # fmt: skip
    bars = page.eval_on_selector_all(".bars i", "bars => bars.map(bar => parseInt(bar.title))")
    assert bars == summary.histogram
    widths = page.eval_on_selector_all(".cost .bar span", "bars => bars.map(bar => bar.offsetWidth)")
    assert widths == pytest.approx([widths[0] * of.loss / figures[0].loss for of in figures], abs=1)
    group = tables_of(run)["model"].groups[0]
    assert page.inner_text(".groups tbody td >> nth=0") == f"{group.score} few rows".replace(" (n = 5)", "")


def test_hostile_metadata_stays_text(show: Callable[..., Any]) -> None:
    evil = '<img src=x onerror="window.hacked=1">&"\''
    page = show(run_with({evil: evil}, {evil: "\u202eb"}, {evil: "b"}))
    assert evil in page.inner_text("section[aria-labelledby=groups] tbody")
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("window.hacked") is None
    page.click("section[aria-labelledby=groups] tbody tr:has-text('hacked') a")
    page.wait_for_selector("#rows li")
    assert page.inner_text("#count").startswith("1 of 3")


@pytest.mark.parametrize("run", [FIRST, run_with(*[{"topic": n % 5} for n in range(20)])], ids=["alone", "groups"])
def test_overview_has_no_hole_beside_the_histogram_and_fits_a_narrow_window(
    show: Callable[..., Any], run: RunFile
) -> None:
    page = show(run)
    hole = page.evaluate(
        "document.getElementById('worst').getBoundingClientRect().top - Math.min(...[...document.querySelectorAll("
        "'.two > section')].map(section => section.lastElementChild.getBoundingClientRect().bottom))"
    )
    assert 0 < hole < 120
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = "[...document.querySelectorAll('.costs, .groups')].filter(e => e.scrollWidth > e.parentElement.clientWidth)"
    assert page.evaluate(f"{wide}.length") == 0


def pages_of(document: bytes) -> int:
    return len(re.findall(rb"/Type /Page\b", document))


def test_page_on_paper_has_up_to_200_filtered_rows_and_the_open_submission(show: Callable[..., Any]) -> None:
    page = show(run_with(*[{"n": n} for n in range(208)], answers=("right=MET tone=x",)), color_scheme="dark")
    page.evaluate("location.hash = '#table?sort=high&row=207'")
    page.wait_for_selector("#one h2:has-text('s207')")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.inner_text("#printed h2") == "The first 200 of 208 submissions (sort highest score first)"
    assert page.locator("#printed li:visible").count() == 200
    assert page.evaluate("getComputedStyle(document.getElementById('one')).maxHeight") == "none"
    assert page.is_visible("#one [data-text=response]")
    assert "tone +1" in page.inner_text("#printed li >> nth=0")
    assert not page.is_visible("#window")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="null")
    assert page.locator("#printed").count() == 0
    printed = page.pdf(format="A4")
    # The submission, and 200 rows of which each has two lines or more.
    assert pages_of(printed) > 6
    assert page.locator("#printed").count() == 0
    page.evaluate("location.hash = '#overview'")
    assert pages_of(page.pdf(format="A4")) <= 2
