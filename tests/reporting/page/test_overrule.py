"""Overruling on the page in a real browser: the new score is Python's, and the answers are saved as chosen labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rubric_integrations import LengthPenalty, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.runs import RunFile
from rubric_integrations.trust import calibrate, read_labels
from tests.reporting.page.random_grades import random_case, random_verdict
from tests.reporting.page.runs import FIRST, EchoJudge, Line, own_line, run_of

RUBRIC = Rubric.from_dict(
    {
        "pass_mark": 0.75,
        "criteria": [
            {"name": "margin", "weight": 10, "requirement": "States the margin", "required": True},
            {"name": "method", "weight": 6, "requirement": "Names the method"},
            {"name": "gross", "weight": -12, "requirement": "Works with gross revenue"},
        ],
    }
)
COUNT = 400

# What the page runs, without its views.
PAGE_SCRIPTS = "".join(
    resources.files("rubric_integrations.reporting.page").joinpath(name).read_text(encoding="utf-8")
    for name in ("data.js", "sums.js")
)


def open_row(page: Any, number: int = 0) -> None:
    page.evaluate(f"location.hash = '#s{number}'")
    page.wait_for_selector("#one h2")


def by_you(page: Any, words: str) -> None:
    page.wait_for_selector(f"#by-you:has-text('{words}')")


def test_score_with_a_person_s_answers_is_python_s_on_random_cases(show: Callable[..., Any]) -> None:
    random = Random(37)
    cases = [random_case(random, ends_early=random.random() < 0.1) for _ in range(COUNT)]
    page = show(RunFile.of("random", [case.graded(f"s{number}") for number, case in enumerate(cases)]))
    answers = [
        {c.name or "": random_verdict(random, c) for c in case.rubric.criteria if random.random() < 0.4}
        for case in cases
    ]
    results = page.evaluate(
        f"""async (answers) => {{
          {PAGE_SCRIPTS}
          return Promise.all(data.rows.map(async (row, number) => {{
            const {{ criteria, grades }} = await load(row);
            return gradeWith(criteria, grades[last], ({{ name }}) => answers[number][name]);
          }}));
        }}""",
        answers,
    )
    seen = {"score": 0, "passed": 0, "undefined": 0, "problem": 0}
    for case, verdicts, result in zip(cases, answers, results, strict=True):
        overruled = case.overruled(verdicts)
        expected = overruled.report()
        if "problem" in result:
            # A run file does not tell a failure that ends a grade from one that leaves its score undefined.
            assert expected.score is None or case.report().score is None
            assert any(row.error or not row.was_asked for row in expected.criteria)
            seen["problem"] += 1
            continue
        assert result["score"] == pytest.approx(expected.score, abs=1e-9)
        assert result["passes"] == expected.passed
        if not (expected.failed_count or any(row.not_applicable for row in expected.criteria)):
            known = [row.verdict or "" for row in expected.criteria]
            by_rubric = case.rubric.compute_score(known, cannot_assess=case.cannot_assess)
            assert result["score"] == pytest.approx(by_rubric, abs=1e-9)
        seen["undefined" if result["score"] is None else "score"] += 1
        seen["passed"] += result["passes"]
    assert min(seen.values()) > COUNT / 100, seen


def test_overruled_verdict_shows_the_new_score_at_once_and_is_saved_as_chosen(
    show: Callable[..., Any], tmp_path: Path
) -> None:
    run = run_of("run", "margin=MET method=MET gross=MET", rubric=RUBRIC)
    page = show(run)
    open_row(page)
    assert not page.is_visible("#one select")
    page.keyboard.press("o")
    assert page.evaluate("document.activeElement.textContent") == "confirm"
    page.select_option("[aria-label='Your answer to gross']", "UNMET")
    by_you(page, "0.250 → 1.000, passed (pass mark 0.75)")
    page.fill("[aria-label='Note on gross']", "It is about net revenue.")
    page.keyboard.press("Tab")
    page.select_option("[aria-label='Your answer to margin']", "UNMET")
    by_you(page, "0.250 → 0.375, not passed")
    page.select_option("[aria-label='Your answer to margin']", "")
    by_you(page, "0.250 → 1.000, passed")
    with page.expect_download() as waiting:
        page.click("text=Save your answers")
    waiting.value.save_as(tmp_path / "labels.jsonl")
    (line,) = [json.loads(text) for text in (tmp_path / "labels.jsonl").read_text().splitlines()]
    saved = {name: line[name] for name in ("criterion", "verdict", "judged", "reason", "sampled", "blind")}
    assert saved == {
        "criterion": "gross", "verdict": "UNMET", "judged": "MET", "reason": "It is about net revenue.",
        "sampled": "chosen", "blind": False,
    }  # fmt: skip
    with pytest.raises(ValueError, match="chosen"):
        calibrate(run, read_labels(tmp_path / "labels.jsonl", run))
    page.reload()
    by_you(page, "0.250 → 1.000, passed")
    page.keyboard.press("o")
    assert page.input_value("[aria-label='Note on gross']") == "It is about net revenue."


def test_confirmed_answers_are_as_the_judge_and_an_abstention_follows_the_policy(show: Callable[..., Any]) -> None:
    zero = PerCriterionGrader(EchoJudge(), cannot_assess="zero")
    page = show(RunFile.of("run", grade_many(["margin=MET method=MET gross=UNMET"], RUBRIC, zero)))
    open_row(page)
    page.keyboard.press("o")
    page.click("[aria-label='Confirm margin: MET']")
    by_you(page, "as the judge")
    page.select_option("[aria-label='Your answer to method']", "CANNOT_ASSESS")
    by_you(page, "1.000 → 0.625, not passed")


def test_score_that_the_page_cannot_compute_has_its_reason(show: Callable[..., Any]) -> None:
    rows = ["margin=MET method=UNMET gross=MET"]
    penalty = LengthPenalty(free_budget=1, max_cap=9, penalty_at_cap=0.5)
    long = grade_many(rows, RUBRIC, PerCriterionGrader(EchoJudge(), length_penalty=penalty))
    raw = grade_many(rows, RUBRIC, PerCriterionGrader(EchoJudge(), normalize=False))
    failed = grade_many(["margin=UNMET method=fails gross=MET"], RUBRIC, PerCriterionGrader(EchoJudge(), max_retries=0))
    earlier = own_line(0, "MET", "UNMET", "MET")
    for run, name, reason in [
        (RunFile.of("long", long), "gross", "a penalty for the length is subtracted"),
        (RunFile.of("raw", raw), "gross", "the scores of this run are not normalized"),
        (RunFile.of("failed", failed), "gross", "without an answer to method there is no score: answer it, too."),
    ]:
        page = show(run)
        open_row(page)
        page.keyboard.press("o")
        page.select_option(f"[aria-label='Your answer to {name}']", "UNMET")
        by_you(page, f"the score cannot be computed here: {reason}")
    page.select_option("[aria-label='Your answer to method']", "MET")
    by_you(page, "not graded → 0.375, not passed")
    page = show(RunFile.of("earlier", [Line(earlier)]))
    open_row(page)
    page.keyboard.press("o")
    page.select_option("[aria-label='Your answer to c2']", "MET")
    by_you(page, "0.667 → 1.000, and the run file does not say the pass mark.")
    page.select_option("[aria-label='Your answer to c1']", "CANNOT_ASSESS")
    by_you(page, "the run file does not say what an abstention counts")


def test_option_that_the_run_file_does_not_have_is_no_number(show: Callable[..., Any]) -> None:
    line = own_line(0, "MET", "UNMET")
    line["report"][0] |= {"verdict": "plain", "value": 0.5}  # as in a run of an earlier version, without options
    page = show(RunFile.of("earlier", [Line(line | {"score": 0.25, "raw_score": 1.5})]))
    open_row(page)
    page.keyboard.press("o")
    page.fill("[aria-label='Your answer to c1']", "<b>warm</b>")
    page.keyboard.press("Tab")
    by_you(page, 'the run file does not say what "<b>warm</b>" counts')
    assert page.locator("#by-you b").count() == 1


def test_panel_with_a_person_s_answers_fits_a_phone(show: Callable[..., Any]) -> None:
    page = show(FIRST, viewport={"width": 390, "height": 800})
    open_row(page, 1)
    page.click("button.overrule")
    page.select_option("[aria-label='Your answer to right']", "MET")
    by_you(page, "→")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelector('#one').scrollWidth <= innerWidth")
