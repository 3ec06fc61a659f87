"""Clicks on everything that a page has: no state and no order of clicks raises an error or logs a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rubric_integrations.runs import RunFile
from rubric_integrations.trust import choose_for_labels
from tests.reporting.page.runs import FIRST, SECOND, Line, own_line, run_of
from tests.reporting.page.test_submission_steps import FILES, STEPS, run_with

CITING = run_with(STEPS, FILES)
FEWER = run_of("fewer", "right=MET error=UNMET tone=plain", "right=UNMET tone=x")
FAILED = RunFile.of("failed", [Line({"id": "s0", "error": "no reply", "submission": {"response": "a"}})])
PAGES: dict[str, tuple[tuple[RunFile, ...], dict[str, Any]]] = {
    "one row with steps": ((CITING,), {}),
    "two runs with the same steps": ((CITING, CITING), {}),
    "two runs, of which one lacks rows": ((FIRST, FEWER), {}),
    "two runs without common rows": ((RunFile.of("own", [Line(own_line(7, "MET"))]), FIRST), {}),
    "many runs": ((FIRST, SECOND, FEWER), {}),
    "no texts": ((FIRST, SECOND), {"redact": True}),
    "no texts and no steps": ((CITING,), {"redact": True}),
    "no grade": ((FAILED,), {}),
    "no rows": ((RunFile.of("empty", []),), {}),
    "judgments to label": ((FIRST,), {"to_label": choose_for_labels(FIRST, 2)}),
    "judgments with steps to label": ((CITING,), {"to_label": choose_for_labels(CITING, 1)}),
}
ADDRESSES = (
    "#overview", "#table", "#compare", "#many", "#whatif", "#label", "#s0", "#s99", "#table?row=none",
    "#table?text=nowhere", "#table?status=failed&row=0", "#table?a=9&b=7&criterion=99", "#from-an-earlier-version",
)  # fmt: skip
# Clicks each element once, also those that another click has removed, presses each key, and prints.
KEYS = (
    "?",
    "j",
    "k",
    "Enter",
    "m",
    "o",
    "w",
    "Escape",
    "/",
    "c",
    "1",
    "i",
    "d",
    "r",
    "t",
    "ArrowRight",
    "n",
    "s",
    "g",
    "]",
    "[",
)
WALK = """async ([addresses, keys]) => {
  const KINDS = "a, button, input:not([type=file]), select, summary, [tabindex], .of-run";
  const drawn = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const send = (element, event) => element.dispatchEvent(event);
  const clicked = new Set();
  for (const address of addresses) {
    location.hash = address;
    await drawn();
    for (const element of document.querySelectorAll(KINDS)) {
      if (clicked.has(element)) continue;
      clicked.add(element);
      send(element, new PointerEvent("pointerenter"));
      send(element, new MouseEvent("click", { bubbles: true, cancelable: true }));
      if (!element.matches("input, select")) continue;
      for (const type of ["input", "change"]) send(element, new Event(type, { bubbles: true }));
    }
    await drawn();
    for (const key of keys) {
      send(document.activeElement, new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
      document.querySelector("dialog[open]")?.close();
    }
    send(window, new Event("beforeprint"));
    send(window, new Event("afterprint"));
    history.back();
    await drawn();
  }
}"""


def accept(dialog: Any) -> None:
    dialog.accept()


@pytest.mark.parametrize("kind", PAGES)
def test_clicks_on_every_element_and_every_key_raise_no_error(show: Callable[..., Any], kind: str) -> None:
    runs, options = PAGES[kind]
    page = show(*runs, **options)
    page.on("dialog", accept)
    if "to_label" in options:
        page.keyboard.type("Ann")
        page.keyboard.press("Enter")
    page.evaluate(WALK, (ADDRESSES, KEYS))


def test_step_that_an_answer_cites_is_found_in_its_own_panel_also_when_the_panel_is_closed(
    show: Callable[..., Any],
) -> None:
    page = show(CITING)
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector(".chip:text-is('step 2')")
    page.evaluate(
        "() => { const chip = document.querySelector('button.chip');"
        " document.querySelector('#one .close').click(); chip.click(); }"
    )
    assert not page.is_visible("#one")


def test_second_click_on_the_last_answer_while_the_end_is_drawn_answers_nothing(show: Callable[..., Any]) -> None:
    page = show(FIRST, to_label=choose_for_labels(FIRST, 1)[:1])
    page.keyboard.type("Ann")
    page.keyboard.press("Enter")
    page.wait_for_selector("button.choice")
    page.evaluate("() => { const answer = document.querySelector('button.choice'); answer.click(); answer.click(); }")
    page.wait_for_selector("#label-title:has-text('All 1 are labelled')")


def test_submission_that_is_closed_before_it_is_unpacked_does_not_open(show: Callable[..., Any]) -> None:
    page = show(FIRST)
    page.keyboard.press("t")
    page.evaluate(
        "() => { for (const key of ['j', 'Enter', 'Escape'])"
        " document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })); }"
    )
    page.wait_for_timeout(100)
    assert not page.is_visible("#one")
