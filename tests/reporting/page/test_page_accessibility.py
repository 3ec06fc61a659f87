"""Every view of the page is checked by axe-core in a real browser, light and dark, in a wide and in a narrow window."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from rubric_integrations.runs import RunFile
from rubric_integrations.trust import choose_for_labels
from tests.reporting.page.runs import FIRST, SECOND, SHOWN_RUN, Line, own_line
from tests.reporting.page.test_overview import run_with
from tests.trust.runs import binary_rubric, labels_of, run_of

RUBRIC = binary_rubric(2)
RUN = RunFile("run", None, None, run_of(RUBRIC, [["MET", "UNMET"], ["UNMET", "CANNOT_ASSESS"], ["MET", None]]))
LABELS = [
    *labels_of(RUBRIC, [["MET", "MET"], ["UNMET", "UNMET"]], rater="Ann"),
    *labels_of(RUBRIC, [["MET", "UNMET"], ["MET", "UNMET"]], rater="Ben"),
]


@pytest.fixture
def violations() -> Callable[[Any], list[str]]:
    axe = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")

    def find(page: Any) -> list[str]:
        """Return what axe-core finds on the view that the page shows, in each window."""
        if not page.evaluate("'axe' in window"):
            page.evaluate(axe.AXE_SCRIPT)
        lines: list[str] = []
        for width, scheme in product((1280, 390), ("light", "dark")):
            page.set_viewport_size({"width": width, "height": 850})
            page.emulate_media(color_scheme=scheme)
            # What is not a colour is the same in both schemes, and the colours are the same in both windows.
            rules = "{}" if scheme == "light" else "{runOnly: ['color-contrast']}"
            broken_rules = page.evaluate(f"axe.run({rules}).then((results) => results.violations)")
            lines += [
                f"{width}, {scheme}: {rule['id']}: {node['html'][:300]}"
                for rule in broken_rules
                for node in rule["nodes"]
            ]
        return lines

    return find


def test_views_of_one_run_with_labels_have_no_violation(
    show: Callable[..., Any], violations: Callable[[Any], list[str]]
) -> None:
    page = show(RUN, labels=LABELS)
    assert page.locator(".differences a").count() == 1
    assert violations(page) == []
    page.click(".differences a")
    page.wait_for_selector("#one h2")
    page.keyboard.press("o")
    page.click("button:has-text('confirm') >> nth=0")
    assert violations(page) == []
    page.keyboard.press("w")
    page.keyboard.press("?")
    assert page.is_visible("#help")
    assert violations(page) == []


def test_table_and_panel_with_markdown_steps_and_metadata_have_no_violation(
    show: Callable[..., Any], violations: Callable[[Any], list[str]]
) -> None:
    line = own_line(1, "MET", "UNMET")
    line["submission"] |= {
        "query": "Line\n" * 30,
        "response": "# Title\n\n- a **b** `c`\n\n"
        "| x | y |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```\n> [l](http://a) \u202e",
        "trajectory": {"steps": [{"role": "user", "text": "Why?"}]},
    }
    line |= {"metadata": {"model": "a"}}
    page = show(RunFile.of("run", [Line(line), Line(own_line(2, "MET", "UNMET") | {"metadata": {"model": "b"}})]))
    page.keyboard.press("t")
    assert page.is_visible("#f-meta")
    assert violations(page) == []
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#one .read table")
    assert violations(page) == []


def test_overview_with_groups_and_settings_has_no_violation(
    show: Callable[..., Any], violations: Callable[[Any], list[str]]
) -> None:
    page = show(run_with(*[{"model": "ab"[n % 2], "topic": n % 5} for n in range(20)]))
    page.click(".facts summary")
    assert page.is_visible("#group-name")
    assert page.is_visible(".facts dl")
    assert violations(page) == []
    redacted = show(SECOND, redact=True)
    assert violations(redacted) == []


def test_views_of_two_runs_have_no_violation(show: Callable[..., Any], violations: Callable[[Any], list[str]]) -> None:
    page = show(FIRST, SECOND)
    assert page.is_visible(".changes")
    assert violations(page) == []
    page.evaluate("location.hash = '#s3'")
    page.wait_for_selector("#one del")
    assert violations(page) == []


def test_views_of_many_runs_have_no_violation(show: Callable[..., Any], violations: Callable[[Any], list[str]]) -> None:
    page = show(FIRST, SECOND, SECOND._replace(name="third", judge="another"), FIRST._replace(name="fourth"))
    assert page.is_visible(".chart")
    page.click(".pick >> nth=0")
    assert violations(page) == []
    page.click(".pick >> nth=1")
    assert page.is_visible(".changes")
    assert violations(page) == []


def test_labelling_views_have_no_violation(show: Callable[..., Any], violations: Callable[[Any], list[str]]) -> None:
    page = show(SHOWN_RUN, to_label=choose_for_labels(SHOWN_RUN, 1))
    assert violations(page) == []
    page.keyboard.type("Ann")
    page.keyboard.press("Enter")
    page.wait_for_selector("#label-title:has-text('Judgment 1 of 2')")
    assert violations(page) == []
    page.keyboard.press("5")
    page.wait_for_selector("#label-title:has-text('Judgment 2 of 2')")
    assert violations(page) == []
    page.keyboard.press("Backspace")
    page.wait_for_selector("text=You have answered 5")
    assert violations(page) == []
    page.keyboard.press("s")
    page.wait_for_selector("#label-title:has-text('Judgment 2 of 2')")
    page.keyboard.press("2")
    page.wait_for_selector("#label-title:has-text('All 2 are labelled')")
    assert violations(page) == []
