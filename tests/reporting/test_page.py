"""The report page: its figures, its size, and in a real browser what it shows, hides and lets nobody inject."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rubric_integrations import Criterion, Option, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.cli import app
from rubric_integrations.graders import RubricAsJudgeGrader
from rubric_integrations.judges.protocol import Question
from rubric_integrations.reporting.page import RunFile, RunFileError, read_run, report_page
from rubric_integrations.reporting.page.figures import compare, criterion_figures, mean_with_interval, summarize
from rubric_integrations.results.judgment import JudgeFailure, Judgment
from rubric_integrations.results.labels import LabelsError, read_labels
from rubric_integrations.results.usage import Spend

EVIL = [
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 2">',
    "</script><script>window.hacked = 3</script>",
    "'--><svg onload=window.hacked=4>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.hacked=5",
    "]]>\u2028\u202e<b>bold</b>&lt;i&gt;",
]
RUBRIC = Rubric(
    [
        Criterion(name="right", requirement="Is right", weight=3, required=True),
        Criterion(name="error", requirement="Has an error", weight=-2),
        Criterion(
            name="tone",
            requirement="Tone?",
            weight=1,
            options=[Option(label="plain", value=1), Option(label="x", value=0)],
        ),
    ],
    name="small",
)


class Said:
    """Says what stands in the response: an answer to each criterion, by name."""

    async def judge(self, question: Question) -> Judgment:
        told = dict(part.split("=") for part in question.submission.response.split() if "=" in part)
        answer = told.get(question.criterion.name or "", "CANNOT_ASSESS")
        if answer == "fails":
            raise JudgeFailure("transport", "no reply", spend=Spend(calls=1))
        value = {"MET": 1.0, "UNMET": 0.0, "plain": 1.0, "x": 0.0}.get(answer)
        return Judgment(verdict=answer, value=value, reason=f"because {answer}", spend=Spend(calls=1, cost=0.5))


def run_of(name: str, *responses: str, rubric: Rubric = RUBRIC) -> RunFile:
    rows = [{"id": f"s{number}", "response": text, "query": "Why?"} for number, text in enumerate(responses)]
    graded = grade_many(rows, rubric, PerCriterionGrader(Said(), max_retries=0))
    return RunFile.of(name, graded, rubric=rubric.name, judge="said")


FIRST = run_of(
    "first",
    "right=MET error=UNMET tone=plain",
    "right=UNMET error=MET tone=x",
    "right=MET error=fails tone=x",
    "right=MET error=UNMET",
)
SECOND = run_of(
    "second",
    "right=MET error=UNMET tone=plain",
    "right=MET error=UNMET tone=x",
    "right=MET error=UNMET tone=x",
    "right=MET error=MET",
)


# -- figures


def test_the_first_line_counts_what_is_there_and_what_is_not() -> None:
    summary = summarize(FIRST.rows)
    assert (summary.submissions, summary.graded, summary.passed, summary.failed, summary.abstained) == (4, 3, 2, 1, 1)
    assert summary.score
    assert summary.score.mean == pytest.approx((1 + 0 + 1) / 3)
    assert summary.cost == pytest.approx(0.5 * summary.calls - 0.5)


def test_a_failure_that_a_policy_answered_leaves_the_grade_standing(show: Callable[..., Any]) -> None:
    tolerant = PerCriterionGrader(Said(), on_failure="abstain", max_retries=0)
    run = RunFile.of("tolerant", grade_many(["right=MET error=fails tone=plain"], RUBRIC, tolerant))
    summary = summarize(run.rows)
    assert (summary.graded, summary.failed) == (1, 0)
    assert summary.score
    assert summary.score.mean == 1.0
    assert [figures.failed for figures in criterion_figures(run) if figures.name == "error"] == [1]
    page = show(run)
    assert "1.000" in page.inner_text("#heat")
    assert "not graded" not in page.inner_text("#heat")
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one h2:text-is('1')")
    assert "`error` was not judged: transport: no reply" in page.inner_text("#one")


def test_what_cost_most_is_counted_from_the_good_end() -> None:
    figures = {found.name: found for found in criterion_figures(FIRST)}
    assert criterion_figures(FIRST)[0].name == "right"
    right, error, tone = figures["right"], figures["error"], figures["tone"]
    assert (right.lost, right.worst, right.met, right.unmet) == (0.75, 3, 3, 1)
    assert (error.met, error.unmet, error.failed) == (2, 1, 1)
    assert error.lost == pytest.approx(2 / 3)
    assert (tone.met, tone.unmet, tone.abstained, tone.failed) == (1, 1, 1, 1)


def test_an_interval_covers_a_known_mean_about_as_often_as_it_says() -> None:
    import numpy as np

    dice = np.random.default_rng(5)
    hits = 0
    for _ in range(60):
        found = mean_with_interval([float(x) for x in dice.uniform(0, 1, 40)])
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0.5 <= found.high
    assert 51 <= hits <= 60
    assert mean_with_interval([0.4]) == (0.4, None, None)
    assert mean_with_interval([0.4, 0.4, 0.4]) == (pytest.approx(0.4), None, None)


def test_two_runs_are_compared_pair_by_pair() -> None:
    found = compare(FIRST, SECOND)
    assert found
    assert (found.pairs, found.better, found.worse, found.same) == (3, 1, 1, 1)
    assert found.flips == 3
    assert compare(FIRST, run_of("none")) is None
    shifted = [run_of(name, *[f"right=MET error={error} tone=x"] * 6) for name, error in (("a", "MET"), ("b", "UNMET"))]
    sure = compare(*shifted)
    assert sure
    # Of the 64 ways to flip six signs two are as extreme as six differences of one sign.
    assert sure.p_value == pytest.approx(2 / 64)
    assert sure.difference.mean > 0


# -- files


def grade_to(path: Path, *responses: str) -> Path:
    path.write_text(
        "".join(json.dumps(item.to_dict()) + "\n" for item in grade_many(responses, RUBRIC, PerCriterionGrader(Said())))
    )
    return path


def test_a_run_is_read_back_from_its_file(tmp_path: Path) -> None:
    path = grade_to(tmp_path / "run.jsonl", "right=MET error=UNMET tone=plain", "  ")
    run = read_run(path)
    assert [row.report.score if row.report else None for row in run.rows] == [1.0, None]
    assert run.rows[1].error
    assert run.rows[0].submission == Submission(response="right=MET error=UNMET tone=plain")


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("nope\n", ":1: is not JSON"), ("[]\n", ":1: is list"), ('{"a": 1}\n', ":1: is no grade")],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(RunFileError, match=message):
        read_run(path)
    done = CliRunner().invoke(app, ["report", str(path)])
    assert (done.exit_code, "Traceback" in done.output) == (2, False)


def test_the_shell_writes_a_page(tmp_path: Path) -> None:
    run, page = grade_to(tmp_path / "run.jsonl", "right=MET"), tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", str(run), "--output", str(page), "--title", "A <title>"])
    assert done.exit_code == 0, done.output
    assert "<title>A &lt;title&gt;</title>" in page.read_text()
    assert CliRunner().invoke(app, ["report", *[str(run)] * 3]).exit_code == 2
    assert CliRunner().invoke(app, ["report", str(run), "--output", str(tmp_path / "no" / "page.html")]).exit_code == 2


def test_five_hundred_submissions_of_ten_criteria_are_under_a_megabyte(
    record_property: Callable[[str, object], None],
) -> None:
    import random

    dice = random.Random(1)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(2, 9))) for _ in range(3000)]

    class Wordy:
        async def judge(self, question: Question) -> Judgment:
            met = dice.random() < 0.6
            return Judgment(
                verdict="MET" if met else "UNMET", value=float(met), reason=" ".join(dice.choices(words, k=25))
            )

    rubric = Rubric([Criterion(requirement=" ".join(dice.choices(words, k=12))) for _ in range(10)])
    texts = [" ".join(dice.choices(words, k=150)) for _ in range(500)]
    page = report_page([RunFile.of("big", grade_many(texts, rubric, PerCriterionGrader(Wordy())))])
    size = len(page.encode())
    record_property("shown", f"report page of 500 submissions x 10 criteria, random words: {size / 1000:.0f} kB")
    assert size < 1_000_000


# -- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("there is no Chromium to look at the page with")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page from disk and collects what it complains of."""
    opened: list[Any] = []
    said: list[str] = []

    def complain(what: Any) -> None:
        said.append(str(what))

    def complain_of_requests(request: Any) -> None:
        if not request.url.startswith(("file:", "blob:")):
            said.append(request.url)

    def open_page(*runs: RunFile, **options: Any) -> Any:
        path = tmp_path / "report.html"
        path.write_text(report_page(runs), encoding="utf-8")
        context = browser.new_context(accept_downloads=True, **options)
        opened.append(context)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", complain)
        page.on("request", complain_of_requests)
        page.goto(path.as_uri())
        page.wait_for_selector("#heat tbody tr, #count")
        return page

    yield open_page
    for context in opened:
        context.close()
    assert said == []


