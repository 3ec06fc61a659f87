"""Steps, the evidence that judges cite, and attachments on the report page: shown as text and small images only."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.reporting import report_page
from rubric_integrations.reporting.page import data
from rubric_integrations.reporting.page.redaction import redact_row
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import Exploration
from rubric_integrations.scoring.labels import submission_digest
from rubric_integrations.trust import agreement, choose_for_labels, read_labels
from tests.reporting.page.runs import FIRST, Line, own_line
from tests.reporting.page.test_data import data_of
from tests.reporting.page.test_labelling import export
from tests.reporting.page.test_page import EVIL


def png() -> bytes:
    """Return an image of one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.hacked = 1"><script>window.hacked = 2</script></svg>'
CALL = {"name": "look", "arguments": {"year": 2024}, "result": "8.4%", "is_error": True}
STEPS = [
    {"role": "user", "text": "What was the margin?"},
    {"role": "assistant", "text": "", "calls": [CALL, {"name": "wait"}]},
    {"role": "assistant", "name": "analyst", "text": "It was 8.4%."},
]
FILES = [
    {"mime_type": "image/png", "name": "chart.png", "data": encoded(png())},
    {"mime_type": "image/svg+xml", "name": "evil.svg", "data": encoded(SVG)},
    {"mime_type": "image/png", "name": "svg.png", "data": encoded(SVG)},
    {"mime_type": "application/pdf", "name": "large.pdf", "size": 300_000, "sha256": "ab" * 32},
    {"mime_type": "image/png", "url": "https://example.com/x.png"},
]


def run_with(render: list[dict[str, Any]] | None = None, files: list[dict[str, Any]] | None = None) -> RunFile:
    """Return a run of one row with steps and files, whose second criterion cites the steps 2 and 9."""
    line = own_line(1, "MET", "UNMET")
    line["report"][1]["evidence"] = [2, 9]
    line["submission"] |= {"trajectory": {"steps": render}} if render else {}
    line["submission"] |= {"attachments": files} if files else {}
    return RunFile.of("run", [Line(line)])


def test_data_of_a_row_have_its_steps_evidence_and_files() -> None:
    _, (block,) = data_of(run_with(STEPS, FILES))
    row = block["rows"][0]
    calls = [["look", '{"year": 2024}', "8.4%", True], ["wait", None, None, None]]
    assert row["steps"] == [
        ["user", None, "What was the margin?", []], ["assistant", None, "", calls],
        ["assistant", "analyst", "It was 8.4%.", []],
    ]  # fmt: skip
    assert [file[5] is not None for file in row["files"]] == [True, False, False, False, False]
    assert row["files"][3][:5] == ["large.pdf", "application/pdf", 300_000, "ab" * 32, None]
    assert row["grades"][0]["answers"][1][7] == {"evidence": [2, 9]}


def test_data_of_a_run_without_steps_and_files_are_as_before() -> None:
    _, (block,) = data_of(FIRST)
    assert {key for row in block["rows"] for key in row} == {"response", "query", "grades"}
    assert {key for row in block["rows"] for key in row["grades"][0]} == {
        "coverage", "answers", "error", "overruling", "sum", "why"
    }  # fmt: skip
    assert {len(answer) for row in block["rows"] for answer in row["grades"][0]["answers"]} == {7}


def test_characters_that_the_judge_did_not_see_are_in_the_data() -> None:
    run = run_with(STEPS)
    report = run.rows[0].report
    assert report
    cut = run.rows[0]._replace(report=report.model_copy(update={"omitted_characters": 1234}))
    _, (block,) = data_of(run._replace(rows=(cut,)))
    assert block["rows"][0]["grades"][0]["omitted"] == 1234


def explored_run() -> RunFile:
    run = run_with(STEPS)
    part = Exploration(steps=2, total_steps=1_000, characters=9, total_characters=99, requests=3, absent=("SECRET",))
    rows = (row._replace(report=row.report and row.report.model_copy(update={"exploration": part})) for row in run.rows)
    return run._replace(rows=tuple(rows))


def test_steps_that_an_explorer_showed_are_counted_in_the_data_and_its_searches_are_redacted() -> None:
    _, (block,) = data_of(explored_run())
    assert block["rows"][0]["grades"][0]["explored"] == "2 of 1,000 steps"
    redacted = redact_row(explored_run().rows[0]).report
    assert redacted is not None
    assert redacted.exploration is not None
    assert redacted.exploration.absent == ()
    assert redacted.exploration.summary() == "2 of 1,000 steps"


def test_page_and_labelling_view_say_how_many_steps_an_explorer_showed(show: Callable[..., Any]) -> None:
    words = "An explorer showed the judge 2 of 1,000 steps."
    page = show(explored_run())
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one h2:text-is('s1')")
    assert words in page.inner_text("#one")
    run = explored_run()
    page = show(run, to_label=choose_for_labels(run, 1))
    page.keyboard.type("Ann")
    page.keyboard.press("Enter")
    page.wait_for_selector("#label-title:has-text('Judgment 1 of')")
    assert words in page.inner_text("#label-texts")


