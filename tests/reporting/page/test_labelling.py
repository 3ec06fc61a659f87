"""The labelling view of the page in a real browser: by keyboard alone, and without the judge's answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission, grade_many
from rubric_integrations.judges import Question
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import Judgment, to_judgment
from rubric_integrations.trust import agreement, calibrate, choose_for_labels, read_labels
from tests.reporting.page.runs import FIRST, SHOWN_RUN, EchoJudge, Line, own_line, run_of

TWO = Rubric([Criterion(name="right", requirement="Is right"), Criterion(name="error", requirement="Has an error")])
RESPONSES = [f"right={('MET', 'UNMET')[n % 2]} error={('UNMET', 'MET', 'UNMET')[n % 3]} n={n}" for n in range(12)]
RUN = run_of("run", *RESPONSES, rubric=TWO)


def begin(page: Any, rater: str = "Ann Lee") -> None:
    page.keyboard.type(rater)
    page.keyboard.press("Enter")
    page.wait_for_selector("#label-title:has-text('Judgment 1 of')")


def press(page: Any, key: str, title: str) -> None:
    page.keyboard.press(key)
    page.wait_for_selector(f"#label-title:has-text('{title}')")


def export(page: Any, path: Path) -> list[dict[str, Any]]:
    with page.expect_download() as waiting:
        page.keyboard.press("e")
    waiting.value.save_as(path)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_twenty_judgments_labelled_by_keyboard_alone_measure_the_judge(
    show: Callable[..., Any], tmp_path: Path
) -> None:
    drawn = choose_for_labels(RUN, 10)
    page = show(RUN, to_label=drawn)
    begin(page)
    for number, item in enumerate(drawn, start=1):
        words = page.inner_text("body")
        assert "because " not in words  # the judge's reason
        assert not page.is_visible("#overview")
        assert not page.is_visible("#list")
        assert not page.is_visible("#one")
        assert item.requirement in page.inner_text("#label-words")
        assert item.submission is not None
        assert item.submission.response in page.inner_text("#label-texts")
        # People find that the judge is too lenient on every fourth judgment.
        key = "2" if item.judged == "UNMET" or number % 4 == 0 else "1"
        press(page, key, f"Judgment {number + 1} of 20" if number < 20 else "All 20 are labelled")
    assert page.inner_text("#label-status").endswith("MET recorded. 20 of 20 labelled.")
    lines = export(page, tmp_path / "labels.jsonl")
    assert len(lines) == 20
    assert set(lines[0]) == {
        "id", "criterion", "requirement", "verdict", "judged", "reason", "rater", "sampled", "blind", "submission"
    }  # fmt: skip
    labels = read_labels(tmp_path / "labels.jsonl", RUN)
    assert {(label.rater, label.sampled, label.blind) for label in labels} == {("Ann Lee", "random", True)}
    differing = sum(line["verdict"] != line["judged"] for line in lines)
    assert f"You and the judge differ on {differing} of 20." in page.inner_text("#label-question")
    assert page.locator("#label-question li a").count() == differing > 0
    measured = agreement(RUN, labels)
    assert (measured.labels, measured.unmatched, measured.raters) == (20, 0, ("Ann Lee",))
    assert measured.micro_accuracy == pytest.approx(1 - differing / 20)
    assert calibrate(RUN, labels).score.n == 10


def test_note_skip_and_back_by_keyboard_and_labels_outlast_a_reload(show: Callable[..., Any], tmp_path: Path) -> None:
    page = show(RUN, to_label=choose_for_labels(RUN, 2))
    begin(page)
    page.keyboard.press("n")
    page.keyboard.type("1 note, s and e")  # letters of a note are no shortcuts
    page.keyboard.press("Enter")
    press(page, "1", "Judgment 2 of 4")
    press(page, "s", "Judgment 3 of 4")
    press(page, "3", "Judgment 4 of 4")
    press(page, "Backspace", "Judgment 3 of 4")
    assert page.get_attribute("#label-question .choice[aria-pressed=true]", "aria-keyshortcuts") == "3"
    page.keyboard.press("1")  # a key alone replaces nothing
    assert "You have answered CANNOT_ASSESS" in page.inner_text("#label-question")
    page.keyboard.press("c")
    page.wait_for_selector("text=Choose the answer that replaces it")
    press(page, "2", "Judgment 4 of 4")
    page.reload()
    page.wait_for_selector("#label-title:has-text('Judgment 2 of 4')")  # the first without a label
    press(page, "s", "Judgment 4 of 4")  # the third has a label
    press(page, "s", "2 of 4 are not labelled yet")
    press(page, "r", "Judgment 2 of 4")
    lines = export(page, tmp_path / "labels.jsonl")
    assert [(line["verdict"], line["reason"]) for line in lines if line["reason"]] == [("MET", "1 note, s and e")]
    assert sorted(line["verdict"] for line in lines) == ["MET", "UNMET"]


def test_rest_after_skips_visits_open_judgments_alone_and_no_label_is_replaced(
    show: Callable[..., Any], tmp_path: Path
) -> None:
    page = show(RUN, to_label=choose_for_labels(RUN, 3))
    begin(page)
    press(page, "1", "Judgment 2 of 6")
    press(page, "s", "Judgment 3 of 6")
    press(page, "1", "Judgment 4 of 6")
    press(page, "s", "Judgment 5 of 6")
    press(page, "1", "Judgment 6 of 6")
    press(page, "1", "2 of 6 are not labelled yet")
    page.keyboard.press("1")  # no key of an answer begins the rest
    press(page, "r", "Judgment 2 of 6")
    press(page, "2", "Judgment 4 of 6")
    press(page, "2", "All 6 are labelled")
    press(page, "Backspace", "Judgment 6 of 6")
    for _ in range(3):
        page.keyboard.press("2")
    page.click("#label-question button:has-text('CANNOT_ASSESS')", force=True)
    verdicts = [line["verdict"] for line in export(page, tmp_path / "labels.jsonl")]
    assert sorted(verdicts) == ["MET"] * 4 + ["UNMET"] * 2


def test_people_see_what_the_judge_reads_and_numbers_are_checked(show: Callable[..., Any], tmp_path: Path) -> None:
    page = show(SHOWN_RUN, to_label=choose_for_labels(SHOWN_RUN, 2))
    assert "MET means that the error occurs" in page.inner_text("#label-question")
    begin(page)
    question = page.inner_text("#label-question")
    for words in ("Be strict.", "Which number fits best?", "from 1 to 5", "2-4: fair", "muddled", "good"):
        assert words in question
    assert "A source." in page.inner_text("#label-texts")
    page.keyboard.press("4")  # no button: it is typed
    for typed in ("99", "abc", "1,500"):
        page.keyboard.press("t")
        page.fill("#label-typed", typed)
        page.keyboard.press("Enter")
        assert page.inner_text("#label-problem") == (
            f'"{typed}" is not possible: it takes a number from 1 to 5, or CANNOT_ASSESS'
        )
    page.fill("#label-typed", "1,5")
    press(page, "Enter", "Judgment 2 of 4")
    question = page.inner_text("#label-question")
    for words in ("Does this error occur?", "Only if: It is English", "A list.", "the response makes this error"):
        assert words in question
    press(page, "1", "Judgment 3 of 4")
    press(page, "5", "Judgment 4 of 4")
    lines = export(page, tmp_path / "labels.jsonl")
    assert sorted(line["verdict"] for line in lines) == ["1.5", "5", "MET"]
    assert len(read_labels(tmp_path / "labels.jsonl", SHOWN_RUN, strict=True)) == 3


def test_report_page_checks_a_number_and_changes_a_label_on_demand_alone(show: Callable[..., Any]) -> None:
    page = show(SHOWN_RUN)
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one h2")
    page.keyboard.press("o")
    page.fill("#one td input", "99")
    page.keyboard.press("Tab")
    assert '"99" is not possible: it takes a number from 1 to 5' in page.inner_text("#one")
    page.fill("#one td input", "2,5")
    page.keyboard.press("Tab")
    page.select_option("#one select", "UNMET")
    page.reload()
    page.wait_for_selector("#one h2")
    page.keyboard.press("o")
    assert page.input_value("#one td input") == "2.5"
    assert page.locator("#one td :is(button, input, select):disabled").count() == 4
    page.click("#one button:has-text('change') >> nth=1")
    page.select_option("#one select", "MET")
    assert page.inner_text("#labels [role=status]").startswith("2 labels")
    assert page.input_value("#one select") == "MET"


def test_label_after_the_judge_s_answer_was_shown_is_not_blind(show: Callable[..., Any], tmp_path: Path) -> None:
    drawn = choose_for_labels(RUN, 2)
    page = show(RUN, to_label=drawn)
    begin(page)
    press(page, "1", "Judgment 2 of 4")
    page.evaluate(f"location.hash = '#s{drawn[0].row}'")
    page.wait_for_selector("#one h2")
    assert not page.is_visible("#rows")  # which shows answers to other submissions
    page.evaluate("location.hash = '#label'")
    page.wait_for_selector("#label-title:has-text('Judgment 2 of 4')")
    press(page, "1", "Judgment 3 of 4")
    press(page, "1", "Judgment 4 of 4")
    lines = {(line["id"], line["criterion"]): line for line in export(page, tmp_path / "labels.jsonl")}
    blind = [lines[item.id, item.criterion]["blind"] for item in drawn[:3]]
    assert blind == [True, False, True]
    page.evaluate("location.hash = '#list'")  # the list shows an answer in each cell
    page.wait_for_selector("#rows li")
    page.evaluate("location.hash = '#label'")
    page.wait_for_selector("#label-title:has-text('Judgment 4 of 4')")
    press(page, "1", "All 4 are labelled")
    lines = {(line["id"], line["criterion"]): line for line in export(page, tmp_path / "labels.jsonl")}
    assert lines[drawn[3].id, drawn[3].criterion]["blind"] is False


def test_confirmed_answer_is_exported_as_chosen_and_not_blind(show: Callable[..., Any], tmp_path: Path) -> None:
    page = show(FIRST)
    page.evaluate("location.hash = '#s2'")
    page.wait_for_selector("#one h2:text-is('s2')")
    page.keyboard.press("o")
    assert page.locator("#one tbody button").count() == 2  # none for the criterion that the judge did not answer
    page.click("#one button:has-text('confirm') >> nth=0")
    assert page.input_value("#one select >> nth=0") == "MET"
    assert page.get_attribute("#one button:has-text('confirm') >> nth=0", "aria-pressed") == "true"
    page.fill("#labels input[size]", "Ben")
    with page.expect_download() as waiting:
        page.click("text=Export labels")
    assert waiting.value.suggested_filename == "labels-Ben.jsonl"
    waiting.value.save_as(tmp_path / "labels.jsonl")
    (line,) = [json.loads(text) for text in (tmp_path / "labels.jsonl").read_text().splitlines()]
    expected = {"id": "s2", "criterion": "right", "verdict": "MET", "judged": "MET", "rater": "Ben"}
    assert {name: line[name] for name in expected} == expected
    assert (line["sampled"], line["blind"]) == ("chosen", False)


def test_second_rater_s_file_is_merged_and_disagreements_are_counted(show: Callable[..., Any], tmp_path: Path) -> None:
    drawn = choose_for_labels(RUN, 2)
    first = show(RUN, to_label=drawn)
    begin(first)
    for title in ("2 of 4", "3 of 4", "4 of 4", "All 4"):
        press(first, "1", title)
    export(first, tmp_path / "ann.jsonl")
    with (tmp_path / "ann.jsonl").open("a") as file:
        file.write('not JSON\n{"id": "elsewhere", "criterion": "right", "verdict": "MET"}\n')
    second = show(RUN, to_label=drawn)
    begin(second, "Ben")
    for key, title in zip("122", ("2 of 4", "3 of 4", "4 of 4"), strict=True):
        press(second, key, title)
    second.set_input_files("#labels input[type=file]", tmp_path / "ann.jsonl")
    second.wait_for_selector("#labels [role=status]:has-text('merged')")
    status = second.inner_text("#labels [role=status]")
    assert status == (
        "3 labels by Ben, 4 labels by Ann Lee, stored in this browser. Of 3 judgments with several raters, they "
        "disagree on 2. 4 labels merged, and 2 that belong to no judgment of this page were left out."
    )
    lines = export(second, tmp_path / "both.jsonl")
    assert sorted(line["rater"] for line in lines) == ["Ann Lee"] * 4 + ["Ben"] * 3
    assert len(read_labels(tmp_path / "both.jsonl", RUN)) == 7


def test_hostile_text_in_the_labelling_view_stays_text(show: Callable[..., Any]) -> None:
    evil = '<script>window.hacked = 1</script>"><img src=x onerror="window.hacked = 2">{{ 7 * 7 }}</script>\u202e'

    class Evil:
        async def judge(self, question: Question) -> Judgment:
            criterion = question.criterion
            answer = evil if criterion.options else "1" if criterion.scale else "MET"
            return to_judgment(criterion, answer).model_copy(update={"reason": evil})

    aspects = [{"name": evil, "description": evil}]
    levels = {"1": evil}
    criteria = [
        {"name": evil, "requirement": evil, "context": evil, "aspects": aspects, "applies_when": evil},
        {"requirement": evil, "scale": {"min": 0, "max": 9, "integer": True, "levels": levels}},
        {
            "requirement": evil,
            "options": [{"label": evil, "value": 1, "description": evil}, {"label": "b", "value": 0}],
        },
    ]
    rubric = Rubric.from_dict({"criteria": criteria, "name": evil, "guidelines": evil})
    rows = [Submission(response=evil, query=evil, reference=evil, context=(evil, evil))]
    run = RunFile.of(evil, grade_many(rows, rubric, PerCriterionGrader(Evil())), rubric=evil)
    page = show(run, to_label=choose_for_labels(run, 1))
    begin(page, evil)
    for key, title, count in (("2", "Judgment 2", 6), ("1", "Judgment 3", 3), ("2", "All 3 are labelled", 4)):
        assert page.inner_text("#label-words .words") == evil
        assert page.inner_text("#label-question").count(evil) >= count
        seen = evil.replace("\u202e", "U+202E")
        assert page.locator("#label-texts [data-text]").all_text_contents() == [seen] * 5
        press(page, key, title)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.evaluate("[...document.links].every(link => link.getAttribute('href').startsWith('#'))")
    assert not page.evaluate(
        "[...document.querySelectorAll('*')].some(e => e.getAttributeNames().some(n => n.startsWith('on')))"
    )


def test_options_are_buttons_and_answers_that_the_run_does_not_tell_are_typed(
    show: Callable[..., Any], tmp_path: Path
) -> None:
    run = run_of("options", "tone=plain", "tone=plain")
    page = show(run, to_label=[item for item in choose_for_labels(run, 2) if item.criterion == "tone"])
    begin(page)
    assert page.locator(".choice").all_inner_texts() == [
        "1 x", "2 plain", "3 CANNOT_ASSESS\nwhat is shown is not enough to tell"
    ]  # fmt: skip
    line = own_line(0, "MET")
    line["report"][0] |= {"verdict": "plain", "value": 0.5}  # as in a run of an earlier version, without options
    earlier = RunFile.of("earlier", [Line(line)])
    page = show(earlier, to_label=choose_for_labels(earlier, 1))
    begin(page)
    assert page.locator(".choice").count() == 0  # a button would reveal the judge's answer
    page.keyboard.press("t")
    page.keyboard.type("warm")
    press(page, "Enter", "All 1 are labelled")
    assert [line["verdict"] for line in export(page, tmp_path / "labels.jsonl")] == ["warm"]


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 800}}])
def test_labelling_view_in_each_window_fits_its_width(show: Callable[..., Any], options: dict[str, Any]) -> None:
    long = Rubric([Criterion(name="long", requirement="Is a long requirement that needs several lines. " * 5)])
    run = RunFile.of("long", grade_many(["long=MET " + "word" * 100], long, PerCriterionGrader(EchoJudge())))
    page = show(run, to_label=choose_for_labels(run, 1), **options)
    for _ in range(2):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        begin(page)