def test_each_kind_of_answer_looks_its_own_way(show: Callable[..., Any]) -> None:
    page = show(FIRST)
    looks = page.eval_on_selector_all(
        "#heat tbody i.cell", "cells => cells.map(cell => [cell.textContent, cell.className.trim()])"
    )
    assert ["M", "cell g4"] in looks
    assert ["U", "cell g4"] in looks  # an error that was avoided
    assert ["U", "cell g0"] in looks
    assert ["?", "cell abstained"] in looks
    assert ["!", "cell failed"] in looks
    shades = {
        name: page.evaluate(f"getComputedStyle(document.querySelector('.legend .{name}')).background")
        for name in ("g0", "abstained", "failed")
    }
    assert len(set(shades.values())) == 3


def test_filters_sorting_and_a_submissions_page_by_keyboard(show: Callable[..., Any]) -> None:
    page = show(FIRST)
    names = "rows => rows.map(row => row.textContent)"
    page.select_option("#f-sort", "low")
    assert page.eval_on_selector_all("#heat tbody a", names)[0] == "s1"
    page.select_option("#f-status", "failed")
    assert page.eval_on_selector_all("#heat tbody a", names) == ["s2"]
    page.select_option("#f-status", "all")
    page.select_option("#f-criterion", "2")
    page.select_option("#f-answer", "abstained")
    assert page.eval_on_selector_all("#heat tbody a", names) == ["s3"]
    page.select_option("#f-answer", "")
    page.fill("#f-text", "tone=plain")
    assert page.inner_text("#count") == "1 of 4 submissions"
    page.fill("#f-text", "")
    page.select_option("#f-sort", "order")
    page.focus("#heat tbody a")
    page.keyboard.press("Enter")
    page.wait_for_selector("#one h2")
    assert page.inner_text("#one h2") == "s0"
    assert "because plain" in page.inner_text("#one")
    assert "right=MET error=UNMET tone=plain" in page.inner_text("#one pre >> nth=1")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#one h2:text-is('s1')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#heat")
    assert page.is_visible("#heat")


