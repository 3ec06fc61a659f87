"""The view "What if" in a real browser: the scores with other weights are Python's, or the sliders are off."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from rubric_integrations import Criterion, LengthPenalty, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import RubricAsJudgeGrader
from rubric_integrations.reporting.page.data import PageData
from rubric_integrations.rubric import HybridMetric
from rubric_integrations.rubric.rubric import RubricError
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import EvaluationReport
from tests.cli.commands import run as run_command
from tests.reporting.page.random_grades import POLICIES, Case, random_case, random_rubric
from tests.reporting.page.runs import FIRST, SECOND, EchoJudge, Line, own_line, own_rubrics, run_of
from tests.reporting.page.test_overrule import PAGE_SCRIPTS, RUBRIC

RUN = run_of(
    "run",
    "margin=MET method=MET gross=MET",
    "margin=MET method=UNMET gross=UNMET",
    "margin=UNMET method=MET gross=UNMET",
    "margin=MET method=MET gross=UNMET",
    "margin=MET method=fails gross=UNMET",
    rubric=RUBRIC,
)
RUBRICS, ROWS, TRIALS = 8, 25, 2


async def overall(_system: str, _user: str) -> str:
    return '{"explanation": "Fine.", "overall_score": 70}'


def shares_of(run: RunFile) -> Any:
    data = PageData([run.name])
    for number, row in enumerate(run.rows):
        data.add((row.id, number), [row], {})
    return json.loads(json.dumps(data.shares))


def open_view(page: Any) -> None:
    page.evaluate("location.hash = '#whatif'")
    page.wait_for_selector("#whatif-body :is(.tried, .fixed)")


def says(page: Any, words: str) -> None:
    page.wait_for_selector(f"#view-whatif [role=status]:has-text('{words}')")


def reweighted(case: Case, weights: dict[str, float], mark: float) -> EvaluationReport:
    return case._replace(rubric=case.rubric.with_weights(weights, mark)).report()


def test_scores_with_other_weights_are_python_s_on_random_cases(show: Callable[..., Any]) -> None:
    random = Random(7)
    page = show(RUN)
    compared = passed = undefined = 0
    for _ in range(RUBRICS):
        rubric, policy = random_rubric(random), random.choice(POLICIES)
        cases = [random_case(random, rubric, policy) for _ in range(ROWS)]
        shares = shares_of(RunFile.of("run", [case.graded(f"s{number}") for number, case in enumerate(cases)]))
        trials = [({key: c.weight for key, c in zip(rubric.keys, rubric.criteria, strict=True)}, rubric.pass_mark)]
        for _ in range(TRIALS):
            factors = [random.choice([0, 0.3, 1, 1.7, 5]) for _ in rubric.criteria]
            weights = {key: weight * by for (key, weight), by in zip(trials[0][0].items(), factors, strict=True)}
            # A required penalty with the weight 0 would be no penalty any more; the page refuses it.
            for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
                weights[key] = weights[key] or (criterion.weight if criterion.is_gate else 0.0)
            trials.append((weights, random.choice([0.0, 0.25, 0.5, 0.9])))
        for weights, mark in trials:
            full = [weights[key] * (c.cap or 1) for key, c in zip(rubric.keys, rubric.criteria, strict=True)]
            if not any(full):
                with pytest.raises(RubricError, match="weight"):
                    rubric.with_weights(weights)
                continue
            grades = page.evaluate(
                f"async ([shares, weights, mark]) => {{ {PAGE_SCRIPTS} return gradesWith(shares, weights, mark); }}",
                [shares, full, mark],
            )
            for case, pattern in zip(cases, shares["rows"], strict=True):
                expected = reweighted(case, weights, mark)
                if pattern is None:
                    assert case.report().failed_count
                    assert case.report().score is None or case.on_failure == "raise"
                    continue
                assert grades[pattern]["score"] == pytest.approx(expected.score, abs=1e-9)
                assert grades[pattern]["passed"] == expected.passed
                compared += 1
                passed += expected.passed
                undefined += expected.score is None
    assert compared > RUBRICS * ROWS
    assert min(passed, undefined) > 0


def test_new_weights_and_mark_show_the_results_that_change_and_reset_restores_them(show: Callable[..., Any]) -> None:
    page = show(RUN)
    page.keyboard.press("i")
    says(page, "No result would change.")
    cells = page.eval_on_selector_all("#view-whatif .tried tbody td", "cells => cells.map(cell => cell.textContent)")
    assert cells == ["0.563", "0.563", "1 of 4", "1 of 4"]
    page.fill("[aria-label='Weight of gross, as a number']", "-2")
    page.fill("[aria-label='Pass mark, as a number']", "0.6")
    says(page, "2 results would change: 2 would pass, 0 would no longer pass.")
    assert page.locator("#view-whatif .flips li").all_inner_texts() == [
        "✓ s0 0.250 → 0.875, would pass",
        "✓ s1 0.625 → 0.625, would pass",
    ]
    # The third one lacks a required criterion, whatever the weights.
    page.fill("[aria-label='Pass mark, as a number']", "0")
    says(page, "2 results would change")
    page.click("text=Show them in the table")
    page.wait_for_selector("#count:text-is('2 of 5 submissions')")
    page.evaluate("history.back()")
    says(page, "2 results would change")
    page.click("#view-whatif button:text-is('Reset')")
    says(page, "No result would change.")
    assert page.input_value("[aria-label='Weight of gross, as a number']") == "-12"
    page.evaluate("location.hash = '#table?status=flipped'")
    page.wait_for_selector("#count:text-is('0 of 5 submissions')")


def test_slider_goes_in_round_steps_by_keyboard(show: Callable[..., Any]) -> None:
    page = show(RUN)
    open_view(page)
    page.focus("[aria-label='Weight of method']")
    page.keyboard.press("ArrowRight")
    value = float(page.input_value("[aria-label='Weight of method, as a number']"))
    assert value > 6
    assert value == round(value, 1)


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("Weight of method", "-1", "takes a number from 0"),
        ("Weight of gross", "3", "takes a number below 0, or 0"),
        ("Pass mark", "1.5", "takes a number from 0 to 1"),
    ],
)
def test_number_that_is_not_possible_is_refused_in_words(
    show: Callable[..., Any], name: str, typed: str, words: str
) -> None:
    page = show(RUN)
    open_view(page)
    page.fill(f"[aria-label='{name}, as a number']", typed)
    page.wait_for_selector(f"#view-whatif [role=alert]:text-is('{words}')")
    says(page, "No result would change.")


def test_exported_weights_change_the_rubric_and_nothing_else(show: Callable[..., Any], tmp_path: Path) -> None:
    page = show(RUN)
    open_view(page)
    page.fill("[aria-label='Weight of gross, as a number']", "-2.5")
    page.fill("[aria-label='Pass mark, as a number']", "0.6")
    with page.expect_download() as waiting:
        page.click("#view-whatif button:text-is('Export the weights')")
    assert waiting.value.suggested_filename == "weights.yaml"
    waiting.value.save_as(tmp_path / "weights.yaml")
    text = (tmp_path / "weights.yaml").read_text(encoding="utf-8")
    assert "This is no rubric: it lacks the requirements, checks and guidelines." in text
    assert yaml.safe_load(text) == {"pass_mark": 0.6, "weights": {"margin": 10, "method": 6, "gross": -2.5}}
    (tmp_path / "rubric.yaml").write_text(RUBRIC.to_yaml())
    changed = run_command(
        "convert", tmp_path / "rubric.yaml", "--to", "native", "--weights", tmp_path / "weights.yaml",
        "--output", tmp_path / "changed.yaml",
    )  # fmt: skip
    assert (changed.exit_code, changed.stderr) == (0, "")
    assert Rubric.from_file(tmp_path / "changed.yaml") == RUBRIC.with_weights({"gross": -2.5}, 0.6)


def test_sliders_are_off_with_the_reason_where_the_page_cannot_add_up() -> None:
    rows = ["margin=MET method=UNMET gross=MET", "margin=MET method=MET gross=UNMET"]
    penalty = LengthPenalty(free_budget=1, max_cap=9, penalty_at_cap=0.5)
    metric = HybridMetric(name="words", type="accuracy", weight=0.2)
    blended = Rubric([Criterion(requirement="a")], hybrid_metrics=[metric])
    groups = [{"requirement": "A", "weight": 3, "criteria": [{"requirement": "a1"}, {"requirement": "a2"}]}]

    def reason(rubric: Any, grader: Any, rows: Any = rows) -> str:
        return shares_of(RunFile.of("run", grade_many(rows, rubric, grader)))["fixed"]

    judge = EchoJudge()
    assert reason(RUBRIC, PerCriterionGrader(judge, length_penalty=penalty)) == "a penalty for the length is subtracted"
    assert reason(RUBRIC, PerCriterionGrader(judge, normalize=False)) == "the scores of this run are not normalized"
    assert reason(groups, PerCriterionGrader(judge)) == "the rubric has groups, whose values depend on each other"
    reference = [{"response": "a", "reference": "a"}]
    assert reason(blended, PerCriterionGrader(judge), reference) == "the score is blended with metrics"
    holistic = RubricAsJudgeGrader(overall)
    assert reason(RUBRIC, holistic) == "the judge scored the submission as a whole"
    early = PerCriterionGrader(judge, stop_when_decided=True)
    assert reason(RUBRIC, early).endswith("grading ended early: the other criteria were not asked")
    assert shares_of(own_rubrics("own", 4, "MET", "UNMET"))["fixed"] == "the rows have different rubrics"
    earlier = shares_of(RunFile.of("earlier", [Line(own_line(0, "MET", "UNMET"))]))
    assert earlier["fixed"] == "the run file has neither a pass mark nor the scoring policies"
    assert shares_of(RunFile.of("empty", grade_many([""], RUBRIC, PerCriterionGrader(judge)))) is None


def test_view_of_a_rubric_that_cannot_be_tried_has_disabled_sliders(show: Callable[..., Any]) -> None:
    raw = grade_many(["margin=MET method=UNMET gross=MET"], RUBRIC, PerCriterionGrader(EchoJudge(), normalize=False))
    page = show(RunFile.of("raw", raw))
    open_view(page)
    assert page.inner_text("#view-whatif .fixed") == "The sliders are off: the scores of this run are not normalized."
    assert page.locator("#view-whatif input").count() == page.locator("#view-whatif input:disabled").count() == 8
    page = show(own_rubrics("own", 4, "MET", "UNMET"))
    open_view(page)
    assert page.inner_text("#view-whatif .fixed") == "The sliders are off: the rows have different rubrics."
    assert page.locator("#view-whatif input").count() == 0


def test_weights_of_two_runs_are_tried_on_the_last_one(show: Callable[..., Any]) -> None:
    page = show(FIRST, SECOND)
    open_view(page)
    assert "of second" in page.inner_text("#whatif-body")
    says(page, "No result would change.")


def test_hostile_names_stay_text_in_the_view_and_in_the_file(show: Callable[..., Any], tmp_path: Path) -> None:
    evil = '"><img src=x onerror="window.hacked = 1">\n- weights: {a: 1} # \u2028\u202e{{ 7 * 7 }}</script>'
    criteria = [{"name": evil, "requirement": evil, "weight": 2}, {"name": "__proto__", "requirement": "b"}]
    run = run_of(evil, "__proto__=MET", rubric=Rubric.from_dict(criteria))
    page = show(run._replace(name=evil))
    open_view(page)
    assert evil in page.text_content("#whatif-body")
    page.locator("#view-whatif input[type=number]").nth(1).fill("5")
    with page.expect_download() as waiting:
        page.click("#view-whatif button:text-is('Export the weights')")
    waiting.value.save_as(tmp_path / "weights.yaml")
    file = yaml.safe_load((tmp_path / "weights.yaml").read_text(encoding="utf-8"))
    assert file == {"pass_mark": 0.8, "weights": {evil: 5, "__proto__": 10}}
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0


def test_view_and_overruling_fit_each_window_and_have_no_violation(show: Callable[..., Any]) -> None:
    axe = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")
    page = show(RUN)
    page.evaluate(axe.AXE_SCRIPT)
    open_view(page)
    page.fill("[aria-label='Pass mark, as a number']", "0.6")
    page.fill("[aria-label='Weight of method, as a number']", "-1")
    says(page, "1 result would change")
    lines: list[str] = []

    def check() -> None:
        for width, scheme in product((1280, 390), ("light", "dark")):
            page.set_viewport_size({"width": width, "height": 850})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            violations = page.evaluate("axe.run().then((results) => results.violations)")
            lines.extend(f"{width} {scheme}: {v['id']}: {v['nodes'][0]['html'][:200]}" for v in violations)

    check()
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one h2")
    page.keyboard.press("o")
    page.select_option("[aria-label='Your answer to gross']", "UNMET")
    page.wait_for_selector("#by-you:has-text('passed')")
    check()
    assert lines == []
