"""The report page in a real browser: what it shows, how it is used, and that text in it is never interpreted."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import RubricAsJudgeGrader
from rubric_integrations.judges import Question
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import JudgeFailure, Judgment
from rubric_integrations.testing import ScriptedJudge
from rubric_integrations.trust import read_labels
from tests.reporting.page.runs import FIRST, RUBRIC, SECOND, EchoJudge, Line, own_line, own_rubrics

EVIL = [
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 2">',
    "</script><script>window.hacked = 3</script>",
    "'--><svg onload=window.hacked=4>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.hacked=5",
    "]]>\u2028\u202e<b>bold</b>&lt;i&gt;",
]


def ids(page: Any) -> list[str]:
    """Return the ids of the rows that are drawn, in the order of the document."""
    return page.eval_on_selector_all("#rows .id", "rows => rows.map(row => row.textContent)")


def focused(page: Any) -> str | None:
    """Return the id of the row that has the focus; None if no row has it."""
    return page.evaluate("document.activeElement.querySelector(':scope > .id')?.textContent ?? null")


def test_failure_that_a_policy_replaced_is_shown_on_the_submission_and_not_in_the_list(
    show: Callable[..., Any],
) -> None:
    tolerant = PerCriterionGrader(EchoJudge(), on_failure="abstain", max_retries=0)
    page = show(RunFile.of("tolerant", grade_many(["right=MET error=fails tone=plain"], RUBRIC, tolerant)))
    page.keyboard.press("t")
    assert "1.000" in page.inner_text("#rows")
    assert "not graded" not in page.inner_text("#rows")
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one h2:text-is('1')")
    assert "`error` was not judged: transport: no reply" in page.inner_text("#one")


def test_each_kind_of_answer_has_its_own_look(show: Callable[..., Any]) -> None:
    page = show(FIRST)
    page.keyboard.press("t")
    rows = page.eval_on_selector_all(
        "#rows .marks",
        "rows => rows.map(row => [...row.children].map(mark => mark.textContent + mark.className))",
    )
    assert rows == [
        ["✓mark good", "✓mark good", "✓mark good"],  # a penalty that did not apply is good
        ["✕mark bad", "✕mark bad", "✕mark bad"],  # and one that did is not
        ["✓mark good", "!mark failed", "✕mark bad"],
        ["✓mark good", "✓mark good", "?mark abstained"],
    ]  # fmt: skip
    kinds = page.eval_on_selector_all(".legend i", "marks => marks.map(mark => mark.classList[1])")
    assert kinds == ["good", "part", "bad", "abstained", "failed", "open", "inapplicable"]
    shades = [
        page.evaluate(f"getComputedStyle(document.querySelector('.legend .{kind}')).background") for kind in kinds
    ]
    assert len(set(shades[:5])) == 5


def test_mark_says_its_answer_in_words_and_the_reason_once_the_pointer_is_on_its_row(show: Callable[..., Any]) -> None:
    page = show(FIRST)
    page.keyboard.press("t")
    page.hover("#rows li:nth-child(2) .id")
    page.wait_for_selector("#rows li:nth-child(2) .mark[title]")
    assert page.eval_on_selector_all("#rows li:nth-child(2) .mark", "marks => marks.map(mark => mark.title)") == [
        "right: not met. because UNMET", "error: deducted. because MET", "tone: x. because x"
    ]  # fmt: skip
    page.set_viewport_size({"width": 390, "height": 800})
    page.hover("#rows li:nth-child(3) .id")
    page.wait_for_selector("#rows li:nth-child(3) .missed[title]")
    chips = page.eval_on_selector_all(
        "#rows li:nth-child(3) .missed", "marks => marks.map(mark => mark.textContent + mark.title)"
    )
    assert chips == [
        "! error -2error: the judge failed: left out. transport: no reply", "✕ tone +1tone: x. because x"
    ]  # fmt: skip
    assert page.inner_text("#rows li:nth-child(2) .missed >> nth=0") == "✕ right +3 ●"


def test_narrow_row_shows_the_value_of_an_answer_that_is_partly_met_and_the_panel_names_tags(
    show: Callable[..., Any],
) -> None:
    options = [{"label": "plain", "value": 1}, {"label": "stiff", "value": 0.9}]
    criterion = {"name": "tone", "requirement": "Tone?", "weight": 1, "options": options, "tags": ["style"]}
    grader = PerCriterionGrader(ScriptedJudge(lambda _question: "stiff"))
    run = RunFile.of("run", grade_many(["It is."], Rubric.from_dict({"criteria": [criterion]}), grader))
    page = show(run, viewport={"width": 390, "height": 800})
    page.keyboard.press("t")
    page.wait_for_selector("#rows .missed:text-is('.9 tone +1')")
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one .grade")
    assert page.inner_text("#one .grade") == "0.900, passed. By tag: style 0.900."


def test_list_with_many_criteria_says_how_many_marks_are_left_out(show: Callable[..., Any]) -> None:
    rubric = Rubric([Criterion(name=f"c{number}", requirement=f"Says {number}") for number in range(20)])
    page = show(RunFile.of("many", grade_many(["c0=MET c19=UNMET"], rubric, PerCriterionGrader(EchoJudge()))))
    page.keyboard.press("t")
    assert page.locator("#rows .mark").count() == 12
    assert page.inner_text("#rows .marks small") == "+8"
    assert page.inner_text("#heads").endswith("8 more")
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_selector("#rows .missed:text-is('✕ c19 +10')")


def test_filters_sorting_and_keyboard_navigation_select_the_submissions(show: Callable[..., Any]) -> None:
    page = show(FIRST)
    page.keyboard.press("t")
    page.select_option("#f-sort", "low")
    assert ids(page)[0] == "s1"
    page.select_option("#f-status", "failed")
    assert ids(page) == ["s2"]
    page.select_option("#f-status", "all")
    page.select_option("#f-criterion", "2")
    page.select_option("#f-answer", "abstained")
    assert ids(page) == ["s3"]
    page.select_option("#f-answer", "")
    page.fill("#f-text", "tone=plain")
    page.wait_for_selector("#count:text-is('1 of 4 submissions')")
    page.fill("#f-text", "")
    page.wait_for_selector("#count:text-is('4 of 4 submissions')")
    page.select_option("#f-sort", "order")
    page.focus("#rows a")
    page.keyboard.press("Enter")
    page.wait_for_selector("#one h2")
    assert page.inner_text("#one h2") == "s0"
    assert "because plain" in page.inner_text("#one")
    assert page.inner_text("#one [data-text=response]") == "right=MET error=UNMET tone=plain"
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#one h2:text-is('s1')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#one", state="hidden")
    assert page.is_visible("#rows")
    assert focused(page) == "s1"


def test_two_runs_are_shown_side_by_side(show: Callable[..., Any]) -> None:
    page = show(FIRST, SECOND)
    verdict = " ".join(page.inner_text(".verdict").split())
    assert verdict.startswith(
        "Unclear. On the 3 submissions that both runs have scored, second is 0.028 higher (95 %: -1.000"
    )
    assert "1 better, 1 worse, 1 the same; 3 answers changed. The share that passed changed by" in verdict
    assert "If the runs truly differed by" in verdict
    assert "fewer than 50 inputs" in page.inner_text(".warnings")
    changes = page.eval_on_selector_all(".changes .key", "names => names.map(name => name.textContent)")
    assert changes == ["right", "error", "tone"]
    page.keyboard.press("t")
    page.select_option("#f-status", "worse")
    assert ids(page) == ["s3"]
    assert page.inner_text("#rows .score").split() == ["1.000", "→", "0.333", "-0.667"]
    assert page.locator("#rows .mark.changed").count() == 1
    page.click("#rows a")
    page.wait_for_selector("#one h2")
    assert page.eval_on_selector_all("#one thead th", "heads => heads.map(head => head.textContent)") == [
        "criterion", "first", "points", "second", "points", "your answer"
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 800}}])
def test_page_in_each_window_fits_its_width(show: Callable[..., Any], options: dict[str, Any]) -> None:
    page = show(FIRST, SECOND, **options)
    for place in ("", "#table", "#s1"):
        page.evaluate(f"location.hash = '{place}'")
        page.wait_for_timeout(50)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = options.get("color_scheme") == "dark"
    channels = page.evaluate("getComputedStyle(document.body).backgroundColor").strip("rgb()").split(",")
    assert (math.fsum(map(float, channels)) < 150) == dark


def test_hostile_text_in_every_field_stays_text(show: Callable[..., Any]) -> None:
    everything = " ".join(EVIL)
    criteria = [
        Criterion(name=f"{number} {evil}", requirement=evil + everything, weight=1) for number, evil in enumerate(EVIL)
    ]
    rubric = Rubric(criteria, name=everything)

    class Evil:
        async def judge(self, question: Question) -> Judgment:
            if question.submission.response.startswith("fail"):
                raise JudgeFailure("parse", everything)
            return Judgment(verdict="MET", value=1.0, reason=everything)

    rows = [
        {
            "id": f"{number}{evil}", "response": evil + everything, "query": everything, "reference": everything,
            "metadata": {EVIL[0]: EVIL[number % 2]},
        }
        for number, evil in enumerate([*EVIL, "fail"])
    ]  # fmt: skip
    panel = PerCriterionGrader(judges=[Evil(), Evil()], on_failure="abstain", max_retries=0)
    run = RunFile.of(everything, grade_many(rows, rubric, panel), rubric=rubric.name, judge=everything)
    page = show(run, run._replace(name=everything + "2"))
    plain = (
        "HTML HEAD META TITLE STYLE BODY A HEADER H1 MAIN DIV SECTION H2 P B DL DT DD SMALL svg rect title line text "
        "TABLE THEAD TBODY TR TH TD SPAN FORM LABEL INPUT SELECT OPTION UL LI I CAPTION ARTICLE NOSCRIPT FOOTER SCRIPT "
        "NAV H3 PRE BUTTON BDI KBD DIALOG CODE BR TFOOT DETAILS SUMMARY"
    )
    page.keyboard.press("?")
    for place in ["", "#table", *(f"#s{number}" for number in range(len(rows)))]:
        page.evaluate(f"location.hash = '{place}'")
        if place == "#table":
            page.keyboard.press("Escape")
            page.hover("#rows .id")
            page.wait_for_selector("#rows .mark[title]")
            assert everything in page.get_attribute("#rows .mark", "title")
            assert page.input_value("#f-meta") == ""
        elif place:
            page.wait_for_selector(f"#one h2:has-text('{place[2:]}')")
        elements = page.evaluate("[...document.querySelectorAll('*')].map(e => [e.tagName, ...e.getAttributeNames()])")
        assert {names[0] for names in elements} <= set(plain.split(" "))
        assert not [names for names in elements if any(name.startswith("on") for name in names[1:])]
        # The index, one block of texts, and the only script that runs.
        scripts = page.eval_on_selector_all("script", "scripts => scripts.map(script => script.type)")
        assert scripts == ["text/plain", "text/plain", ""]
        assert not page.evaluate("[...document.links].some(link => !link.getAttribute('href').startsWith('#'))")
        assert page.evaluate("window.hacked") is None
    assert page.inner_text("#one h2") == " ".join(["7fail"])
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one h2:has-text('0')")
    page.keyboard.press("m")
    page.wait_for_selector("#one [data-text=query].source")
    source = page.eval_on_selector("#one [data-text=query]", "element => element.textContent")
    assert source == everything.replace("\u202e", "U+202E")


def test_content_security_policy_allows_no_other_script(show: Callable[..., Any]) -> None:
    page = show(FIRST)
    policy = page.get_attribute("meta[http-equiv]", "content")
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_overruled_answer_is_stored_exported_and_read_back(show: Callable[..., Any], tmp_path: Path) -> None:
    page = show(FIRST)
    page.evaluate("location.hash = '#s1'")
    page.wait_for_selector("#one h2")
    assert not page.is_visible("#one select >> nth=0")
    page.keyboard.press("o")
    page.select_option("#one select >> nth=0", "MET")
    page.select_option("#one select >> nth=2", "plain")
    page.reload()
    page.wait_for_selector("#one h2")
    assert page.input_value("#one select >> nth=0") == "MET"
    with page.expect_download() as waiting:
        page.click("text=Export labels")
    path = tmp_path / "labels.jsonl"
    waiting.value.save_as(path)
    labels = read_labels(path, RUBRIC)
    assert [(label.criterion.name, label.verdict) for label in labels] == [("right", "MET"), ("tone", "plain")]
    assert labels[0].submission.response == "right=UNMET error=MET tone=x"
    assert labels[0].submission.query == "Why?"


def test_overruled_answer_belongs_to_one_of_two_rows_with_an_equal_id(show: Callable[..., Any]) -> None:
    page = show(FIRST._replace(rows=tuple(row._replace(id="same") for row in FIRST.rows)))
    page.keyboard.press("t")
    assert ids(page) == ["same", "same (2)", "same (3)", "same (4)"]
    page.evaluate("location.hash = '#s1'")
    page.wait_for_selector("#one h2:text-is('same (2)')")
    page.keyboard.press("o")
    page.select_option("#one select >> nth=0", "MET")
    for place, value in [(0, ""), (1, "MET"), (2, "")]:
        page.evaluate(f"location.hash = '#s{place}'")
        page.wait_for_selector(f"#one h2:text-is('{['same', 'same (2)', 'same (3)'][place]}')")
        assert page.input_value("#one select >> nth=0") == value


async def overall(_system: str, _user: str) -> str:
    return '{"explanation": "Fine <b>.", "overall_score": 70}'


def test_runs_of_holistic_stopped_and_unnormalized_graders_are_shown(show: Callable[..., Any]) -> None:
    whole = RunFile.of("whole", grade_many(["a", "b"], RUBRIC, RubricAsJudgeGrader(overall)))
    page = show(whole)
    assert "scored each submission as a whole" in page.inner_text("main")
    page.evaluate("location.hash = '#s1'")
    page.wait_for_selector("#one h2:text-is('2')")
    assert "Fine <b>." in page.inner_text("#one")
    stopped = PerCriterionGrader(EchoJudge(), stop_when_decided=True)
    page = show(RunFile.of("open", grade_many(["right=UNMET", "  "], RUBRIC, stopped)))
    page.keyboard.press("t")
    assert page.eval_on_selector_all("#rows .num", "cells => cells.map(cell => cell.textContent)") == [
        "0.00..0.25", "not graded"
    ]  # fmt: skip
    assert page.locator("#rows i.mark.open").count() == 2
    raw = PerCriterionGrader(EchoJudge(), normalize=False)
    page = show(RunFile.of("raw", grade_many(["right=MET error=UNMET tone=x", "error=MET tone=x"], RUBRIC, raw)))
    page.keyboard.press("t")
    assert "-2.000" in page.inner_text("#rows")
    page = show(RunFile.of("nothing", grade_many(["  "], RUBRIC, raw)))
    page.keyboard.press("t")
    assert page.inner_text("#count") == "1 of 1 submission"


def test_rows_with_their_own_criteria_have_columns_of_tags_and_open_to_their_criteria(show: Callable[..., Any]) -> None:
    page = show(own_rubrics("own", 3, "MET", "UNMET", "MET"))
    page.keyboard.press("t")
    assert page.eval_on_selector_all("#heads > span", "heads => heads.map(head => head.textContent)") == [
        "facts",
        "style",
    ]
    assert " ".join(page.inner_text("#rows li >> nth=1").split()) == "s1 Question 1? It is 1. 0.667 ✓ ✓"
    page.evaluate("location.hash = '#s1'")
    page.wait_for_selector("#one h2:text-is('s1')")
    assert page.eval_on_selector_all("#one .words", "words => words.map(word => word.textContent)") == [
        "Says 1.1", "Says 1.2", "Says 1.3"
    ]  # fmt: skip
    assert "why 1.2" in page.inner_text("#one")


def test_names_that_all_rows_share_are_columns_though_their_requirements_differ(show: Callable[..., Any]) -> None:
    lines = [own_line(number, "MET", "UNMET") for number in range(3)]
    for line in lines:
        line["report"][1]["name"] = "accuracy"
    page = show(RunFile.of("own", [Line(line) for line in lines]))
    page.keyboard.press("t")
    assert page.eval_on_selector_all("#heads > span", "heads => heads.map(head => head.textContent)") == ["accuracy"]
    page.select_option("#f-criterion", "0")
    page.select_option("#f-answer", "good")
    page.wait_for_selector("#count:text-is('0 of 3 submissions')")


def test_overruled_answer_belongs_to_one_row_one_name_and_one_requirement(
    show: Callable[..., Any], tmp_path: Path
) -> None:
    # The criterion `c1` of each row has another requirement, and the second run has another one than the first.
    runs = own_rubrics("first", 3, "MET"), own_rubrics("second", 3, "UNMET", words="Clearly: ")
    page = show(*runs)
    page.evaluate("location.hash = '#s1'")
    page.wait_for_selector("#one h2:text-is('s1')")
    page.keyboard.press("o")
    page.select_option("#one select >> nth=1", "MET")
    values = "fields => fields.map(field => field.value)"
    for place, expected in [(0, ["", ""]), (1, ["", "MET"]), (2, ["", ""])]:
        page.evaluate(f"location.hash = '#s{place}'")
        page.wait_for_selector(f"#one h2:text-is('s{place}')")
        assert page.eval_on_selector_all("#one select", values) == expected
    with page.expect_download() as waiting:
        page.click("text=Export labels")
    path = tmp_path / "labels.jsonl"
    waiting.value.save_as(path)
    (label,) = read_labels(path, runs[1])
    assert (label.criterion.requirement, label.verdict) == ("Clearly: Says 1.1", "MET")
    assert label.submission.response == "It is 1."


def test_long_list_renders_the_rows_that_are_visible_and_reaches_the_last(show: Callable[..., Any]) -> None:
    page = show(own_rubrics("own", 2_000, "MET", "UNMET"))
    page.keyboard.press("t")
    assert page.inner_text("#count") == "2,000 of 2,000 submissions"
    assert page.locator("#rows li").count() < 60
    page.evaluate("document.querySelector('#window').scrollTop = 1e9")
    page.wait_for_selector("#rows .id:text-is('s1999')")
    assert ids(page)[-1] == "s1999"
    assert page.eval_on_selector("#rows li:last-child", "row => [row.ariaPosInSet, row.ariaSetSize]") == [
        "2000",
        "2000",
    ]
    page.click("#rows .id:text-is('s1999')")
    page.wait_for_selector("#one h2:text-is('s1999')")
    assert "why 1999.1" in page.inner_text("#one")
    page.keyboard.press("Escape")
    page.wait_for_selector("#one", state="hidden")
    assert focused(page) == "s1999"
    page.fill("#f-text", "Question 1234?")
    page.wait_for_selector("#count:text-is('1 of 2,000 submissions')")
    assert ids(page) == ["s1234"]


def test_answer_of_a_row_s_own_criterion_with_options_is_overruled_by_typing(show: Callable[..., Any]) -> None:
    line = own_line(0, "MET", "MET")
    line["report"][1] |= {"verdict": "plain", "value": 0.5}
    page = show(RunFile.of("own", [Line(line), Line(own_line(1, "MET"))]))
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one h2")
    page.click("#one button:text-is('Overrule')")
    page.fill("#one td input", "kind")
    page.keyboard.press("Tab")
    assert page.inner_text("#labels [role=status]").startswith("1 label, stored")
    page.reload()
    page.wait_for_selector("#one h2")
    page.keyboard.press("o")
    assert page.input_value("#one td input") == "kind"
    page.select_option("#one select", "UNMET")
    page.click("#one button:has-text('change')")
    page.fill("#one td input", "")
    page.keyboard.press("Tab")
    page.evaluate("location.hash = '#list'")
    page.wait_for_selector("#one", state="hidden")
    page.select_option("#f-status", "labelled")
    assert page.inner_text("#count") == "1 of 2 submissions"


def test_view_opens_at_its_top(show: Callable[..., Any]) -> None:
    page = show(FIRST, SECOND, viewport={"width": 390, "height": 300})
    for view in ("overview", "compare", "table", "whatif"):
        page.evaluate(f"location.hash = '#{view}'")
        page.wait_for_selector(f"[data-view={view}]:not([hidden])")
        assert page.evaluate("scrollY") == 0
