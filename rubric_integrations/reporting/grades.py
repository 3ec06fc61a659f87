"""Tables of grades for a terminal, and JUnit XML with one test case for each row of a run or case of a rubric.

Text from models and users is printed without markup and control characters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal
from xml.etree import ElementTree

from rich.table import Table
from rich.text import Text

from rubric_integrations._util.terminal import plain
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import describe_stop, expected_rows
from rubric_integrations.runs.summary import Graded, shortfall_text, unassessed_criteria, unmet_criteria
from rubric_integrations.scoring.report import CriterionReport

# XML 1.0 does not allow other characters, not even as references. A parser would refuse the complete file.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitReport:
    """Collects the rows of a run as test cases of a JUnit XML file.

    A row that passes is a passed test. A row that does not pass is a failure, and its text lists the criteria that are
    not met. A row without a grade, because its judge failed or there was nothing to grade, is an error. One more test
    case is an error if the run was given more rows than were added.

    Args:
        name: The name of the test suite, such as the name of the rubric.

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
        self._cases: list[tuple[float, ElementTree.Element]] = []
        self._marks: list[object] = []
        self._counts = {"failure": 0, "error": 0}

    def add(self, graded: Graded, place: int | None = None) -> None:
        """Add the next row.

        Args:
            graded: The row with its grade.
            place: The position of the row in the file. By default, the number of rows that were added before it.
        """
        message = shortfall_text(graded)
        if graded.report is None or graded.judge_error:
            self.add_test(graded.row.id, message, "error", "not graded", message, place)
        elif not graded.report.passed:
            self.add_test(graded.row.id, message, "failure", "not passed", _details(graded), place)
        else:
            self.add_test(graded.row.id, message, place=place)
        if graded.run or len(self._cases) == 1:
            self._marks.append(graded.run)

    def add_test(
        self,
        name: str,
        message: str,
        problem: Literal["failure", "error"] | None = None,
        kind: str = "",
        details: str = "",
        place: int | None = None,
    ) -> None:
        """Add one test case.

        Args:
            name: The name of the test case.
            message: The result in one line.
            problem: Whether the test failed, or had an error. None if it passed.
            kind: The kind of the problem.
            details: The text of the problem.
            place: The position of the test case. By default, the number of test cases that were added before it.
        """
        # The time of a row is not measured: rows are graded concurrently.
        case = ElementTree.Element("testcase", classname=self._name, name=_xml_text(name), time="0")
        if problem is None:
            ElementTree.SubElement(case, "system-out").text = _xml_text(message)
        else:
            self._add_child(case, problem, message, kind, details)
        self._cases.append((len(self._cases) if place is None else place, case))

    def to_xml(self, seconds: float, *, decided_early: bool = False) -> str:
        """Return the document as text.

        Args:
            seconds: The duration of the run in seconds.
            decided_early: Whether missing rows are no error, because the run needed no further rows (`stop_when`).
        """
        note = "" if decided_early else describe_stop(len(self._cases), expected_rows(self._marks))
        if note:
            case = ElementTree.Element("testcase", classname=self._name, name="all rows", time="0")
            self._add_child(case, "error", note, "not graded", note)
            self._cases.append((math.inf, case))
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
        ElementTree.SubElement(case, tag, message=_xml_text(message), type=kind).text = _xml_text(text)


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


_STYLES = {"MET": "green", "UNMET": "red", "CANNOT_ASSESS": "yellow", "NOT_APPLICABLE": "dim"}


