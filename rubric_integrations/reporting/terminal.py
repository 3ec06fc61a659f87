"""Tables of grades for a terminal. Text from models and users is printed without markup and control characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from rubric_integrations._util.terminal import plain

if TYPE_CHECKING:
    from rubric_integrations.results.criterion_report import CriterionReport
    from rubric_integrations.rubric.rubric import Rubric
    from rubric_integrations.runs.summary import Graded

_STYLES = {"MET": "green", "UNMET": "red", "CANNOT_ASSESS": "yellow", "NOT_APPLICABLE": "dim"}


def report_table(graded: Graded) -> Table:
    """Build the table of one submission: one row per criterion with verdict, weight, requirement and reason."""
    report = graded.report
    table = Table(title=plain(f"{graded.row.id}: {_headline(graded)}"), title_justify="left", title_style="bold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("weight", justify="right", no_wrap=True)
    table.add_column("requirement", ratio=3)
    table.add_column("reason", ratio=4)
    for row in report.criteria if report else ():
        table.add_row(_verdict(row), f"{row.weight:g}", plain(row.requirement), plain(row.explanation))
    return table


def groups_table(graded: Graded, rubric: Rubric) -> Table:
    """Build the table of the values, in [0, 1], of each group of a rubric with a tree, for one submission."""
    from rubric_integrations.rubric.tree import node_values

    table = Table(title="Groups", title_justify="left", title_style="bold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("group")
    values = [row.value for row in graded.report.criteria] if graded.report else []
    for depth, node, value in node_values(rubric.tree or (), values):
        if node.children:
            table.add_row("-" if value is None else f"{value:.3f}", plain("  " * depth + node.requirement))
    return table


def tags_table(graded: Graded) -> Table:
    """Build the table of the scores of the tags for one submission."""
    table = Table(title="Tags", title_justify="left", title_style="bold")
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("tag")
    for tag, score in (graded.report.tags if graded.report else {}).items():
        table.add_row("-" if score is None else f"{score:.3f}", plain(tag))
    return table


def ranking_table(results: Sequence[Graded]) -> Table:
    """Build the table of all submissions, the best first; those without a score come last."""
    table = Table(title="Ranking", title_justify="left", title_style="bold")
    for column in ("", "id", "score", "passed", "coverage", "abstained", "failed"):
        table.add_column(column, justify="left" if column in ("id", "passed") else "right")
    for place, graded in enumerate(sorted(results, key=_rank), start=1):
        report = graded.report
        if report is None:
            table.add_row("-", plain(graded.row.id), "-", plain(graded.row.error or ""))
            continue
        # The partial report of a row whose judge failed is no grade, whatever its `passed` says.
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
    gate = f" (required: {', '.join(unmet)})" if unmet else ""
    omitted = report.omitted_characters
    cut = f", {omitted:,} characters of tool results omitted" if omitted else ""
    return f"{_score(graded)}, {verdict}{gate}{cut}"


def _verdict(row: CriterionReport) -> Text:
    if not row.was_asked:
        return Text("not requested", style="dim")
    if row.verdict is None:
        return Text("FAILED", style="bold magenta")
    # A penalty is coloured by its effect: MET costs points.
    effect = row.verdict if row.weight >= 0 else {"MET": "UNMET", "UNMET": "MET"}.get(row.verdict, row.verdict)
    return Text(row.verdict + (" (fallback)" if row.error else ""), style=_STYLES.get(effect, ""))
