"""A page without texts: nothing that a submission, a judge or a person wrote is in it, and its figures are the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.reporting import report_page
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import JudgeFailure, Judgment, LabelledJudgment
from rubric_integrations.submission import Attachment
from rubric_integrations.trust import choose_for_labels
from tests.reporting.page.test_data import data_of_page

RUBRIC = Rubric(
    [Criterion(name="right", requirement="Is right", weight=3, required=True), Criterion(requirement="Is kind")],
    name="shared",
)


class Quoting:
    """Quotes the submission in every reason and every error."""

    def __init__(self, name: str):
        self.name = name

    async def judge(self, question: Question) -> Judgment:
        text = question.submission.response
        if "fails" in text:
            raise JudgeFailure("parse", f"no verdict in the reply: SECRET-error {text}")
        met = self.name == "one" or "left" in text
        return Judgment(verdict="MET" if met else "UNMET", value=float(met), reason=f"SECRET-reason: '{text}'")


def run_with_secrets(name: str, changed: str = "") -> RunFile:
    steps = [{"role": "assistant", "content": "SECRET-step", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "SECRET-argument"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "SECRET-result"}]  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"id": f"id-{text}", "query": f"SECRET-query {changed}", "response": f"SECRET-response {text}",
         "reference": "SECRET-reference", "context": ["SECRET-document"], "thinking": "SECRET-thinking",
         "metadata": {"SECRET-key": f"SECRET-value {text}"}, "labels": {"right": "MET"}}
        for text in ("left", "right", "fails")
    ]  # fmt: skip
    rows.append({"id": "id-steps", "messages": [{"role": "user", "content": "SECRET-task"}, *steps,
                 {"role": "assistant", "content": "SECRET-response left"}]})  # fmt: skip
    rows.append({"id": "id-none", "response": None, "query": "SECRET-query"})
    picture = Attachment(data=b"\x89PNG\r\n\x1a\n SECRET-bytes", mime_type="image/png", name="SECRET-name.png")
    rows.append({"id": "id-file", "response": "SECRET-response", "attachments": [picture]})
    panel = PerCriterionGrader(judges=[Quoting("one"), Quoting("two")], max_retries=0)
    return RunFile.of(name, grade_many(rows, RUBRIC, panel), rubric="shared", judge="quoting")


RUN = run_with_secrets("run")


def unpacked(page: str) -> str:
    """Return all that is in a page: its own text, the index and the blocks."""
    return page + repr(data_of_page(page))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_redacted_page_has_no_text_of_the_run_and_its_rubric_ids_and_figures(count: int) -> None:
    # The queries of some runs differ, which a page of many runs says, with an example.
    changes = {"first": "once", "second": "once", "third": "twice"}
    runs = [*(run_with_secrets(name, changed) for name, changed in changes.items()), RUN][-count:]
    shown, redacted = (unpacked(report_page(runs, redact=redact)) for redact in (False, True))
    secrets = set(re.findall(r"SECRET-\w+", shown))
    assert {"SECRET-query", "SECRET-reason", "SECRET-error", "SECRET-value", "SECRET-result", "SECRET-name"} <= secrets
    assert "SECRET" not in redacted
    assert not re.search(r"data:image|U0VDUkVU", redacted)
    for text in ("id-left", "id-fails", "Is right", "Is kind", "shared", "quoting"):
        assert text in redacted
    figures = re.compile(r'<dl class="tiles">.*?</dl>|<table class="costs">.*?</table>', re.DOTALL)
    assert figures.findall(redacted) == figures.findall(shown)
    assert "The texts are left out of this page" in redacted


def test_redacted_page_leaves_the_notes_and_the_names_of_people_out() -> None:
    submission = RUN.rows[0].submission
    assert submission is not None
    label = LabelledJudgment(
        submission=submission, criterion=RUBRIC.criteria[0], verdict="UNMET", id="id-left", rater="SECRET-Ann",
        reason="SECRET-note", sampled="random",
    )  # fmt: skip
    labels = [label, label.model_copy(update={"rater": "SECRET-Bob"})]
    assert {"SECRET-note", "SECRET-Ann"} <= set(re.findall(r"SECRET-\w+", report_page([RUN], labels=labels)))
    page = unpacked(report_page([RUN], labels=labels, redact=True))
    assert "SECRET" not in page
    assert "Where they differ" in page
    assert "2 labels by <bdi>2 raters</bdi>" in page


def test_redacted_submission_shows_its_answers_and_says_that_texts_are_left_out(show: Callable[..., Any]) -> None:
    page = show(RUN, redact=True)
    page.evaluate("location.hash = '#s1'")
    page.wait_for_selector("#one h2:text-is('id-right')")
    text = page.inner_text("#one")
    assert "The texts and the reasons are left out of this page." in text
    assert "Is right" in text
    assert page.locator("#one [data-text]").count() == 0
    # A label needs the texts of its submission.
    page.keyboard.press("o")
    assert not page.is_visible("#one .label")
    assert not page.is_visible("#labels")
    page.evaluate("location.hash = '#s2'")
    page.wait_for_selector("#one h2:text-is('id-fails')")
    assert "Not graded: the reason is left out." in page.inner_text("#one")


def test_page_for_labels_cannot_be_without_texts() -> None:
    with pytest.raises(ValueError, match="`redact` leaves out the texts that are to be labelled"):
        report_page([RUN], to_label=choose_for_labels(RUN, 1), redact=True)