def report_table(graded: Graded) -> Table:
    """Make a table for one submission, with the verdict, weight, requirement and reason of each criterion."""
    report = graded.report
    table = Table(title=plain(f"{graded.row.id}: {_headline(graded)}"), title_justify="left", title_style="bold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("weight", justify="right", no_wrap=True)
    table.add_column("requirement", ratio=3)
    table.add_column("reason", ratio=4)
    for row in report.criteria if report else ():
        table.add_row(
            _verdict(row),
            f"{row.weight:g}",
            plain(row.requirement, keeps_lines=True),
            plain(row.explanation, keeps_lines=True),
        )
    return table


def groups_table(graded: Graded, rubric: Rubric) -> Table:
    """Make a table for one submission with the value, in [0, 1], of each group of its rubric."""
    from rubric_integrations.rubric.rubric import node_values

    table = Table(title="Groups", title_justify="left", title_style="bold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("group")
    values = [row.value for row in graded.report.criteria] if graded.report else []
    for depth, node, value in node_values(rubric.tree or (), values):
        if node.children:
            table.add_row("-" if value is None else f"{value:.3f}", plain("  " * depth + node.requirement))
    return table


def tags_table(graded: Graded) -> Table:
    """Make a table for one submission with the score of each tag."""
    table = Table(title="Tags", title_justify="left", title_style="bold")
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("tag")
    for tag, score in (graded.report.tags if graded.report else {}).items():
        table.add_row("-" if score is None else f"{score:.3f}", plain(tag))
    return table


def ranking_table(results: Sequence[Graded]) -> Table:
    """Make a table of all submissions, ordered by score with the best first. Submissions without a score come last."""
    table = Table(title="Ranking", title_justify="left", title_style="bold")
    for column in ("", "id", "score", "passed", "coverage", "abstained", "failed"):
        table.add_column(column, justify="left" if column in ("id", "passed") else "right")
    for place, graded in enumerate(sorted(results, key=_rank), start=1):
        report = graded.report
        if report is None:
            table.add_row("-", plain(graded.row.id), "-", plain(graded.row.error or ""))
            continue
        # The partial report of a row whose judge failed is not a grade, whatever its `passed` is.
        if graded.judge_error:
            passed = Text("-")
        else:
            passed = Text("yes", style="green") if report.passed else Text("no", style="red")
        table.add_row(
            str(place), plain(graded.row.id), _score(graded), passed, f"{report.coverage:.0%}",
            str(report.cannot_assess_count), str(report.failed_count),
        )  # fmt: skip
    return table


def _rank(graded: Graded) -> tuple[bool, float, str]:
    score = None if graded.judge_error or graded.report is None else graded.report.score
    return (score is None, -(score or 0.0), graded.row.id)


def _score(graded: Graded) -> str:
    if graded.report is None or graded.judge_error:
        return "failed" if graded.judge_error else "-"
    if graded.report.score_range:
        low, high = graded.report.score_range
        return f"{'undefined' if low is None else f'{low:.3f}'}..{high:.3f}"
    return "undefined" if graded.report.score is None else f"{graded.report.score:.3f}"


def _headline(graded: Graded) -> str:
    report = graded.report
    if report is None:
        return graded.row.error or ""
    if graded.judge_error:
        return "not graded, since " + graded.judge_error
    verdict = "passed" if report.passed else "not passed"
    unmet = [row.name for row in report.criteria if row.required and not row.passed]
    reasons = [f"required: {', '.join(unmet)}" if unmet else "", report.missing_text]
    gate = f" ({'; '.join(filter(None, reasons))})" if any(reasons) else ""
    omitted = report.omitted_characters
    cut = f", {omitted:,} characters of tool results omitted" if omitted else ""
    explored = f", judged by {report.exploration.summary()}" if report.exploration is not None else ""
    return f"{_score(graded)}, {verdict}{gate}{cut}{explored}"


def _verdict(row: CriterionReport) -> Text:
    if not row.was_asked:
        return Text("not asked", style="dim")
    if row.verdict is None:
        return Text("FAILED", style="bold magenta")
    # The colour of a penalty shows its effect, because MET costs points.
    effect = row.verdict if row.weight >= 0 else {"MET": "UNMET", "UNMET": "MET"}.get(row.verdict, row.verdict)
    return Text(row.verdict + (" (fallback)" if row.error else ""), style=_STYLES.get(effect, ""))