def test_two_runs_stand_side_by_side(show: Callable[..., Any]) -> None:
    page = show(FIRST, SECOND)
    assert "1 better, 1 worse, 1 the same; 3 answers changed" in " ".join(page.inner_text(".verdict").split())
    page.select_option("#f-status", "worse")
    assert page.eval_on_selector_all("#heat tbody a", "rows => rows.map(row => row.textContent)") == ["s3"]
    page.click("#heat tbody a")
    page.wait_for_selector("#one h2")
    assert page.eval_on_selector_all("#one thead th", "heads => heads.map(head => head.textContent)") == [
        "criterion",
        "first",
        "second",
        "overrule",
    ]


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 800}}])
def test_nothing_sticks_out_of_the_window(show: Callable[..., Any], options: dict[str, Any]) -> None:
    page = show(FIRST, SECOND, **options)
    for place in ("", "#s1"):
        page.evaluate(f"location.hash = '{place}'")
        page.wait_for_timeout(50)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = options.get("color_scheme") == "dark"
    channels = page.evaluate("getComputedStyle(document.body).backgroundColor").strip("rgb()").split(",")
    assert (math.fsum(map(float, channels)) < 150) == dark


def test_what_others_wrote_is_text_wherever_it_stands(show: Callable[..., Any]) -> None:
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
        {"id": f"{number}{evil}", "response": evil + everything, "query": everything, "reference": everything}
        for number, evil in enumerate([*EVIL, "fail"])
    ]
    panel = PerCriterionGrader(judges=[Evil(), Evil()], on_failure="abstain", max_retries=0)
    run = RunFile.of(everything, grade_many(rows, rubric, panel), rubric=rubric.name, judge=everything)
    page = show(run, run._replace(name=everything + "2"))
    plain = (
        "HTML HEAD META TITLE STYLE BODY A HEADER H1 MAIN DIV SECTION H2 P B DL DT DD SMALL svg rect title line text "
        "TABLE THEAD TBODY TR TH TD SPAN FORM LABEL INPUT SELECT OPTION UL LI I CAPTION ARTICLE NOSCRIPT FOOTER SCRIPT "
        "NAV H3 PRE BUTTON"
    )
    for place in ["", *(f"#s{number}" for number in range(len(rows)))]:
        page.evaluate(f"location.hash = '{place}'")
        page.wait_for_timeout(30)
        elements = page.evaluate("[...document.querySelectorAll('*')].map(e => [e.tagName, ...e.getAttributeNames()])")
        assert {names[0] for names in elements} <= set(plain.split(" "))
        assert not [names for names in elements if any(name.startswith("on") for name in names[1:])]
        assert page.evaluate("document.querySelectorAll('script').length") == 2
        assert not page.evaluate("[...document.links].some(link => !link.getAttribute('href').startsWith('#'))")
        assert page.evaluate("window.hacked") is None
    assert page.inner_text("#one h2") == " ".join(["7fail"])
    page.evaluate("location.hash = '#s0'")
    page.wait_for_timeout(50)
    assert page.eval_on_selector_all("#one pre", "found => found[0].textContent") == everything