def test_exported_label_of_a_row_with_steps_names_them_by_a_digest(show: Callable[..., Any], tmp_path: Path) -> None:
    run, path = run_with(STEPS), tmp_path / "labels.jsonl"
    page = show(run, to_label=choose_for_labels(run, 1))
    page.keyboard.type("Ann")
    page.keyboard.press("Enter")
    page.wait_for_selector("#label-title:has-text('Judgment 1 of')")
    page.keyboard.press("1")
    (line,) = export(page, path)
    submission = run.rows[0].submission
    assert submission is not None
    assert line["digest"] == submission_digest(submission)
    (label,) = read_labels(path, run, strict=True)
    assert label.submission == submission
    # The same words at the end of other steps are another submission.
    assert agreement(run_with(STEPS[:1]), [label]).unmatched == 1


def test_steps_of_another_run_are_in_the_data_if_they_differ() -> None:
    _, (block,) = data_of(run_with(STEPS), run_with(STEPS[:2]))
    first, second = block["rows"][0]["grades"]
    assert len(first["own"]["steps"]) == 3
    assert len(block["rows"][0]["steps"]) == 2
    assert "own" not in second
    _, (block,) = data_of(run_with(STEPS), run_with(STEPS))
    assert [grade.get("own") for grade in block["rows"][0]["grades"]] == [None, None]


@pytest.mark.sizes
def test_long_texts_and_many_images_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    long = [{"role": "user", "text": "a" * 20_000}]
    _, (block,) = data_of(run_with(long))
    assert block["rows"][0]["steps"][0][2] == "a" * 10_000 + " [10,000 more characters are in the run file]"
    _, (block,) = data_of(run_with(long * 100))
    assert len(str(block["rows"][0]["steps"])) < 320_000
    monkeypatch.setattr(data, "MAX_IMAGES", 2 * len(png()))
    _, (block,) = data_of(run_with(files=FILES[:1] * 3))
    assert [file[5] is not None for file in block["rows"][0]["files"]] == [True, True, False]


def test_evidence_opens_its_step_and_images_are_shown(show: Callable[..., Any]) -> None:
    page = show(run_with(STEPS, FILES))
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one h2:text-is('s1')")
    opened = "steps => steps.map(step => step.open)"
    assert page.eval_on_selector_all("#one details", opened) == [False, False]
    assert page.eval_on_selector_all("#one .author", "all => all.map(one => one.textContent)") == [
        "1. user", "2. assistant ! failed cited: c2", "3. assistant analyst"
    ]  # fmt: skip
    assert page.eval_on_selector_all("#one .step", "steps => steps.map(step => step.id)") == [
        "step-1", "step-2", "step-3"
    ]  # fmt: skip
    assert page.eval_on_selector_all("#one .chip", "chips => chips.map(chip => chip.tagName)") == ["BUTTON", "SPAN"]
    assert page.locator("#one .call pre").count() == 0
    page.click("#one button.chip")
    assert page.eval_on_selector_all("#one details", opened) == [True, True]
    assert page.evaluate("document.activeElement.id") == "step-2"
    assert page.eval_on_selector_all("#step-2 pre", "all => all.map(one => one.textContent)") == [
        '{"year": 2024}', "8.4%"
    ]  # fmt: skip
    page.click("#step-2 .citing")
    assert page.evaluate("document.activeElement.closest('tr').dataset.criterion") == "c2"
    (image,) = page.eval_on_selector_all("#one img", "all => all.map(image => image.naturalWidth)")
    assert image == 1
    assert "4. large.pdf, application/pdf, 300,000 bytes, SHA-256 abab" in page.inner_text(".files")
    assert "https://example.com/x.png" in page.inner_text(".files")
    assert page.evaluate("window.hacked") is None


def test_hostile_steps_and_files_stay_text(show: Callable[..., Any]) -> None:
    everything = " ".join(EVIL)
    call = {"name": everything, "arguments": {everything: everything}, "result": everything}
    hostile = [{"role": "assistant", "name": everything, "text": everything, "calls": [call]}]
    files = [{"mime_type": "image/png", "name": everything, "data": encoded(png())}]
    files += [{"mime_type": everything, "name": everything, "url": evil, "sha256": everything} for evil in EVIL]
    page = show(run_with(hostile, files))
    page.evaluate("location.hash = '#s0'")
    page.wait_for_selector("#one h2:text-is('s1')")
    page.click("#one summary")
    page.wait_for_selector("#one .call pre")
    elements = page.evaluate("[...document.querySelectorAll('#one *')].map(e => [e.tagName, ...e.getAttributeNames()])")
    plain = (
        "NAV A H2 H3 P DIV TABLE THEAD TBODY TR TH TD SPAN SMALL I B SELECT OPTION PRE OL UL LI DETAILS SUMMARY BUTTON "
        "IMG SECTION TFOOT INPUT BDI STRONG CODE BR"
    )
    assert {names[0] for names in elements} <= set(plain.split(" "))
    assert not [names for names in elements if any(name.startswith("on") for name in names[1:])]
    assert page.eval_on_selector_all("#one img", "all => all.map(image => image.src.slice(0, 22))") == [
        "data:image/png;base64,"
    ]
    assert not page.evaluate("[...document.links].some(link => !link.getAttribute('href').startsWith('#'))")
    shown = everything.replace("\u202e", "U+202E")
    assert page.eval_on_selector(".steps pre >> nth=1", "element => element.textContent") == shown
    assert page.eval_on_selector(".steps .author bdi", "element => element.textContent") == shown
    assert page.evaluate("window.hacked") is None


def test_page_permits_images_of_its_own_data_only() -> None:
    assert "img-src data:;" in report_page([FIRST])
