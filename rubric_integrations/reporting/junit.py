"""A run as JUnit XML, which continuous integration shows as tests: one test case per row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from rubric_integrations.reporting.shortfall import shortfall_text, unassessed_criteria, unmet_criteria

if TYPE_CHECKING:
    from rubric_integrations.results.criterion_report import CriterionReport
    from rubric_integrations.runs.summary import Graded

# XML 1.0 has no other characters, not even as references, so that a parser would refuse the whole file.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitReport:
    """Collects the rows of a run as test cases.

    A row that passes is a test that passes. One that does not pass is a failure, whose text lists the criteria that are
    not met. One without a grade, because its judge failed or it had nothing to grade, is an error.

    Args:
        name: The name of the suite, such as the rubric's.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric, grade_many
        >>> rubric = Rubric([{"name": "answer", "requirement": "States 42", "check": {"number": 42}}])
        >>> junit = JUnitReport("arithmetic")
        >>> for graded in grade_many(["It is 42."], rubric, PerCriterionGrader("offline")):
        ...     junit.add(graded)
        >>> 'tests="1" failures="0" errors="0"' in junit.to_xml(seconds=0.5)
        True
    """

    def __init__(self, name: str):
        self._name = _xml_text(name)
        self._cases: list[tuple[int, ElementTree.Element]] = []
        self._counts = {"failure": 0, "error": 0}

    def add(self, graded: Graded, place: int | None = None) -> None:
        """Add the next row.

        Args:
            graded: The row with its grade.
            place: A number by which the rows are sorted; by default, how many came before it.
        """
        # The time of a row is not measured: rows are graded concurrently.
        case = ElementTree.Element("testcase", classname=self._name, name=_xml_text(graded.row.id), time="0")
        message = _xml_text(shortfall_text(graded))
        if graded.report is None or graded.judge_error:
            self._add_child(case, "error", message, "not graded", message)
        elif not graded.report.passed:
            self._add_child(case, "failure", message, "not passed", _xml_text(_details(graded)))
        else:
            ElementTree.SubElement(case, "system-out").text = message
        self._cases.append((len(self._cases) if place is None else place, case))

    def to_xml(self, seconds: float) -> str:
        """Return the document.

        Args:
            seconds: How long the run took.
        """
        counts = {
            "name": self._name,
            "tests": str(len(self._cases)),
            "failures": str(self._counts["failure"]),
            "errors": str(self._counts["error"]),
            "time": f"{seconds:.3f}",
        }
        root = ElementTree.Element("testsuites", counts)
        cases = sorted(self._cases, key=lambda entry: entry[0])
        ElementTree.SubElement(root, "testsuite", counts).extend(case for _, case in cases)
        ElementTree.indent(root)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"

    def _add_child(self, case: ElementTree.Element, tag: str, message: str, kind: str, text: str) -> None:
        self._counts[tag] += 1
        ElementTree.SubElement(case, tag, message=message, type=kind).text = text


def _details(graded: Graded) -> str:
    """Describe each criterion that is not met or not assessed in one line, with the judge's reason."""
    unmet = unmet_criteria(graded)
    rows = [*unmet, *(row for row in unassessed_criteria(graded) if row not in unmet)]
    lines = [_line(row) for row in rows]
    if graded.report and graded.report.reason:
        lines.append(graded.report.reason)
    return "\n".join(lines)


def _line(row: CriterionReport) -> str:
    required = ", required" if row.required else ""
    reason = row.explanation
    line = f"{row.verdict or 'FAILED'} {row.name} (weight {row.weight:g}{required}): {row.requirement}"
    return f"{line}: {reason}" if reason else line


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
