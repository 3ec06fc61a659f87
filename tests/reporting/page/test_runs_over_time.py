"""Many runs on one page, and two runs compared: figures, series, and what the page does in a real browser."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rubric_integrations import Criterion, Rubric
from rubric_integrations.reporting import report_page
from rubric_integrations.reporting.page import runs_over_time
from rubric_integrations.reporting.page.runs_over_time import Baseline, Mark, RunsOverTime, follow_runs
from rubric_integrations.runs import RunFile
from rubric_integrations.trust import compare_runs
from rubric_integrations.trust.comparison import holm
from tests.reporting.page.runs import FIRST, RUBRIC, SECOND, own_rubrics, run_of
from tests.reporting.page.test_data import data_of
from tests.reporting.page.test_page import EVIL, ids

HEAVIER = Rubric([RUBRIC.criteria[0].model_copy(update={"weight": 5}), *RUBRIC.criteria[1:]], name="small")


def sample(name: str, right: int, error: int, count: int = 40) -> RunFile:
    """Return a run in which the first rows fulfil `right`, and the last ones have the `error`."""
    generator = random.Random(name)
    return run_of(
        name,
        *[
            f"right={'MET' if n < right else 'UNMET'} error={'MET' if n >= count - error else 'UNMET'} "
            f"tone={'plain' if generator.random() < 0.5 else 'x'}"
            for n in range(count)
        ],
    )


MONDAY, TUESDAY, FRIDAY = sample("monday", 30, 2), sample("tuesday", 29, 2), sample("friday", 8, 20)


def marks(over_time: RunsOverTime) -> dict[tuple[str, int], dict[Baseline, Mark]]:
    return {
        (line.name, place): dict(cell.marks)
        for line in (over_time.score, *over_time.criteria)
        for place, cell in enumerate(line.cells)
        if cell and cell.marks
    }


def test_figures_and_marks_are_those_of_compare_runs_after_one_correction_for_all() -> None:
    runs = [MONDAY, TUESDAY, FRIDAY]
    over_time = follow_runs(runs)
    tests: dict[tuple[int, int, str], float] = {}
    for before, after in ((0, 1), (0, 2), (1, 2)):
        comparison = over_time.comparison(before, after)
        assert comparison
        expected = compare_runs(runs[before], runs[after])
        assert comparison.figures == expected
        p_values = {"": expected.p_value, **{name: change.p_value for name, change in expected.criteria.items()}}
        # Where nothing changed, there is no p-value; it is a test nevertheless.
        tests |= {(before, after, name): 1.0 if value is None else value for name, value in p_values.items()}
    adjusted = holm(tests)
    assert over_time.tests == len(adjusted) == 12
    significant = {(name, after) for (_, after, name), p_value in adjusted.items() if p_value < 0.05}
    marked = marks(over_time)
    assert marked.keys() == significant
    worse_and_lower, worse_and_higher = Mark("worse", False), Mark("worse", True)
    assert marked["right", 2] == {"first": worse_and_lower, "previous": worse_and_lower}
    assert marked["error", 2] == {"first": worse_and_higher, "previous": worse_and_higher}  # a penalty
    assert over_time.changes(1) == []
    assert {name for name, _ in over_time.changes(2)} >= {"mean score", "right", "error"}
    (right,) = (line for line in over_time.criteria if line.name == "right")
    assert [cell and cell.figure.value for cell in right.cells] == [30 / 40, 29 / 40, 8 / 40]


def test_means_and_counts_of_a_comparison_are_those_of_the_rows_in_both() -> None:
    comparison = follow_runs([MONDAY, TUESDAY, FRIDAY]).comparison(0, 2)
    assert comparison
    criteria = {criterion.name: criterion for criterion in comparison.criteria}
    right, error = criteria["right"], criteria["error"]
    assert (right.before, right.after) == pytest.approx((30 / 40, 8 / 40))
    assert (right.lost, right.gained, error.lost, error.gained) == (22, 0, 18, 0)


def test_runs_that_cannot_be_compared_are_series_of_their_own_and_a_lacking_value_is_a_gap() -> None:
    other_rows = TUESDAY._replace(name="others", rows=[row._replace(id=f"x{row.id}") for row in TUESDAY.rows])
    lacking = run_of("lacking", *["right=MET error=UNMET"] * 40)
    runs = [
        MONDAY,
        TUESDAY._replace(name="judged", judge="another"),
        run_of("heavier", *["right=MET error=UNMET tone=x"] * 3, rubric=HEAVIER),
        other_rows,
        lacking,
        FRIDAY,
    ]
    over_time = follow_runs(runs)
    assert over_time.series == [[0, 4, 5], [1], [2], [3]]
    reasons = [run.reason for run in over_time.runs]
    assert "another judge: echo in monday and another in judged" in reasons[1]
    assert "has the weight 3 in monday and 5 in heavier" in reasons[2]
    assert "no submission of others is in monday" in reasons[3]
    assert reasons[0] == reasons[4] == reasons[5] == ""
    assert {(pair.before, pair.after) for pair in over_time.pairs} == {(0, 4), (0, 5), (4, 5)}
    (tone,) = (line for line in over_time.criteria if line.name == "tone")
    assert [cell is None for cell in tone.cells] == [False, False, False, False, True, False]
    chart = runs_over_time.draw(over_time, tone)
    assert [point is None for point in chart.points] == [False, False, False, False, True, False]
    assert chart.lines == []  # the first series has a gap, and no line goes to another series
    lines = runs_over_time.draw(over_time, over_time.score).lines
    assert [(series, skips) for series, _, skips in lines] == [(0, True), (0, False)]


def test_equal_runs_have_no_mark_and_runs_without_scores_are_shown() -> None:
    assert marks(follow_runs([MONDAY._replace(name=str(n)) for n in range(20)])) == {}
    empty = run_of("empty", "", "")
    assert report_page([empty._replace(rows=[row._replace(report=None) for row in empty.rows])] * 3)
    assert report_page([own_rubrics(name, 3, "MET", "UNMET") for name in "abc"])


@pytest.mark.sizes
def test_page_of_many_rows_has_those_of_the_last_run_and_of_the_previous_one(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [MONDAY, TUESDAY, FRIDAY, MONDAY._replace(name="judged", judge="another"), TUESDAY._replace(name="saturday")]
    everything, _ = data_of(*runs)
    assert everything["runs"] == [run.name for run in runs]
    monkeypatch.setattr(runs_over_time, "MOST_ROWS", 100)
    over_time = follow_runs(runs)
    assert {(pair.before, pair.after) for pair in over_time.pairs} == {(0, 1), (0, 2), (1, 2), (0, 4), (2, 4)}
    few, _ = data_of(*runs)
    assert few["runs"] == ["friday", "saturday"]
    page = report_page(runs)
    assert "the rows of the last two" in page
    assert page.count("The rows are not on this page") == 4


def test_counts_of_a_comparison_link_to_these_rows(show: Callable[..., Any]) -> None:
    page = show(MONDAY, FRIDAY)
    links = page.eval_on_selector_all(
        "#view-compare [data-pair] a[href*='status=']",
        "links => links.map(link => [link.hash, Number((/^[0-9]+/.exec(link.textContent) || [''])[0])])",
    )
    assert {address.partition("status=")[2] for address, _ in links} >= {"better", "worse", "lost", "gained", "changed"}
    for address, count in links:
        page.evaluate(f"location.hash = '{address}'")
        page.wait_for_timeout(30)
        shown = int(page.inner_text("#count").split(" ")[0])
        assert shown == count or "changed" in address
    page.evaluate("location.hash = '#table?status=lost&criterion=0'")
    page.wait_for_selector("#count:text-is('22 of 40 submissions')")
    assert ids(page)[0] == "s8"
    assert page.inner_text("#rows .changes-of >> nth=0").startswith("right ✓→✕")


def test_responses_are_side_by_side_with_the_words_that_differ(show: Callable[..., Any]) -> None:
    first = run_of("first", "The **margin** fell by 9 in May. right=MET", "the same", "a " * 10, "one " * 5_000)
    second = run_of("second", "The **margin** rose by 9 in June. right=UNMET", "the same", "", "two " * 5_000)
    page = show(first, second)
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one del")
    words = "all => all.map(element => element.textContent)"
    assert page.eval_on_selector_all("#one del", words) == ["fell", "May", "MET"]
    assert page.eval_on_selector_all("#one ins", words) == ["rose", "June", "UNMET"]
    assert "3 words only in A, 3 words only in B" in page.inner_text("#one")
    assert page.eval_on_selector_all("#one .sides h3", words)[0].startswith("Response of A, first")
    assert "because MET" in page.inner_text("#one")
    assert "because UNMET" in page.inner_text("#one")
    styles = "element => getComputedStyle(element).textDecorationStyle"
    assert [page.eval_on_selector(f"#one {name}", styles) for name in ("del", "ins")] == ["solid", "dashed"]
    page.evaluate("location.hash = '#s1'")
    page.wait_for_selector("#one h2:text-is('s1')")
    assert page.locator("#one .sides").count() == 0
    page.evaluate("location.hash = '#s3'")
    page.wait_for_selector("#one h2:text-is('s3')")
    assert "The texts differ in too many words to mark them." in page.inner_text("#one")
    assert page.locator("#one ins").count() == 0


def test_click_on_two_runs_compares_them_with_their_rows(show: Callable[..., Any]) -> None:
    page = show(MONDAY, TUESDAY, FRIDAY, TUESDAY._replace(name="judged", judge="another"))
    visible = "marks => marks.map(mark => mark.checkVisibility() && mark.className.split(' ').pop()).filter(Boolean)"
    assert set(page.eval_on_selector_all(".matrix .differs", visible)) == {"first"}
    page.select_option("#base", "previous")
    assert set(page.eval_on_selector_all(".matrix .differs", visible)) == {"previous"}
    page.click(".pick >> nth=2")
    assert page.get_attribute(".pick >> nth=2", "aria-pressed") == "true"
    page.click(".of-run >> nth=0")
    assert page.evaluate("location.hash") == "#compare?a=0"  # B is 2 by default
    assert "Worse. On the 40 submissions" in " ".join(page.inner_text("[data-pair='0-2']").split())
    page.click("[data-pair='0-2'] a[href$='criterion=0&status=lost']")
    page.wait_for_selector("#count:text-is('22 of 40 submissions')")
    assert page.inner_text("#shown-pair").split() == ["A", "monday", "B", "friday"]
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#one del")
    page.keyboard.press("d")
    page.select_option("#f-b", "3")
    assert page.inner_text("#no-pair").startswith("monday and judged are not compared on this page")
    page.select_option("#f-b", "0")
    page.select_option("#f-a", "1")
    assert page.is_visible("[data-pair='0-1']")
    page.evaluate("location.hash = '#compare?a=2&b=0'")
    page.wait_for_selector("[data-pair='0-2']")


@pytest.mark.parametrize("options", [{}, {"viewport": {"width": 390, "height": 800}}])
def test_hostile_names_of_runs_and_criteria_stay_text_in_a_page_that_fits(
    show: Callable[..., Any], options: dict[str, Any]
) -> None:
    everything = " ".join(EVIL)
    rubric = Rubric(
        [
            criterion.model_copy(update={"requirement": everything}) if place else criterion
            for place, criterion in enumerate(RUBRIC.criteria)
        ]
        + [Criterion(name=evil, requirement=evil) for evil in EVIL]
    )
    texts = [f"right=MET error=UNMET {everything}", "right=UNMET"]
    runs = [run_of(f"{everything}{n}", *texts, rubric=rubric)._replace(judge=everything) for n in range(3)]
    page = show(*runs, FIRST._replace(name="</title>" * 40), SECOND, **options)
    for view in ("#many", "#compare?a=0&b=1", "#compare?a=0&b=3", "#table?a=0&b=1", "#s0"):
        page.evaluate(f"location.hash = '{view}'")
        page.wait_for_timeout(100)
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert page.locator("img, body b script").count() == 0
    scripts = page.eval_on_selector_all("script", "scripts => scripts.filter(script => !script.type).length")
    assert scripts == 1
