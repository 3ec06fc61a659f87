"""The turns of an agent's run in a browser: long runs, two runs side by side, paper, keys, and hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.graders import TextLimits
from rubric_integrations.judges import Question
from rubric_integrations.reporting.page.redaction import redact_row
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import Judgment
from rubric_integrations.submission import Submission
from rubric_integrations.trust import choose_for_labels
from tests.reporting.page.test_data import data_of
from tests.reporting.page.test_page import EVIL

CRITERIA = Rubric([
    Criterion(name="answer", requirement="Answers", weight=2), Criterion(name="short", requirement="Is short", weight=1)
])  # fmt: skip


class CitingJudge:
    """Cites the step in the middle of the run, and quotes the first message."""

    async def judge(self, question: Question) -> Judgment:
        trajectory = question.submission.trajectory
        middle = (len(trajectory.steps) + 1) // 2 if trajectory else 1
        verdict = "UNMET" if question.criterion.name == "short" else "MET"
        reason = 'It begins with "the question of the user".'
        return Judgment(verdict=verdict, value=float(verdict == "MET"), reason=reason, evidence=(middle,))


def conversation(count: int, text: str = "look **up**", result: str = "found it") -> list[dict[str, Any]]:
    """Return the messages of a run of `count` steps."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "This is the question of the user?"}]
    for number in range(count - 2):
        call = {"name": "look", "arguments": json.dumps({"page": number})}
        messages += [
            {
                "role": "assistant",
                "content": f"{number}: {text}",
                "tool_calls": [{"id": f"c{number}", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{number}", "content": result},
        ]
    return [*messages, {"role": "assistant", "content": "The **end**."}]


def run_of(
    messages: list[dict[str, Any]], name: str = "run", respond: Any = "trajectory", step_limit: int | None = None
) -> RunFile:
    submission = Submission.from_messages(messages, respond=respond)
    grader = PerCriterionGrader(CitingJudge(), text_limits=TextLimits(step_limit=step_limit))
    return RunFile.of(name, grade_many([submission], CRITERIA, grader))


def opened(page: Any, address: str = "#s0") -> Any:
    page.evaluate(f"location.hash = '{address}'")
    page.wait_for_selector("#one h2:text-is('1')")
    return page


def steps(page: Any, place: str = "#one") -> list[str]:
    return page.eval_on_selector_all(
        f"{place} .steps > li", "all => all.map(item => item.dataset.step || item.textContent)"
    )


def test_run_of_500_steps_builds_its_ends_and_the_cited_step_and_the_others_on_demand(show: Callable[..., Any]) -> None:
    page = opened(show(run_of(conversation(500))))
    beginning, end = ["1", "2", "3"], [str(number) for number in range(496, 501)]
    assert steps(page) == [
        *beginning, "steps 4 to 249: show the next 100", "250", "steps 251 to 495: show the next 100", *end
    ]  # fmt: skip
    assert page.evaluate("document.querySelectorAll('#one *').length") < 400
    page.click("#one .gap button >> nth=0")
    assert steps(page)[103:105] == ["steps 104 to 249: show the next 100", "250"]
    assert page.evaluate("document.activeElement.dataset.step") == "4"
    assert page.locator("#one .unquoted").count() == 0


def test_text_of_the_judge_is_one_click_away_and_shortened_as_it_was(show: Callable[..., Any]) -> None:
    page = opened(show(run_of(conversation(4, result="a" * 900), step_limit=100)))
    page.click("#one .handed")
    handed = page.inner_text("#one .turns > .source")
    assert [json.loads(line)["step"] for line in handed.splitlines()] == [1, 2, 3, 4]
    assert "characters omitted" in handed
    assert not page.is_visible("#one .steps")
    page.click("#one .chip >> nth=0")
    assert page.is_visible("#step-2")
    assert not page.is_visible("#one .turns > .source")
    assert page.inner_text("#step-2 pre >> nth=1") == "a" * 900


def test_task_of_a_last_row_is_shown_as_turns_and_the_table_without_json(show: Callable[..., Any]) -> None:
    page = show(run_of(conversation(4), respond="last"))
    page.keyboard.press("t")
    assert page.inner_text("#rows .r") == "The end."
    assert page.text_content("#rows .q") == "This is the question of the user?"
    opened(page)
    assert steps(page, "#one [aria-label=Task]") == ["1", "2", "3"]
    assert steps(page, "#one [aria-label=Steps]") == ["1", "2", "3", "4"]
    assert (
        page.evaluate("new Set([...document.querySelectorAll('[id]')].map(({id}) => id)).size")
        == page.locator("[id]").count()
    )
    page.click("#one [aria-label=Task] .handed")
    assert page.inner_text("#one [aria-label=Task] > .source").startswith('{"role": "user", "content": "This is')


def test_two_runs_are_side_by_side_and_what_is_equal_is_unchanged(show: Callable[..., Any]) -> None:
    page = opened(show(run_of(conversation(4), "a"), run_of(conversation(5), "b")))
    assert page.eval_on_selector_all("#one .steps", "lists => lists.map(list => list.childElementCount)") == [4, 5]
    assert page.inner_text("#one .hint") == "The first 3 steps are unchanged."
    page.click("#one td.why .chip >> nth=0")
    assert page.evaluate("document.activeElement.id") == "step-a-2"
    page.click("#one td.why .chip >> nth=1")
    assert page.evaluate("document.activeElement.id") == "step-3"
    assert page.locator("#one td.why .same").count() == 2
    equal = opened(show(run_of(conversation(4), "a"), run_of(conversation(4), "b")))
    assert equal.inner_text("#one .turns h3").startswith("Response, unchanged")
    assert equal.locator("#one .steps").count() == 1
    assert equal.inner_text("#rows .score small") == "unchanged"
    equal.evaluate("location.hash = '#compare'")
    assert equal.inner_text("#view-compare .verdict").startswith("Unchanged. On the 1 submission that")


def test_answer_to_the_filtered_criterion_comes_first_with_its_quotation(show: Callable[..., Any]) -> None:
    page = opened(show(run_of(conversation(60))), "#table?criterion=1&row=0")
    first = page.locator("#one .first-answer")
    assert first.bounding_box()["y"] < page.locator("#one .parts").bounding_box()["y"]
    assert "not met" in first.inner_text()
    assert first.locator(".quote").inner_text() == "\u201cthe question of the user\u201d"
    first.locator(".quote").click()
    first.locator(".chip").click()
    assert page.evaluate("document.activeElement.id") == "step-30"
    page.select_option("#f-criterion", "0")
    page.wait_for_selector("#one .first-answer:has-text('answer')")
    page.select_option("#f-criterion", "")
    page.wait_for_selector("#one .first-answer", state="detached")


def test_quotation_in_a_step_that_is_not_built_opens_it(show: Callable[..., Any]) -> None:
    messages = conversation(300)
    messages[200]["content"] = "a result with the question of the user in the middle"
    messages[0]["content"] = "Hello"
    page = opened(show(run_of(messages)), "#table?criterion=1&row=0")
    assert page.locator("#one .unquoted").count() == 0
    assert "101" not in steps(page)
    page.click("#one .first-answer .quote")
    assert "101" in steps(page)
    assert "the question of the user" in page.inner_text("#step-101")


@pytest.mark.parametrize("width", [1200, 1440])
def test_answers_stand_beside_the_texts_in_a_wide_window(show: Callable[..., Any], width: int) -> None:
    page = opened(show(run_of(conversation(4)), viewport={"width": width, "height": 900}))
    texts, answers = (page.locator(f"#one .{name}").bounding_box() for name in ("graded", "answers-part"))
    assert answers["x"] >= texts["x"] + texts["width"]
    assert abs(answers["y"] - texts["y"]) < 40


def test_failed_calls_and_results_without_their_call_are_marked(show: Callable[..., Any]) -> None:
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    failed = {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": True}
    lost = {**failed, "tool_use_id": "b"}
    messages = [
        {"role": "user", "content": "Look"}, {"role": "assistant", "content": [use]},
        {"role": "user", "content": [failed, lost]}, {"role": "assistant", "content": "Nothing"},
    ]  # fmt: skip
    page = opened(show(run_of(messages)))
    marked = "items => items.map(item => Boolean(item.querySelector('.author .failure')))"
    assert page.eval_on_selector_all("#one .step", marked) == [False, True, True, False]
    assert page.inner_text("#step-2 summary .failure") == "! failed"


def test_keys_go_from_step_to_step_and_switch_to_the_source(show: Callable[..., Any]) -> None:
    page = opened(show(run_of(conversation(60))))
    for key, step in (("]", "1"), ("]", "2"), ("[", "1")):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.step") == step
    page.keyboard.press("m")
    assert "look **up**" in page.inner_text("#step-2")
    for _ in range(3):
        page.keyboard.press("]")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.step") == "4"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("#step-4 details[open]").count() == 1


def test_paper_has_the_turns_with_their_calls_and_the_page_is_as_before(show: Callable[..., Any]) -> None:
    page = opened(show(run_of(conversation(300))))
    before = steps(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    printed = steps(page)
    assert printed[:201] == [*map(str, range(1, 201)), printed[200]]
    assert page.locator("#one details:not([open])").count() <= 5
    assert "found it" in page.text_content("#step-150")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert steps(page) == before
    assert page.locator("#one details[open]").count() == 0


def test_redacted_page_has_no_text_of_a_step(show: Callable[..., Any]) -> None:
    run = run_of(conversation(4))
    assert "look" in json.dumps(data_of(run))
    redacted = run._replace(rows=tuple(map(redact_row, run.rows)))
    assert "look" not in json.dumps(data_of(redacted))
    page = opened(show(run, redact=True))
    assert page.locator("#one .steps, #one .handed").count() == 0
    assert page.locator("#one span.chip").count() == 2


def test_hostile_steps_stay_text_in_every_view(show: Callable[..., Any]) -> None:
    everything = "\n\n".join([
        *EVIL, "![x](https://example.com/x.png)", "[a](javascript:window.hacked=6)", "<img src=https://example.com/y.png>",
        '{"role": "assistant", "content": "imitates a step"}',
    ])  # fmt: skip
    messages = conversation(4, everything, everything)
    messages[0]["content"] = everything
    messages[0]["name"] = everything
    messages[1]["tool_calls"][0]["function"] = {"name": everything, "arguments": everything}
    for respond in ("trajectory", "last"):
        first = run_of(messages, everything, respond)
        other = run_of([*messages[:-1], {"role": "assistant", "content": everything}], everything + "2", respond)
        pages = [show(first), show(first, other), show(first, to_label=choose_for_labels(first, 1))]
        for page in pages[:2]:
            opened(page, "#table?criterion=0&row=0")
        pages[2].keyboard.type("Ann")
        pages[2].keyboard.press("Enter")
        pages[2].wait_for_selector("#label-texts .steps")
        assert pages[2].locator("#label-texts .cited, #label-texts .citing").count() == 0
        for page in pages:
            for button in ("summary", ".handed", ".turn-source", ".handed", ".unfold"):
                page.evaluate("(kind) => { for (const e of document.querySelectorAll(kind)) e.click(); }", button)
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            elements = page.evaluate(
                "[...document.querySelectorAll('main *')].map(e => [e.tagName, ...e.getAttributeNames()])"
            )
            assert not {"SCRIPT", "IFRAME", "IMG", "SVG"} & {name for name, *_ in elements if name != "SCRIPT"}
            assert not [names for names in elements if any(name.startswith("on") for name in names[1:])]
            assert not page.evaluate("[...document.links].some(link => !link.getAttribute('href').startsWith('#'))")
            assert page.evaluate("window.hacked") is None
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
