"""Prints the evidence that `test` collects about a rubric: mutations of its cases, and how far it separates answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted
from rubric_integrations.cli.console import err, figures_table, out, print_lines

if TYPE_CHECKING:
    from rubric_integrations.reporting.grades import JUnitReport
    from rubric_integrations.trust.answer_separation import SeparationReport
    from rubric_integrations.trust.cases import CaseReport
    from rubric_integrations.trust.criterion_probe import MutationReport


def print_mutations(report: MutationReport) -> None:
    """Print the flips of the mutants of each criterion, the faults, and how much the figures prove."""
    from rubric_integrations.trust.criterion_probe import COLUMNS

    table = figures_table("Mutations (flips/mutants)", COLUMNS, text=["criterion", "faults"])
    for cells, row in zip(report.table(), report.criteria.values(), strict=True):
        table.add_row(*map(plain, cells), style="red" if row.faults else None)
    out.print(table)
    lines: list[str] = []
    for name, row in report.criteria.items():
        lines += row.findings
        lines += [f"`{name}`: {text}" for text in row.untested]
        if row.left_out:
            lines.append(f"`{name}`: no mutants of {', '.join(row.left_out)}, which the judge answers otherwise")
        if row.failed:
            lines.append(f"`{name}`: the judge failed on {counted(row.failed, 'mutant')}: left out of the figures")
    print_lines([*lines, report.proof, f"{report.headline} {report.spend.summary()}, with the unchanged cases."])
    _print_stopped(report.stopped)


def print_separation(report: SeparationReport) -> None:
    """Print how far the rubric separates answers, next to length alone, and the answers to each criterion."""
    from rubric_integrations.trust.answer_separation import USE_COLUMNS

    separation = report.separation
    table = figures_table("Separation [95% intervals]", ["score", "pairs in the right order"], text=["score"])
    table.add_row("rubric", plain(separation.rubric.with_limits(2)))
    table.add_row("number of words alone", plain(separation.length.with_limits(2)))
    table.add_row("always the most frequent answer", "0.50")
    table.add_row("rubric minus words alone", plain(separation.over_length.with_limits(2, signed=True)))
    out.print(table)
    table = figures_table("Criteria on these answers", USE_COLUMNS, text=["criterion", "remarks"])
    for cells in report.table():
        table.add_row(*map(plain, cells))
    out.print(table)
    print_lines([*report.remarks, f"{report.headline} {counted(report.answers, 'answer')}, {report.spend.summary()}."])
    _print_stopped(report.stopped)


def _print_stopped(reason: str | None) -> None:
    if reason:
        err.print(plain(f"Stopped: {reason}."), style="red", soft_wrap=True)


def add_mutations(junit: JUnitReport, report: MutationReport) -> None:
    """Add a test for each criterion to a JUnit report, which fails if the criterion has a fault.

    It has an error if the judge failed on a mutant. If not all mutants were graded, there is one more error.
    """
    for name, row in report.criteria.items():
        if row.failed:
            message = f"the judge failed on {counted(row.failed, 'mutant')}"
            junit.add_test(f"mutations: {name}", message, "error", "not graded", "\n".join([message, *row.findings]))
        elif row.faults:
            details, kinds = "\n".join(row.findings), ", ".join(row.faults)
            junit.add_test(f"mutations: {name}", row.findings[0], "failure", kinds, details)
        elif any(each.criterion == name and each.flipped is not None for each in report.mutants):
            junit.add_test(f"mutations: {name}", "no fault")
    if report.stopped:
        junit.add_test("mutations", report.stopped, "error", "not graded", report.headline)


def add_separation(junit: JUnitReport, report: SeparationReport) -> None:
    """Add a test for the separation of answers to a JUnit report, which has an error if the judge failed on one."""
    if report.failed:
        message = report.stopped or f"the judge failed on {counted(report.failed, 'answer')}"
        junit.add_test("separation", message, "error", "not graded", report.headline)
    else:
        junit.add_test("separation", report.headline)


def to_json(report: CaseReport | MutationReport | SeparationReport) -> dict[str, Any]:
    """Return the fields of a report, with its headline."""
    fields = {name: getattr(report, name) for name in type(report).model_fields}
    return {**fields, "headline": report.headline}