def test_a_script_that_got_in_would_not_run(show: Callable[..., Any]) -> None:
    page = show(FIRST)
    policy = page.get_attribute("meta[http-equiv]", "content")
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_an_overruled_answer_is_kept_exported_and_read_back(show: Callable[..., Any], tmp_path: Path) -> None:
    page = show(FIRST)
    page.evaluate("location.hash = '#s1'")
    page.wait_for_selector("#one select")
    page.select_option("#one select >> nth=0", "MET")
    page.select_option("#one select >> nth=2", "plain")
    page.reload()
    page.wait_for_selector("#one select")
    assert page.input_value("#one select >> nth=0") == "MET"
    with page.expect_download() as waiting:
        page.click("text=Export labels.jsonl")
    path = tmp_path / "labels.jsonl"
    waiting.value.save_as(path)
    labels = read_labels(path, RUBRIC)
    assert [(label.criterion.name, label.verdict) for label in labels] == [("right", "MET"), ("tone", "plain")]
    assert labels[0].submission.response == "right=UNMET error=MET tone=x"
    assert labels[0].submission.query == "Why?"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"criterion": "other", "verdict": "MET", "submission": {"response": "r"}}', "no criterion of that name"),
        ('{"criterion": "right", "verdict": "maybe", "submission": {"response": "r"}}', "is no verdict"),
        (
            '{"criterion": "right", "requirement": "Was right", "verdict": "MET", "submission": {}}',
            "when it was labelled",
        ),
        ('{"criterion": "right", "verdict": "MET"}', "has no 'submission'"),
        ("nope", "is no label"),
    ],
)
def test_labels_of_another_rubric_are_refused(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(LabelsError, match=message):
        read_labels(path, RUBRIC)


async def _whole(_system: str, _user: str) -> str:
    return '{"explanation": "Fine <b>.", "overall_score": 70}'


def test_runs_of_other_kinds_are_shown_too(show: Callable[..., Any]) -> None:
    whole = RunFile.of("whole", grade_many(["a", "b"], RUBRIC, RubricAsJudgeGrader(_whole)))
    page = show(whole)
    assert "scored each submission as a whole" in page.inner_text("main")
    page.evaluate("location.hash = '#s1'")
    page.wait_for_selector("#one h2:text-is('2')")
    assert "Fine <b>." in page.inner_text("#one")
    stopped = PerCriterionGrader(Said(), stop_when_decided=True)
    page = show(RunFile.of("open", grade_many(["right=UNMET", "  "], RUBRIC, stopped)))
    assert page.eval_on_selector_all("#heat .score", "cells => cells.map(cell => cell.textContent)") == [
        "score",
        "0.00..0.25",
        "not graded",
    ]
    assert page.locator("#heat i.cell.open").count() == 2
    raw = PerCriterionGrader(Said(), normalize=False)
    page = show(RunFile.of("raw", grade_many(["right=MET error=UNMET tone=x", "error=MET tone=x"], RUBRIC, raw)))
    assert "-2.000" in page.inner_text("#heat")
    page = show(RunFile.of("nothing", grade_many(["  "], RUBRIC, raw)))
    assert page.inner_text("#count") == "1 of 1 submissions"
