"""JUnit XML as continuous integration reads it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.commands import RUBRIC, grade, run
from tests.openai_server import Call, OpenAIServer, Reply


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    (tmp_path / "responses.jsonl").write_text('{"id": "a", "response": "42"}\n{"response": "41"}\n')
    return tmp_path


def read_suite(path: Path) -> ElementTree.Element:
    """Read the file's one suite, and check what Jenkins' and GitLab's schemas demand of it."""
    root = ElementTree.parse(path).getroot()
    assert path.read_text(encoding="utf-8").startswith("<?xml version")
    assert root.tag == "testsuites"
    [suite] = root
    cases = suite.findall("testcase")
    for element in (root, suite):
        assert element.get("name")
        assert int(element.get("tests", "")) == len(cases)
        assert int(element.get("failures", "")) == len(suite.findall("testcase/failure"))
        assert int(element.get("errors", "")) == len(suite.findall("testcase/error"))
        assert float(element.get("time", "")) >= 0
    for case in cases:
        assert {"name", "classname", "time"} <= set(case.keys())
        assert {child.tag for child in case} <= {"failure", "error", "system-out"}
        assert len(case.findall("failure") + case.findall("error")) <= 1
        for child in case:
            assert child.tag == "system-out" or (child.get("message") and child.get("type"))
    return suite


def test_junit_has_a_test_case_for_each_row(files: Path, server: OpenAIServer) -> None:
    (files / "rubric.yaml").write_text(
        "name: arithmetic\ncriteria:\n"
        "- {name: answer, weight: 3, requirement: Says 42, check: {number: 42}, required: true}\n"
        "- {name: rude, weight: -1, requirement: Is rude}\n"
    )
    rows = ['{"id": "a", "response": "42"}', '{"id": "b", "response": "41"}', '{"id": "c", "response": "fail 42"}']
    (files / "responses.jsonl").write_text("\n".join([*rows, '{"id": "d", "response": ""}']))

    def script(call: Call) -> Reply:
        return Reply("MET" if "\n41\n" in call.prompt else "UNMET", "nonsense" if "fail 42" in call.prompt else None)

    server.script = script
    options = ("--judge", "openai/mock", "--api-base", server.url, "--max-retries", 0)
    result = grade(files, *options, "--junit", files / "junit.xml")
    assert result.exit_code == 3
    suite = read_suite(files / "junit.xml")
    assert suite.get("name") == "arithmetic"
    a, b, c, d = suite.findall("testcase")
    assert [case.get("name") for case in (a, b, c, d)] == ["a", "b", "c", "d"]
    assert a.find("failure") is None
    failure = b.find("failure")
    assert failure is not None
    assert failure.get("message") == "score 0.000; not met: answer, rude"
    assert "UNMET answer (weight 3, required): Says 42" in (failure.text or "")
    assert "MET rude (weight -1): Is rude" in (failure.text or "")
    error = c.find("error")
    assert error is not None
    assert "`rude` was not judged" in (error.get("message") or "")
    error = d.find("error")
    assert error is not None
    assert "is empty" in (error.get("message") or "")


def test_junit_with_characters_that_xml_does_not_have_is_well_formed(files: Path) -> None:
    (files / "responses.jsonl").write_text('{"id": "<a> \\u0000 \\u001b \\ud800 & \\uffff é", "response": "41"}\n')
    assert grade(files, "--junit", files / "junit.xml").exit_code == 0
    [case] = read_suite(files / "junit.xml").findall("testcase")
    assert case.get("name") == "<a> \ufffd \ufffd \ufffd & \ufffd é"


def test_junit_equal_to_an_input_or_another_output_is_refused(files: Path) -> None:
    content = (files / "responses.jsonl").read_bytes()
    assert grade(files, "--junit", files / "responses.jsonl").exit_code == 2
    assert (files / "responses.jsonl").read_bytes() == content
    assert grade(files, "--junit", files / "x", "--out", files / "x").exit_code == 2


def test_junit_that_cannot_be_written_is_refused_before_a_call(files: Path, server: OpenAIServer) -> None:
    options = ("--judge", "openai/mock", "--api-base", server.url, "--junit", files / "no" / "junit.xml")
    result = grade(files, *options)
    assert (result.exit_code, "cannot be written" in result.stderr, len(server.calls)) == (2, True, 0)


def test_junit_of_a_holistic_grade_has_the_judges_reason(files: Path, server: OpenAIServer) -> None:
    server.script = lambda _call: Reply(text='{"explanation": "Too curt.", "overall_score": 10}')
    options = ("--judge", "openai/mock", "--api-base", server.url, "--strategy", "holistic")
    result = run("grade", files / "rubric.yaml", files / "responses.jsonl", *options, "--junit", files / "junit.xml")
    assert result.exit_code == 0, result.output
    failure = read_suite(files / "junit.xml").find("testcase/failure")
    assert failure is not None
    assert "Too curt." in (failure.text or "")
